package io.github.oncelog.client;

/**
 * Place of a record, or of a batch that was sent as one, and its numbers.
 *
 * @param offset the (first) record's; -1 for a duplicate if the cluster no longer knows its place,
 *     and in a transaction that is not committed
 * @param sequence -1 without idempotence
 * @param lastSequence the same as sequence for a single record
 * @param duplicate an earlier attempt had stored it; that is a success
 */
public record RecordMetadata(
    String topic,
    int partition,
    long offset,
    long sequence,
    long lastSequence,
    long producerId,
    int epoch,
    boolean duplicate) {}
