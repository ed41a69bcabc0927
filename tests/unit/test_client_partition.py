"""The client's rules for one partition: order, retries, verdicts, resets, timeouts.

A small model of a partition (`Log`, with the verdict table as far as the client can tell)
answers the real accumulator and the real window; time and faults are the tests'.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from oncelog import errors
from oncelog._engine.accumulator import Accumulator, OpenBatch
from oncelog._engine.backoff import Backoff
from oncelog._engine.futures import RecordFuture
from oncelog._engine.partition import PartitionSender, Reaction, Stats
from oncelog._engine.sealing import Identity, SealedBatch
from oncelog.types import TopicPartition
from oncelog.v1 import batch_pb2, log_pb2
from oncelog.wire.batch import decode_payload

TP = TopicPartition("t", 0)
V = log_pb2
FOREVER = float("inf")
Sent = tuple[SealedBatch, int]


def identity(pid: int, epoch: int = 0, serial: int = 1, expire_at: float = FOREVER) -> Identity:
    return Identity(pid, epoch, serial, expire_at, expire_at)


class Rig:
    """A partition's sender with its accumulator; batches of one record unless told."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        leased: bool = True,
        max_in_flight: int = 5,
        retries: int = 1000,
        delivery_timeout_s: float = 100.0,
        batch_size: int = 200,
        start: int = -1,
    ) -> None:
        self.now = 0.0
        self.stats = Stats()
        self.settled: list[OpenBatch] = []
        self.accumulator = Accumulator(
            batch_size=batch_size,
            buffer_memory=1_000_000,
            linger_s=0.0,
            max_block_s=0.0,
            delivery_timeout_s=delivery_timeout_s,
            clock=lambda: self.now,
            wake=lambda: None,
        )
        self.sender = PartitionSender(
            TP,
            self.accumulator,
            idempotent=idempotent,
            leased=leased,
            max_in_flight=max_in_flight,
            retries=retries,
            codec=0,
            level=None,
            backoff=Backoff(0.1, 1.0, random.Random(1)),
            stats=self.stats,
            on_settled=self._on_settled,
        )
        self.shared = identity(7) if idempotent else None
        if self.shared is not None:
            assert self.sender.needs_identity(self.now, self.shared)
            self.sender.adopt(self.shared, start)
        self.attempts = 0

    def _on_settled(self, batch: OpenBatch) -> None:
        self.settled.append(batch)
        self.accumulator.settled(batch)

    def append(self, value: bytes, expected_offset: int = -1, **more) -> RecordFuture:
        return self.accumulator.append(
            TP, pad(value), None, (), 0, more.get("sequence"), expected_offset, None,
            1_000_000, False,
        )  # fmt: skip

    def send(self, limit: int = 100) -> list[Sent]:
        """Send all that can be sent; return (batch, attempt id) in order."""
        sent: list[Sent] = []
        while len(sent) < limit:
            sealed = self.sender.next(self.now, self.shared)
            if sealed is None:
                break
            self.attempts += 1
            self.sender.sent(sealed, self.attempts, self.now)
            sent.append((sealed, self.attempts))
        return sent

    def answer(self, sent: Sent, verdict: Any, **fields) -> Reaction:
        sealed, attempt = sent
        result = log_pb2.BatchResult(id=attempt, verdict=verdict, **fields)
        return self.sender.on_result(sealed, attempt, result, self.now)


def pad(name: bytes) -> bytes:
    """A value of such a size that a batch holds exactly one."""
    return name.ljust(60, b".")


def outcome(future: RecordFuture) -> str | None:
    """None for a record that is stored."""
    error = future.exception(0)
    assert error is None or isinstance(error, errors.DeliveryError)
    return None if error is None else error.outcome


def value(sealed: SealedBatch) -> bytes:
    batch = batch_pb2.Batch.FromString(sealed.body)
    first = decode_payload(batch.payload).values()[0]
    assert first is not None
    return first.rstrip(b".")


def values(sent: list[Sent]) -> list[bytes]:
    return [value(sealed) for sealed, _ in sent]


def sequences(sent: list[Sent]) -> list[tuple[int, int, int]]:
    return [(s.base_sequence, s.last_sequence, s.prev_sequence) for s, _ in sent]


def three(rig: Rig) -> tuple[list[RecordFuture], list[Sent]]:
    futures = [rig.append(name) for name in (b"a", b"b", b"c")]
    return futures, rig.send()


# --- the straight way ----------------------------------------------------------------


def test_batches_are_numbered_in_order_and_acknowledged():
    rig = Rig()
    futures, sent = three(rig)
    assert values(sent) == [b"a", b"b", b"c"]
    assert sequences(sent) == [(0, 0, -1), (1, 1, 0), (2, 2, 1)]
    for offset, one in enumerate(sent):
        rig.answer(one, V.VERDICT_APPENDED, base_offset=10 + offset)
    assert [f.result(0).offset for f in futures] == [10, 11, 12]
    assert [f.result(0).sequence for f in futures] == [0, 1, 2]
    assert rig.sender.idle
    assert rig.accumulator.used == 0
    assert rig.stats.records_acked == 3


def test_the_header_says_what_was_sent():
    rig = Rig()
    _, sent = three(rig)
    header = batch_pb2.Batch.FromString(sent[1][0].body).header
    assert (header.producer_id, header.epoch, header.base_sequence) == (7, 0, 1)
    assert (header.topic, header.partition, header.record_count) == ("t", 0, 1)
    assert not header.HasField("prev_sequence")
    assert not header.HasField("last_sequence")
    assert not header.HasField("expected_offset")


def test_no_more_in_flight_than_allowed():
    rig = Rig(max_in_flight=2)
    futures, sent = three(rig)
    assert values(sent) == [b"a", b"b"]
    rig.answer(sent[1], V.VERDICT_APPENDED, base_offset=1)
    assert rig.send() == [], "the head still holds its place"
    rig.answer(sent[0], V.VERDICT_APPENDED, base_offset=0)
    assert values(rig.send()) == [b"c"]
    assert futures[0].done()


def test_a_duplicate_is_a_success_with_the_original_offset():
    rig = Rig()
    futures, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_DUPLICATE, base_offset=4)
    metadata = futures[0].result(0)
    assert (metadata.offset, metadata.duplicate) == (4, True)
    rig.answer(sent[1], V.VERDICT_DUPLICATE, base_offset=-1)
    assert futures[1].result(0).offset == -1
    assert rig.stats.duplicates == 2


# --- retries -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verdict",
    [
        V.VERDICT_NOT_LEADER,
        V.VERDICT_NOT_READY,
        V.VERDICT_TIMEOUT,
        V.VERDICT_THROTTLED,
        V.VERDICT_STORAGE_FULL,
        V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION,
        V.VERDICT_UNSPECIFIED,
    ],
)
def test_a_retriable_head_takes_everything_with_it_in_order(verdict: int):
    rig = Rig()
    futures, sent = three(rig)
    bodies = [sealed.body for sealed, _ in sent]
    rig.append(b"d")
    rig.answer(sent[0], verdict)
    rig.now += 5
    again = rig.send()
    assert values(again) == [b"a", b"b", b"c", b"d"]
    assert [sealed.body for sealed, _ in again[:3]] == bodies, "retries are byte-identical"
    assert sequences(again)[3] == (3, 3, 2)
    assert {attempt for _, attempt in again}.isdisjoint({attempt for _, attempt in sent})
    assert not any(f.done() for f in futures)


def test_nothing_overtakes_during_the_pause():
    rig = Rig()
    _, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_TIMEOUT)
    rig.append(b"d")
    assert rig.send() == []
    assert rig.sender.retry_at > rig.now
    rig.now = rig.sender.retry_at
    assert values(rig.send()) == [b"a", b"b", b"c", b"d"]


def test_a_fresh_hint_is_followed_at_once_a_second_one_is_not():
    rig = Rig()
    _, sent = three(rig)
    hint = {"leader_id": 2, "leader_address": "b:2"}
    reaction = rig.answer(sent[0], V.VERDICT_NOT_LEADER, **hint)
    assert reaction.leader_hint == (2, "b:2")
    sent = rig.send()
    assert values(sent) == [b"a", b"b", b"c"]
    reaction = rig.answer(sent[0], V.VERDICT_NOT_LEADER, **hint)
    assert reaction.leader_hint is None
    assert reaction.leader_lost
    assert rig.send() == []


def test_late_answers_to_an_old_attempt():
    """A success is true whichever attempt it answers, a refusal is not."""
    rig = Rig()
    futures, old = three(rig)
    rig.sender.on_connection_lost(rig.now)
    new = rig.send()
    assert values(new) == [b"a", b"b", b"c"]
    rig.answer(old[1], V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
    rig.answer(old[2], V.VERDICT_FENCED, current_epoch=9)
    rig.answer(old[0], V.VERDICT_APPENDED, base_offset=0)
    assert futures[0].result(0).offset == 0
    rig.answer(new[0], V.VERDICT_DUPLICATE, base_offset=0)
    assert rig.stats.duplicates == 0, "one batch is acknowledged once"
    rig.answer(new[1], V.VERDICT_APPENDED, base_offset=1)
    rig.answer(new[2], V.VERDICT_APPENDED, base_offset=2)
    assert rig.sender.idle


def test_successors_refused_during_a_retry_are_sent_again_after_it():
    """A batch refused with a retriable error while its successors arrive first."""
    rig = Rig()
    futures, sent = three(rig)
    # The node refuses what follows the one it lost; their answers come first.
    rig.answer(sent[1], V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
    rig.answer(sent[2], V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
    assert rig.send() == [], "the head's answer is still awaited"
    rig.answer(sent[0], V.VERDICT_APPENDED, base_offset=0)
    again = rig.send()
    assert values(again) == [b"b", b"c"]
    rig.answer(again[0], V.VERDICT_APPENDED, base_offset=1)
    rig.answer(again[1], V.VERDICT_APPENDED, base_offset=2)
    assert [f.result(0).offset for f in futures] == [0, 1, 2]


def test_out_of_order_of_a_batch_that_became_head_meanwhile_is_tried_once_more():
    rig = Rig()
    futures, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_APPENDED, base_offset=0)
    # b was sent before a's acknowledgement: its refusal may date from before a.
    reaction = rig.answer(sent[1], V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
    assert reaction.fatal is None
    again = rig.send()
    assert values(again) == [b"b", b"c"]
    reaction = rig.answer(again[0], V.VERDICT_OUT_OF_ORDER, last_sequence=5)
    assert isinstance(reaction.fatal, errors.OutOfOrderError)
    assert reaction.fatal.last_sequence == 5
    assert not futures[1].done(), "the sender fails everything"


def test_out_of_order_at_the_head_after_a_retry_is_fatal():
    rig = Rig()
    _, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_TIMEOUT)
    rig.now += 5
    sent = rig.send()
    reaction = rig.answer(sent[0], V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
    assert isinstance(reaction.fatal, errors.OutOfOrderError)
    assert reaction.fatal.outcome == "unknown"


def test_one_acknowledgement_delayed_while_the_next_five_arrive():
    rig = Rig(max_in_flight=6)
    futures = [rig.append(b"%d" % i) for i in range(6)]
    sent = rig.send()
    for i in range(1, 6):
        rig.answer(sent[i], V.VERDICT_APPENDED, base_offset=i)
    assert [f.done() for f in futures] == [False, True, True, True, True, True]
    rig.sender.on_connection_lost(rig.now)
    again = rig.send()
    assert values(again) == [b"0"], "what is acknowledged is not sent again"
    rig.answer(again[0], V.VERDICT_DUPLICATE, base_offset=0)
    assert futures[0].result(0).offset == 0
    assert rig.sender.idle


# --- refused for good ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (V.VERDICT_FENCED, errors.FencedError),
        (V.VERDICT_SEQUENCE_CONFLICT, errors.SequenceConflictError),
        (V.VERDICT_UNKNOWN_PRODUCER, errors.UnknownProducerError),
    ],
)
def test_what_stops_the_producer(verdict: int, error: type[errors.OncelogError]):
    rig = Rig()
    futures, sent = three(rig)
    reaction = rig.answer(sent[0], verdict, current_epoch=3)
    assert type(reaction.fatal) is error
    rig.sender.fail_all(reaction.fatal)
    for future in futures:
        failure = future.exception(0)
        assert type(failure) is error
        assert isinstance(failure, errors.DeliveryError)
        assert failure.outcome == "unknown"
    assert rig.accumulator.used == 0


def test_a_refused_batch_without_successors_consumes_no_sequence():
    rig = Rig()
    future = rig.append(b"a", expected_offset=5)
    (sent,) = rig.send()
    rig.answer(sent, V.VERDICT_OFFSET_MISMATCH, next_offset=8)
    error = future.exception(0)
    assert isinstance(error, errors.OffsetMismatchError)
    assert (error.next_offset, error.outcome) == (8, "not_stored")
    rig.append(b"b", expected_offset=8)
    again = rig.send()
    assert sequences(again) == [(0, 0, -1)]
    assert not rig.sender.needs_identity(rig.now, rig.shared)


def test_a_fatal_error_in_the_middle_of_five_in_flight():
    """The refused one fails, those before it are stored, those behind it get a new id."""
    rig = Rig()
    futures = [rig.append(b"%d" % i) for i in range(5)]
    sent = rig.send()
    rig.answer(sent[2], V.VERDICT_INVALID_BATCH, message="no good")
    assert isinstance(futures[2].exception(0), errors.InvalidBatchError)
    assert rig.send() == [], "the old id drains first"
    rig.answer(sent[3], V.VERDICT_OUT_OF_ORDER, last_sequence=1)
    rig.answer(sent[0], V.VERDICT_APPENDED, base_offset=0)
    assert not rig.sender.needs_identity(rig.now, rig.shared)
    rig.answer(sent[1], V.VERDICT_APPENDED, base_offset=1)
    assert rig.sender.needs_identity(rig.now, rig.shared)
    assert rig.sender.was_reset
    assert rig.send() == []
    rig.sender.adopt(identity(8, serial=2), -1)
    again = rig.send()
    assert values(again) == [b"3", b"4"]
    assert sequences(again) == [(0, 0, -1), (1, 1, 0)]
    assert {s.identity.producer_id for s, _ in again} == {8}
    rig.answer(again[0], V.VERDICT_APPENDED, base_offset=2)
    rig.answer(again[1], V.VERDICT_APPENDED, base_offset=3)
    stored = [f.result(0).offset for f in futures if f.exception(0) is None]
    assert stored == [0, 1, 2, 3]
    assert rig.stats.resets == 1


def test_a_refusal_after_a_lost_answer_leaves_the_outcome_open():
    """The first attempt may have been stored, so nothing behind it may be sent anew."""
    rig = Rig()
    futures, _sent = three(rig)
    rig.sender.on_connection_lost(rig.now)
    again = rig.send()
    rig.answer(again[0], V.VERDICT_BATCH_TOO_LARGE)
    assert [outcome(future) for future in futures] == ["unknown", "unknown", "unknown"]
    assert rig.sender.needs_identity(rig.now, rig.shared)
    assert rig.send() == []


def test_a_given_id_cannot_be_replaced():
    rig = Rig(leased=False)
    _, sent = three(rig)
    reaction = rig.answer(sent[0], V.VERDICT_INVALID_BATCH)
    assert isinstance(reaction.fatal, errors.ProducerFatalError)


def test_an_expired_id_is_replaced_when_nothing_is_in_doubt():
    rig = Rig()
    futures, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_PRODUCER_EXPIRED)
    assert not futures[0].done()
    rig.sender.adopt(identity(9, serial=2), -1)
    again = rig.send()
    assert values(again) == [b"a", b"b", b"c"]
    assert sequences(again) == [(0, 0, -1), (1, 1, 0), (2, 2, 1)]


def test_an_expired_id_in_doubt_fails_as_unknown():
    rig = Rig()
    futures, _sent = three(rig)
    rig.sender.on_connection_lost(rig.now)
    again = rig.send()
    rig.answer(again[0], V.VERDICT_PRODUCER_EXPIRED)
    error = futures[0].exception(0)
    assert isinstance(error, errors.ProducerExpiredError)
    assert error.outcome == "unknown"


def test_endless_resets_end():
    rig = Rig()
    rig.append(b"a")
    for serial in range(2, 10):
        (sent,) = rig.send()
        reaction = rig.answer(sent, V.VERDICT_PRODUCER_EXPIRED)
        if reaction.fatal is not None:
            assert serial == 5
            return
        rig.sender.adopt(identity(serial, serial=serial), -1)
    pytest.fail("resets go on for ever")


# --- identities ----------------------------------------------------------------------


def test_a_new_lease_is_taken_when_the_window_is_drained():
    rig = Rig()
    futures, sent = three(rig)
    old = rig.shared
    rig.shared = identity(8, serial=2)
    rig.append(b"d")
    assert rig.send() == []
    rig.sender.on_connection_lost(rig.now)
    again = rig.send()
    assert {s.identity for s, _ in again} == {old}, "retries keep the old id"
    for offset, one in enumerate(again):
        rig.answer(one, V.VERDICT_APPENDED, base_offset=offset)
    assert rig.sender.needs_identity(rig.now, rig.shared)
    rig.sender.adopt(rig.shared, -1)
    (last,) = rig.send()
    assert (last[0].identity.producer_id, last[0].base_sequence) == (8, 0)
    assert all(f.done() for f in futures)
    assert sent[0][0].identity is old


def test_nothing_is_sealed_after_the_lease_ended():
    rig = Rig()
    rig.sender.adopt(identity(7, expire_at=50.0), -1)
    rig.now = 50.0
    rig.append(b"a")
    assert rig.send() == []
    assert rig.sender.needs_identity(rig.now, rig.shared)


def test_going_on_after_what_is_stored():
    rig = Rig(start=41)
    rig.append(b"a")
    sent = rig.send()
    assert sequences(sent) == [(42, 42, 41)]
    assert not batch_pb2.Batch.FromString(sent[0][0].body).header.HasField("prev_sequence")


def test_sequences_of_the_application():
    rig = Rig(batch_size=400, start=3)
    for sequence in (10, 12, 15):
        rig.append(b"x", sequence=sequence)
    rig.append(b"y", sequence=20)
    sent = rig.send()
    header = batch_pb2.Batch.FromString(sent[0][0].body).header
    assert (header.base_sequence, header.last_sequence, header.prev_sequence) == (10, 15, 3)
    assert sequences(sent)[1] == (20, 20, 15)
    with pytest.raises(errors.InvalidRequestError, match="not above the last one"):
        rig.append(b"z", sequence=20)
    with pytest.raises(errors.InvalidRequestError, match="application-controlled"):
        rig.append(b"z")


def test_without_idempotence_batches_do_not_depend_on_each_other():
    rig = Rig(idempotent=False)
    futures, sent = three(rig)
    header = batch_pb2.Batch.FromString(sent[0][0].body).header
    assert (header.producer_id, header.base_sequence) == (0, 0)
    rig.answer(sent[0], V.VERDICT_INVALID_BATCH)
    assert isinstance(futures[0].exception(0), errors.InvalidBatchError)
    assert rig.send() == [], "the others are still on their way"
    rig.answer(sent[2], V.VERDICT_APPENDED, base_offset=0)
    rig.answer(sent[1], V.VERDICT_TIMEOUT)
    rig.now += 5
    again = rig.send()
    assert values(again) == [b"b"]
    rig.answer(again[0], V.VERDICT_APPENDED, base_offset=1)
    metadata = futures[1].result(0)
    assert (metadata.offset, metadata.producer_id, metadata.sequence) == (1, 0, -1)
    assert rig.sender.idle


# --- delivery timeout ----------------------------------------------------------------


def test_what_was_never_sent_is_told_apart():
    rig = Rig(delivery_timeout_s=10.0, max_in_flight=1)
    futures, _ = three(rig)
    rig.now = 9.9
    assert rig.accumulator.expire(rig.now) == []
    rig.now = 10.0
    never_sent = rig.accumulator.expire(rig.now)
    assert [batch.values for batch in never_sent] == [[pad(b"b")], [pad(b"c")]]
    rig.sender.expire(rig.now)
    error = futures[0].exception(0)
    assert isinstance(error, errors.DeliveryTimeoutError)
    assert error.outcome == "unknown"


def test_an_abandoned_head_holds_the_chain_for_the_living():
    rig = Rig(delivery_timeout_s=10.0)
    first = rig.append(b"a")
    rig.now = 6.0
    second = rig.append(b"b")
    rig.send()
    rig.sender.on_connection_lost(rig.now)
    rig.now = 10.0
    rig.sender.expire(rig.now)
    assert outcome(first) == "unknown"
    assert not second.done()
    again = rig.send()
    assert values(again) == [b"a", b"b"], "b can only be stored behind a"
    rig.answer(again[0], V.VERDICT_APPENDED, base_offset=0)
    rig.answer(again[1], V.VERDICT_APPENDED, base_offset=1)
    assert second.result(0).offset == 1
    assert isinstance(first.exception(0), errors.DeliveryTimeoutError), "told once"
    assert rig.sender.idle
    assert not rig.sender.needs_identity(rig.now, rig.shared), "the chain is whole"


def test_a_window_given_up_ends_the_id_in_this_partition():
    rig = Rig(delivery_timeout_s=10.0)
    futures, sent = three(rig)
    rig.now = 10.0
    rig.sender.expire(rig.now)
    assert [outcome(f) for f in futures] == ["unknown"] * 3
    rig.append(b"d")
    assert rig.send() == []
    assert rig.sender.needs_identity(rig.now, rig.shared)
    assert rig.sender.was_reset
    rig.sender.adopt(identity(8, serial=2), -1)
    rig.answer(sent[0], V.VERDICT_APPENDED, base_offset=0)  # late, and of no use to anybody
    again = rig.send()
    assert values(again) == [b"d"]
    assert sequences(again) == [(0, 0, -1)]


def test_retries_used_up():
    rig = Rig(retries=2)
    future = rig.append(b"a")
    for _ in range(3):
        (sent,) = rig.send()
        rig.answer(sent, V.VERDICT_TIMEOUT)
        rig.now += 5
    rig.sender.expire(rig.now)
    error = future.exception(0)
    assert isinstance(error, errors.DeliveryTimeoutError)
    assert "3 times" in str(error)


# --- all together, against a model of the log ----------------------------------------


class Log:
    """What a partition would say: the table of verdicts, as plainly as can be."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.last: dict[int, int] = {}
        self.known: dict[tuple[int, int, int], tuple[int, int]] = {}

    def append(self, body: bytes) -> tuple[int, dict[str, int]]:
        batch = batch_pb2.Batch.FromString(body)
        h = batch.header
        first, last = h.base_sequence, h.base_sequence + h.record_count - 1
        seen = self.known.get((h.producer_id, first, last))
        if seen is not None:
            assert seen[1] == h.crc32c, "the same sequences with another content"
            return V.VERDICT_DUPLICATE, {"base_offset": seen[0]}
        stored = self.last.get(h.producer_id, -1)
        if first - 1 != stored:
            return V.VERDICT_OUT_OF_ORDER, {"last_sequence": stored}
        values = decode_payload(batch.payload).values()
        if any(b"poison" in (v or b"") for v in values):
            return V.VERDICT_INVALID_BATCH, {}
        offset = len(self.records)
        self.records += [(v or b"").rstrip(b".") for v in values]
        self.last[h.producer_id] = last
        self.known[h.producer_id, first, last] = (offset, h.crc32c)
        return V.VERDICT_APPENDED, {"base_offset": offset}


@pytest.mark.parametrize("seed", range(60))
def test_every_record_once_and_in_order_whatever_fails(seed: int):
    """Random faults: lost requests and answers, retriable verdicts, late copies, poison."""
    rng = random.Random(seed)
    rig = Rig(max_in_flight=rng.randint(1, 7), delivery_timeout_s=1e9)
    log = Log()
    futures: list[tuple[bytes, RecordFuture]] = []
    network: list[Sent] = []  # on the way to the node, in order
    answers: list[Callable[[], Reaction]] = []
    late: list[bytes] = []  # copies that the network still holds
    serial = 1

    def deliver() -> None:
        sent = network.pop(0)
        chance = rng.random()
        if chance < 0.06:
            retriable = rng.choice([V.VERDICT_NOT_LEADER, V.VERDICT_TIMEOUT, V.VERDICT_NOT_READY])
            if rng.random() < 0.5:
                late.append(sent[0].body)
            answers.append(lambda: rig.answer(sent, retriable))
            return
        verdict, fields = log.append(sent[0].body)
        answers.append(lambda: rig.answer(sent, verdict, **fields))

    def break_connection() -> None:
        for sealed, _ in network:
            if rng.random() < 0.3:
                late.append(sealed.body)
        network.clear()
        answers.clear()
        rig.sender.on_connection_lost(rig.now)

    count = 0
    while count < 150 or not rig.sender.idle or rig.accumulator.incomplete:
        rig.now += 0.05
        step = rng.random()
        if step < 0.3 and count < 150:
            name = b"%d" % count + (b"poison" if rng.random() < 0.03 else b"")
            futures.append((name, rig.append(name)))
            count += 1
        elif step < 0.55:
            if rig.sender.needs_identity(rig.now, rig.shared):
                serial += 1
                rig.sender.adopt(identity(100 + serial, serial=serial), -1)
            network += rig.send()
        elif step < 0.75 and network:
            deliver()
        elif step < 0.95 and answers:
            reaction = answers.pop(0 if rng.random() < 0.8 else -1)()
            assert reaction.fatal is None, reaction.fatal
        elif step < 0.965:
            break_connection()
        elif late:
            log.append(late.pop(rng.randrange(len(late))))
    for body in late:
        log.append(body)
    stored = [name for name, _ in futures if b"poison" not in name]
    failed = [name for name, future in futures if future.exception(0) is not None]
    unknown = [name for name, future in futures if outcome(future) == "unknown"]
    assert len(set(log.records)) == len(log.records), "a record is stored twice"
    assert log.records == sorted(log.records, key=lambda name: int(name.strip(b"poison")))
    missing = set(stored) - set(log.records)
    assert missing <= set(unknown), "an acknowledged record is missing"
    assert {n for n in failed if b"poison" not in n} <= set(unknown)
    for name, future in futures:
        if future.exception(0) is None:
            assert log.records[future.result(0).offset] == name
