package io.github.oncelog.client;

import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.function.Predicate;

/**
 * Holds records, per partition, until they form a batch that can be sent. A batch keeps growing
 * after its linger time until the sender has room for it, so slow acknowledgements make batches
 * larger and not more.
 */
final class Accumulator {
  /**
   * A record, or several that are to be one batch, to be queued.
   *
   * @param sticky it may go elsewhere: to where messages without a key go now
   * @param whole exactly one batch
   */
  record Addition(
      TopicPartition tp,
      boolean sticky,
      List<Message> records,
      int size,
      SendOptions options,
      boolean whole,
      int maxBatchBytes) {
    boolean alone() {
      return whole || options.expectedOffset != null;
    }
  }

  private static final int LEAST_ROOM = 64 << 10;
  private static final int MOST_ROOM = 4 << 20;
  private static final int MOST_ROOMS = 8;

  /** Of the delivery timeout, how old an open batch may be for records that come: a quarter. */
  private static final int FOR_OTHERS = 4;

  private final ProducerConfig config;
  private final long linger;
  private final Runnable wake;
  private final Predicate<TopicPartition> isAvailable;
  private final Map<TopicPartition, Lane> lanes = new HashMap<>();
  // Of the open batches, the one of each topic that messages without a key go to.
  private final Map<String, OpenBatch> sticky = new HashMap<>();
  private final Set<TopicPartition> ready = new LinkedHashSet<>();
  private final ArrayDeque<OpenBatch> lingering = new ArrayDeque<>();
  private int flushing;
  private long used;
  private final Set<BatchDelivery> incomplete = new LinkedHashSet<>();
  // Room of batches that were encoded, so that it need not grow anew for each batch.
  private final ArrayDeque<byte[]> rooms = new ArrayDeque<>();
  private OncelogException failure;
  // Why no batch may be begun just now: a transaction begins or ends.
  private OncelogException paused;
  private ProducerTransaction transaction;
  // The side that numbered the records of a lane before the transaction.
  private final Map<Lane, Lane.Numbering> before = new HashMap<>();
  // Whether the sender has something to do after the last queued event.
  private boolean woken;

  /**
   * @param isAvailable whether a partition has a leader that can be reached, as far as is known
   */
  Accumulator(ProducerConfig config, Runnable wake, Predicate<TopicPartition> isAvailable) {
    this.config = config;
    this.wake = wake;
    this.isAvailable = isAvailable;
    linger = config.linger().toNanos();
  }

  /** Queues records; waits while the buffer is full. */
  Delivery append(Addition add) {
    Delivery delivery;
    boolean wakes;
    synchronized (this) {
      woken = false;
      OpenBatch batch = place(add);
      if (batch == null) {
        batch = awaitRoom(add);
      }
      delivery = new Delivery(batch.delivery, put(batch, add));
      wakes = woken || add.alone();
    }
    if (wakes) {
      wake.run();
    }
    return delivery;
  }

  private OpenBatch awaitRoom(Addition add) {
    long until = Times.now() + config.maxBlock().toNanos();
    while (true) {
      // Lingering records hold the room that is waited for.
      makeAllDue();
      wake.run();
      long left = until - Times.now();
      if (left <= 0) {
        throw new OncelogException(
            ErrorKind.BUFFER_FULL,
            "bufferMemory=%d stayed full for maxBlock=%s",
            config.bufferMemory(),
            config.maxBlock());
      }
      try {
        wait(Math.max(1, left / Times.MS));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new CancellationException("interrupted");
      }
      OpenBatch batch = place(add);
      if (batch != null) {
        return batch;
      }
    }
  }

  /** An open batch with room; null: there is no room in the buffer. */
  private OpenBatch place(Addition add) {
    if (failure != null) {
      throw failure;
    }
    checkTransaction(add.options);
    long need = Columns.BATCH_OVERHEAD + (long) add.size;
    if (need > add.maxBatchBytes || need > config.bufferMemory()) {
      throw new OncelogException(
              ErrorKind.BATCH_TOO_LARGE,
              "%d bytes with overhead, the topic takes %d and the buffer %d",
              need,
              add.maxBatchBytes,
              config.bufferMemory())
          .with(OncelogException.Outcome.NEVER_SENT);
    }
    OpenBatch stuck = add.sticky ? sticky.get(add.tp.topic()) : null;
    if (stuck != null && stuck.size + add.size > stuck.cap) {
      close(stuck); // messages without a key go on with another partition
      woken = true;
    }
    Lane lane = lane(add);
    if (transaction != null) {
      before.computeIfAbsent(lane, Lane::numbering);
    }
    lane.check(add.options.sequences);
    // The time of a record's delivery begins when it is sent: it joins no old batch.
    if (lane.open != null
        && (add.alone() || lane.open.size + add.size > lane.open.cap || lane.open.old)) {
      close(lane.open);
      woken = true;
    }
    if (lane.open != null) {
      return used + add.size > config.bufferMemory() ? null : lane.open;
    }
    if (paused != null) {
      throw paused;
    }
    if (used + need > config.bufferMemory()) {
      return null;
    }
    start(lane, (int) Math.max(Math.min(config.batchSize(), add.maxBatchBytes), need));
    return lane.open;
  }

  private void checkTransaction(SendOptions options) {
    if (transaction == null) {
      return;
    }
    if (options.expectedOffset != null) {
      throw Detail.invalid(
          "expected_offset", "records of a transaction have no offset before its commit");
    }
    if (transaction.failure() != null) {
      throw transaction.refused();
    }
  }

  private Lane lane(Addition add) {
    OpenBatch stuck = add.sticky ? sticky.get(add.tp.topic()) : null;
    return stuck != null ? stuck.lane : lanes.computeIfAbsent(add.tp, Lane::new);
  }

  private void start(Lane lane, int cap) {
    OpenBatch batch = new OpenBatch(lane, Times.now(), cap, transaction, rooms.poll());
    lane.open = batch;
    used += Columns.BATCH_OVERHEAD;
    batch.delivery.held = Columns.BATCH_OVERHEAD;
    incomplete.add(batch.delivery);
    if (linger <= 0 || flushing > 0) {
      batch.due = true;
      ready.add(lane.tp);
      woken = true;
    } else {
      lingering.add(batch);
      woken |= lingering.size() == 1;
    }
  }

  /** Adds the records to the batch and returns the first one's place. */
  private int put(OpenBatch batch, Addition add) {
    Lane lane = batch.lane;
    int index = add.whole ? Delivery.WHOLE_BATCH : batch.columns.count();
    for (Message r : add.records) {
      long stamp = r.timestampUs() == null ? nowUs() : r.timestampUs();
      batch.columns.add(r.value(), r.key(), r.headers(), stamp);
    }
    long[] sequences = add.options.sequences;
    if (sequences == null) {
      lane.counted = true;
    } else {
      lane.given = true;
      lane.lastGiven = sequences[sequences.length - 1];
      batch.addSequences(sequences);
    }
    batch.size += add.size;
    used += add.size;
    batch.delivery.held += add.size;
    if (add.options.callback != null) {
      batch.delivery.callbacks.add(new BatchDelivery.Callback(index, add.options.callback));
    }
    String topic = lane.tp.topic();
    if (add.sticky && sticky.get(topic) != batch && isAvailable.test(lane.tp)) {
      sticky.put(topic, batch);
    }
    if (add.alone()) {
      batch.expectedOffset = add.options.expectedOffset == null ? -1 : add.options.expectedOffset;
      close(batch);
    }
    return index;
  }

  private static long nowUs() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
  }

  private void close(OpenBatch batch) {
    Lane lane = batch.lane;
    lane.open = null;
    sticky.remove(lane.tp.topic(), batch);
    batch.isClosed = true;
    batch.count = batch.columns.count();
    batch.delivery.count = batch.count;
    batch.delivery.sequences = batch.sequences;
    lane.closed.add(batch);
    ready.add(lane.tp);
  }

  /** Batches that wait for a leader must not attract more. */
  synchronized void leaveUnavailable() {
    sticky.values().removeIf(batch -> !isAvailable.test(batch.lane.tp));
  }

  private void makeAllDue() {
    for (Lane lane : lanes.values()) {
      if (lane.open != null) {
        lane.open.due = true;
        ready.add(lane.tp);
      }
    }
    lingering.clear();
  }

  /** Makes everything due at once and returns the batches that are not yet done. */
  List<BatchDelivery> beginFlush() {
    List<BatchDelivery> waiting;
    synchronized (this) {
      flushing++;
      makeAllDue();
      waiting = new ArrayList<>(incomplete);
    }
    wake.run();
    return waiting;
  }

  synchronized void endFlush() {
    flushing--;
  }

  /**
   * Puts those that may have something to send into {@code into}, and returns when to look again.
   */
  synchronized long readyPartitions(long now, Set<TopicPartition> into) {
    long next = Times.NEVER;
    while (!lingering.isEmpty()) {
      OpenBatch batch = lingering.peek();
      if (!batch.isClosed) {
        if (batch.created + linger > now) {
          next = batch.created + linger;
          break;
        }
        batch.due = true;
        ready.add(batch.lane.tp);
      }
      lingering.remove();
    }
    into.addAll(ready);
    return next;
  }

  /** The partition's oldest batch that is due, closed; null: there is none. */
  synchronized OpenBatch take(TopicPartition tp) {
    Lane lane = lanes.get(tp);
    if (lane == null) {
      return null;
    }
    if (lane.closed.isEmpty() && lane.open != null && lane.open.due) {
      close(lane.open);
    }
    OpenBatch batch = lane.closed.poll();
    if (batch == null) {
      ready.remove(tp);
    }
    return batch;
  }

  /** The process stood still for so long: that does not count. */
  synchronized void putOff(long late, long now) {
    for (Lane lane : lanes.values()) {
      if (lane.open != null) {
        lane.open.putOff(late, now);
      }
      lane.closed.forEach(batch -> batch.putOff(late, now));
    }
  }

  /** Takes out all that waits for a partition. */
  synchronized List<OpenBatch> takeAll(TopicPartition tp) {
    Lane lane = lanes.get(tp);
    if (lane == null) {
      return List.of();
    }
    if (lane.open != null) {
      close(lane.open);
    }
    List<OpenBatch> left = new ArrayList<>(lane.closed);
    lane.closed.clear();
    ready.remove(tp);
    return left;
  }

  /** Takes out the batches that are past their delivery timeout; none has been sent. */
  synchronized List<OpenBatch> expire(long now) {
    long limit = now - config.deliveryTimeout().toNanos();
    long old = now - config.deliveryTimeout().toNanos() / FOR_OTHERS;
    List<OpenBatch> expired = new ArrayList<>();
    for (Lane lane : lanes.values()) {
      if (lane.open != null && lane.open.due) {
        lane.open.old = lane.open.created < old;
      }
      if (lane.open != null && lane.open.created <= limit) {
        close(lane.open);
      }
      while (!lane.closed.isEmpty() && lane.closed.peek().created <= limit) {
        expired.add(lane.closed.poll());
      }
    }
    return expired;
  }

  // --- transactions ------------------------------------------------------------------

  /** Begins no further batch until {@link #resume}; the open batch is still filled. */
  synchronized void pause(OncelogException why) {
    paused = why;
  }

  /** Goes on; records belong to this transaction from now on, or, with null, to none. */
  synchronized void resume(ProducerTransaction transaction) {
    assert transaction == this.transaction || incomplete.isEmpty() || failure != null
        : "a transaction begins and ends without batches";
    this.transaction = transaction;
    before.clear();
    paused = null;
  }

  /** The one that records belong to; null: none. */
  synchronized ProducerTransaction transaction() {
    return transaction;
  }

  synchronized boolean isTransactional() {
    return transaction != null || paused != null;
  }

  /** It cannot be committed any more: takes no further records for it. */
  synchronized void failTransaction(ProducerTransaction failed, OncelogException error) {
    failed.fail(error);
    notifyAll();
  }

  /** Takes out batches that wait to be sent; sequences that were given may be given again. */
  synchronized List<OpenBatch> dropTransaction() {
    List<OpenBatch> left = takeAll();
    before.forEach(Lane::restore);
    return left;
  }

  private List<OpenBatch> takeAll() {
    List<OpenBatch> left = new ArrayList<>();
    for (Lane lane : lanes.values()) {
      if (lane.open != null) {
        close(lane.open);
      }
      left.addAll(lane.closed);
      lane.closed.clear();
    }
    ready.clear();
    return left;
  }

  // --- the end -----------------------------------------------------------------------

  /** Takes no further records, for this reason. */
  synchronized void refuse(OncelogException failure) {
    if (this.failure == null) {
      this.failure = failure;
    }
  }

  /** Null: records are taken. */
  synchronized OncelogException failure() {
    return failure;
  }

  /** Refuses further records and returns all waiting batches. */
  synchronized List<OpenBatch> stop(OncelogException failure) {
    refuse(failure);
    List<OpenBatch> left = takeAll();
    notifyAll();
    return left;
  }

  /** Frees the room of a batch with a known outcome. */
  void release(BatchDelivery delivery) {
    synchronized (this) {
      if (incomplete.remove(delivery)) {
        used -= delivery.held;
      }
      notifyAll();
    }
    delivery.released.complete(null);
  }

  /** Keeps buffers that another batch may use, within limits; null: nothing. */
  synchronized void reuse(byte[] room) {
    if (room != null
        && room.length >= LEAST_ROOM
        && room.length <= MOST_ROOM
        && rooms.size() < MOST_ROOMS) {
      rooms.push(room);
    }
  }

  synchronized long usedBytes() {
    return used;
  }

  /** How many records have no outcome yet. */
  synchronized long pending() {
    long count = 0;
    for (Lane lane : lanes.values()) {
      count += lane.open == null ? 0 : lane.open.columns.count();
    }
    for (BatchDelivery delivery : incomplete) {
      count += delivery.count; // 0 while it is open
    }
    return count;
  }
}
