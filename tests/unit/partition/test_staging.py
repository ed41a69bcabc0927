"""A leader's staged batches: questions, pipelining, joins, refusals, and the answer to an open."""

from __future__ import annotations

from typing import Any

import crc32c
import pytest

from cluster.consensus.proposals import Abandoned, Applied, Done
from cluster.dedup.verdict import BatchMeta, OffsetRule
from cluster.features import Features, Finalized
from cluster.partition.group_offsets import pack_command
from cluster.partition.replica import Partition, Policy
from cluster.partition.types import Answer, AppendRequest, NodeView
from cluster.transactions.runs import Marked
from cluster.transactions.types import Expected, Marker
from cluster.v1 import offsets_pb2 as pb
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk
from tests.unit.services.log_rig import GROUP, OneLog

T = 5
AGREED = Finalized(2, frozenset({"transactions"}))


class SlowLog(OneLog):
    """Each proposal waits until it is committed, or lost."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.pending: list[tuple[bytes | None, Done]] = []

    def propose(self, data: bytes, done: Any, *, outlives_term: bool = False) -> None:
        self.pending.append((data, done))

    def confirm(self, done: Any) -> None:
        self.pending.append((None, done))

    def commit(self) -> None:
        while self.pending:
            data, done = self.pending.pop(0)
            if data is None:
                done(Applied(len(self.entries), None))
            else:
                super().propose(data, done)

    def lose(self) -> None:
        pending, self.pending = self.pending, []
        for _, done in pending:
            done(Abandoned(2, "deposed"))


class Leader:
    """A partition that leads, with the gate open."""

    def __init__(self, agreed: Finalized = AGREED) -> None:
        disk = Disk()
        self.log, self.full = SlowLog(disk), False
        view = NodeView(
            lambda: 1000, lambda: None, lambda: self.full, lambda: True, Features(lambda: agreed)
        )
        self.part = Partition("t", 0, OffsetIndex(disk, GROUP), Policy(), view, self.log.open)
        self.lead()

    def lead(self) -> None:
        self.part.on_role(leader=True, ready=True, term=1)

    def send(self, first: int, last: int, number: int = T, *, more: int = 0, **fields: Any) -> Any:
        """A list that gets the answer."""
        payload = b"%d..%d/%d" % (first, last, more)
        meta = BatchMeta(7, 0, first, last, first - 1, last - first + 1, crc32c.crc32c(payload))
        request = AppendRequest(meta._replace(**fields), 0, number, 1, payload)
        answers: list[Answer] = []
        self.part.append(request, answers.append)
        return answers

    def put(self, first: int, last: int, number: int = T, **fields: Any) -> str:
        answers = self.send(first, last, number, **fields)
        self.log.commit()
        (answer,) = answers
        return str(answer.verdict.kind.name)

    def open(self, epoch: int) -> list[Answer]:
        answers: list[Answer] = []
        self.part.open_producer(7, epoch, answers.append)
        self.log.commit()
        return answers

    def end(self, *runs: tuple[int, int]) -> Any:
        asked = {7: runs[0]} if runs else {}
        found = self.part.confirm_runs(T, asked, only_winners=False) if runs else {}
        assert isinstance(found, dict), found
        outcomes: list[Any] = []
        marker = Marker(T, bool(runs), tuple(found.values()), 0, 1)
        self.part.mark(marker, outcomes.append)
        return outcomes


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    leader.part.registered(T)
    return leader


def test_nothing_is_staged_while_the_feature_is_off() -> None:
    leader = Leader(Finalized(2))
    leader.part.registered(T)
    (answer,) = leader.send(0, 1)
    assert answer.verdict.message == "transaction_id: not supported yet, use 0"
    assert not leader.log.pending


def test_an_unknown_transaction_is_asked_for_first() -> None:
    leader = Leader()
    assert leader.put(0, 1) == "UNREGISTERED" and not leader.log.entries
    leader.part.registered(T)
    assert leader.put(0, 1) == "STAGED"
    leader.lead()  # again: a transaction with a run here was registered
    assert leader.put(2, 3) == "STAGED"


def test_batches_are_pipelined_and_repeats_join(leader: Leader) -> None:
    answers = [leader.send(first, first + 1) for first in (0, 2, 4)]
    again = leader.send(2, 3)
    conflict = leader.send(2, 3, more=1)
    gap = leader.send(8, 9)
    assert not any(answers)
    leader.log.commit()
    assert [a[0].verdict[:2] for a in answers] == [(3, 0), (3, 2), (3, 4)]
    assert again[0].verdict.kind.name == "STAGED_DUPLICATE" and again[0].verdict.base_offset == 2
    assert conflict[0].verdict.kind.name == "SEQUENCE_CONFLICT"
    assert gap[0].verdict.kind.name == "OUT_OF_ORDER"
    assert len(leader.log.entries) == 3


def test_a_commit_publishes_and_the_chain_goes_on(leader: Leader) -> None:
    leader.put(0, 1)
    outcomes = leader.end((2, 1))
    behind = leader.send(2, 3)  # proposed behind the marker
    leader.log.commit()
    assert isinstance(outcomes[0].result, Marked) and leader.part.high_watermark == 2
    assert behind[0].verdict.kind.name == "TRANSACTION_ENDED"
    assert leader.put(2, 3, 0) == "APPENDED"
    assert leader.put(0, 1) == "DUPLICATE"
    repeated = leader.end()
    leader.log.commit()
    assert repeated[0].result.repeated and repeated[0].result.ended.committed


def test_plain_and_staged_batches_do_not_overtake_each_other(leader: Leader) -> None:
    staged, plain = leader.send(0, 1), leader.send(0, 1, 0)
    leader.log.commit()
    assert staged[0].verdict.kind.name == "STAGED"
    assert plain[0].verdict.kind.name == "TRANSACTION_CONFLICT"
    leader.end()
    leader.log.commit()
    leader.part.registered(6)
    plain, staged = leader.send(0, 1, 0), leader.send(2, 3, 6)
    leader.log.commit()
    assert plain[0].verdict.kind.name == "APPENDED"
    assert staged[0].verdict.kind.name == "NOT_READY"
    assert leader.put(2, 3, 6) == "STAGED"


def test_an_offset_is_expected_behind_what_a_marker_published(leader: Leader) -> None:
    leader.put(0, 1)
    leader.end((2, 1))
    leader.log.commit()
    assert leader.put(2, 2, 0, expected_offset=2) == "APPENDED"


def test_a_lost_leadership_is_told(leader: Leader) -> None:
    answers, outcomes = leader.send(0, 1), leader.end()
    leader.log.lose()
    leader.part.on_role(leader=False, ready=False, term=2)
    assert answers[0].verdict.kind.name == "NOT_LEADER"
    assert isinstance(outcomes[0], Abandoned)


@pytest.mark.parametrize("runs", [(), ((2, 1),)], ids=["aborted", "committed"])
def test_an_open_is_answered_after_the_marker(leader: Leader, runs: Any) -> None:
    leader.put(0, 1)
    answers = leader.open(1)
    assert not answers
    leader.end(*runs)
    leader.log.commit()
    assert answers[0].verdict.last_sequence == (1 if runs else -1)
    assert leader.put(2, 3, 0) == "FENCED"


def test_an_open_that_waits_is_answered_when_the_leader_goes(leader: Leader) -> None:
    leader.put(0, 1)
    answers = leader.open(1)
    leader.part.on_role(leader=False, ready=False, term=2)
    assert answers[0].verdict.kind.name == "NOT_LEADER"


def test_a_full_disk_refuses_batches_and_lets_markers_through(leader: Leader) -> None:
    leader.put(0, 1)
    leader.full = True
    assert leader.send(2, 3)[0].verdict.kind.name == "STORAGE_FULL"
    outcomes = leader.end((2, 1))
    leader.log.commit()
    assert isinstance(outcomes[0], Applied) and leader.part.high_watermark == 2


def stage_offset(number: int, offset: int = 5) -> bytes:
    record = pb.OffsetRecord(topic="in", topic_id=1, offset=offset)
    call = pb.StageOffsets(transaction_id=T, group="g", offsets=[record], number=number)
    return pack_command(pb.OffsetsCommand(stage=call))


def test_offsets_are_staged_as_batches_are(leader: Leader) -> None:
    """Registered first, refused on a full disk, stored by the marker, which is not."""
    outcomes: list[Any] = []
    fresh = Leader()
    unregistered = fresh.part.stage_offsets(T, stage_offset(1), outcomes.append)
    assert unregistered is not None and unregistered.verdict.kind.name == "UNREGISTERED"
    assert leader.part.stage_offsets(T, stage_offset(1), outcomes.append) is None
    leader.log.commit()
    leader.lead()  # again: a transaction with offsets here was registered
    assert leader.part.stage_offsets(T, stage_offset(2), outcomes.append) is None
    leader.log.commit()
    assert [one.result.error for one in outcomes] == ["", ""]
    leader.full = True
    refused = leader.part.stage_offsets(T, stage_offset(3), outcomes.append)
    assert refused is not None and refused.verdict.kind.name == "STORAGE_FULL"
    confirm = leader.part.confirm_runs
    assert confirm(T, {}, offsets={"g": (2, 2)}, only_winners=False) == {}
    assert "the commit says" in str(confirm(T, {}, only_winners=False))
    assert "the commit says" in str(confirm(T, {}, offsets={"g": (1, 2)}, only_winners=False))
    marker = Marker(T, True, (Expected(0, 7, 2, 2, consumer_group="g"),), 0, 1)
    leader.part.mark(marker, outcomes.append)
    leader.log.commit()
    stored = leader.part.group_offsets.group("g")
    assert stored is not None and [state.offset for _, state in stored.items()] == [5]
    assert not list(leader.part.group_offsets.staged.transactions())


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"producer_id": 0}, "producer_id"),
        ({"expected_offset": 3}, "expected_offset"),
    ],
)
def test_what_a_transaction_cannot_have(leader: Leader, fields: Any, text: str) -> None:
    (answer,) = leader.send(0, 1, **fields)
    assert answer.verdict.kind.name == "INVALID_BATCH" and text in answer.verdict.message


def test_a_topic_that_requires_offsets_takes_no_transaction(leader: Leader) -> None:
    leader.part.alter(Policy(expected_offsets=OffsetRule.REQUIRED))
    (answer,) = leader.send(0, 1)
    assert answer.verdict.kind.name == "INVALID_BATCH" and "requires" in answer.verdict.message


def test_the_size_of_a_run_is_limited(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert leader.part._leadership is not None
    monkeypatch.setattr(leader.part._leadership.staging, "_max_bytes", 110)
    assert leader.put(0, 1) == "STAGED"
    (answer,) = leader.send(2, 999_999_999)
    assert answer.verdict.kind.name == "BATCH_TOO_LARGE" and "max 110" in answer.verdict.message


def test_what_a_commit_names_is_compared(leader: Leader) -> None:
    leader.put(0, 1)
    confirm = leader.part.confirm_runs
    assert isinstance(confirm(T, {7: (2, 1)}, only_winners=False), dict)
    for asked in ({7: (4, 3)}, {7: (1, 0)}, {8: (2, 1), 7: (2, 1)}, {}):
        assert isinstance(confirm(T, asked, only_winners=False), str), asked
    assert confirm(T, {}, only_winners=True) == {}
    leader.part.on_role(leader=False, ready=False, term=2)
    assert confirm(T, {7: (2, 1)}, only_winners=False) is None
