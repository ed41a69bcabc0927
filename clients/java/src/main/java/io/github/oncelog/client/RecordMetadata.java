package io.github.oncelog.client;

/**
 * Where a record, or a batch that was sent as one, is stored, and as what.
 *
 * @param offset the (first) record's; -1 for a duplicate whose place the cluster no longer knows,
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
