"""The client's rules for one partition: ids that change, time that is over, and all together.

A small model of a partition (`Log`, with the verdict table as far as the client can tell)
answers the real accumulator and the real window; time and faults are the tests'.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from oncelog import errors
from oncelog._engine.produce.futures import RecordFuture
from oncelog._engine.produce.outcomes import Reaction
from oncelog._engine.produce.shrinking import give_up
from oncelog._engine.produce.standstill import postpone
from oncelog.v1 import batch_pb2
from oncelog.wire.batch import decode_payload
from tests.unit.client.partition_rig import (
    Rig,
    Sent,
    V,
    bytes_of,
    identity,
    outcome,
    pad,
    sequences,
    three,
    values,
)

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
    rig.sender.adopt(rig.shared, -1, 1)
    (last,) = rig.send()
    assert (last[0].identity.producer_id, last[0].base_sequence) == (8, 0)
    assert all(f.done() for f in futures)
    assert sent[0][0].identity is old


def test_nothing_is_sealed_after_the_lease_ended():
    rig = Rig()
    rig.sender.adopt(identity(7, expire_at=50.0), -1, 1)
    rig.now = 50.0
    rig.append(b"a")
    assert rig.send() == []
    assert rig.sender.needs_identity(rig.now, rig.shared)


def test_going_on_after_what_is_stored():
    rig = Rig(start=41)
    rig.append(b"a")
    sent = rig.send()
    assert sequences(sent) == [(42, 42, 41)]
    assert not batch_pb2.Batch.FromString(bytes_of(sent[0][0])).header.HasField("prev_sequence")


def test_sequences_of_the_application():
    rig = Rig(batch_size=400, start=3)
    for sequence in (10, 12, 15):
        rig.append(b"x", sequence=sequence)
    rig.append(b"y", sequence=20)
    sent = rig.send()
    header = batch_pb2.Batch.FromString(bytes_of(sent[0][0])).header
    assert (header.base_sequence, header.last_sequence, header.prev_sequence) == (10, 15, 3)
    assert sequences(sent)[1] == (20, 20, 15)
    with pytest.raises(errors.InvalidRequestError, match="not above the last one"):
        rig.append(b"z", sequence=20)
    with pytest.raises(errors.InvalidRequestError, match="application-controlled"):
        rig.append(b"z")


def test_without_idempotence_batches_do_not_depend_on_each_other():
    rig = Rig(idempotent=False)
    futures, sent = three(rig)
    header = batch_pb2.Batch.FromString(bytes_of(sent[0][0])).header
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


# --- gaps in the application's own sequences -------------------------------------------


def encoding_fails(rig: Rig) -> Reaction:
    rig.append(b"a", sequence=10, timestamp_us=2**70)  # no int64
    rig.append(b"b", sequence=11)
    assert rig.send() == [], "nothing is sent behind a gap"
    return rig.reaction


def refused(rig: Rig) -> Reaction:
    rig.append(b"a", sequence=10)
    rig.append(b"b", sequence=11)
    return rig.answer(rig.send()[0], V.VERDICT_BATCH_TOO_LARGE)


def no_answer(rig: Rig) -> Reaction:
    rig.append(b"a", sequence=10)
    rig.send()
    rig.now = 1000.0
    return rig.sender.expire(rig.now)


def never_sent(rig: Rig) -> Reaction:
    rig.append(b"a", sequence=10)
    rig.now = 1000.0
    (batch,) = rig.accumulator.expire(rig.now)
    return rig.sender.expire_unsent(batch)


@pytest.mark.parametrize("way", [encoding_fails, refused, no_answer, never_sent])
def test_whatever_makes_a_gap_stops_the_producer(way: Callable[[Rig], Reaction]):
    rig = Rig()
    fatal = way(rig).fatal
    assert fatal is not None
    assert "sequences 10 to 10 failed" in str(fatal)
    assert rig.send() == []
    assert rig.reaction.fatal is fatal
    with pytest.raises(errors.ProducerFatalError, match="10 to 10"):
        rig.append(b"c", sequence=12)


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
    rig.sender.adopt(identity(8, serial=2), -1, 1)
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


@pytest.mark.parametrize("was_sent", [False, True])
def test_who_gets_no_answer_in_time_is_told_what_hindered(was_sent: bool):
    rig = Rig(delivery_timeout_s=10.0)
    future = rig.append(b"a")
    why = "10.0.0.1:9092: STORAGE_FULL: less than 5 % are free"
    rig.sender.obstacles.met(why, told=True)
    rig.now = 10.0
    if was_sent:
        rig.send()
        rig.sender.expire(rig.now)
    else:
        (batch,) = rig.accumulator.expire(rig.now)
        rig.sender.expire_unsent(batch)
    error = future.exception(0)
    assert isinstance(error, errors.DeliveryTimeoutError)
    identity = "; t-0 producer 7 epoch 0 sequences 0..0 may be stored, resolve_sequence tells"
    assert str(error).endswith(f"; {why}{identity if was_sent else ''}")
    assert (error.topic, error.partition) == ("t", 0)
    named = (error.producer_id, error.epoch, error.sequence)
    assert named == ((7, 0, 0) if was_sent else (0, -1, -1))
    assert error.outcome == ("unknown" if was_sent else "never_sent")


# --- all together, against a model of the log ----------------------------------------


class Log:
    """Model of a partition's answers: the table of verdicts, as plainly as possible."""

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
                late.append(bytes_of(sent[0]))
            answers.append(lambda: rig.answer(sent, retriable))
            return
        verdict, fields = log.append(bytes_of(sent[0]))
        answers.append(lambda: rig.answer(sent, verdict, **fields))

    def break_connection() -> None:
        for sealed, _ in network:
            if rng.random() < 0.3:
                late.append(bytes_of(sealed))
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
                rig.sender.adopt(identity(100 + serial, serial=serial), -1, 1)
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


# --- a process that stood still --------------------------------------------------------


def stand_still(rig: Rig, seconds: float) -> None:
    rig.now += seconds
    postpone(rig.accumulator, [rig.sender], seconds, rig.now)
    for batch in rig.accumulator.expire(rig.now):
        rig.sender.expire_unsent(batch)
    rig.sender.expire(rig.now)


def test_time_in_which_the_process_stood_still_does_not_count():
    """Covers batches that wait, are in flight, and wait to be sealed again."""
    rig = Rig(delivery_timeout_s=10.0, max_in_flight=2)
    on_its_way, again = rig.append(b"a"), rig.append(b"b")
    sent = rig.send()
    waiting = rig.append(b"c")
    rig.answer(sent[0], V.VERDICT_BATCH_TOO_LARGE)  # the batches behind it need another id
    rig.sender.adopt(identity(8, serial=2), -1, 1)
    rig.shared = identity(8, serial=2)
    rig.now = 8.0
    stand_still(rig, 100.0)
    assert outcome(on_its_way) == "not_stored"
    assert not again.done() and not waiting.done()
    sealed = rig.send()
    assert values(sealed) == [b"b", b"c"]
    stand_still(rig, 100.0)
    assert not again.done() and not waiting.done()
    for offset, one in enumerate(sealed):
        rig.answer(one, V.VERDICT_APPENDED, base_offset=offset)
    assert (outcome(again), outcome(waiting)) == (None, None)


def test_nothing_gets_more_than_its_usual_time_by_a_standstill():
    rig = Rig(delivery_timeout_s=10.0)
    rig.now = 100.0
    future = rig.append(b"sent when the process went on")
    postpone(rig.accumulator, [rig.sender], 99.0, rig.now)
    (sent,) = rig.send()
    postpone(rig.accumulator, [rig.sender], 99.0, rig.now)
    assert (sent[0].deadline, sent[0].sent_at) == (110.0, 100.0)
    rig.now = 110.0
    rig.sender.expire(rig.now)
    assert outcome(future) == "unknown"


def test_a_record_does_not_fail_with_a_batch_that_has_waited_for_long():
    rig = Rig(delivery_timeout_s=10.0, batch_size=10_000)
    old = rig.append(b"a")
    rig.now = 2.4
    assert rig.accumulator.expire(rig.now) == []
    joins = rig.append(b"b")
    rig.now = 2.5  # a quarter
    assert rig.accumulator.expire(rig.now) == []
    later = rig.append(b"c")
    rig.now = 10.0
    for batch in rig.accumulator.expire(rig.now):
        rig.sender.expire_unsent(batch)
    assert (outcome(old), outcome(joins)) == ("never_sent", "never_sent")
    assert not later.done()
    assert values(rig.send()) == [b"c"]


# --- a partition that is gone ------------------------------------------------------------


def test_what_waits_for_a_partition_that_is_gone_fails_with_its_true_outcome():
    rig = Rig(max_in_flight=2)
    unanswered, refused, waiting = (rig.append(name) for name in (b"a", b"b", b"c"))
    first, second = rig.send()
    rig.answer(second, V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION)  # the first batch is unanswered
    assert give_up(rig.accumulator, rig.sender) == Reaction()
    assert [outcome(one) for one in (unanswered, refused, waiting)] == [
        "unknown", "not_stored", "never_sent",
    ]  # fmt: skip
    rig.answer(first, V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION)
    assert rig.accumulator.used == 0


def test_refused_by_a_partition_that_is_gone_is_not_stored():
    rig = Rig()
    futures, sent = three(rig)
    for one in sent:
        rig.answer(one, V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION)
    give_up(rig.accumulator, rig.sender)
    assert {outcome(one) for one in futures} == {"not_stored"}
    assert rig.sender.idle


def test_own_sequences_stop_at_a_partition_that_is_gone():
    rig = Rig()
    future = rig.append(b"a", sequence=3)
    (sent,) = rig.send()
    rig.answer(sent, V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION)
    reaction = give_up(rig.accumulator, rig.sender)
    assert isinstance(reaction.fatal, errors.ProducerFatalError)
    assert not future.done(), "the producer's end tells it"
