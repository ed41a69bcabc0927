package io.github.oncelog.client;

import java.time.Duration;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/** A warning when no node answers for a while, and one when a node does again. For any thread. */
final class Reachability {
  private static final long MOST_PATIENCE = 5 * Times.SECOND;

  private final long patience;
  // A client calls seldom while it is idle: failures so far apart are not one outage.
  private final long gap;
  private final LongSupplier clock;
  private final Consumer<String> warn;
  private volatile boolean failing; // since the last answer
  private long since; // the first failure after it
  private long last;
  private boolean warned;
  private long outages;

  Reachability(long requestTimeout, LongSupplier clock, Consumer<String> warn) {
    patience = Math.min(MOST_PATIENCE, requestTimeout);
    gap = 2 * Math.max(MOST_PATIENCE, requestTimeout);
    this.clock = clock;
    this.warn = warn;
  }

  /** A node did. */
  void answered(String address) {
    if (!failing) {
      return;
    }
    synchronized (this) {
      if (warned) {
        warn.accept(address + " answers again, after " + seconds(clock.getAsLong()));
      }
      failing = false;
      warned = false;
    }
  }

  /** A node did not, for a reason that names it. */
  synchronized void failed(String reason) {
    long now = clock.getAsLong();
    if (!failing || now - last > gap) {
      failing = true;
      since = now;
      warned = false;
    }
    last = now;
    if (!warned && now - since >= patience) {
      warned = true;
      outages++;
      warn.accept(
          "no node has answered for " + seconds(now) + ", the client keeps trying: " + reason);
    }
  }

  private String seconds(long now) {
    return (now - since + Times.SECOND / 2) / Times.SECOND + " s";
  }

  synchronized ConnectionStats stats() {
    long down = warned ? clock.getAsLong() - since : 0;
    return new ConnectionStats(outages, Duration.ofNanos(down));
  }
}
