package io.github.oncelog.client;

import java.util.Collection;

/**
 * Every error that this package makes. Which of the {@link #details()} are set depends on the
 * {@link #kind()}.
 */
public final class OncelogException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** Known outcome of a failed record. */
  public enum Outcome {
    /** No node has seen the record. */
    NEVER_SENT,
    /** A node refused it. */
    NOT_STORED,
    /** It was sent and may be stored now or a little later. */
    UNKNOWN
  }

  /** Fields of an error beside its message; a field that does not apply is null, 0 or -1. */
  public record Details(
      String topic,
      int partition,
      long offset,
      long logStartOffset,
      long highWatermark,
      long nextOffset,
      long lastSequence,
      int currentEpoch,
      int leaderId,
      String leaderAddress,
      String producerName,
      String field,
      String limit,
      long count,
      String principal,
      String operation,
      String kind,
      String name) {
    static final Details NONE = new Detail().build();
  }

  private enum Mark {
    NONE,
    /** A node has said this. */
    TOLD,
    /** The call was not sent. */
    UNSENT
  }

  private final ErrorKind kind;
  private final transient Details details;
  private final Outcome outcome;
  private final Mark mark;
  private final transient RecordMetadata batch;

  OncelogException(ErrorKind kind, String format, Object... args) {
    this(
        kind,
        args.length == 0 ? format : String.format(format, args),
        Details.NONE,
        null,
        null,
        Mark.NONE,
        null);
  }

  private OncelogException(
      ErrorKind kind,
      String message,
      Details details,
      Outcome outcome,
      Throwable cause,
      Mark mark,
      RecordMetadata batch) {
    super(message == null || message.isEmpty() ? kind.name() : message, cause);
    this.kind = kind;
    this.details = details;
    this.mark = mark;
    this.batch = batch;
    if (kind == ErrorKind.COMMIT_TIMEOUT) {
      this.outcome = Outcome.UNKNOWN;
    } else if (outcome == null && kind.is(ErrorKind.DELIVERY_FAILED)) {
      this.outcome = Outcome.NOT_STORED; // until something else is said
    } else {
      this.outcome = outcome;
    }
  }

  /** Where the error is in the tree. */
  public ErrorKind kind() {
    return kind;
  }

  /** Whether the error's kind is this one or below it. */
  public boolean is(ErrorKind other) {
    return kind.is(other);
  }

  /** Whether the same call may succeed later. */
  public boolean isRetriable() {
    return kind.is(ErrorKind.RETRIABLE);
  }

  /**
   * Known outcome of the record, or of a commit. Of another retriable error it is UNKNOWN if an
   * attempt of the call had no answer: the call may take effect. Else null.
   */
  public Outcome outcome() {
    return outcome;
  }

  /** Fields of the error. */
  public Details details() {
    return details == null ? Details.NONE : details;
  }

  /**
   * The batch of a record that failed: {@link Admin#resolveSequence} takes its partition, producer
   * id, epoch and last sequence, and tells later whether it was stored. A batch is stored whole or
   * not at all. Its producer id is 0 if it was never sent, or without idempotence. Null if the
   * error is not of a record.
   */
  public RecordMetadata batch() {
    return batch;
  }

  /** The same error, if it is of a record, with this outcome. */
  OncelogException with(Outcome outcome) {
    return kind.is(ErrorKind.DELIVERY_FAILED)
        ? new OncelogException(kind, getMessage(), details, outcome, getCause(), mark, batch)
        : this;
  }

  OncelogException with(Detail detail) {
    return new OncelogException(
        kind, getMessage(), detail.build(), outcome, getCause(), mark, batch);
  }

  /** The same, of several partitions. */
  OncelogException about(Collection<TopicPartition> tps) {
    String names = String.join(", ", tps.stream().map(TopicPartition::toString).toList());
    return new OncelogException(
        kind, "no offsets of " + names + ": " + getMessage(), details, outcome, this, mark, batch);
  }

  /** The same error, if it is of a record, of this batch: the caller can ask for it later. */
  OncelogException of(RecordMetadata batch) {
    if (!is(ErrorKind.DELIVERY_FAILED)) {
      return this;
    }
    String text = getMessage();
    if (batch.producerId() != 0 && outcome == Outcome.UNKNOWN) {
      // These words are the same in all clients: tools read them.
      text += "; " + batch.topic() + "-" + batch.partition() + " producer " + batch.producerId();
      text +=
          " epoch "
              + batch.epoch()
              + " sequences "
              + batch.sequence()
              + ".."
              + batch.lastSequence();
      text += " may be stored, resolveSequence tells";
    }
    return new OncelogException(kind, text, details, outcome, getCause(), mark, batch);
  }

  OncelogException because(Throwable cause) {
    return new OncelogException(kind, getMessage(), details, outcome, cause, mark, batch);
  }

  /** The same, as a node has said it. */
  OncelogException told() {
    return with(Mark.TOLD);
  }

  boolean isTold() {
    return mark == Mark.TOLD;
  }

  /** The same, of a call that was not sent: there was no connection. */
  OncelogException unsent() {
    return with(Mark.UNSENT);
  }

  boolean isUnsent() {
    return mark == Mark.UNSENT;
  }

  private OncelogException with(Mark mark) {
    return new OncelogException(kind, getMessage(), details, outcome, getCause(), mark, batch);
  }

  /** The same of a call with several attempts, one of them perhaps without an answer. */
  OncelogException ofCall(String message, boolean inDoubt) {
    Outcome known = inDoubt && isRetriable() ? Outcome.UNKNOWN : outcome;
    return new OncelogException(kind, message, details, known, this, mark, batch);
  }

  /** Any error as one of ours. */
  static OncelogException of(Throwable error) {
    return error instanceof OncelogException own
        ? own
        : new OncelogException(ErrorKind.INTERNAL, "%s", error.toString()).because(error);
  }
}
