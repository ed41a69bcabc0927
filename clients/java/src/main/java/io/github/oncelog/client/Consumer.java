package io.github.oncelog.client;

import io.github.oncelog.client.proto.OffsetQuery;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Reads topics, or assigned partitions, in offset order per partition, each record once per
 * consumer. It survives leader changes and restarts unseen. One consumer belongs to one thread at a
 * time; only {@link #close()} may be called from another.
 *
 * <pre>{@code
 * try (Consumer consumer = new Consumer("localhost:9001")) {
 *   consumer.subscribe("greetings");
 *   for (StoredRecord record : consumer.poll(Duration.ofSeconds(10))) {
 *     ...
 *   }
 * }
 * }</pre>
 *
 * <p>With a group id reading starts where the group committed last, if it did; commits are made by
 * {@link #commit()} only. Groups keep offsets, they do not share out partitions: assign those
 * yourself. What waits, waits until it is interrupted: then a {@link CancellationException} is
 * thrown.
 */
public final class Consumer implements AutoCloseable {
  private final ConsumerConfig config;
  private final Cluster cluster;
  private final Fetcher fetcher;
  private final FetchBuffer buffer;
  private final AtomicBoolean closed = new AtomicBoolean();

  /** With the default settings, for nodes as "host:port,...". */
  public Consumer(String servers) {
    this(new ConsumerConfig(servers));
  }

  /**
   * Throws {@link ErrorKind#INVALID_CONFIG} for settings that are out of range or contradict each
   * other. No node is asked yet.
   */
  public Consumer(ConsumerConfig config) {
    this.config = new ConsumerConfig(config);
    this.config.check();
    cluster = new Cluster(this.config);
    fetcher = new Fetcher(this.config, cluster);
    buffer = fetcher.buffer;
  }

  /** A copy of the settings in force. */
  public ConsumerConfig config() {
    return new ConsumerConfig(config);
  }

  // --- what to read ------------------------------------------------------------------

  /** Reads all partitions of these topics, and nothing else. */
  public void subscribe(String... topics) {
    List<TopicPartition> tps = new ArrayList<>();
    for (String topic : topics) {
      learn(topic);
      for (int partition = 0; partition < cluster.leaders.topic(topic).partitions(); partition++) {
        tps.add(new TopicPartition(topic, partition));
      }
    }
    buffer.assign(tps);
    fetcher.wake();
  }

  /** Reads exactly these partitions; those already assigned keep their position. */
  public void assign(Collection<TopicPartition> partitions) {
    for (TopicPartition tp : partitions) {
      learn(tp.topic());
      if (cluster.leaders.leader(tp) == null) {
        throw Detail.noPartition(tp);
      }
    }
    buffer.assign(partitions);
    fetcher.wake();
  }

  /** The partitions that are read. */
  public List<TopicPartition> assignment() {
    List<TopicPartition> tps = buffer.assignment();
    tps.sort(null);
    return tps;
  }

  private void learn(String topic) {
    if (cluster.leaders.topic(topic) == null) {
      cluster.requireTopic(topic, cluster.requestTimeout);
    }
  }

  // --- reading -----------------------------------------------------------------------

  /**
   * Waits until there is a record or time is up, and returns what is there, at most {@link
   * ConsumerConfig#maxPollRecords()}.
   *
   * <p>Errors are {@link ErrorKind#OFFSET_OUT_OF_RANGE}, {@link
   * ErrorKind#UNKNOWN_TOPIC_OR_PARTITION} and {@link ErrorKind#CORRUPT_LOG}. Reading can go on
   * after them, for instance after a seek; a damaged batch is never skipped, its error comes again
   * until a seek goes elsewhere. Records that were there before the error are returned first.
   */
  public List<StoredRecord> poll(Duration limit) {
    return poll(limit, config.maxPollRecords());
  }

  /** The same with another limit of records. */
  public List<StoredRecord> poll(Duration limit, int most) {
    if (most < 1) {
      throw Detail.invalid("limit", "at least 1 record must be asked for, got %d", most);
    }
    List<StoredRecord> records = new ArrayList<>();
    long until = Times.now() + limit.toNanos();
    while (records.size() < most) {
      Chunk first = buffer.peek(records.isEmpty(), records.isEmpty() ? until : 0);
      if (first == null) {
        return records;
      }
      try {
        first.open(config.checkCrcs());
      } catch (OncelogException e) {
        if (records.isEmpty()) {
          throw e;
        }
        return records; // the error comes with the next call
      }
      first.take(records, most - records.size());
      buffer.advance(first);
    }
    return records;
  }

  // --- positions ---------------------------------------------------------------------

  /** Goes on at offset in this partition. */
  public void seek(TopicPartition tp, long offset) {
    buffer.requireAssigned(tp);
    if (offset < 0) {
      throw Detail.invalid("offset", "offset must not be negative, got %d", offset);
    }
    buffer.seek(tp, offset);
  }

  /** Goes to the first record that is kept, in these partitions or in all. */
  public void seekToBeginning(TopicPartition... partitions) {
    seek(partitions, OffsetReset.EARLIEST);
  }

  /** Goes behind the last record, in these partitions or in all. */
  public void seekToEnd(TopicPartition... partitions) {
    seek(partitions, OffsetReset.LATEST);
  }

  private void seek(TopicPartition[] partitions, OffsetReset where) {
    List<TopicPartition> tps = partitions.length == 0 ? assignment() : Arrays.asList(partitions);
    tps.forEach(buffer::requireAssigned);
    list(tps, where).forEach(buffer::seek);
  }

  /**
   * The offset of the next record that will be given out. It waits for a start position that is not
   * known yet.
   */
  public long position(TopicPartition tp) {
    long position = buffer.position(tp, Times.now() + cluster.requestTimeout);
    if (position == FetchBuffer.UNKNOWN) {
      throw new OncelogException(
          ErrorKind.REQUEST_TIMEOUT, "%s: the start position is not known yet", tp);
    }
    return position;
  }

  /** How many records there are from the position to the high watermark. */
  public long lag(TopicPartition tp) {
    long position = position(tp);
    return Math.max(0, endOffsets(List.of(tp)).get(tp) - position);
  }

  /** Each partition's first offset that is kept. */
  public Map<TopicPartition, Long> beginningOffsets(Collection<TopicPartition> partitions) {
    return list(partitions, OffsetReset.EARLIEST);
  }

  /** Each partition's high watermark: the offset that comes next. */
  public Map<TopicPartition, Long> endOffsets(Collection<TopicPartition> partitions) {
    return list(partitions, OffsetReset.LATEST);
  }

  /**
   * Where to start to see everything from these times on; -1: nothing is there. It is the first
   * offset of the first batch with a record at or after the time.
   */
  public Map<TopicPartition, Long> offsetsForTimes(Map<TopicPartition, Instant> times) {
    Map<TopicPartition, OffsetQuery> queries = new TreeMap<>();
    times.forEach(
        (tp, at) ->
            queries.put(
                tp,
                OffsetQuery.newBuilder()
                    .setTopic(tp.topic())
                    .setPartition(tp.partition())
                    .setTimestampUs(ChronoUnit.MICROS.between(Instant.EPOCH, at))
                    .build()));
    return fetcher.positions.list(queries);
  }

  private Map<TopicPartition, Long> list(Collection<TopicPartition> partitions, OffsetReset where) {
    Map<TopicPartition, OffsetQuery> queries = new TreeMap<>();
    partitions.forEach(tp -> queries.put(tp, Positions.query(tp, where)));
    return fetcher.positions.list(queries);
  }

  /** Gives out nothing of these partitions until {@link #resume}. */
  public void pause(TopicPartition... partitions) {
    for (TopicPartition tp : partitions) {
      buffer.pause(tp, true);
    }
  }

  /** Takes {@link #pause} back. */
  public void resume(TopicPartition... partitions) {
    for (TopicPartition tp : partitions) {
      buffer.pause(tp, false);
    }
  }

  // --- the group ---------------------------------------------------------------------

  /**
   * Stores the positions of all partitions as where the group goes on. It returns when they are
   * stored on a majority.
   */
  public void commit() {
    Map<TopicPartition, OffsetCommit> offsets = new TreeMap<>();
    for (TopicPartition tp : assignment()) {
      long position = buffer.position(tp, 0);
      if (position != FetchBuffer.UNKNOWN) {
        offsets.put(tp, OffsetCommit.of(position));
      }
    }
    commit(offsets);
  }

  /**
   * Stores these offsets. A commit with a producer id may be refused with {@link ErrorKind#FENCED},
   * {@link ErrorKind#OUT_OF_ORDER} or {@link ErrorKind#SEQUENCE_CONFLICT}.
   */
  public void commit(Map<TopicPartition, OffsetCommit> offsets) {
    requireGroup();
    if (!offsets.isEmpty()) {
      fetcher.positions.groups.commit(config.groupId(), offsets);
    }
  }

  /** What the group has committed for a partition; null: nothing. */
  public CommittedOffset committed(TopicPartition tp) {
    requireGroup();
    return fetcher.positions.groups.committed(config.groupId(), List.of(tp)).get(tp);
  }

  private void requireGroup() {
    if (config.groupId() == null) {
      throw Detail.invalid("group_id", "the consumer has no groupId");
    }
  }

  /**
   * Frees everything. Nothing is committed. A poll that waits throws {@link
   * ErrorKind#CLIENT_CLOSED}.
   */
  @Override
  public void close() {
    if (!closed.getAndSet(true)) {
      buffer.close();
      fetcher.stop();
      cluster.close();
    }
  }
}
