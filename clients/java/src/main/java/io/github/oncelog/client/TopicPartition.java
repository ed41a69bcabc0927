package io.github.oncelog.client;

import java.util.Comparator;

/** A partition, by topic and number. */
public record TopicPartition(String topic, int partition) implements Comparable<TopicPartition> {
  private static final Comparator<TopicPartition> ORDER =
      Comparator.comparing(TopicPartition::topic).thenComparingInt(TopicPartition::partition);

  @Override
  public int compareTo(TopicPartition other) {
    return ORDER.compare(this, other);
  }

  /** Topic and number, joined by a hyphen. */
  @Override
  public String toString() {
    return topic + "-" + partition;
  }
}
