package io.github.oncelog.client;

import java.util.List;
import java.util.Map;

/**
 * Records in several partitions that become readable together, or never; with them, how far a group
 * has read. {@link Producer#begin()} makes one.
 *
 * <pre>{@code
 * try (Transaction transaction = producer.begin()) {
 *   transaction.send(Message.of("accounts", minus), new SendOptions().partition(0));
 *   transaction.send(Message.of("accounts", plus), new SendOptions().partition(1));
 *   transaction.commitOffsets(consumer); // where there is input: how far it was read
 *   transaction.commit();
 * } // aborted, if it was not committed
 * }</pre>
 *
 * <p>While it is open, all that its producer sends belongs to it. The delivery of a record is done
 * when the record is staged: on disks of a majority, and not readable. Its offset is -1 until the
 * commit. One transaction of a producer is open at a time.
 */
public final class Transaction implements AutoCloseable {
  /** How far a transaction has come. */
  public enum State {
    /** Records are taken. */
    OPEN,
    /** A commit was asked for, and nobody has said yet how it ended. */
    COMMITTING,
    /** The same of an abort. */
    ABORTING,
    /** All of it is readable. */
    COMMITTED,
    /** Nothing of it is readable. */
    ABORTED,
    /** It has ended, and nobody knows how: only if its name was given up meanwhile. */
    UNKNOWN
  }

  private final Producer producer;
  private final Transactions transactions;
  private final ProducerTransaction begun;

  Transaction(Producer producer, Transactions transactions, ProducerTransaction begun) {
    this.producer = producer;
    this.transactions = transactions;
    this.begun = begun;
  }

  /** Its number, which is never used again. */
  public long transactionId() {
    return begun.id;
  }

  /** How far it has come. */
  public State state() {
    return begun.state();
  }

  boolean isOver() {
    return begun.isOver();
  }

  /**
   * As {@link Producer#send(Message)}; throws {@link ErrorKind#TRANSACTION_ABORTED} once it cannot
   * be committed.
   */
  public Delivery send(Message message) {
    return send(message, SendOptions.NONE);
  }

  /** The same with options; an expected offset is refused. */
  public Delivery send(Message message, SendOptions options) {
    begun.checkOpen();
    return producer.send(message, options);
  }

  /** As {@link Producer#sendBatch}. */
  public Delivery sendBatch(String topic, List<Message> messages, SendOptions options) {
    begun.checkOpen();
    return producer.sendBatch(topic, messages, options);
  }

  /**
   * Stores the consumer's positions as where its group goes on, together with all of this, or not
   * at all. Throws {@link ErrorKind#FENCED_MEMBER} if a partition is another member's by now; the
   * transaction is then only to be aborted.
   */
  public void commitOffsets(Consumer consumer) {
    commitOffsets(consumer, consumer.positions());
  }

  /** The same with these offsets: the next one to read of each partition. */
  public void commitOffsets(Consumer consumer, Map<TopicPartition, OffsetCommit> offsets) {
    begun.checkOpen();
    String group = consumer.group();
    if (!offsets.isEmpty()) {
      transactions.stageOffsets(begun, group, offsets, consumer.commitTerms(offsets.keySet()));
    }
  }

  /** The same for a group that has no members, by its name. */
  public void commitOffsets(String group, Map<TopicPartition, OffsetCommit> offsets) {
    begun.checkOpen();
    Limits.name("group", group);
    if (!offsets.isEmpty()) {
      transactions.stageOffsets(begun, group, offsets, null);
    }
  }

  /**
   * Makes all of it readable; returns when it is, with the places. Again after a success, it
   * answers the same.
   *
   * <p>It throws, with nothing of it readable, {@link ErrorKind#TRANSACTION_ABORTED} (a record
   * failed, it was idle or open for too long, an operator aborted it); {@link ErrorKind#FENCED} and
   * others that end the producer come as themselves. {@link ErrorKind#COMMIT_TIMEOUT}: not known
   * yet, call it again.
   */
  public CommittedTransaction commit() {
    producer.checkWaiting();
    return transactions.commit(begun);
  }

  /**
   * Drops all of it. Again, it does nothing. Throws {@link ErrorKind#TRANSACTION_COMMITTED} if a
   * commit was decided, and {@link ErrorKind#COMMIT_TIMEOUT} if nobody answers; it is aborted then
   * when it has been idle for long enough.
   */
  public void abort() {
    producer.checkWaiting();
    transactions.abort(begun);
  }

  /**
   * Aborts it if neither a commit nor an abort was asked for. It throws nothing if that fails: it
   * is aborted when it has been idle.
   */
  @Override
  public void close() {
    if (begun.state() == State.OPEN) {
      try {
        abort();
      } catch (OncelogException e) {
        // Nothing of it is ever readable, and batches on their way out of here may say why.
      }
    }
  }
}
