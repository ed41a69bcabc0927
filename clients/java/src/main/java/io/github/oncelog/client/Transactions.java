package io.github.oncelog.client;

import io.github.oncelog.client.ProducerTransaction.Call;
import io.github.oncelog.client.Transaction.State;
import io.github.oncelog.client.proto.AbortTransactionRequest;
import io.github.oncelog.client.proto.BeginTransactionRequest;
import io.github.oncelog.client.proto.BeginTransactionResponse;
import io.github.oncelog.client.proto.CommitTransactionRequest;
import io.github.oncelog.client.proto.CommitTransactionResponse;
import io.github.oncelog.client.proto.KeepTransactionsAliveRequest;
import io.github.oncelog.client.proto.NextTransaction;
import io.github.oncelog.client.proto.StagedOffsets;
import io.github.oncelog.client.proto.StagedRun;
import io.github.oncelog.client.proto.TransactionServiceGrpc;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A producer's transactions, one after the other: the calls, and the signs of life. Staged records
 * go the way of all records; a transaction begins and ends with nothing on its way, so that a batch
 * belongs to the transaction that was open when it began. The meaning of an answer is decided in
 * {@link ProducerTransaction}.
 */
final class Transactions {
  // A node that hangs must not hold up a call that another one answers. A commit waits for markers
  // in all partitions.
  private static final long ATTEMPT = 2 * Times.SECOND;
  private static final long COMMIT_ATTEMPT = 4 * Times.SECOND;
  private static final Duration DEFAULT_TOTAL = Duration.ofMinutes(15);

  /** So often within the idle time a transaction says that it lives. */
  private static final int SIGNS = 3;

  private final ProducerConfig config;
  private final Cluster cluster;
  private final Sender sender;
  private final Groups groups;
  private final Runnable drain;
  private final ReentrantLock lock = new ReentrantLock();
  private final Following following = new Following();
  private volatile ProducerTransaction current;
  // The nonce of a begin that was not answered is used again: it may have begun one.
  private long nonce;
  private int nonceOf; // the identity's serial
  private boolean answered = true;
  private BeginTransactionRequest begin; // the newest one
  private Staging staging; // of offsets, that was not answered yet
  private NextTransaction next; // that the commit under way shall begin

  private record Staging(
      ProducerTransaction transaction,
      String group,
      Map<TopicPartition, OffsetCommit> offsets,
      long number,
      CommitTerms terms) {}

  /**
   * @param drain returns when nothing waits any more and nothing is on its way
   */
  Transactions(ProducerConfig config, Cluster cluster, Sender sender, Runnable drain) {
    this.config = config;
    this.cluster = cluster;
    this.sender = sender;
    this.drain = drain;
    groups = new Groups(cluster);
  }

  // --- begin -------------------------------------------------------------------------

  /** Begins one, when all that was sent before is settled. 0: the node's own times. */
  ProducerTransaction begin(Duration idleTimeout, Duration totalTimeout) {
    if (config.producerName() == null) {
      throw Detail.invalid("producer_name", "a transaction needs a producer with a producerName");
    }
    lock.lock();
    try {
      endBefore();
      sender.accumulator.pause(Detail.invalid("transaction", "a transaction is being begun"));
      ProducerTransaction begun = null;
      try {
        drain.run();
        OncelogException failure = sender.accumulator.failure();
        if (failure != null) {
          throw failure;
        }
        begun = begin((int) idleTimeout.toMillis(), (int) totalTimeout.toMillis());
        current = begun;
      } finally {
        sender.accumulator.resume(begun);
      }
      ProducerTransaction alive = begun;
      cluster.spawn(() -> keepAlive(alive));
      return begun;
    } finally {
      lock.unlock();
    }
  }

  /** The end of the one before must be known. */
  private void endBefore() {
    ProducerTransaction before = current;
    if (before == null || before.isOver()) {
      return;
    }
    if (before.state() != State.OPEN) {
      // It was to be ended, and the caller that asked for that gave up.
      Call call = before.state() == State.COMMITTING ? Call.COMMIT : Call.ABORT;
      end(before, call, Times.now() + config.deliveryTimeout().toNanos());
      if (before.isOver()) {
        return;
      }
    }
    throw new OncelogException(
        ErrorKind.TRANSACTION_OPEN,
        "transaction %d of this producer is %s: commit or abort it; Producer.transaction has it",
        before.id,
        before.state());
  }

  private ProducerTransaction begin(int idleTimeoutMs, int totalTimeoutMs) {
    long until = Times.now() + Math.max(config.maxBlock().toNanos(), cluster.requestTimeout);
    long total = (totalTimeoutMs > 0 ? Duration.ofMillis(totalTimeoutMs) : DEFAULT_TOTAL).toNanos();
    Identity identity = sender.identities.forTransaction(total, sender.usedUp(), until);
    Following.Terms terms = new Following.Terms(identity, idleTimeoutMs, totalTimeoutMs);
    if (following.waiting() != null && !terms.equals(following.terms())) {
      abortFollowing();
    }
    following.begin(terms, Times.now());
    BeginTransactionResponse begun = following.take();
    if (begun != null) {
      return transaction(identity, begun);
    }
    if (nonceOf != identity.serial()) {
      nonce = 0;
      nonceOf = identity.serial();
      answered = true;
    }
    drawNonce();
    begin =
        BeginTransactionRequest.newBuilder()
            .setProducerName(config.producerName())
            .setProducerId(identity.producerId())
            .setEpoch(identity.epoch())
            .setLeaseToken(identity.leaseToken())
            .setNonce(nonce)
            .setIdleTimeoutMs(idleTimeoutMs)
            .setTotalTimeoutMs(totalTimeoutMs)
            .addAllPartitions(written(current))
            .build();
    return transaction(identity, callBegin(until));
  }

  private BeginTransactionResponse callBegin(long until) {
    AtomicBoolean doubt = new AtomicBoolean();
    try {
      Cluster.Limits limits =
          new Cluster.Limits(until - Times.now(), ATTEMPT, e -> doubt.set(true));
      BeginTransactionResponse answer =
          cluster.call(limits, TransactionServiceGrpc.getBeginTransactionMethod(), begin);
      answered = true;
      return answer;
    } catch (OncelogException e) {
      if (!e.isRetriable()) {
        // A refusal says nothing of an attempt before it that had no answer.
        answered = !doubt.get();
        if (e.is(ErrorKind.PRODUCER_FAILED)) {
          sender.onLoop(() -> sender.fail(e));
        }
      }
      throw e;
    }
  }

  private void drawNonce() {
    nonce += answered ? 1 : 0;
    answered = false;
  }

  private static ProducerTransaction transaction(
      Identity identity, BeginTransactionResponse answer) {
    if (answer.getTransactionId() <= 0 || answer.getIdleTimeoutMs() <= 0) {
      throw new OncelogException(
          ErrorKind.INTERNAL, "the node has begun a transaction without a number or time");
    }
    return new ProducerTransaction(
        answer.getTransactionId(),
        identity.producerId(),
        identity.epoch(),
        answer.getIdleTimeoutMs() * Times.MS);
  }

  private void abortFollowing() {
    BeginTransactionResponse begun = following.take();
    if (begun == null) {
      return;
    }
    Identity identity = following.terms().identity();
    AbortTransactionRequest request =
        AbortTransactionRequest.newBuilder()
            .setTransactionId(begun.getTransactionId())
            .setProducerId(identity.producerId())
            .setEpoch(identity.epoch())
            .build();
    try {
      cluster.call(
          new Cluster.Limits(ATTEMPT, ATTEMPT, e -> {}),
          TransactionServiceGrpc.getAbortTransactionMethod(),
          request);
    } catch (OncelogException e) {
      // Where nobody answers it is aborted when it has been idle, or by the next lease.
    }
  }

  private void abortUnused(BeginTransactionResponse begun, long after) {
    Times.sleep(after);
    lock.lock();
    try {
      if (following.waiting() == begun) {
        abortFollowing();
      }
    } finally {
      lock.unlock();
    }
  }

  // --- while it is open --------------------------------------------------------------

  /** Says that it lives, in time for one answer that is lost. */
  private void keepAlive(ProducerTransaction transaction) {
    KeepTransactionsAliveRequest request =
        KeepTransactionsAliveRequest.newBuilder().addTransactionIds(transaction.id).build();
    long pause = transaction.idleTimeout / SIGNS;
    Cluster.Limits limits = new Cluster.Limits(pause, Math.min(pause, ATTEMPT), e -> {});
    while (!transaction.awaitOver(pause)) {
      try {
        var answer =
            cluster.call(limits, TransactionServiceGrpc.getKeepTransactionsAliveMethod(), request);
        if (answer.getEndedList().contains(transaction.id) && transaction.state() == State.OPEN) {
          OncelogException gone =
              new OncelogException(
                  ErrorKind.TRANSACTION_ABORTED,
                  "transaction %d is not open any more: it was idle or open for too long, or was"
                      + " aborted by a successor or an operator",
                  transaction.id);
          sender.onLoop(() -> sender.drop(transaction, gone));
          return;
        }
      } catch (OncelogException e) {
        // No sign of life this time.
      }
    }
  }

  /** Stores offsets with it. A batch that cannot be stored fails the transaction. */
  void stageOffsets(
      ProducerTransaction transaction,
      String group,
      Map<TopicPartition, OffsetCommit> offsets,
      CommitTerms terms) {
    lock.lock();
    try {
      finishStaging();
      transaction.checkOpen();
      ProducerTransaction.StagedOffsets staged =
          transaction.offsets.computeIfAbsent(
              group, key -> new ProducerTransaction.StagedOffsets());
      long number = terms != null ? terms.number() : staged.lastNumber + 1;
      staging = new Staging(transaction, group, Map.copyOf(offsets), number, terms);
      finishStaging();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Repeats the call until it is answered. A caller that was interrupted before leaves that to the
   * next call: nobody knows yet whether his offsets are staged.
   */
  private void finishStaging() {
    if (staging == null || staging.transaction.isOver()) {
      staging = null;
      return;
    }
    ProducerTransaction transaction = staging.transaction;
    long deadline = Times.now() + config.deliveryTimeout().toNanos();
    Attempts attempts = new Attempts();
    for (int failures = 1; ; failures++) {
      try {
        groups.stage(transaction, staging.group, staging.offsets, staging.number, staging.terms);
        break;
      } catch (OncelogException e) {
        long pause = cluster.backoff.delay(failures);
        boolean over = Times.now() + pause >= deadline;
        if (over || !e.isRetriable() || transaction.failure() != null) {
          staging = null;
          attempts.failed(e);
          OncelogException told = e.isRetriable() ? attempts.error() : e;
          sender.onLoop(() -> sender.drop(transaction, told));
          throw told;
        }
        attempts.failed(e);
        Times.sleep(pause);
      }
    }
    ProducerTransaction.StagedOffsets staged = transaction.offsets.get(staging.group);
    staged.lastNumber = staging.number;
    staged.count += staging.offsets.size();
    staging = null;
  }

  // --- end ---------------------------------------------------------------------------

  /** Makes all of it readable; throws why it is not, with an outcome. It may be repeated. */
  CommittedTransaction commit(ProducerTransaction transaction) {
    lock.lock();
    try {
      if (!transaction.isOver()) {
        pause(transaction);
        drain.run();
        try {
          finishStaging();
        } catch (OncelogException e) {
          // The transaction has failed with that: its end says so.
        }
        end(transaction, Call.COMMIT, Times.now() + config.deliveryTimeout().toNanos());
      }
      CommittedTransaction result = transaction.result();
      if (result == null) {
        throw transaction.error();
      }
      return result;
    } finally {
      lock.unlock();
    }
  }

  /** Drops all of it; throws TRANSACTION_COMMITTED if it came too late. */
  void abort(ProducerTransaction transaction) {
    lock.lock();
    try {
      abort(transaction, Times.now() + config.deliveryTimeout().toNanos());
    } finally {
      lock.unlock();
    }
  }

  private void abort(ProducerTransaction transaction, long deadline) {
    if (!transaction.isOver()) {
      pause(transaction);
      OncelogException aborted =
          new OncelogException(
              ErrorKind.TRANSACTION_ABORTED, "transaction %d was aborted", transaction.id);
      sender.onLoop(() -> sender.drop(transaction, aborted));
      end(transaction, Call.ABORT, deadline);
    }
    if (transaction.state() == State.COMMITTED) {
      throw new OncelogException(
              ErrorKind.TRANSACTION_COMMITTED,
              "transaction %d is committed, nothing is undone",
              transaction.id)
          .with(OncelogException.Outcome.UNKNOWN); // stored, that is
    }
    if (transaction.state() != State.ABORTED) {
      throw transaction.error();
    }
  }

  private void pause(ProducerTransaction transaction) {
    assert transaction == current : "one transaction at a time";
    sender.accumulator.pause(
        Detail.invalid("transaction", "transaction %d is being ended", transaction.id));
  }

  /** Makes calls until an answer is final; throws COMMIT_TIMEOUT if none comes. */
  private void end(ProducerTransaction transaction, Call call, long deadline) {
    Call making = transaction.end(call);
    Attempts attempts = new Attempts();
    for (int failures = 1; ; failures++) {
      OncelogException error = null;
      CommitTransactionResponse answer = null;
      long left = deadline - Times.now();
      try {
        if (making == Call.COMMIT) {
          answer = callCommit(transaction, left);
        } else {
          callAbort(transaction, left);
        }
      } catch (OncelogException e) {
        error = e;
      } catch (RuntimeException | Error e) {
        // Interrupted, most likely: the call may have had its effect.
        if (making == Call.COMMIT) {
          transaction.noteDoubt();
        }
        throw e;
      }
      if (error != null && error.kind() == ErrorKind.CLIENT_CLOSED) {
        transaction.noteDoubt();
        throw timeout(transaction, error);
      }
      making = transaction.answered(making, error);
      if (making == null) {
        over(transaction, answer);
        return;
      }
      if (error != null && error.isRetriable()) {
        attempts.failed(error);
        long pause = cluster.backoff.delay(failures);
        if (Times.now() + pause >= deadline) {
          throw timeout(transaction, attempts.error());
        }
        Times.sleep(pause);
      }
    }
  }

  private static OncelogException timeout(ProducerTransaction transaction, OncelogException cause) {
    return new OncelogException(
            ErrorKind.COMMIT_TIMEOUT,
            "transaction %d is %s, and nobody has said how it ended; commit or abort it again: %s",
            transaction.id,
            transaction.state(),
            cause.getMessage())
        .because(cause);
  }

  private void callAbort(ProducerTransaction transaction, long left) {
    cluster.call(
        new Cluster.Limits(left, ATTEMPT, e -> {}),
        TransactionServiceGrpc.getAbortTransactionMethod(),
        AbortTransactionRequest.newBuilder()
            .setTransactionId(transaction.id)
            .setProducerId(transaction.producerId)
            .setEpoch(transaction.epoch)
            .build());
  }

  private CommitTransactionResponse callCommit(ProducerTransaction transaction, long left) {
    if (next == null && following.isExpected()) {
      drawNonce();
      next =
          NextTransaction.newBuilder()
              .setNonce(nonce)
              .setIdleTimeoutMs(following.terms().idleTimeoutMs())
              .setTotalTimeoutMs(following.terms().totalTimeoutMs())
              .addAllPartitions(written(transaction))
              .build();
    }
    return cluster.call(
        // It may be decided by a call without an answer, even if the next call is told otherwise.
        new Cluster.Limits(left, COMMIT_ATTEMPT, e -> transaction.noteDoubt()),
        TransactionServiceGrpc.getCommitTransactionMethod(),
        commitRequest(transaction, next));
  }

  /** The same in each call: nothing is staged after the first one. */
  private static CommitTransactionRequest commitRequest(
      ProducerTransaction transaction, NextTransaction next) {
    CommitTransactionRequest.Builder request =
        CommitTransactionRequest.newBuilder()
            .setTransactionId(transaction.id)
            .setProducerId(transaction.producerId)
            .setEpoch(transaction.epoch)
            .setTimeoutMs((int) (COMMIT_ATTEMPT / Times.MS * 4 / 5));
    if (next != null) {
      request.setBeginNext(next);
    }
    transaction.runs.forEach(
        (tp, run) ->
            request.addRuns(
                StagedRun.newBuilder()
                    .setTopic(tp.topic())
                    .setPartition(tp.partition())
                    .setRecordCount(run.records)
                    .setLastSequence(run.lastSequence)));
    transaction.offsets.forEach(
        (group, staged) ->
            request.addOffsets(
                StagedOffsets.newBuilder()
                    .setGroup(group)
                    .setOffsetCount(staged.count)
                    .setLastNumber(staged.lastNumber)));
    return request.build();
  }

  /** Where it has staged something; the next one probably does as well. */
  private static List<io.github.oncelog.client.proto.TopicPartition> written(
      ProducerTransaction transaction) {
    List<io.github.oncelog.client.proto.TopicPartition> all = new ArrayList<>();
    if (transaction != null) {
      transaction.runs.keySet().forEach(tp -> all.add(Identities.message(tp)));
    }
    return all;
  }

  private void over(ProducerTransaction transaction, CommitTransactionResponse answer) {
    switch (transaction.state()) {
      case COMMITTED -> {
        Map<TopicPartition, CommittedTransaction.Run> places = new TreeMap<>();
        if (answer != null) {
          for (var run : answer.getRunsList()) {
            places.put(
                new TopicPartition(run.getTopic(), run.getPartition()),
                new CommittedTransaction.Run(run.getBaseOffset(), run.getRecordCount()));
          }
        }
        transaction.published(places);
      }
      case ABORTED -> sender.onLoop(() -> sender.rollBack(transaction));
      case UNKNOWN -> {
        // Nobody knows which sequences are stored, either.
        OncelogException lost =
            new OncelogException(
                ErrorKind.PRODUCER_FAILED, "how transaction %d ended is not known", transaction.id);
        sender.onLoop(() -> sender.fail(lost));
      }
      default -> {
        return; // refused: it may be asked again
      }
    }
    following.end(Times.now());
    next = null;
    if (answer != null && answer.hasNext()) {
      answered = true;
      BeginTransactionResponse begun = answer.getNext();
      long kept = following.keep(begun);
      cluster.spawn(() -> abortUnused(begun, kept));
    }
    sender.accumulator.resume(null);
  }

  /** Aborts the open transaction. A transaction with a requested commit is left to the cluster. */
  void close(Duration limit) {
    long patience = Math.min(cluster.requestTimeout, Times.span(limit));
    long deadline = Times.now() + patience;
    try {
      if (!lock.tryLock(patience, TimeUnit.NANOSECONDS)) {
        return; // it is being ended by another thread
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return;
    }
    try {
      ProducerTransaction transaction = current;
      if (transaction != null && transaction.state() == State.OPEN) {
        if (!transaction.isEmpty()) {
          Warnings.warn(
              "transaction "
                  + transaction.id
                  + " was neither committed nor aborted before its producer was closed: it is"
                  + " aborted, with all of its records");
        }
        abort(transaction, deadline);
      } else if (!answered && begin != null && begin.getNonce() == nonce) {
        // Its caller gave up, and it may have begun one: the same call tells its number.
        following.keep(callBegin(deadline));
      }
      abortFollowing();
    } catch (OncelogException e) {
      // Where nobody answers it is aborted when it has been idle.
    } finally {
      lock.unlock();
    }
  }
}
