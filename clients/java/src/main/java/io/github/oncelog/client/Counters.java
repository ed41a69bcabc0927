package io.github.oncelog.client;

import java.time.Duration;

/** A producer's counters while they count. */
final class Counters {
  long recordsSent;
  long recordsAcked;
  long recordsFailed;
  long batchesSent;
  long batchesAcked;
  long batchesRetried;
  long bytesSent;
  long duplicates;
  long resets;
  long maxAckLatency;

  ProducerStats snapshot() {
    return new ProducerStats(
        recordsSent,
        recordsAcked,
        recordsFailed,
        batchesSent,
        batchesAcked,
        batchesRetried,
        bytesSent,
        duplicates,
        resets,
        Duration.ofNanos(maxAckLatency));
  }
}
