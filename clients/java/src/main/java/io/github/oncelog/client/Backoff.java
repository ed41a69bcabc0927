package io.github.oncelog.client;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Pauses that double, up to a limit, 20 % more or less by chance. In ns. */
record Backoff(long first, long most) {
  Backoff(Duration first, Duration most) {
    this(first.toNanos(), most.toNanos());
  }

  static Backoff ofMillis(long first, long most) {
    return new Backoff(first * Times.MS, most * Times.MS);
  }

  long delay(int failures) {
    if (failures <= 0) {
      return 0;
    }
    int doublings = Math.min(failures - 1, 30);
    long pause = first <= most >> doublings ? first << doublings : most;
    return (long) (pause * ThreadLocalRandom.current().nextDouble(0.8, 1.2));
  }
}
