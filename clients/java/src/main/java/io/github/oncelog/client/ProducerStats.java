package io.github.oncelog.client;

import java.time.Duration;

/**
 * A producer's counters since its start.
 *
 * @param duplicates batches acknowledged as stored by an earlier attempt
 * @param resets changes of a partition's producer id for a cause
 */
public record ProducerStats(
    long recordsSent,
    long recordsAcked,
    long recordsFailed,
    long batchesSent,
    long batchesAcked,
    long batchesRetried,
    long bytesSent,
    long duplicates,
    long resets,
    Duration maxAckLatency) {}
