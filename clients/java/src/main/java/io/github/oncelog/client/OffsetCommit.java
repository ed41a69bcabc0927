package io.github.oncelog.client;

/**
 * Offset that a group commits for a partition: the next offset to read. With a producer id it is
 * checked as a batch of that producer is: an older epoch is fenced, a lower sequence refused, the
 * same one a duplicate.
 *
 * @param metadata the group's own, at most 4096 bytes
 */
public record OffsetCommit(
    long offset, String metadata, long producerId, int epoch, long sequence) {
  /** An offset alone. */
  public static OffsetCommit of(long offset) {
    return new OffsetCommit(offset, "", 0, 0, 0);
  }
}
