package io.github.oncelog.client;

import io.github.oncelog.client.proto.LogServiceGrpc;
import io.github.oncelog.client.proto.ResolveSequenceRequest;
import io.github.oncelog.client.proto.ResolveSequenceResponse;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Sends records; each is stored once, in order per partition, through any failure. It is for use by
 * any number of threads.
 *
 * <pre>{@code
 * try (Producer producer = new Producer("localhost:7001")) {
 *   Delivery delivery = producer.send(Message.of("greetings", "hello".getBytes(UTF_8)));
 *   RecordMetadata stored = delivery.get();
 * }
 * }</pre>
 *
 * <p>A call that waits, waits until it is interrupted: then a {@link CancellationException} is
 * thrown, and records that are on their way stay so.
 */
public final class Producer implements AutoCloseable {
  private static final Duration FOR_EVER = Duration.ofDays(1000);

  private final ProducerConfig config;
  private final Cluster cluster;
  private final Sender sender;
  private final Transactions transactions;
  private final AtomicBoolean closed = new AtomicBoolean();
  private volatile Transaction transaction; // the newest one; null: none was begun

  /** With the default settings, for the nodes of the environment. */
  public Producer() {
    this(new ProducerConfig());
  }

  /** With the default settings, for nodes as "host:port,...". */
  public Producer(String servers) {
    this(new ProducerConfig(servers));
  }

  /**
   * Throws {@link ErrorKind#INVALID_CONFIG} for settings that are out of range or contradict each
   * other. No node is asked yet.
   */
  public Producer(ProducerConfig config) {
    this.config = new ProducerConfig(config);
    this.config.check();
    cluster = new Cluster(this.config);
    sender = new Sender(this.config, cluster);
    transactions = new Transactions(this.config, cluster, sender, () -> await(FOR_EVER));
    OpenProducers.add(this);
  }

  /** A copy of the settings in force. */
  public ProducerConfig config() {
    return new ProducerConfig(config);
  }

  // --- sending -----------------------------------------------------------------------

  /**
   * Queues one record and returns its future outcome. The message's bytes are copied.
   *
   * <p>Without a partition the key decides (Kafka's murmur2), without a key records stick to one
   * partition until its batch is closed. It waits for a topic that is not known yet, and while the
   * buffer is full, up to {@link ProducerConfig#maxBlock()}. If it throws nothing was queued.
   */
  public Delivery send(Message message) {
    return send(message, SendOptions.NONE);
  }

  /** The same with options. */
  public Delivery send(Message message, SendOptions options) {
    return send(message.topic(), List.of(message), false, options);
  }

  /**
   * Sends many records as exactly one batch of a partition, which the options must name; the
   * messages' topics are not looked at.
   */
  public Delivery sendBatch(String topic, List<Message> messages, SendOptions options) {
    if (messages.isEmpty()) {
      throw Detail.invalid("messages", "a batch needs at least one record");
    }
    if (options.partition == null) {
      throw Detail.invalid("partition", "a batch needs a partition");
    }
    return send(topic, messages, true, options);
  }

  private Delivery send(String topic, List<Message> messages, boolean whole, SendOptions options) {
    check(options, messages);
    Leaders.Topic known = learn(topic);
    int maxBatch = known.maxBatchBytes();
    if (config.compression() != Compression.NONE) {
      // Only the size as sent counts: the node judges it.
      maxBatch = Payload.MAX_BYTES;
    }
    byte[] key = messages.get(0).key();
    boolean sticky = options.partition == null && config.partitioner() == null && key == null;
    int partition = place(topic, key, options.partition, known.partitions());
    int size = 0;
    for (Message message : messages) {
      size = Math.addExact(size, message.size());
    }
    return sender.accumulator.append(
        new Accumulator.Addition(
            new TopicPartition(topic, partition),
            // A record with demands of its own does not set the place for others.
            sticky && options.sequences == null && options.expectedOffset == null,
            messages,
            size,
            options,
            whole,
            maxBatch));
  }

  private void check(SendOptions options, List<Message> messages) {
    long[] sequences = options.sequences;
    if (sequences != null) {
      if (!config.enableIdempotence()) {
        throw Detail.invalid("sequence", "sequence needs enableIdempotence");
      }
      boolean right = sequences.length == messages.size() && sequences[0] >= 0;
      for (int i = 1; right && i < sequences.length; i++) {
        right = sequences[i] > sequences[i - 1];
      }
      if (!right) {
        throw Detail.invalid(
            "sequences",
            "sequences must be %d rising numbers from 0, one for each record",
            messages.size());
      }
    }
    if (options.expectedOffset != null && options.expectedOffset < 0) {
      throw Detail.invalid("expected_offset", "expectedOffset must not be negative");
    }
  }

  private int place(String topic, byte[] key, Integer given, int partitions) {
    int partition;
    if (given != null) {
      partition = given;
    } else if (config.partitioner() != null) {
      partition = config.partitioner().partition(topic, key, partitions);
    } else if (key != null) {
      partition = Murmur2.partition(key, partitions);
    } else {
      partition = cluster.leaders.anyPartition(topic, partitions);
    }
    if (partition < 0 || partition >= partitions) {
      throw new OncelogException(
              ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
              "topic \"%s\" has the partitions 0 to %d, not %d",
              topic,
              partitions - 1,
              partition)
          .with(new Detail().at(new TopicPartition(topic, partition)));
    }
    return partition;
  }

  private Leaders.Topic learn(String topic) {
    Leaders.Topic known = cluster.leaders.topic(topic);
    if (known != null && known.partitions() > 0) {
      return known;
    }
    if (topic.isEmpty()) {
      throw Detail.invalid("topic", "the topic must have a name");
    }
    OncelogException failure = sender.accumulator.failure();
    if (failure != null) {
      throw failure;
    }
    cluster.requireTopic(topic, config.maxBlock().toNanos());
    known = cluster.leaders.topic(topic);
    if (known.partitions() == 0) {
      throw new OncelogException(ErrorKind.NOT_READY, "topic \"%s\" has no partitions yet", topic);
    }
    return known;
  }

  // --- transactions ------------------------------------------------------------------

  /**
   * Begins a transaction, when all that was sent before is settled. It is aborted after 60 s
   * without a sign of this process, and after 15 min. It needs a {@link
   * ProducerConfig#producerName()}.
   *
   * <p>Throws {@link ErrorKind#FENCED} if another producer has taken over the name, {@link
   * ErrorKind#TRANSACTION_OPEN} if the one before has not been ended, and retriable errors when
   * nobody answers.
   */
  public Transaction begin() {
    return begin(Duration.ZERO, Duration.ZERO);
  }

  /** The same with other times; zero: the nodes' own. */
  public Transaction begin(Duration idleTimeout, Duration totalTimeout) {
    Limits.time("idle_timeout_ms", idleTimeout);
    Limits.time("total_timeout_ms", totalTimeout);
    if (closed.get()) {
      throw new OncelogException(ErrorKind.CLIENT_CLOSED, "the producer is closed");
    }
    checkWaiting();
    transaction =
        new Transaction(this, transactions, transactions.begin(idleTimeout, totalTimeout));
    return transaction;
  }

  /** The transaction to which all that this producer sends belongs; empty: none is open. */
  public Optional<Transaction> transaction() {
    return Optional.ofNullable(transaction).filter(one -> !one.isOver());
  }

  // --- waiting, asking ---------------------------------------------------------------

  /**
   * Sends lingering records and waits until the outcome of all records is known.
   *
   * <p>It throws {@link ErrorKind#UNDELIVERED_RECORDS} for failures since the last flush that
   * nobody has looked at: no {@link Delivery} was asked and no callback told.
   */
  public void flush() {
    flush(FOR_EVER);
  }

  /** Waits no longer than this; then it throws {@link ErrorKind#REQUEST_TIMEOUT}. */
  public void flush(Duration limit) {
    checkWaiting();
    int left = await(limit);
    if (left > 0) {
      throw new OncelogException(
          ErrorKind.REQUEST_TIMEOUT, "the outcome of %d batches is not known yet", left);
    }
    sender.failed.report();
  }

  /** How many batches have no outcome when time is up. */
  private int await(Duration limit) {
    List<BatchDelivery> waiting = sender.accumulator.beginFlush();
    long until = Times.after(limit);
    try {
      for (int i = 0; i < waiting.size(); i++) {
        if (!done(waiting.get(i).released, until)) {
          return waiting.size() - i;
        }
      }
      return 0;
    } finally {
      sender.accumulator.endFlush();
    }
  }

  /** A callback would wait for its own end. */
  void checkWaiting() {
    Loop.checkMayWait();
    if (sender.isCallback()) {
      throw Detail.invalid(
          "thread",
          "flush, close and transactions wait for callbacks, so no callback may call them:"
              + " use another thread");
    }
  }

  /** Begins to send lingering records. */
  void sendAll() {
    sender.accumulator.beginFlush();
  }

  /** How many records have no outcome at this time, or earlier if all have one. */
  long undeliveredAt(long until) {
    await(Duration.ofNanos(Math.max(0, until - Times.now())));
    return pending();
  }

  private static boolean done(CompletableFuture<?> future, long until) {
    try {
      future.get(Math.max(0, until - Times.now()), TimeUnit.NANOSECONDS);
      return true;
    } catch (TimeoutException e) {
      return false;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    } catch (ExecutionException e) {
      throw new IllegalStateException(e); // it is never completed so
    }
  }

  /**
   * Flushes and frees everything; throws as {@link #flush()} does. A transaction that is open is
   * aborted, with a warning if it has records. A JVM that ends without this sends waiting records
   * for up to 5 s, and says on standard error how many records were not delivered.
   */
  @Override
  public void close() {
    close(FOR_EVER);
  }

  /** Records without an outcome after this time fail. A second close does nothing. */
  public void close(Duration limit) {
    checkWaiting();
    if (closed.getAndSet(true)) {
      return;
    }
    try {
      transactions.close(limit);
      await(limit); // the rest fails below, and is reported with its outcome
    } finally {
      sender.stop();
      // The callbacks of records that have failed just now.
      await(Thread.currentThread().isInterrupted() ? Duration.ZERO : limit);
      cluster.close();
      OpenProducers.remove(this);
    }
    sender.failed.report();
  }

  /** The number of a topic's partitions. */
  public int partitions(String topic) {
    return learn(topic).partitions();
  }

  /** The last sequence of this producer that is stored in a partition; -1: none. */
  public long position(String topic, int partition) {
    TopicPartition tp = new TopicPartition(topic, partition);
    if (partition < 0 || partition >= partitions(topic)) {
      throw Detail.noPartition(tp);
    }
    CompletableFuture<Identity> identity = sender.identityOf(tp);
    if (!done(identity, Times.after(config.maxBlock()))) {
      throw new OncelogException(
          ErrorKind.REQUEST_TIMEOUT, "%s: no position within maxBlock=%s", tp, config.maxBlock());
    }
    Identity found = identity.join();
    if (found == Identity.NONE) {
      OncelogException failure = sender.accumulator.failure();
      throw failure != null
          ? failure
          : new OncelogException(ErrorKind.INVALID_REQUEST, "the producer has no id");
    }
    return sender.identities.lastStored(tp, found);
  }

  /**
   * Asks for the outcome of a record (or a batch, by its last record) after a timeout. A record
   * without idempotence, or one that was never sent, is {@link ErrorKind#INVALID_REQUEST}: there is
   * nothing to ask for.
   */
  public ResolvedSequence resolve(Delivery delivery) {
    RecordMetadata last = delivery.batch.metadata(delivery.last(), delivery.last());
    if (last.producerId() == 0 || last.sequence() < 0) {
      throw Detail.invalid(
          "record", "the record has no sequence: it was never sent, or not with idempotence");
    }
    return resolve(cluster, delivery.batch.tp, last.producerId(), last.epoch(), last.sequence());
  }

  static ResolvedSequence resolve(
      Cluster cluster, TopicPartition tp, long producerId, int epoch, long sequence) {
    ResolveSequenceResponse answer =
        cluster.callLeader(
            tp,
            LogServiceGrpc.getResolveSequenceMethod(),
            ResolveSequenceRequest.newBuilder()
                .setTopic(tp.topic())
                .setPartition(tp.partition())
                .setProducerId(producerId)
                .setEpoch(epoch)
                .setSequence(sequence)
                .build());
    ResolvedSequence.Resolution resolution =
        switch (answer.getResolution()) {
          case RESOLUTION_COMMITTED -> ResolvedSequence.Resolution.COMMITTED;
          case RESOLUTION_NEVER -> ResolvedSequence.Resolution.NEVER;
          case RESOLUTION_NOT_YET -> ResolvedSequence.Resolution.NOT_YET;
          default -> ResolvedSequence.Resolution.FORGOTTEN;
        };
    return new ResolvedSequence(
        resolution,
        resolution == ResolvedSequence.Resolution.COMMITTED ? answer.getOffset() : -1,
        answer.getLastSequence(),
        answer.getCurrentEpoch());
  }

  /** The producer id in use; 0 before the first record is on its way. */
  public long producerId() {
    Identity current = sender.identities.current();
    return current == null ? 0 : current.producerId();
  }

  /** The epoch in use. */
  public int epoch() {
    Identity current = sender.identities.current();
    return current == null ? 0 : current.epoch();
  }

  /** How many records have no outcome yet. */
  public long pending() {
    return sender.accumulator.pending();
  }

  /** How the connection to the cluster has been. */
  public ConnectionStats connection() {
    return cluster.reachability.stats();
  }

  /** The producer's counters. */
  public ProducerStats stats() {
    return sender.stats();
  }

  /** Records that wait in this process, sent and not yet acknowledged included, in bytes. */
  public long bufferUsed() {
    return sender.accumulator.usedBytes();
  }
}
