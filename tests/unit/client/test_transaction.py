"""A transaction as its producer sees it: its ends, the memory it frees, the calls it rejects."""

from __future__ import annotations

import pytest

from oncelog import errors
from oncelog._engine.produce.transaction import Call, ProducerTransaction, TransactionPhase
from oncelog.types import PublishedRun, TopicPartition
from oncelog.v1 import batch_pb2
from tests.unit.client.partition_rig import TP, Rig, V, bytes_of, outcome, sequences, three, values

COMMIT, ABORT = Call.COMMIT, Call.ABORT
NO_ANSWER = errors.RequestTimeoutError("no answer")
ABORTED = errors.TransactionAbortedError("transaction 5 was aborted: expired")
COMMITTED = errors.TransactionCommittedError("it was committed")
INCOMPLETE = errors.CommitIncompleteError("more is staged")
UNKNOWN = errors.UnknownTransactionError("nobody knows it")
DENIED = errors.NotAuthorizedError("no")


def begun() -> ProducerTransaction:
    return ProducerTransaction(5, 7, 0, 60.0)


# --- how it ends: requests, answers, next requests -----------------------------------------

Answer = tuple[Call, errors.OncelogError | None]
ENDS: list[tuple[Call, list[Answer], TransactionPhase]] = [
    (COMMIT, [(COMMIT, None)], TransactionPhase.COMMITTED),
    (COMMIT, [(COMMIT, NO_ANSWER)] * 2 + [(COMMIT, None)], TransactionPhase.COMMITTED),
    (COMMIT, [(COMMIT, ABORTED)], TransactionPhase.ABORTED),
    (COMMIT, [(COMMIT, INCOMPLETE), (ABORT, None)], TransactionPhase.ABORTED),
    # The call without an answer had decided: the abort tells, and the client asks for the places.
    (
        COMMIT,
        [(COMMIT, NO_ANSWER), (COMMIT, INCOMPLETE), (ABORT, COMMITTED), (COMMIT, None)],
        TransactionPhase.COMMITTED,
    ),
    (COMMIT, [(COMMIT, NO_ANSWER), (COMMIT, INCOMPLETE), (ABORT, NO_ANSWER), (ABORT, None)],
     TransactionPhase.ABORTED),
    # Committed for sure, though the client gets no places: the state stays committed.
    (COMMIT, [(COMMIT, DENIED), (ABORT, COMMITTED), (COMMIT, DENIED)], TransactionPhase.COMMITTED),
    (COMMIT, [(COMMIT, UNKNOWN)], TransactionPhase.ABORTED),
    (COMMIT, [(COMMIT, NO_ANSWER), (COMMIT, UNKNOWN)], TransactionPhase.UNKNOWN),
    (COMMIT, [(COMMIT, NO_ANSWER), (COMMIT, DENIED), (ABORT, UNKNOWN)], TransactionPhase.UNKNOWN),
    (COMMIT, [(COMMIT, NO_ANSWER), (COMMIT, DENIED), (ABORT, DENIED)], TransactionPhase.ABORTING),
    (ABORT, [(ABORT, None)], TransactionPhase.ABORTED),
    (ABORT, [(ABORT, NO_ANSWER), (ABORT, None)], TransactionPhase.ABORTED),
    # Without a commit call nothing of it is ever readable.
    (ABORT, [(ABORT, UNKNOWN)], TransactionPhase.ABORTED),
    (ABORT, [(ABORT, DENIED)], TransactionPhase.ABORTED),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "answers", "state"), ENDS)
def test_no_outcome_is_guessed(
    wanted: Call, answers: list[Answer], state: TransactionPhase
) -> None:
    one = begun()
    call: Call | None = one.end(wanted)
    for expected, error in answers:
        assert call is expected
        call = one.answered(call, error)
    assert call is None
    assert one.state is state
    assert one.is_over() == (state is not TransactionPhase.ABORTING)


def test_an_abort_after_a_commit_without_an_answer_tells_what_became_of_it() -> None:
    one = begun()
    assert one.answered(one.end(COMMIT), NO_ANSWER) is COMMIT
    assert one.answered(one.end(ABORT), COMMITTED) is COMMIT
    assert one.answered(COMMIT, None) is None
    assert one.state is TransactionPhase.COMMITTED


def test_what_an_error_says_of_the_outcome() -> None:
    one = begun()
    one.answered(one.end(COMMIT), ABORTED)
    error = one.error()
    assert isinstance(error, errors.TransactionAbortedError) and error.outcome == "not_stored"
    two = begun()
    two.answered(two.end(COMMIT), NO_ANSWER)
    two.answered(COMMIT, UNKNOWN)
    error = two.error()
    assert isinstance(error, errors.UnknownTransactionError) and error.outcome == "unknown"
    assert errors.TransactionCommittedError("it was").outcome == "unknown", "it is stored"


def test_the_first_failure_is_why_and_a_fatal_one_comes_as_itself() -> None:
    one = begun()
    one.fail(errors.BatchTooLargeError("16 GiB"))
    one.fail(errors.FencedError("later"))
    one.answered(one.end(ABORT), None)
    error = one.error()
    assert isinstance(error, errors.TransactionAbortedError) and "16 GiB" in error.message
    assert isinstance(error.__cause__, errors.BatchTooLargeError)
    two = begun()
    two.fail(errors.FencedError("taken over"))
    two.answered(two.end(ABORT), None)
    assert isinstance(two.error(), errors.FencedError)


def test_a_failure_after_the_commit_call_changes_nothing() -> None:
    one = begun()
    one.end(COMMIT)
    one.fail(errors.FencedError("taken over"))
    assert one.failure is None


# --- a partition --------------------------------------------------------------------------


def in_transaction(number: int = 5) -> tuple[Rig, ProducerTransaction]:
    """A rig whose first record, 0, was stored before the transaction."""
    rig = Rig()
    rig.append(b"0")
    (first,) = rig.send()
    rig.answer(first, V.VERDICT_APPENDED, base_offset=3)
    transaction = ProducerTransaction(number, 7, 0, 60.0)
    rig.accumulator.resume(transaction)
    return rig, transaction


def end(rig: Rig, after: ProducerTransaction | None = None) -> None:
    rig.accumulator.resume(after)


def test_a_staged_record_has_no_offset_before_the_commit() -> None:
    rig, transaction = in_transaction()
    futures, sent = three(rig)
    assert sequences(sent) == [(1, 1, 0), (2, 2, 1), (3, 3, 2)]
    headers = [batch_pb2.Batch.FromString(bytes_of(s)).header for s, _ in sent]
    assert [header.transaction_id for header in headers] == [5, 5, 5]
    for place in (1, 0, 2):
        rig.answer(sent[place], V.VERDICT_STAGED, base_offset=place)
    assert [future.result(0).offset for future in futures] == [-1, -1, -1]
    run = transaction.runs[TP]
    assert (run.record_count, run.last_sequence) == (3, 3)
    transaction.answered(transaction.end(COMMIT), None)
    transaction.published({TP: PublishedRun(40, 3)})
    assert [future.result(0).offset for future in futures] == [40, 41, 42]
    end(rig)
    rig.append(b"z")
    (after,) = rig.send()
    assert sequences([after]) == [(4, 4, 3)], "the chain goes on"
    assert not batch_pb2.Batch.FromString(bytes_of(after[0])).header.transaction_id


def test_an_abort_frees_the_sequences() -> None:
    rig, transaction = in_transaction()
    futures, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_STAGED, base_offset=0)
    transaction.fail(ABORTED)
    rig.sender.fail_all(transaction.refusal())
    assert [future.done() for future in futures] == [True, True, True]
    assert outcome(futures[0]) is None
    assert outcome(futures[2]) == "not_stored", "sent, but never readable"
    rig.sender.roll_back(transaction)
    end(rig, ProducerTransaction(6, 7, 0, 60.0))
    again, sent_again = three(rig)
    assert sequences(sent_again) == [(1, 1, 0), (2, 2, 1), (3, 3, 2)]
    rig.answer(sent[1], V.VERDICT_STAGED, base_offset=1)
    assert not again[0].done(), "an answer to the aborted one's batch means nothing"
    assert not rig.sender.needs_identity(rig.now, rig.shared)


@pytest.mark.parametrize(
    "verdict",
    [
        V.VERDICT_INVALID_BATCH,
        V.VERDICT_BATCH_TOO_LARGE,
        V.VERDICT_PRODUCER_EXPIRED,
        V.VERDICT_TRANSACTION_ABORTED,
        V.VERDICT_TRANSACTION_ENDED,
    ],
)
def test_a_refused_batch_fails_the_transaction_and_nothing_else(verdict: int) -> None:
    rig, transaction = in_transaction()
    futures, sent = three(rig)
    reaction = rig.answer(sent[1], verdict, message="because")
    assert reaction.fatal is None
    assert transaction.failure is not None and "because" in str(transaction.failure)
    assert all(future.exception(0) is not None for future in futures), "nobody waits for them"
    with pytest.raises(errors.TransactionAbortedError, match="because"):
        rig.append(b"more")
    rig.sender.roll_back(transaction)
    end(rig)
    rig.append(b"z")
    assert sequences(rig.send()) == [(1, 1, 0)]
    assert not rig.sender.needs_identity(rig.now, rig.shared), "no new epoch is needed"


def test_a_timeout_fails_the_transaction_and_keeps_the_identity() -> None:
    rig, transaction = in_transaction()
    futures, _ = three(rig)
    rig.now += 1000
    rig.sender.expire(rig.now)
    assert isinstance(transaction.failure, errors.DeliveryTimeoutError)
    assert all(future.done() for future in futures)
    rig.sender.roll_back(transaction)
    assert not rig.sender.needs_identity(rig.now, rig.shared)


def test_a_topic_made_anew_fails_the_transaction_and_needs_a_new_lease() -> None:
    rig, transaction = in_transaction()
    futures, sent = three(rig)
    reaction = rig.answer(sent[0], V.VERDICT_UNKNOWN_PRODUCER)
    assert reaction.fatal_unless_recreated is not None
    assert rig.sender.on_topic_created_anew().fatal is None
    assert transaction.failure is not None and all(future.done() for future in futures)
    rig.sender.roll_back(transaction)
    assert rig.shared is not None and rig.sender.has_used_up(rig.shared)


def test_a_conflict_with_an_earlier_marker_is_waited_for() -> None:
    rig, transaction = in_transaction()
    _, sent = three(rig)
    rig.answer(sent[0], V.VERDICT_TRANSACTION_CONFLICT)
    assert transaction.failure is None
    rig.now += 5
    assert values(rig.send()) == [b"a", b"b", b"c"]


def test_given_sequences_may_be_given_again_after_an_abort() -> None:
    rig = Rig()
    transaction = begun()
    rig.accumulator.resume(transaction)
    future = rig.append(b"a", sequence=100)
    (sent,) = rig.send()
    rig.answer(sent, V.VERDICT_STAGED, base_offset=0)
    assert future.result(0).sequence == 100
    transaction.fail(ABORTED)
    assert rig.accumulator.drop_transaction() == []
    rig.sender.roll_back(transaction)
    end(rig)
    rig.append(b"a", sequence=100)
    assert sequences(rig.send()) == [(100, 100, -1)]
    assert rig.sender.stored_given == -1


def test_an_expected_offset_is_refused_in_a_transaction() -> None:
    rig, _ = in_transaction()
    with pytest.raises(errors.InvalidRequestError) as caught:
        rig.append(b"a", expected_offset=3)
    assert caught.value.field == "expected_offset"


def test_no_batch_begins_while_a_transaction_does() -> None:
    rig = Rig()
    rig.accumulator.pause(errors.InvalidRequestError("it is being begun"))
    with pytest.raises(errors.InvalidRequestError, match="being begun"):
        rig.append(b"a")
    end(rig)
    rig.append(b"a")


def test_a_run_names_what_is_in_each_partition() -> None:
    one = begun()
    other = TopicPartition("t", 1)
    one.staged(TP, 3, 9)
    one.staged(TP, 2, 5)
    one.staged(other, 1, 0)
    assert {tp: (r.record_count, r.last_sequence) for tp, r in one.runs.items()} == {
        TP: (5, 9),
        other: (1, 0),
    }
