package io.github.oncelog.client;

/** Says which partition a message goes to. */
@FunctionalInterface
public interface Partitioner {
  /** The partition; {@code key} is null for a message without one. */
  int partition(String topic, byte[] key, int partitions);
}
