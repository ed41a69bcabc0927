package io.github.oncelog.client;

import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The future outcome of a record, or of a batch that was sent as one. */
public final class Delivery {
  static final int WHOLE_BATCH = -1;

  final BatchDelivery batch;
  private final int index;

  Delivery(BatchDelivery batch, int index) {
    this.batch = batch;
    this.index = index;
  }

  /** Whether the outcome is known. */
  public boolean isDone() {
    return batch.done.isDone();
  }

  /**
   * Waits for the outcome: the record's place, or an error below {@link ErrorKind#DELIVERY_FAILED}
   * with the known outcome.
   */
  public RecordMetadata get() {
    return get(Duration.ofDays(1000));
  }

  /**
   * Waits so long. After that it throws {@link ErrorKind#REQUEST_TIMEOUT}, and the record is still
   * on its way.
   */
  public RecordMetadata get(Duration limit) {
    if (!isDone()) {
      Loop.checkMayWait();
    }
    try {
      batch.done.get(Times.span(limit), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw new OncelogException(
          ErrorKind.REQUEST_TIMEOUT, "the outcome is not known after %s", limit);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    } catch (ExecutionException e) {
      throw new IllegalStateException(e); // it is never completed so
    }
    return outcome();
  }

  /**
   * The same as a future, which fails with an {@link OncelogException}. Code that follows it
   * directly runs on the producer's thread and must not wait; its {@code Async} methods have other
   * threads.
   */
  public CompletableFuture<RecordMetadata> future() {
    return batch.done.thenApply(done -> outcome());
  }

  RecordMetadata outcome() {
    if (batch.error != null) {
      batch.look(index);
      throw batch.error;
    }
    return metadata();
  }

  RecordMetadata metadata() {
    return index == WHOLE_BATCH ? batch.metadata(0, batch.count - 1) : batch.metadata(index, index);
  }

  /** The place of its last record in the batch. */
  int last() {
    return index == WHOLE_BATCH ? batch.count - 1 : index;
  }
}
