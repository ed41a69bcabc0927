package io.github.oncelog.client;

import java.util.Arrays;

/** Options of one send beside its message. */
public final class SendOptions {
  static final SendOptions NONE = new SendOptions();

  Integer partition;
  long[] sequences;
  Long expectedOffset;
  DeliveryCallback callback;

  /** Names the partition. */
  public SendOptions partition(int partition) {
    this.partition = partition;
    return this;
  }

  /**
   * Gives the record the application's own number, rising per partition. It makes the record
   * recognisable across restarts, if it is sent again with the same bytes, so with the same
   * timestamp too.
   */
  public SendOptions sequence(long sequence) {
    return sequences(new long[] {sequence});
  }

  /** The same for the records of a batch: one for each, rising. */
  public SendOptions sequences(long[] sequences) {
    this.sequences = Arrays.copyOf(sequences, sequences.length);
    return this;
  }

  /** Stores the record, or batch, only if it gets exactly this offset. */
  public SendOptions expectedOffset(long offset) {
    this.expectedOffset = offset;
    return this;
  }

  /**
   * Has this called when the outcome is known, on a thread of the producer's: be brief. A record
   * with a callback is not reported by flush and close.
   */
  public SendOptions onDelivery(DeliveryCallback callback) {
    this.callback = callback;
    return this;
  }
}
