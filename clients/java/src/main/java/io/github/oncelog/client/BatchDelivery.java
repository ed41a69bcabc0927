package io.github.oncelog.client;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;

/** Outcome of one batch. All its records share it. */
final class BatchDelivery {
  /** Numbers of a batch when it was last sealed. */
  record Stamp(long producerId, int epoch, long baseSequence) {
    static final Stamp NONE = new Stamp(0, 0, -1);
  }

  record Callback(int index, DeliveryCallback call) {}

  final TopicPartition tp;
  final CompletableFuture<Void> done = new CompletableFuture<>();

  /** Completed when callbacks were called and its memory is free. */
  final CompletableFuture<Void> released = new CompletableFuture<>();

  /** Its share of the buffer; guarded by the accumulator. */
  long held;

  final List<Callback> callbacks = new ArrayList<>(0);
  volatile Stamp stamp = Stamp.NONE;

  // Set when the batch is closed.
  int count;
  long[] sequences; // the application's own; null: counted

  // Set before done is completed.
  long baseOffset; // in a transaction, within its run
  ProducerTransaction.StagedRun run; // of a transaction
  boolean duplicate;
  OncelogException error;

  private final TreeSet<Integer> looked = new TreeSet<>();

  BatchDelivery(TopicPartition tp) {
    this.tp = tp;
  }

  void fail(OncelogException error) {
    this.error = error; // from now on its offset is not known
    this.error = error.of(metadata(0, count - 1));
    done.complete(null);
  }

  private long sequence(Stamp stamp, int index) {
    if (stamp.baseSequence < 0) {
      return -1;
    }
    return sequences != null ? sequences[index] : stamp.baseSequence + index;
  }

  RecordMetadata metadata(int first, int last) {
    Stamp stamp = this.stamp;
    return new RecordMetadata(
        tp.topic(),
        tp.partition(),
        offset(first),
        sequence(stamp, first),
        sequence(stamp, last),
        stamp.producerId,
        stamp.epoch,
        duplicate);
  }

  private long offset(int index) {
    if (error != null || baseOffset < 0 || run != null && run.baseOffset < 0) {
      return -1;
    }
    return baseOffset + index + (run == null ? 0 : run.baseOffset);
  }

  /** How many failed records nobody has looked at. */
  synchronized int unlooked() {
    for (Callback callback : callbacks) {
      looked.add(callback.index);
    }
    return looked.contains(Delivery.WHOLE_BATCH) ? 0 : count - looked.size();
  }

  synchronized void look(int index) {
    looked.add(index);
  }

  /** Has the callbacks called, one after the other, even if one of them throws. */
  void callBack() {
    for (Callback callback : callbacks) {
      Delivery one = new Delivery(this, callback.index);
      try {
        callback.call.onDelivery(error == null ? one.metadata() : null, error);
      } catch (Throwable e) {
        Loop.report(e);
      }
    }
  }
}
