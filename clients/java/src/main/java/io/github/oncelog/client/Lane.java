package io.github.oncelog.client;

import java.util.ArrayDeque;

/** Batches that wait in one partition. */
final class Lane {
  final TopicPartition tp;
  OpenBatch open;
  final ArrayDeque<OpenBatch> closed = new ArrayDeque<>();
  // The side that numbers the records: the producer, or the application, up to lastGiven.
  boolean counted;
  boolean given;
  long lastGiven = -1;

  /** The side that numbered the records, at one moment. */
  record Numbering(boolean counted, boolean given, long lastGiven) {}

  Numbering numbering() {
    return new Numbering(counted, given, lastGiven);
  }

  void restore(Numbering before) {
    counted = before.counted;
    given = before.given;
    lastGiven = before.lastGiven;
  }

  Lane(TopicPartition tp) {
    this.tp = tp;
  }

  /** Refuses sequences that do not fit the numbering of the partition's records. */
  void check(long[] sequences) {
    if (sequences == null) {
      if (given) {
        throw Detail.invalid(
            "sequence", "sequence is missing: %s has application-controlled sequences", tp);
      }
    } else if (counted) {
      throw Detail.invalid(
          "sequence",
          "sequence=%d: %s already has sequences that the producer counts",
          sequences[0],
          tp);
    } else if (sequences[0] <= lastGiven) {
      throw Detail.invalid(
          "sequence",
          "sequence=%d is not above the last one of %s, %d",
          sequences[0],
          tp,
          lastGiven);
    }
  }
}
