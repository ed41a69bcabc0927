"""Runs of Kafka's protocol: an abort uses up their sequences, and only theirs."""

from __future__ import annotations

from typing import Any

import crc32c
import pytest

from cluster.dedup.verdict import BatchMeta, Formats
from cluster.entries import KAFKA_V2
from cluster.features import FEATURES, Finalized
from cluster.partition.types import Answer, AppendRequest, Policy
from cluster.transactions.types import Marker
from tests.unit.partition.test_staging import Leader

PID = 7
WRAP = 1 << 31


class KafkaLeader(Leader):
    """A leader of a topic for both protocols. Producer 7 comes by Kafka's."""

    def __init__(self) -> None:
        super().__init__(Finalized(3, frozenset(FEATURES)))
        self.part.alter(Policy(formats=Formats.BOTH))

    def kafka(
        self, first: int, count: int, number: int, epoch: int = 0, pid: int = PID
    ) -> list[Answer]:
        """Sends a batch with its client's sequence; returns a list that gets the answer."""
        payload = b"%d/%d" % (first, count)
        meta = BatchMeta(
            pid, epoch, first, first + count - 1, first - 1, count, crc32c.crc32c(payload), -1, True
        )
        answers: list[Answer] = []
        if number:
            self.part.registered(number)
        self.part.append(AppendRequest(meta, KAFKA_V2, number, 1, payload), answers.append)
        return answers

    def take(self, *batch: int, **of: int) -> tuple[str, int]:
        answers = self.kafka(*batch, **of)
        self.log.commit()
        (answer,) = answers
        return answer.verdict.kind.name, answer.verdict.base_offset

    def finish(self, number: int, runs: dict[int, tuple[int, int]] | None = None) -> None:
        """Ends a transaction: commits the runs (records, last), or aborts."""
        found = self.part.confirm_runs(number, runs, only_winners=False) if runs else {}
        assert isinstance(found, dict), found
        outcomes: list[Any] = []
        marker = Marker(number, bool(runs), tuple(found.values()), 0, 1)
        self.part.mark(marker, outcomes.append)
        self.log.commit()
        assert outcomes
        saved = self.part.dump()
        assert b"".join(self.again(saved).pieces()) == saved

    def again(self, saved: bytes) -> Any:
        machine = Leader(Finalized(3, frozenset(FEATURES))).part.machine
        machine.restore(machine.load(saved))
        return machine


@pytest.fixture
def leader() -> KafkaLeader:
    return KafkaLeader()


def test_an_abort_uses_up_the_sequences(leader: KafkaLeader) -> None:
    assert leader.take(0, 3, 1) == ("STAGED", 0)
    assert leader.take(3, 2, 1) == ("STAGED", 3)
    leader.finish(1)
    assert leader.take(0, 3, 2)[0] == "OUT_OF_ORDER"
    assert leader.take(4, 2, 2)[0] == "OUT_OF_ORDER"
    assert leader.take(5, 2, 2) == ("STAGED", 0)
    leader.finish(2, {PID: (2, 6)})
    assert leader.part.high_watermark == 2
    assert leader.take(5, 2, 2) == ("DUPLICATE", 0)
    assert leader.take(7, 1, 3) == ("STAGED", 0)


def test_aborts_before_the_first_record_and_behind_others(leader: KafkaLeader) -> None:
    """The partition's next offset is 0, then 1: no chain may begin below its last offset."""
    for number in (1, 2):
        assert leader.take(2 * number - 2, 2, number) == ("STAGED", 0)
        leader.finish(number)
    assert leader.put(0, 0, 0, producer_id=9) == "APPENDED"
    assert leader.take(4, 2, 3) == ("STAGED", 0)
    leader.finish(3)
    for number, first in ((4, 6), (5, 7)):
        assert leader.take(first, 1, number) == ("STAGED", 0)
        leader.finish(number, {PID: (1, first)})
    assert leader.part.high_watermark == 3
    known = leader.part.last_seen.known(PID)
    assert known is not None
    assert [batch[:3] for batch in known.recent] == [(6, 6, 1), (7, 7, 2)]


def test_an_abort_behind_a_commit_forgets_its_window(leader: KafkaLeader) -> None:
    assert leader.take(0, 2, 1) == ("STAGED", 0)
    leader.finish(1, {PID: (2, 1)})
    assert leader.take(2, 2, 2) == ("STAGED", 0)
    leader.finish(2)
    # A late copy, which its sender no longer waits for, is no batch of the next transaction.
    for late in (0, 2):
        assert leader.take(late, 2, 3)[0] == "OUT_OF_ORDER"
    assert leader.take(4, 2, 3) == ("STAGED", 0)
    assert leader.take(2, 2, 3)[0] == "OUT_OF_ORDER"


def test_a_new_epoch_begins_at_0_behind_an_abort(leader: KafkaLeader) -> None:
    assert leader.take(0, 2, 1) == ("STAGED", 0)
    leader.finish(1)
    assert leader.take(2, 2, 2, epoch=1)[0] == "OUT_OF_ORDER"
    assert leader.take(0, 2, 2, epoch=1) == ("STAGED", 0)
    leader.finish(2)
    assert leader.take(2, 2, 3)[0] == "FENCED"
    assert leader.take(2, 2, 3, epoch=1) == ("STAGED", 0)


def test_a_successor_that_has_opened_keeps_its_chain(leader: KafkaLeader) -> None:
    assert leader.take(0, 2, 1) == ("STAGED", 0)
    opened = leader.open(1)
    leader.finish(1)
    assert [one.verdict.kind.name for one in opened] == ["APPENDED"]
    assert leader.take(2, 2, 2, epoch=1)[0] == "OUT_OF_ORDER"
    assert leader.take(0, 2, 2, epoch=1) == ("STAGED", 0)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_commit_publishes_runs_whole(leader: KafkaLeader, is_named: bool) -> None:
    """A delayed call may have decided it while batches were still acknowledged."""
    assert leader.take(0, 2, 1) == ("STAGED", 0)
    found = leader.part.confirm_runs(1, {PID: (2, 1)}, only_winners=False)
    assert isinstance(found, dict)
    assert leader.take(2, 3, 1) == ("STAGED", 2)
    decided = tuple(found.values()) if is_named else ()
    leader.part.mark(Marker(1, True, decided, 0, 1), lambda outcome: None)
    leader.log.commit()
    assert leader.part.high_watermark == 5
    saved = leader.part.dump()
    assert b"".join(leader.again(saved).pieces()) == saved
    assert leader.take(2, 3, 1) == ("DUPLICATE", 2)
    assert leader.take(5, 1, 1)[0] == "TRANSACTION_ENDED"
    assert leader.take(5, 1, 2) == ("STAGED", 0)


def test_a_commit_names_the_runs_of_other_clients(leader: KafkaLeader) -> None:
    """A sink's losers go, whatever protocol its topic takes beside."""
    leader.part.registered(1)
    assert leader.put(0, 1, 1, producer_id=9) == "STAGED"
    assert leader.put(0, 0, 1, producer_id=8) == "STAGED"
    found = leader.part.confirm_runs(1, {9: (2, 1)}, only_winners=True)
    assert isinstance(found, dict)
    leader.part.mark(Marker(1, True, tuple(found.values()), 0, 1), lambda outcome: None)
    leader.log.commit()
    assert leader.part.high_watermark == 2


def test_other_clients_send_their_sequences_again(leader: KafkaLeader) -> None:
    leader.part.registered(1)
    assert leader.put(0, 1, 1, producer_id=9) == "STAGED"
    leader.finish(1)
    leader.part.registered(2)
    assert leader.put(2, 3, 2, producer_id=9) == "UNKNOWN_PRODUCER"
    assert leader.put(0, 1, 2, producer_id=9) == "STAGED"


def test_a_run_has_batches_of_one_protocol(leader: KafkaLeader) -> None:
    assert leader.take(0, 2, 1) == ("STAGED", 0)
    assert leader.put(2, 3, 1) == "INVALID_BATCH"
    leader.part.registered(2)
    assert leader.put(0, 1, 2, producer_id=9) == "STAGED"
    assert leader.take(2, 2, 2, pid=9)[0] == "INVALID_BATCH"


def test_sequences_in_flight_and_staged_place_the_next(leader: KafkaLeader) -> None:
    """A run and its batches in flight cross the wrap."""
    half = WRAP // 2
    sent = [leader.kafka(0, half, 1), leader.kafka(half, half - 1, 1), leader.kafka(WRAP - 1, 1, 1)]
    leader.log.commit()
    sent += [leader.kafka(0, 5, 1), leader.kafka(5, 5, 1)]
    again = [leader.kafka(WRAP - 1, 1, 1), leader.kafka(0, 5, 1)]
    leader.log.commit()
    assert [one[0].verdict.kind.name for one in sent] == ["STAGED"] * 5
    assert [one[0].verdict.kind.name for one in again] == ["STAGED_DUPLICATE"] * 2
    leader.finish(1)
    assert leader.take(10, 5, 2) == ("STAGED", 0)
    run = leader.part.machine.runs.run_of(PID)
    assert run is not None and run.first == WRAP + 10
