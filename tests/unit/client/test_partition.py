"""The client's rules for one partition: order, retries, permanent rejections."""

from __future__ import annotations

import pytest

from oncelog import errors
from oncelog.v1 import batch_pb2
from tests.unit.client.partition_rig import (
    Rig,
    V,
    bytes_of,
    identity,
    outcome,
    sequences,
    three,
    values,
)

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
    header = batch_pb2.Batch.FromString(bytes_of(sent[1][0])).header
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
    bodies = [bytes_of(sealed) for sealed, _ in sent]
    rig.append(b"d")
    rig.answer(sent[0], verdict)
    rig.now += 5
    again = rig.send()
    assert values(again) == [b"a", b"b", b"c", b"d"]
    assert [bytes_of(sealed) for sealed, _ in again[:3]] == bodies, "retries are byte-identical"
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
    # The node refuses the successors of the lost batch; their answers come first.
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


# --- permanent rejections ------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "error", "behind"),
    [
        (V.VERDICT_FENCED, errors.FencedError, "not_stored"),
        (V.VERDICT_SEQUENCE_CONFLICT, errors.SequenceConflictError, "unknown"),
        (V.VERDICT_UNKNOWN_PRODUCER, errors.UnknownProducerError, "unknown"),
    ],
)
def test_what_stops_the_producer(verdict: int, error: type[errors.OncelogError], behind: str):
    rig = Rig()
    futures, sent = three(rig)
    reaction = rig.answer(sent[0], verdict, current_epoch=3)
    fatal = reaction.fatal or reaction.fatal_unless_recreated
    assert type(fatal) is error
    rig.sender.fail_all(fatal)
    assert {type(future.exception(0)) for future in futures} == {error}
    assert [outcome(future) for future in futures] == ["not_stored", behind, behind]
    assert rig.accumulator.used == 0


def test_fenced_says_nothing_of_what_was_sent_before():
    rig = Rig()
    futures, sent = three(rig)
    reaction = rig.answer(sent[1], V.VERDICT_FENCED, current_epoch=3)
    assert reaction.fatal is not None
    rig.sender.fail_all(reaction.fatal)
    assert [outcome(future) for future in futures] == ["unknown", "not_stored", "not_stored"]


def test_fenced_says_nothing_of_earlier_attempts():
    rig = Rig()
    futures, _ = three(rig)
    rig.sender.on_connection_lost(rig.now)
    futures.append(rig.append(b"d"))
    again = rig.send()
    reaction = rig.answer(again[0], V.VERDICT_FENCED, current_epoch=3)
    assert reaction.fatal is not None
    rig.sender.fail_all(reaction.fatal)
    assert [outcome(future) for future in futures] == [*["unknown"] * 3, "not_stored"]


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
    rig.sender.adopt(identity(8, serial=2), -1, 1)
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
    """The first attempt may have been stored, so nothing behind it may be sent under a new id."""
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
    rig.sender.adopt(identity(9, serial=2), -1, 1)
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
        rig.sender.adopt(identity(serial, serial=serial), -1, 1)
    pytest.fail("resets go on for ever")


# --- a topic that was deleted and created again --------------------------------------


def test_what_was_refused_goes_to_the_new_topic_what_had_no_answer_fails():
    rig = Rig()
    rig.append(b"before")
    (first,) = rig.send()
    rig.answer(first, V.VERDICT_APPENDED, base_offset=0)
    lost = rig.append(b"lost")
    rig.send()
    rig.sender.on_connection_lost(rig.now)
    futures = [rig.append(name) for name in (b"a", b"b")]
    sent = rig.send()
    assert values(sent) == [b"lost", b"a", b"b"]
    for one in sent[:2]:
        reaction = rig.answer(one, V.VERDICT_UNKNOWN_PRODUCER)
        assert isinstance(reaction.fatal_unless_recreated, errors.UnknownProducerError)
    assert rig.sender.is_of(1)
    assert not rig.sender.is_of(2)
    assert rig.sender.on_topic_created_anew().fatal is None
    assert outcome(lost) == "unknown"
    assert "created anew" in str(lost.exception(0))
    assert rig.sender.needs_identity(rig.now, rig.shared)
    rig.sender.adopt(identity(8, serial=2), -1, 2)
    again = rig.send()
    assert values(again) == [b"a", b"b"]
    assert sequences(again) == [(0, 0, -1), (1, 1, 0)]
    for one in again:
        rig.answer(one, V.VERDICT_APPENDED, base_offset=5)
    assert [outcome(future) for future in futures] == [None, None]
    assert rig.sender.idle


def test_nobodys_own_sequences_go_on_in_a_new_topic():
    rig = Rig()
    rig.append(b"before", sequence=10)
    (first,) = rig.send()
    rig.answer(first, V.VERDICT_APPENDED, base_offset=0)
    future = rig.append(b"a", sequence=11)
    (sent,) = rig.send()
    rig.answer(sent, V.VERDICT_UNKNOWN_PRODUCER)
    reaction = rig.sender.on_topic_created_anew()
    assert reaction.fatal is not None
    assert "sequences up to 10" in str(reaction.fatal)
    rig.sender.fail_all(reaction.fatal)
    assert outcome(future) == "not_stored"
    with pytest.raises(errors.ProducerFatalError, match="sequences up to 10"):
        rig.append(b"b", sequence=12)


def test_a_given_id_does_not_go_on_in_a_new_topic():
    rig = Rig(leased=False)
    _, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_UNKNOWN_PRODUCER)
    reaction = rig.sender.on_topic_created_anew()
    assert "make a new producer" in str(reaction.fatal)
