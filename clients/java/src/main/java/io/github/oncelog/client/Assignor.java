package io.github.oncelog.client;

/** How a group's partitions are shared out. */
public enum Assignor {
  /** Evenly over all topics together; partitions stay where they are if they can. */
  UNIFORM,
  /** The same stretch of each topic. */
  RANGE
}
