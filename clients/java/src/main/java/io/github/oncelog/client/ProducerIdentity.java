package io.github.oncelog.client;

import java.util.Map;

/**
 * A producer id to start with instead of a leased one.
 *
 * @param leaseToken that of the id's lease; a partition that starts at 0 is refused without it
 * @param nextSequences for each partition where to go on; others start at 0
 */
public record ProducerIdentity(
    long producerId, int epoch, byte[] leaseToken, Map<TopicPartition, Long> nextSequences) {}
