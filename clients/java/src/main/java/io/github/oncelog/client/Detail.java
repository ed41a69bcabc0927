package io.github.oncelog.client;

/** Collects the details of an error. */
final class Detail {
  String topic;
  int partition = -1;
  long offset = -1;
  long logStartOffset = -1;
  long highWatermark = -1;
  long nextOffset = -1;
  long lastSequence = -1;
  int currentEpoch = -1;
  int leaderId;
  String leaderAddress = "";
  String producerName;
  String field;
  String limit;
  long count;
  String principal;
  String operation;
  String kind;
  String name;

  Detail at(TopicPartition tp) {
    topic = tp.topic();
    partition = tp.partition();
    return this;
  }

  Detail offset(long offset) {
    this.offset = offset;
    return this;
  }

  Detail epoch(int currentEpoch) {
    this.currentEpoch = currentEpoch;
    return this;
  }

  Detail lastSequence(long lastSequence) {
    this.lastSequence = lastSequence;
    return this;
  }

  Detail nextOffset(long nextOffset) {
    this.nextOffset = nextOffset;
    return this;
  }

  Detail log(long start, long end) {
    logStartOffset = start;
    highWatermark = end;
    return this;
  }

  Detail field(String field, String limit) {
    this.field = field;
    this.limit = limit;
    return this;
  }

  Detail count(long count) {
    this.count = count;
    return this;
  }

  OncelogException.Details build() {
    return new OncelogException.Details(
        topic,
        partition,
        offset,
        logStartOffset,
        highWatermark,
        nextOffset,
        lastSequence,
        currentEpoch,
        leaderId,
        leaderAddress,
        producerName,
        field,
        limit,
        count,
        principal,
        operation,
        kind,
        name);
  }

  /** An argument of the application is wrong. */
  static OncelogException invalid(String field, String format, Object... args) {
    return new OncelogException(ErrorKind.INVALID_REQUEST, format, args)
        .with(new Detail().field(field, null));
  }

  static OncelogException noPartition(TopicPartition tp) {
    return new OncelogException(
            ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
            "topic \"%s\" has no partition %d",
            tp.topic(),
            tp.partition())
        .with(new Detail().at(tp));
  }

  static OncelogException corrupt(TopicPartition tp, long offset, String format, Object... args) {
    return new OncelogException(ErrorKind.CORRUPT_LOG, tp + ": " + String.format(format, args))
        .with(new Detail().at(tp).offset(offset));
  }
}
