package io.github.oncelog.client;

/** How a consumer with a group comes to its partitions. */
public enum Membership {
  /** The nodes share the topics out among the group's members. */
  ASSIGNED,
  /** The group only keeps offsets; the consumer reads the partitions it is given. */
  MANUAL
}
