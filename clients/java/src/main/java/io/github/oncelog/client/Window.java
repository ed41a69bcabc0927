package io.github.oncelog.client;

import io.github.oncelog.client.OncelogException.Outcome;
import io.github.oncelog.client.proto.BatchResult;
import io.github.oncelog.client.proto.Verdict;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * One partition's batches on their way: order, retries, and the meaning of each verdict. The sender
 * asks {@link #next} for batches to send, reports answers, broken connections and the passing of
 * time, and carries out the returned {@link Reaction}. No IO; the clock's reading is an argument;
 * used on the sender's thread only.
 *
 * <p>The rules that make a retry safe:
 *
 * <ul>
 *   <li>sequences are given when a batch is first sent, and never change after that;
 *   <li>after any failure, everything that is not acknowledged is sent again from the head on, the
 *       same bytes;
 *   <li>a batch behind a retried one may be answered OUT_OF_ORDER; the head, sent when all before
 *       it was acknowledged, may not: then this producer cannot go on;
 *   <li>a batch that a node refused for good consumed no sequence. Batches behind it can never be
 *       stored under the same producer id, because the gap stays; so it is sealed anew under a new
 *       one (a reset, of this partition only);
 *   <li>that holds only while no attempt of the refused batch is unaccounted for. If one is, the
 *       outcome is unknown, and everything behind it fails as unknown too.
 * </ul>
 */
final class Window {
  /** The sender's work after an event. */
  sealed interface Reaction {}

  /** Nothing. */
  record Nothing() implements Reaction {}

  /** The leader is not known any more. */
  record LeaderLost() implements Reaction {}

  /** A node refused and named the leader. */
  record Hinted(int nodeId, String address) implements Reaction {}

  /** The whole producer stops. */
  record Fatal(OncelogException error) implements Reaction {}

  /** The same, unless the topic has been deleted and created anew. */
  record FatalUnlessRecreated(OncelogException error) implements Reaction {}

  static final Reaction NOTHING = new Nothing();
  private static final int MOST_RESETS = 3;

  final TopicPartition tp;
  private final Accumulator accumulator;
  private final ProducerConfig config;
  private final Backoff backoff;
  private final Counters stats;
  private final Consumer<OpenBatch> onDone; // once for each batch, after its delivery

  private final List<SealedBatch> batches = new ArrayList<>();
  private int cursor; // batches before it were sent since the last rewind
  private final ArrayDeque<OpenBatch> again = new ArrayDeque<>(); // to be sealed anew, first
  long retryAt;
  private int failures;

  Identity identity = Identity.NONE;
  private long prevSequence = -1;
  long topicId; // of the topic in which the identity began
  private boolean dead; // no batch may be sealed with the identity any more
  private int resets; // since the last acknowledgement

  // The application's own sequence that was stored last; -1: none.
  long storedGiven = -1;
  // Why the last attempt failed, or could not be made; empty: it did not.
  final Obstacles obstacles = new Obstacles();
  private boolean madeAnew; // the topic was, while a transaction wrote to it

  /** Where a transaction began here. */
  private record Before(ProducerTransaction transaction, long prevSequence, long storedGiven) {}

  private Before before;

  // A batch with the application's own sequences has failed. Later batches must not be stored:
  // prev_sequence would hide the gap, and a copy lose records unseen.
  private OncelogException gap;

  Window(
      TopicPartition tp,
      Accumulator accumulator,
      ProducerConfig config,
      Backoff backoff,
      Counters stats,
      Consumer<OpenBatch> onDone) {
    this.tp = tp;
    this.accumulator = accumulator;
    this.config = config;
    this.backoff = backoff;
    this.stats = stats;
    this.onDone = onDone;
    dead = config.enableIdempotence();
  }

  private Reaction gapReaction() {
    return gap == null ? NOTHING : new Fatal(gap);
  }

  /** The producer id is the cluster's, so another one can be had. */
  private boolean leased() {
    return config.resumeFrom() == null;
  }

  // --- identity ----------------------------------------------------------------------

  /** Whether {@link #adopt} must come before the next batch can be sealed. */
  boolean needsIdentity(long now, Identity current) {
    return batches.isEmpty() && identityOver(now, current);
  }

  /** No further batch may be sealed with the identity; the window drains. */
  private boolean identityOver(long now, Identity current) {
    if (!config.enableIdempotence()) {
      return false;
    }
    boolean newer = current != null && current.serial() > identity.serial();
    return dead || newer || now >= identity.expireAt();
  }

  boolean wasReset() {
    return dead && identity != Identity.NONE;
  }

  /** Goes on with this identity after lastSequence (-1: from the start). */
  void adopt(Identity identity, long lastSequence, long topicId) {
    assert batches.isEmpty() : "an identity changes only when nothing is on its way";
    this.identity = identity;
    this.topicId = topicId;
    prevSequence = lastSequence;
    dead = false;
    madeAnew = false;
    obstacles.clear();
  }

  // --- transactions ------------------------------------------------------------------

  /** The serial of its identity if no batch may be sealed with it any more, else 0. */
  int usedUp() {
    return wasReset() ? identity.serial() : 0;
  }

  private void noteBegin(ProducerTransaction transaction) {
    if (transaction != null && (before == null || before.transaction != transaction)) {
      before = new Before(transaction, prevSequence, storedGiven);
    }
  }

  /** It was aborted: its sequences are free, for late copies name the transaction. */
  void rollBack(ProducerTransaction transaction) {
    if (before == null || before.transaction != transaction) {
      return;
    }
    assert idle() : "its batches have failed";
    prevSequence = before.prevSequence;
    storedGiven = before.storedGiven;
    before = null;
    failures = 0;
    resets = 0;
    retryAt = 0;
    dead = madeAnew;
  }

  /** It cannot be committed any more. All of it fails; its stored part is dropped. */
  private Reaction stagingFailed(ProducerTransaction transaction, OncelogException error) {
    accumulator.failTransaction(transaction, error);
    failAll(error);
    return NOTHING;
  }

  /** Nobody is known to send to. The last leader's word tells more than that. */
  void lacksLeader(OncelogException noMetadata) {
    if (noMetadata != null) {
      obstacles.met("no metadata: " + noMetadata.getMessage(), noMetadata);
    } else if (obstacles.isEmpty()) {
      obstacles.met("no leader is known");
    }
  }

  // --- batches to send ---------------------------------------------------------------

  boolean idle() {
    return batches.isEmpty() && again.isEmpty();
  }

  /** Whether a batch with the application's own sequences has failed. */
  Reaction afterNext() {
    return gapReaction();
  }

  /** The next batch to send; null: none now, see {@link #afterNext}. */
  SealedBatch next(long now, Identity current) {
    if (now < retryAt || gap != null) {
      return null;
    }
    while (cursor < batches.size()) {
      SealedBatch s = batches.get(cursor++);
      if (!s.acked) {
        return s;
      }
    }
    if (batches.size() >= config.maxInFlight() || identityOver(now, current)) {
      return null;
    }
    SealedBatch s = sealNext();
    if (s == null) {
      return null;
    }
    if (config.enableIdempotence()) {
      prevSequence = s.lastSequence;
    }
    batches.add(s);
    cursor = batches.size();
    return s;
  }

  private SealedBatch sealNext() {
    while (gap == null) {
      OpenBatch batch = again.isEmpty() ? accumulator.take(tp) : again.poll();
      if (batch == null) {
        return null;
      }
      long deadline = batch.created + config.deliveryTimeout().toNanos();
      noteBegin(batch.transaction);
      try {
        accumulator.reuse(batch.encode(config.compression(), config.compressionLevel()));
      } catch (OncelogException e) {
        fail(
            batch,
            new OncelogException(
                    ErrorKind.INVALID_BATCH, "%s: cannot be encoded: %s", tp, e.getMessage())
                .with(Outcome.NEVER_SENT));
        continue;
      }
      return new SealedBatch(batch, identity, prevSequence, deadline, config.compression());
    }
    return null;
  }

  /** An attempt was handed to the connection; answers will name attemptId. */
  void sent(SealedBatch s, long attemptId, long now) {
    if (s.attempts > 0) {
      stats.batchesRetried++;
    } else {
      s.firstSentAt = now;
      stats.batchesSent++;
      stats.recordsSent += s.batch.count;
      stats.bytesSent += s.size();
    }
    s.attempts++;
    s.attemptId = attemptId;
    s.sentAt = now;
    s.refused = false;
    s.sentAsHead = s == head();
  }

  private SealedBatch head() {
    for (SealedBatch s : batches) {
      if (!s.acked) {
        return s;
      }
    }
    return null;
  }

  // --- events ------------------------------------------------------------------------

  Reaction onResult(SealedBatch s, long attemptId, BatchResult result, long now) {
    Verdict verdict = result.getVerdict();
    if (s.acked || !batches.contains(s)) {
      return NOTHING; // a second answer, or one for a batch that was given up
    }
    if (Statuses.stored(verdict)) {
      // True whichever attempt it answers.
      stored(s, result, now);
      return NOTHING;
    }
    if (s.attemptId != attemptId) {
      return NOTHING; // says nothing about the attempt that is on its way
    }
    s.attemptId = 0;
    if (Statuses.retriable(verdict) || verdict == Verdict.VERDICT_UNSPECIFIED) {
      return tryAgain(s, result, now);
    }
    if (verdict == Verdict.VERDICT_OUT_OF_ORDER && !(s == head() && s.sentAsHead)) {
      s.refused = true;
      if (s == head()) {
        rewind(now, 0);
      }
      return NOTHING;
    }
    if (Statuses.kind(verdict) == null) {
      s.ambiguous = true; // a later version's word: it may mean that the batch is stored
    }
    OncelogException error = Statuses.error(result, tp);
    if (s.ambiguous) {
      error = error.with(Outcome.UNKNOWN);
    }
    if (error.kind() == ErrorKind.PRODUCER_EXPIRED && leased()) {
      return refusedForGood(s, error);
    }
    if (error.kind() == ErrorKind.FENCED) {
      fenced(s);
      return new Fatal(error);
    }
    if (error.kind() == ErrorKind.UNKNOWN_PRODUCER) {
      return new FatalUnlessRecreated(error);
    }
    return error.is(ErrorKind.PRODUCER_FAILED) ? new Fatal(error) : refusedForGood(s, error);
  }

  /**
   * Batches sent behind a fenced one are refused, too. A partition's epoch never falls, and a node
   * takes the batches of a stream in order.
   */
  private void fenced(SealedBatch s) {
    for (SealedBatch behind : batches.subList(batches.indexOf(s) + 1, batches.size())) {
      behind.attemptId = 0;
    }
  }

  private void stored(SealedBatch s, BatchResult result, long now) {
    s.acked = true;
    s.attemptId = 0;
    failures = 0;
    resets = 0;
    obstacles.clear();
    BatchDelivery delivery = s.batch.delivery;
    boolean duplicate = result.getVerdict() == Verdict.VERDICT_DUPLICATE;
    if (duplicate) {
      stats.duplicates++;
    }
    if (!s.abandoned) {
      stats.batchesAcked++;
      stats.recordsAcked += s.batch.count;
      stats.maxAckLatency = Math.max(stats.maxAckLatency, now - s.firstSentAt);
      if (s.batch.sequences != null) {
        storedGiven = Math.max(storedGiven, s.lastSequence);
      }
      if (s.batch.transaction != null) {
        delivery.run = s.batch.transaction.staged(tp, s.batch.count, s.lastSequence);
      }
      delivery.baseOffset = result.getBaseOffset();
      delivery.duplicate = duplicate;
      delivery.done.complete(null);
      onDone.accept(s.batch);
    }
    popAcked(now);
    resetIfAbandoned();
  }

  private void dropAckedHead() {
    while (!batches.isEmpty() && batches.get(0).acked) {
      batches.remove(0);
      cursor = Math.max(0, cursor - 1);
    }
  }

  private void popAcked(long now) {
    dropAckedHead();
    if (!batches.isEmpty() && batches.get(0).refused) {
      // Its turn has come: the reason of the refusal, the gap before it, is filled.
      rewind(now, 0);
    }
  }

  private Reaction tryAgain(SealedBatch s, BatchResult result, long now) {
    failures++;
    long delay = backoff.delay(failures);
    Reaction reaction = NOTHING;
    boolean doubt = true; // whether this attempt may be stored
    switch (result.getVerdict()) {
      case VERDICT_NOT_LEADER -> {
        if (!result.getLeaderAddress().isEmpty() && failures == 1) {
          reaction = new Hinted(result.getLeaderId(), result.getLeaderAddress());
          delay = 0; // a fresh hint needs no pause
        } else {
          reaction = new LeaderLost();
        }
      }
      case VERDICT_NOT_READY, VERDICT_UNKNOWN_TOPIC_OR_PARTITION -> {
        reaction = new LeaderLost();
        doubt = false;
      }
      case VERDICT_THROTTLED, VERDICT_STORAGE_FULL -> doubt = false;
      case VERDICT_TIMEOUT, VERDICT_UNSPECIFIED -> s.unanswered = true;
      default -> {}
    }
    s.ambiguous |= doubt;
    rewind(now, delay);
    return reaction;
  }

  /** No answer will come for the attempts on their way. */
  void onConnectionLost(long now) {
    for (SealedBatch s : batches) {
      if (s.attemptId != 0) {
        failures++;
        // The first retry goes at once: a new leader may already be known.
        rewind(now, backoff.delay(failures - 1));
        return;
      }
    }
  }

  /** Goes on at another node, at once. */
  void onLeaderChanged(long now) {
    rewind(now, 0);
  }

  /** Nobody knows the meaning of an answer. Hear it once more. */
  void sendAgain(long now) {
    failures++;
    rewind(now, backoff.delay(failures));
  }

  private void rewind(long now, long delay) {
    for (SealedBatch s : batches) {
      if (s.attemptId != 0) {
        s.ambiguous = true;
        s.unanswered = true;
        s.attemptId = 0;
      }
      s.refused = false;
    }
    cursor = 0;
    retryAt = now + delay;
  }

  /** When the oldest attempt that waits for its answer was sent; NEVER: none waits. */
  long oldestAttempt() {
    long oldest = Times.NEVER;
    for (SealedBatch s : batches) {
      if (s.attemptId != 0) {
        oldest = Math.min(oldest, s.sentAt);
      }
    }
    return oldest;
  }

  // --- refused for good --------------------------------------------------------------

  private Reaction refusedForGood(SealedBatch s, OncelogException error) {
    if (s.batch.transaction != null) {
      return stagingFailed(s.batch.transaction, error);
    }
    // Offsets only grow: a delayed copy will be refused for the same reason.
    boolean certain =
        !s.ambiguous
            || error.kind() == ErrorKind.OFFSET_MISMATCH
                && error.details().nextOffset() > s.batch.expectedOffset;
    OncelogException told = error.with(certain ? Outcome.NOT_STORED : Outcome.UNKNOWN);
    int position = batches.indexOf(s);
    if (!config.enableIdempotence()) {
      // Batches without sequences do not depend on each other.
      batches.remove(position);
      cursor -= position < cursor ? 1 : 0;
      fail(List.of(s), told);
      dropAckedHead();
      return NOTHING;
    }
    List<SealedBatch> behind = new ArrayList<>(batches.subList(position + 1, batches.size()));
    batches.subList(position, batches.size()).clear();
    cursor = Math.min(cursor, batches.size());
    if (error.kind() == ErrorKind.PRODUCER_EXPIRED && certain) {
      // Nothing is wrong with its records: they need another producer id.
      behind.add(0, s);
      return sealAgain(behind, told);
    }
    fail(List.of(s), told);
    if (!certain) {
      dead = true;
      stats.resets++;
      fail(
          behind,
          new OncelogException(
                  ErrorKind.DELIVERY_TIMEOUT,
                  "%s: a batch before it was refused and its outcome is not known",
                  tp)
              .with(Outcome.UNKNOWN));
      return gapReaction();
    }
    if (behind.isEmpty()) {
      prevSequence = s.prevSequence;
      return gapReaction();
    }
    return sealAgain(behind, told);
  }

  /**
   * The topic was deleted and created again, and its leader knows nothing of this producer.
   *
   * <p>A batch without an answer may have been stored in the topic that is gone: it fails. Refused
   * batches are in neither, nor those behind them: it goes to the new one, under a new producer id,
   * so that no delayed copy can take its place.
   */
  Reaction onTopicCreatedAnew() {
    if (!leased()) {
      return new Fatal(
          new OncelogException(
              ErrorKind.PRODUCER_FAILED,
              "%s: the topic was deleted and created anew; the given producer id cannot go on:"
                  + " make a new producer",
              tp));
    }
    if (batches.stream().anyMatch(s -> s.batch.sequences != null)) {
      gap = lostWithTopic(tp, storedGiven);
      accumulator.refuse(gap);
      return gapReaction();
    }
    List<SealedBatch> left = new ArrayList<>(batches);
    left.removeIf(s -> s.acked);
    if (!left.isEmpty() && left.get(0).batch.transaction != null) {
      madeAnew = true;
      return stagingFailed(
          left.get(0).batch.transaction,
          new OncelogException(
              ErrorKind.DELIVERY_FAILED, "%s: the topic was deleted and created anew", tp));
    }
    batches.clear();
    cursor = 0;
    int sure = 0;
    while (sure < left.size() && left.get(sure).unanswered) {
      sure++;
    }
    OncelogException gone =
        new OncelogException(
                ErrorKind.DELIVERY_FAILED,
                "%s: the topic was deleted and created anew while this was on its way",
                tp)
            .with(Outcome.UNKNOWN);
    fail(left.subList(0, sure), gone);
    return sealAgain(left.subList(sure, left.size()), gone);
  }

  private Reaction sealAgain(List<SealedBatch> behind, OncelogException error) {
    if (!leased() || resets >= MOST_RESETS) {
      batches.addAll(behind);
      // Records behind a refused one would need another producer id.
      return new Fatal(
          new OncelogException(
              ErrorKind.PRODUCER_FAILED,
              "%s: %s; the batches behind it need a new producer id",
              tp,
              error.getMessage()));
    }
    resets++;
    stats.resets++;
    dead = true;
    for (int i = behind.size() - 1; i >= 0; i--) {
      if (!behind.get(i).abandoned) {
        again.addFirst(behind.get(i).batch);
      }
    }
    return gapReaction();
  }

  private void fail(List<SealedBatch> failed, OncelogException error) {
    for (SealedBatch s : failed) {
      if (!s.abandoned && !s.acked) {
        fail(s.batch, error);
      }
    }
  }

  private void fail(OpenBatch batch, OncelogException error) {
    stats.recordsFailed += batch.count;
    if (batch.transaction != null) {
      accumulator.failTransaction(batch.transaction, error);
    }
    if (gap == null) {
      gap = gapAfter(batch, error);
      if (gap != null) {
        // Before anybody learns of it: a window that does may send the next batch.
        accumulator.refuse(gap);
      }
    }
    batch.delivery.fail(error);
    onDone.accept(batch);
  }

  /**
   * Fatal error of a producer that could not store a batch with given sequences; null: it goes on.
   * A refused condition is no gap: the application asked for it. Later batches of a transaction go
   * with it.
   */
  private static OncelogException gapAfter(OpenBatch batch, OncelogException error) {
    if (batch.sequences == null
        || batch.transaction != null
        || error.kind() == ErrorKind.OFFSET_MISMATCH) {
      return null;
    }
    return new OncelogException(
        ErrorKind.PRODUCER_FAILED,
        "%s: the records with the application's sequences %d to %d failed, and later records must"
            + " not be stored without them; go on behind Producer.position with a new producer:"
            + " %s",
        batch.lane.tp,
        batch.sequences[0],
        batch.sequences[batch.sequences.length - 1],
        error.getMessage());
  }

  /** Fatal error of a producer with sequences of its own that the partition has lost. */
  static OncelogException lostWithTopic(TopicPartition tp, long stored) {
    return new OncelogException(
        ErrorKind.PRODUCER_FAILED,
        "%s: the records with the application's sequences up to %d are no longer there, the topic"
            + " was deleted and created anew; later records must not be stored without them: send"
            + " all of them again with a new producer",
        tp,
        stored);
  }

  // --- time --------------------------------------------------------------------------

  private OncelogException late(Outcome outcome, String format, Object... args) {
    String text = String.format(format, args);
    String why = obstacles.isEmpty() ? "" : "; " + obstacles;
    return new OncelogException(ErrorKind.DELIVERY_TIMEOUT, "%s: %s%s", tp, text, why)
        .with(outcome);
  }

  /** The process stood still for so long: that does not count. */
  void putOff(long late, long now) {
    for (SealedBatch s : batches) {
      s.deadline = Math.min(s.deadline + late, now + config.deliveryTimeout().toNanos());
      s.sentAt = Math.min(s.sentAt + late, now);
    }
    again.forEach(batch -> batch.putOff(late, now));
  }

  /** Fails a batch that was not sent. */
  void refuse(OpenBatch batch, OncelogException error) {
    fail(batch, error.with(Outcome.NEVER_SENT));
  }

  /** Fails a batch that was past its delivery timeout before it was taken out. */
  Reaction expireUnsent(OpenBatch batch) {
    fail(
        batch,
        late(Outcome.NEVER_SENT, "not sent within deliveryTimeout=%s", config.deliveryTimeout()));
    return gapReaction();
  }

  /**
   * Fails batches past their delivery timeout.
   *
   * <p>A batch that was sent may be stored, so it keeps its place in the window while batches
   * behind it are alive; when none is, the window is given up and the partition goes on under a new
   * id.
   */
  Reaction expire(long now) {
    for (SealedBatch s : batches) {
      if (s.acked || s.abandoned || s.deadline > now) {
        continue;
      }
      s.abandoned = true;
      fail(
          s.batch,
          late(
              s.attempts > 0 ? Outcome.UNKNOWN : Outcome.NEVER_SENT,
              "no acknowledgement within deliveryTimeout=%s, sent %d times",
              config.deliveryTimeout(),
              s.attempts));
    }
    long limit = now - config.deliveryTimeout().toNanos();
    while (!again.isEmpty() && again.peek().created <= limit) {
      fail(
          again.poll(),
          late(Outcome.NOT_STORED, "deliveryTimeout=%s is over", config.deliveryTimeout()));
    }
    resetIfAbandoned();
    return gapReaction();
  }

  private void resetIfAbandoned() {
    boolean unsent = true;
    for (SealedBatch s : batches) {
      if (!s.acked && !s.abandoned) {
        return;
      }
      unsent &= s.attempts == 0;
    }
    if (batches.isEmpty()) {
      return;
    }
    if (unsent) {
      prevSequence = batches.get(0).prevSequence;
    } else if (config.enableIdempotence()) {
      dead = true;
      stats.resets++;
    }
    batches.clear();
    cursor = 0;
  }

  /** The producer stops, or its transaction. Batches on their way fail. */
  void failAll(OncelogException error) {
    for (SealedBatch s : batches) {
      if (!s.acked && !s.abandoned) {
        boolean doubt = (s.ambiguous || s.attemptId != 0) && s.batch.transaction == null;
        fail(s.batch, error.with(doubt ? Outcome.UNKNOWN : Outcome.NOT_STORED));
      }
    }
    for (OpenBatch batch : again) {
      fail(batch, error.with(Outcome.NOT_STORED));
    }
    batches.clear();
    again.clear();
    cursor = 0;
  }
}
