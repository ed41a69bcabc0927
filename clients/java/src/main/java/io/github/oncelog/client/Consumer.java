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
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * Reads topics, or assigned partitions, in offset order per partition, each record once per
 * consumer. It survives leader changes and restarts unseen. One consumer belongs to one thread at a
 * time: another one that reads, seeks, commits or subscribes meanwhile is refused with {@link
 * ErrorKind#INVALID_REQUEST}. {@link #close()} may be called from any thread.
 *
 * <pre>{@code
 * try (Consumer consumer = new Consumer("localhost:7001")) {
 *   consumer.subscribe("greetings");
 *   for (StoredRecord record : consumer.poll(Duration.ofSeconds(10))) {
 *     ...
 *   }
 * }
 * }</pre>
 *
 * <p>With a group id reading starts where the group committed last, if it did. The topics of {@link
 * #subscribe} are shared out among the group's consumers; partitions come and go while you read, by
 * {@link #poll}, and a {@link RebalanceListener} hears of it. With {@link Membership#MANUAL}, or
 * {@link #assign} instead of topics, the group only keeps offsets. Commits are made by {@link
 * #commit()} only, unless {@link ConsumerConfig#enableAutoCommit()} is set.
 *
 * <p>A call that waits, waits until it is interrupted: then a {@link CancellationException} is
 * thrown.
 */
public final class Consumer implements AutoCloseable {
  private static final String PATTERN = "^"; // of a topic's name, where one begins with it

  private final ConsumerConfig config;
  private final Cluster cluster;
  private final Fetcher fetcher;
  private final FetchBuffer buffer;
  private final AtomicBoolean closed = new AtomicBoolean();
  private final ReentrantLock using = new ReentrantLock(); // held also while records are waited for
  // Of a member of a group; null: it is none.
  private GroupMember member;
  private Rebalance rebalance;
  private volatile Set<String> subscribed = Set.of(); // topics, and patterns of them

  /** With the default settings, for the nodes of the environment. */
  public Consumer() {
    this(new ConsumerConfig());
  }

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

  // --- partitions to read -------------------------------------------------------------

  /**
   * Reads all partitions of these topics, also those that come later, and nothing else; in a group,
   * this consumer's share. A member of a group may name patterns of topics, with ^ in front: RE2's
   * syntax, over the whole name. It returns when the group has answered.
   */
  public void subscribe(String... topics) {
    alone(() -> subscribeTo(topics));
  }

  private void subscribeTo(String[] topics) {
    if (config.isMember()) {
      join(topics);
      return;
    }
    for (String topic : topics) {
      if (topic.startsWith(PATTERN)) {
        throw Detail.invalid("topics", "patterns of topics are for members of a group");
      }
      learn(topic);
    }
    fetcher.growth.subscribe(List.of(topics));
    subscribed = Set.copyOf(List.of(topics));
    fetcher.wake();
  }

  /**
   * The topics, and patterns of topics, of {@link #subscribe}; none after {@link #assign} or {@link
   * #unsubscribe}.
   */
  public Set<String> subscription() {
    return subscribed;
  }

  /**
   * Reads nothing any more. A member of a group finishes the records it was given, as {@link
   * #close} does, and leaves; its next {@link #subscribe} joins again.
   */
  public void unsubscribe() {
    alone(
        () -> {
          try {
            if (rebalance != null) {
              Times.uninterrupted(() -> rebalance.leave(false));
            }
          } finally {
            if (member != null) {
              forgetGroup();
            }
            subscribed = Set.of();
            fetcher.growth.assign(List.of());
            fetcher.wake();
          }
        });
  }

  /** The group's messages mean nothing any more. */
  private void forgetGroup() {
    member = null;
    rebalance = null;
    fetcher.positions.as(null);
    while (buffer.interruption() != null) {
      // its partitions go with it
    }
    buffer.holdFrom(Times.NEVER);
  }

  private void join(String[] topics) {
    for (String topic : topics) {
      if (!topic.startsWith(PATTERN)) {
        learn(topic);
      }
    }
    if (member != null) {
      member.subscribe(List.of(topics));
      subscribed = Set.copyOf(List.of(topics));
      return;
    }
    GroupMember fresh =
        new GroupMember(config, cluster, fetcher.positions.groups, buffer, List.of(topics));
    fetcher.positions.as(fresh);
    fresh.start();
    try {
      fresh.awaitJoined(cluster.requestTimeout);
    } catch (RuntimeException e) {
      Times.uninterrupted(fresh::leave);
      forgetGroup();
      throw e;
    }
    member = fresh;
    rebalance = new Rebalance(config, fetcher, fresh);
    subscribed = Set.copyOf(List.of(topics));
  }

  /**
   * Reads exactly these partitions; those already assigned keep their position. A member of a
   * group, to which the nodes assign, may not.
   */
  public void assign(Collection<TopicPartition> partitions) {
    alone(() -> assignTo(partitions));
  }

  private void assignTo(Collection<TopicPartition> partitions) {
    if (member != null) {
      throw Detail.invalid(
          "partitions", "the group assigns the partitions; make the consumer with MANUAL");
    }
    for (TopicPartition tp : partitions) {
      learn(tp.topic());
      if (cluster.leaders.leader(tp) == null) {
        throw Detail.noPartition(tp);
      }
    }
    fetcher.growth.assign(partitions);
    subscribed = Set.of();
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
   * Waits until there is a record or time is up, and returns the records there are, at most {@link
   * ConsumerConfig#maxPollRecords()}.
   *
   * <p>Errors are {@link ErrorKind#OFFSET_OUT_OF_RANGE}, {@link
   * ErrorKind#UNKNOWN_TOPIC_OR_PARTITION} and {@link ErrorKind#CORRUPT_LOG}. Reading can go on
   * after them, for instance after a seek; a damaged batch is never skipped, its error comes again
   * until a seek goes elsewhere. Records that were there before the error are returned first. An
   * error that ends a membership for good, as {@link ErrorKind#FENCED_MEMBER}, is thrown by each
   * call.
   */
  public List<StoredRecord> poll(Duration limit) {
    return poll(limit, config.maxPollRecords());
  }

  /** The same with another limit of records. */
  public List<StoredRecord> poll(Duration limit, int most) {
    if (most < 1) {
      throw Detail.invalid("limit", "at least 1 record must be asked for, got %d", most);
    }
    return alone(() -> read(Times.after(limit), most));
  }

  /** Runs work that no two threads may do at once. */
  private <T> T alone(Supplier<T> task) {
    if (!using.tryLock()) {
      if (closed.get()) {
        throw new OncelogException(ErrorKind.CLIENT_CLOSED, "the consumer is closed");
      }
      throw Detail.invalid(
          "consumer",
          "another thread is using this consumer: one thread at a time; make one for each thread");
    }
    try {
      return task.get();
    } finally {
      using.unlock();
    }
  }

  private void alone(Runnable task) {
    alone(
        () -> {
          task.run();
          return null;
        });
  }

  private List<StoredRecord> read(long until, int most) {
    if (rebalance != null) {
      rebalance.follow();
    }
    List<StoredRecord> records = new ArrayList<>();
    while (records.size() < most) {
      Chunk first = records.isEmpty() ? await(until) : buffer.peek(false, 0);
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

  /** The next chunk; meanwhile partitions come and go. Null: there is none until this time. */
  private Chunk await(long until) {
    if (rebalance == null) {
      return buffer.peek(true, until);
    }
    while (true) {
      Chunk chunk;
      try {
        chunk = buffer.peek(true, Math.min(until, rebalance.due()));
      } catch (OncelogException e) {
        boolean willGo =
            e.kind() == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION || e.kind() == ErrorKind.FENCED_MEMBER;
        if (!willGo) {
          throw e;
        }
        continue; // the group will take it away
      }
      if (chunk != null) {
        return chunk;
      }
      if (Times.now() >= until && !buffer.isInterrupted()) {
        return null;
      }
      rebalance.follow();
    }
  }

  // --- positions ---------------------------------------------------------------------

  /** Goes on at offset in this partition. */
  public void seek(TopicPartition tp, long offset) {
    if (offset < 0) {
      throw Detail.invalid("offset", "offset: %d is negative", offset);
    }
    alone(
        () -> {
          buffer.requireAssigned(tp);
          buffer.seek(tp, offset);
        });
  }

  /**
   * Goes to the first record that is kept, in these partitions or in all. One that has no leader
   * for 2 s holds up no other one: it goes there when it has one.
   */
  public void seekToBeginning(TopicPartition... partitions) {
    seek(partitions, OffsetReset.EARLIEST);
  }

  /** Goes behind the last record, in these partitions or in all; without a leader as above. */
  public void seekToEnd(TopicPartition... partitions) {
    seek(partitions, OffsetReset.LATEST);
  }

  private void seek(TopicPartition[] partitions, OffsetReset where) {
    alone(
        () -> {
          List<TopicPartition> tps =
              partitions.length == 0 ? assignment() : Arrays.asList(partitions);
          tps.forEach(buffer::requireAssigned);
          fetcher.seekAll(tps, where);
        });
  }

  /**
   * The offset of the next record that will be given out. It waits for a start position that is not
   * known yet. It throws {@link ErrorKind#FENCED_MEMBER} if the group has just given the partition
   * to another member, which the next poll follows.
   */
  public long position(TopicPartition tp) {
    long position = buffer.position(tp, Times.now() + cluster.requestTimeout);
    if (position == FetchBuffer.UNKNOWN) {
      throw new OncelogException(
          ErrorKind.REQUEST_TIMEOUT, "%s: the start position is not known yet", tp);
    }
    return position;
  }

  /** How many records there are to read, from the position to the high watermark. */
  public long lag(TopicPartition tp) {
    // Records before the start of the log can no longer be read.
    long from = Math.max(position(tp), beginningOffsets(List.of(tp)).get(tp));
    return Math.max(0, endOffsets(List.of(tp)).get(tp) - from);
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
                    .setTimestampUs(micros(at))
                    .build()));
    return fetcher.positions.list(queries);
  }

  private static long micros(Instant at) {
    try {
      return ChronoUnit.MICROS.between(Instant.EPOCH, at);
    } catch (ArithmeticException e) {
      throw Detail.invalid("times", "times: %s is more than 64 bits of microseconds away", at);
    }
  }

  private Map<TopicPartition, Long> list(Collection<TopicPartition> partitions, OffsetReset where) {
    Map<TopicPartition, OffsetQuery> queries = new TreeMap<>();
    partitions.forEach(tp -> queries.put(tp, Positions.query(tp, where)));
    return fetcher.positions.list(queries);
  }

  /** How the connection to the cluster has been. */
  public ConnectionStats connection() {
    return cluster.reachability.stats();
  }

  /** Gives out nothing of these partitions until {@link #resume}. */
  public void pause(TopicPartition... partitions) {
    alone(() -> List.of(partitions).forEach(tp -> buffer.pause(tp, true)));
  }

  /** The partitions that are paused. */
  public List<TopicPartition> paused() {
    return buffer.paused();
  }

  /** Takes {@link #pause} back. */
  public void resume(TopicPartition... partitions) {
    alone(() -> List.of(partitions).forEach(tp -> buffer.pause(tp, false)));
  }

  // --- the group ---------------------------------------------------------------------

  /**
   * Stores the positions of all partitions as where the group goes on. It returns when they are
   * stored on a majority.
   */
  public void commit() {
    alone(() -> commit(positions()));
  }

  /** The positions of all partitions, as far as they are known. */
  Map<TopicPartition, OffsetCommit> positions() {
    Map<TopicPartition, OffsetCommit> offsets = new TreeMap<>();
    buffer
        .places(buffer.assignment())
        .forEach((tp, position) -> offsets.put(tp, OffsetCommit.of(position)));
    return offsets;
  }

  /** The member's part of a commit of these; null: it is no member. */
  CommitTerms commitTerms(Collection<TopicPartition> tps) {
    return alone(() -> member == null ? null : member.commitTerms(tps, rebalance.numbers()));
  }

  /**
   * Stores these offsets. A commit with a producer id may be refused with {@link ErrorKind#FENCED},
   * {@link ErrorKind#OUT_OF_ORDER} or {@link ErrorKind#SEQUENCE_CONFLICT}. In a group with members
   * it is {@link ErrorKind#FENCED_MEMBER} for a partition that belongs to another member by now,
   * and {@link ErrorKind#GROUP_HAS_MEMBERS} if this is none.
   */
  public void commit(Map<TopicPartition, OffsetCommit> offsets) {
    String group = group();
    if (!offsets.isEmpty()) {
      alone(() -> fetcher.positions.groups.commit(group, offsets, commitTerms(offsets.keySet())));
    }
  }

  /** The group's committed offset of a partition; null: nothing. */
  public CommittedOffset committed(TopicPartition tp) {
    return fetcher.positions.groups.committedNow(group(), tp);
  }

  /** Its name. */
  String group() {
    if (config.groupId() == null) {
      throw Detail.invalid("group_id", "the consumer has no groupId");
    }
    return config.groupId();
  }

  /**
   * Frees everything. A poll that waits throws {@link ErrorKind#CLIENT_CLOSED}. A member of a group
   * has finished the records it was given: its listener hears {@link RebalanceListener#onRevoked},
   * {@link ConsumerConfig#enableAutoCommit()} commits, and it leaves. Otherwise nothing is
   * committed.
   */
  @Override
  public void close() {
    end(false);
  }

  /**
   * {@link #close()} for a caller that has failed to work on the records {@link #poll} returned
   * last: the listener hears {@link RebalanceListener#onLost} instead, and nothing is committed. A
   * try with resources does not know how its block ended: call this where it fails.
   */
  public void abandon() {
    end(true);
  }

  private void end(boolean failed) {
    if (!closed.getAndSet(true)) {
      buffer.close();
      using.lock(); // a poll on another thread ends first
      try {
        if (rebalance != null) {
          // An interrupted thread closes its own: commits, and leaves the group.
          Times.uninterrupted(() -> rebalance.leave(failed));
        }
      } finally {
        using.unlock();
        fetcher.stop();
        cluster.close();
      }
    }
  }
}
