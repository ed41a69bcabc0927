package io.github.oncelog.client;

import java.util.Map;

/**
 * A committed transaction: its records are readable.
 *
 * @param runs where they are, by partition; empty if nobody knows any more
 */
public record CommittedTransaction(long transactionId, Map<TopicPartition, Run> runs) {
  /** The records of a transaction in one partition: they lie together. */
  public record Run(long baseOffset, long recordCount) {}
}
