package io.github.oncelog.client;

/**
 * What became of a sequence whose acknowledgement was lost.
 *
 * @param offset the record's, or -1
 */
public record ResolvedSequence(
    Resolution resolution, long offset, long lastSequence, int currentEpoch) {
  /** What is known of it. */
  public enum Resolution {
    /** It is stored. */
    COMMITTED,
    /** It is not there and never will be. */
    NEVER,
    /** It is not stored, but a copy on its way may still come. */
    NOT_YET,
    /** It cannot come any more, but retention has deleted what would tell whether it did. */
    FORGOTTEN
  }
}
