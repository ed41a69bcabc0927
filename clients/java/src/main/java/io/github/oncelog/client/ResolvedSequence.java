package io.github.oncelog.client;

/**
 * Outcome of a sequence without an acknowledgement.
 *
 * @param offset the record's, or -1
 */
public record ResolvedSequence(
    Resolution resolution, long offset, long lastSequence, int currentEpoch) {
  /** Its known outcome. */
  public enum Resolution {
    /** It is stored. */
    COMMITTED,
    /** It is not there and never will be. */
    NEVER,
    /** It is not stored, but a copy on its way may still come. */
    NOT_YET,
    /**
     * Retention or compaction has deleted the evidence of whether it was stored. It cannot be
     * stored any more, unless its id is a Kafka client's.
     */
    FORGOTTEN
  }
}
