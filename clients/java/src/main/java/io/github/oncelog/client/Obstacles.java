package io.github.oncelog.client;

/**
 * Reasons why a partition's batches were not stored since the last success. A node's refusal is not
 * hidden by later failures: a lost connection, no answer.
 */
final class Obstacles {
  private String refusal = "";
  private String last = "";

  void met(String text) {
    last = text;
  }

  /** A node has said this. */
  void told(String text) {
    refusal = text;
    last = text;
  }

  /**
   * @param why or null
   */
  void met(String text, OncelogException why) {
    if (why != null && Attempts.tells(why)) {
      told(text);
    } else {
      met(text);
    }
  }

  void clear() {
    refusal = "";
    last = "";
  }

  boolean isEmpty() {
    return last.isEmpty();
  }

  @Override
  public String toString() {
    return refusal.isEmpty() || refusal.equals(last) ? last : refusal + "; " + last;
  }
}
