package io.github.oncelog.client;

import java.time.Instant;
import java.util.List;

/**
 * Hears of partitions that come to, and go from, a consumer that is a member of its group. Called
 * by {@link Consumer#poll}, {@link Consumer#close()} and {@link Consumer#abandon()}, on their
 * thread, between two batches of records.
 */
public interface RebalanceListener {
  /** These are this consumer's from now on. */
  default void onAssigned(List<TopicPartition> partitions) {}

  /**
   * The group wants these back: finish their records that were read, and commit them, until this
   * time. They are given back when it returns.
   */
  default void onRevoked(List<TopicPartition> partitions, Instant until) {}

  /** These are another member's already: drop records that were read and not committed. */
  default void onLost(List<TopicPartition> partitions) {}
}
