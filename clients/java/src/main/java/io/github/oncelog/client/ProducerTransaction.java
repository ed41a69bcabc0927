package io.github.oncelog.client;

import io.github.oncelog.client.Transaction.State;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;

/**
 * One transaction as its producer sees it: staged records, failures, and its end. No IO; for any
 * thread.
 *
 * <pre>
 * OPEN --commit--> COMMITTING --answer--> COMMITTED
 *  |                   | refused: an earlier call, without an answer, may have decided
 *  +------abort--> ABORTING ---answer---> ABORTED
 *                      '-- "it was committed" --> COMMITTING: ask for the places
 * </pre>
 *
 * <p>No outcome is guessed. A call without an answer is made again, the same call, until one comes;
 * the coordinator's word is final.
 */
final class ProducerTransaction {
  /** A call that ends it. */
  enum Call {
    COMMIT,
    ABORT
  }

  /** Its part in one partition; where that is, once it is committed. */
  static final class StagedRun {
    long records;
    long lastSequence = -1;
    volatile long baseOffset = -1;
  }

  /** Its staged offsets of one group. */
  static final class StagedOffsets {
    long lastNumber;
    long count;
  }

  final long id;
  final long producerId;
  final int epoch;
  final long idleTimeout;
  // Both are not changed once the first commit call is made.
  final Map<TopicPartition, StagedRun> runs = new TreeMap<>();
  final Map<String, StagedOffsets> offsets = new TreeMap<>();
  private State state = State.OPEN;
  private OncelogException failure;
  private CommittedTransaction result;
  private boolean askedToCommit;
  private boolean inDoubt; // a commit call without an answer may have decided
  private OncelogException refusal;
  private boolean wasCommitted;

  ProducerTransaction(long id, long producerId, int epoch, long idleTimeout) {
    assert id > 0 && producerId > 0;
    this.id = id;
    this.producerId = producerId;
    this.epoch = epoch;
    this.idleTimeout = idleTimeout;
  }

  synchronized State state() {
    return state;
  }

  synchronized boolean isOver() {
    return state == State.COMMITTED || state == State.ABORTED || state == State.UNKNOWN;
  }

  /** Waits so long for its end; whether it has come. */
  synchronized boolean awaitOver(long limit) {
    long until = Times.now() + limit;
    try {
      for (long left = limit; !isOver() && left > 0; left = until - Times.now()) {
        wait(Math.max(1, left / Times.MS));
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    }
    return isOver();
  }

  private void enter(State next) {
    state = next;
    notifyAll();
  }

  // --- staging -----------------------------------------------------------------------

  synchronized StagedRun run(TopicPartition tp) {
    return runs.computeIfAbsent(tp, key -> new StagedRun());
  }

  /** A batch is on disks of a majority. Batches of a partition come in any order. */
  synchronized StagedRun staged(TopicPartition tp, int records, long lastSequence) {
    StagedRun run = run(tp);
    run.records += records;
    run.lastSequence = Math.max(run.lastSequence, lastSequence);
    return run;
  }

  /** Nothing was staged with it. */
  synchronized boolean isEmpty() {
    return runs.isEmpty() && offsets.isEmpty();
  }

  /** Something of it will not be there: it must not be committed. The first one counts. */
  synchronized void fail(OncelogException error) {
    if (failure == null && state == State.OPEN) {
      failure = error;
    }
  }

  /** Why it can no longer be committed; null: it can. */
  synchronized OncelogException failure() {
    return failure;
  }

  /** Error of a caller that goes on with a failed transaction. */
  synchronized OncelogException refused() {
    assert failure != null;
    return new OncelogException(
            ErrorKind.TRANSACTION_ABORTED,
            "transaction %d cannot be committed: %s",
            id,
            failure.getMessage())
        .because(failure);
  }

  /** Throws the error for a caller that goes on with it. */
  synchronized void checkOpen() {
    if (failure != null) {
      throw refused();
    }
    if (state != State.OPEN) {
      throw Detail.invalid("transaction", "transaction %d is %s", id, state);
    }
  }

  // --- ending ------------------------------------------------------------------------

  /**
   * The application asks for this; returns the first call to make. A transaction that has failed,
   * perhaps just now, is aborted.
   */
  synchronized Call end(Call call) {
    assert !isOver() : "a transaction ends once";
    if (call == Call.COMMIT && failure == null && state != State.ABORTING) {
      enter(State.COMMITTING);
      askedToCommit = true;
      return Call.COMMIT;
    }
    enter(State.ABORTING);
    return Call.ABORT;
  }

  /** A commit call had no answer, or none that tells its outcome. */
  synchronized void noteDoubt() {
    inDoubt = true;
  }

  /** Takes note of an answer, null: a success; returns the next call, null: none. */
  synchronized Call answered(Call call, OncelogException error) {
    if (error != null && error.isRetriable()) {
      inDoubt |= call == Call.COMMIT;
      return call;
    }
    return call == Call.COMMIT ? commitAnswered(error) : abortAnswered(error);
  }

  private Call commitAnswered(OncelogException error) {
    if (error == null) {
      enter(State.COMMITTED);
      return null;
    }
    if (refusal == null) {
      refusal = error;
    }
    boolean unknown = error.kind() == ErrorKind.UNKNOWN_TRANSACTION;
    if (error.kind() == ErrorKind.TRANSACTION_ABORTED || unknown && !inDoubt) {
      enter(State.ABORTED);
      return null;
    }
    if (wasCommitted) {
      // It is committed, but nobody says where its records are.
      enter(State.COMMITTED);
      return null;
    }
    if (unknown) {
      enter(State.UNKNOWN);
      return null;
    }
    // Refused; yet an earlier call, which had no answer, may have been granted.
    enter(State.ABORTING);
    return Call.ABORT;
  }

  private Call abortAnswered(OncelogException error) {
    if (error != null && error.kind() == ErrorKind.TRANSACTION_COMMITTED && askedToCommit) {
      wasCommitted = true;
      refusal = null;
      enter(State.COMMITTING);
      return Call.COMMIT;
    }
    if (error == null || !askedToCommit) {
      // Without a commit call nothing of it is ever readable, whichever way this one ends: a
      // transaction that could not be aborted now is aborted when it has been idle.
      enter(State.ABORTED);
      return null;
    }
    if (refusal == null) {
      refusal = error;
    }
    boolean ended =
        error.kind() == ErrorKind.TRANSACTION_ENDED
            || error.kind() == ErrorKind.UNKNOWN_TRANSACTION;
    enter(ended ? State.UNKNOWN : State.ABORTING);
    return null;
  }

  /** Why it was not committed, for the caller of commit. */
  synchronized OncelogException error() {
    if (failure != null && refusal == null) {
      return failure.is(ErrorKind.PRODUCER_FAILED) ? failure : refused();
    }
    OncelogException error = refusal;
    if (error == null || state == State.ABORTED && error.kind() == ErrorKind.UNKNOWN_TRANSACTION) {
      // No commit call of ours had a chance, and its name has begun another since.
      String text = error == null ? "transaction " + id + " was aborted" : error.getMessage();
      error = new OncelogException(ErrorKind.TRANSACTION_ABORTED, "%s", text);
    }
    return error.with(
        state == State.ABORTED
            ? OncelogException.Outcome.NOT_STORED
            : OncelogException.Outcome.UNKNOWN);
  }

  /** It is committed, and its records are there. */
  synchronized void published(Map<TopicPartition, CommittedTransaction.Run> places) {
    assert state == State.COMMITTED;
    places.forEach((tp, place) -> run(tp).baseOffset = place.baseOffset());
    result = new CommittedTransaction(id, Map.copyOf(places));
  }

  /** Null: it is not known to be committed. */
  synchronized CommittedTransaction result() {
    return result;
  }
}
