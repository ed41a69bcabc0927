package io.github.oncelog.client;

import io.github.oncelog.client.proto.BeginTransactionResponse;

/**
 * The transaction that a commit has begun for its producer's next begin, which saves a call. A
 * ticket that is not taken soon is aborted: an open transaction keeps the cluster from forgetting
 * ended ones.
 */
final class Following {
  /**
   * A producer that begins so soon after a commit is expected to do so again; for so long one is
   * kept.
   */
  private static final long SOON = Times.SECOND;

  /** Part of the idle time that may pass before it is taken: its first sign of life is due then. */
  private static final int IDLE_SHARE = 4;

  /** The transaction's owner, and the times that the application asked for. */
  record Terms(Identity identity, int idleTimeoutMs, int totalTimeoutMs) {}

  private BeginTransactionResponse begun;
  private Terms terms; // of the newest transaction
  private boolean expected;
  private long endedAt = -SOON;

  void begin(Terms terms, long now) {
    this.terms = terms;
    expected = now - endedAt < SOON;
  }

  void end(long now) {
    endedAt = now;
  }

  /** Whether a commit shall begin another one. */
  boolean isExpected() {
    return expected;
  }

  Terms terms() {
    return terms;
  }

  /** Returns for how long it may be taken. */
  long keep(BeginTransactionResponse begun) {
    assert this.begun == null : "the one before was taken or aborted";
    this.begun = begun;
    return Math.min(SOON, begun.getIdleTimeoutMs() * Times.MS / IDLE_SHARE);
  }

  /** Null: there is none. */
  BeginTransactionResponse waiting() {
    return begun;
  }

  BeginTransactionResponse take() {
    BeginTransactionResponse taken = begun;
    begun = null;
    return taken;
  }
}
