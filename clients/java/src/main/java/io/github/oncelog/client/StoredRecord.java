package io.github.oncelog.client;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;

/**
 * A record as it is stored.
 *
 * @param timestampUs microseconds since the Unix epoch
 */
public record StoredRecord(
    String topic,
    int partition,
    long offset,
    long timestampUs,
    byte[] value,
    byte[] key,
    List<Header> headers) {
  /** The record's timestamp. */
  public Instant time() {
    return Instant.EPOCH.plus(timestampUs, ChronoUnit.MICROS);
  }
}
