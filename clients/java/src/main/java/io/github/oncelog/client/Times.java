package io.github.oncelog.client;

import java.time.Duration;
import java.util.concurrent.CancellationException;

/** Times are System.nanoTime(), spans ns. */
final class Times {
  static final long MS = 1_000_000;
  static final long SECOND = 1000 * MS;

  /** Later than anything, and far enough from an overflow. */
  static final long NEVER = Long.MAX_VALUE / 2;

  private Times() {}

  static long now() {
    // From 0 on, so that times can be compared as numbers.
    return System.nanoTime() - ORIGIN;
  }

  private static final long ORIGIN = System.nanoTime() - SECOND;

  static void sleep(long pause) {
    try {
      Thread.sleep(pause / MS, (int) (pause % MS));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    }
  }

  /** A span in ns; one that is longer than 146 years is without end. */
  static long span(Duration span) {
    return span.compareTo(Duration.ofNanos(NEVER)) < 0 ? span.toNanos() : NEVER;
  }

  /** The moment after this span; never, if that has no end. */
  static long after(Duration span) {
    return Math.min(NEVER, now() + span(span));
  }

  /** Runs this to its end, though the thread is interrupted: that waits until it is done. */
  static void uninterrupted(Runnable task) {
    boolean interrupted = Thread.interrupted();
    try {
      task.run();
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** A span, in words. */
  static String text(long span) {
    return span / MS + " ms";
  }
}
