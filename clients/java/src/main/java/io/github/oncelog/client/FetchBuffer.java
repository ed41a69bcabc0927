package io.github.oncelog.client;

import io.github.oncelog.client.proto.PartitionError;
import io.github.oncelog.client.proto.PartitionRecords;
import io.github.oncelog.client.proto.StoredBatch;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.function.ToLongFunction;

/**
 * Fetched records that are not yet taken. The fetcher fills it, the user empties it. Batches of a
 * partition follow each other without a hole, an answer to a question from before a seek is thrown
 * away, and records come before an error or a reset behind them.
 */
final class FetchBuffer {
  static final long UNKNOWN = -1;

  /** A generation: whatever was sought before. */
  static final int ANY = -1;

  /** A partition's next position to fetch; those of one group share a Fetch. */
  record Wanted(TopicPartition tp, int group, long offset, int generation) {}

  /** Outcome of an answer. */
  enum Added {
    OK,
    /** The user has gone elsewhere, or takes the records before an error first. */
    STALE,
    /** The answer carries an error; nothing was added. */
    REFUSED,
    /** It is of another topic of the same name. */
    ANEW,
    /** It is of a topic that is gone. */
    BEHIND
  }

  /** Where one partition stands. */
  private static final class Cursor {
    final TopicPartition tp;
    int group;
    long position = UNKNOWN; // next offset for the user, at the start of the first chunk
    long fetchOffset; // next offset to ask for
    int generation; // rises with each seek, and is never that of an earlier cursor
    final ArrayDeque<Chunk> chunks = new ArrayDeque<>();
    int buffered;
    boolean paused;
    // A fetch ahead at this offset was out of range: asked again when the chunks are taken.
    long refusedAt = UNKNOWN;
    long topicId; // of the topic that is read; 0: not known yet
    // The position was reached by reading, so the records before it did exist.
    boolean byReading;

    Cursor(TopicPartition tp, int generation, long topicId) {
      this.tp = tp;
      this.generation = generation;
      this.topicId = topicId;
    }
  }

  private final int partitionBytes;
  private final Runnable onRoom;
  private final ToLongFunction<String> topicId;
  private Map<TopicPartition, Cursor> cursors = new LinkedHashMap<>();
  private final Set<TopicPartition> turns = new LinkedHashSet<>(); // with chunks, in turn
  // Thrown, in turn, when the partition's chunks are taken; it is not fetched until then.
  private final Map<TopicPartition, OncelogException> errors = new LinkedHashMap<>();
  private boolean closed;
  private OncelogException failure; // a bug; null: none was met
  private int generations;
  // Work of the user's thread before it gets more records: changes of its partitions.
  private final ArrayDeque<GroupMember.Change> interruptions = new ArrayDeque<>();
  // From this time on nothing is given out: the group may have gone on without.
  private long heldFrom = Times.NEVER;
  // Sign that the user gets on.
  private long calls;
  private boolean waitedFor;

  /** Changes whenever the user comes back; waitedFor: he is waiting for records now. */
  record Progress(long calls, boolean waitedFor) {}

  /**
   * @param topicId as far as is known, else 0
   */
  FetchBuffer(int partitionBytes, Runnable onRoom, ToLongFunction<String> topicId) {
    this.partitionBytes = partitionBytes;
    this.onRoom = onRoom;
    this.topicId = topicId;
  }

  // --- the user's side ---------------------------------------------------------------

  /** Read exactly these; those that are kept keep their place. */
  synchronized void assign(Collection<TopicPartition> tps) {
    Map<TopicPartition, Cursor> old = cursors;
    cursors = new LinkedHashMap<>();
    for (TopicPartition tp : tps) {
      Cursor cursor = old.get(tp);
      if (cursor == null) {
        cursor = new Cursor(tp, ++generations, topicId.applyAsLong(tp.topic()));
      }
      cursor.group = cursors.size() / Fetcher.MOST_FETCHED;
      cursors.put(tp, cursor);
    }
    turns.retainAll(cursors.keySet());
    errors.keySet().retainAll(cursors.keySet());
    notifyAll();
  }

  synchronized List<TopicPartition> assignment() {
    return new ArrayList<>(cursors.keySet());
  }

  synchronized void requireAssigned(TopicPartition tp) {
    cursor(tp);
  }

  private Cursor cursor(TopicPartition tp) {
    Cursor cursor = cursors.get(tp);
    if (cursor == null) {
      throw Detail.invalid("partition", "%s is not assigned", tp);
    }
    return cursor;
  }

  /**
   * Goes on at offset or, with UNKNOWN, where that is found out; returns its generation from now
   * on, 0: it is not assigned.
   */
  int seek(TopicPartition tp, long offset) {
    return seek(tp, ANY, offset);
  }

  /** The same, if nobody has sought elsewhere since that generation; else it returns 0. */
  int seek(TopicPartition tp, int since, long offset) {
    int generation = 0;
    synchronized (this) {
      Cursor cursor = cursors.get(tp);
      if (cursor != null && (since == ANY || cursor.generation == since)) {
        generation = cursor.generation = ++generations;
        cursor.position = offset;
        cursor.fetchOffset = Math.max(offset, 0);
        cursor.chunks.clear();
        cursor.buffered = 0;
        errors.remove(tp);
        cursor.refusedAt = UNKNOWN;
        cursor.byReading = false;
        turns.remove(tp);
        notifyAll();
      }
    }
    onRoom.run();
    return generation;
  }

  /** The partitions of topics that were created anew under the same name, with generations. */
  synchronized Map<TopicPartition, Integer> recreated() {
    Map<TopicPartition, Integer> tps = new TreeMap<>();
    for (Cursor cursor : cursors.values()) {
      long id = topicId.applyAsLong(cursor.tp.topic());
      if (Long.compareUnsigned(cursor.topicId, id) < 0) {
        if (cursor.topicId != 0) {
          tps.put(cursor.tp, cursor.generation);
        }
        cursor.topicId = id;
      }
    }
    return tps;
  }

  /** Rises with each seek; 0: it is not assigned. */
  synchronized int generation(TopicPartition tp) {
    Cursor cursor = cursors.get(tp);
    return cursor == null ? 0 : cursor.generation;
  }

  /** The start position was found out; a seek in the meantime wins. */
  synchronized void found(TopicPartition tp, int generation, long offset) {
    Cursor cursor = cursors.get(tp);
    if (cursor != null && cursor.generation == generation && cursor.position == UNKNOWN) {
      cursor.position = offset;
      cursor.fetchOffset = offset;
      notifyAll();
    }
  }

  /** Has the user's next call throw this, once. */
  synchronized void fail(TopicPartition tp, int generation, OncelogException error) {
    Cursor cursor = cursors.get(tp);
    if (cursor != null && cursor.generation == generation) {
      errors.put(tp, error);
      notifyAll();
    }
  }

  /** Has each call of the user throw this from now on. */
  synchronized void fail(OncelogException bug) {
    failure = bug;
    notifyAll();
  }

  private void throwError() {
    for (TopicPartition tp : errors.keySet()) {
      if (cursors.get(tp).chunks.isEmpty()) {
        throw takenError(tp);
      }
    }
  }

  /** The partition is read on. */
  private OncelogException takenError(TopicPartition tp) {
    OncelogException error = errors.remove(tp);
    onRoom.run();
    return error;
  }

  /**
   * The oldest chunk of the partition that is next; null: there is none until this time, or there
   * is an interruption. With mayFail false an error stays where it is.
   */
  synchronized Chunk peek(boolean mayFail, long until) {
    calls++;
    while (true) {
      if (closed) {
        throw new OncelogException(ErrorKind.CLIENT_CLOSED, "the consumer is closed");
      }
      if (!interruptions.isEmpty()) {
        return null;
      }
      if (mayFail) {
        throwError();
      }
      if (Times.now() < heldFrom) {
        for (TopicPartition tp : turns) {
          Cursor cursor = cursors.get(tp);
          if (!cursor.paused) {
            return cursor.chunks.peek();
          }
        }
      }
      if (mayFail && failure != null) {
        throw failure;
      }
      waitedFor = true;
      try {
        if (!await(until)) {
          return null;
        }
      } finally {
        waitedFor = false;
      }
    }
  }

  /** Next work of the user's thread; null: nothing. */
  synchronized GroupMember.Change interruption() {
    return interruptions.poll();
  }

  synchronized boolean isInterrupted() {
    return !interruptions.isEmpty();
  }

  /** Those of the user's places that are known. */
  synchronized Map<TopicPartition, Long> places(Collection<TopicPartition> tps) {
    Map<TopicPartition, Long> places = new TreeMap<>();
    for (TopicPartition tp : tps) {
      Cursor cursor = cursors.get(tp);
      if (cursor != null && !cursor.chunks.isEmpty()) {
        places.put(tp, cursor.chunks.peek().next);
      } else if (cursor != null && cursor.position != UNKNOWN) {
        places.put(tp, cursor.position);
      }
    }
    return places;
  }

  /** Waits for a change; false: time is up. */
  private boolean await(long until) {
    long left = until - Times.now();
    if (left <= 0) {
      return false;
    }
    try {
      wait(Math.max(1, Math.min(left / Times.MS, 1 << 30)));
      return true;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    }
  }

  /** The user has moved the chunk's place. */
  void advance(Chunk taken) {
    if (taken.next < taken.end) {
      return;
    }
    boolean room;
    synchronized (this) {
      Cursor cursor = cursors.get(taken.tp);
      if (cursor == null
          || cursor.generation != taken.generation
          || cursor.chunks.peek() != taken) {
        return;
      }
      cursor.chunks.remove();
      cursor.position = taken.end;
      cursor.byReading = true;
      boolean hadRoom = cursor.buffered < partitionBytes;
      cursor.buffered -= taken.bytes;
      turns.remove(taken.tp);
      if (!cursor.chunks.isEmpty()) {
        turns.add(taken.tp);
      }
      boolean asksAgain = cursor.chunks.isEmpty() && cursor.fetchOffset == cursor.refusedAt;
      room = asksAgain || !hadRoom && cursor.buffered < partitionBytes;
    }
    if (room) {
      onRoom.run();
    }
  }

  /** The user's place; UNKNOWN: not known until this time. */
  synchronized long position(TopicPartition tp, long until) {
    while (true) {
      Cursor cursor = cursor(tp);
      if (cursor.position == UNKNOWN && errors.containsKey(tp)) {
        throw takenError(tp);
      }
      if (!cursor.chunks.isEmpty()) {
        return cursor.chunks.peek().next;
      }
      if (cursor.position != UNKNOWN || !await(until)) {
        return cursor.position;
      }
    }
  }

  synchronized List<TopicPartition> paused() {
    return cursors.keySet().stream().filter(tp -> cursors.get(tp).paused).sorted().toList();
  }

  void pause(TopicPartition tp, boolean paused) {
    synchronized (this) {
      cursor(tp).paused = paused;
      notifyAll();
    }
    onRoom.run();
  }

  synchronized void close() {
    closed = true;
    notifyAll();
  }

  // --- the member's side -------------------------------------------------------------

  /** Has the user's thread look at this before it is given more records. */
  synchronized void interrupt(GroupMember.Change change) {
    interruptions.add(change);
    notifyAll();
  }

  /** Gives out nothing from that time on, unless it is put off. */
  synchronized void holdFrom(long moment) {
    heldFrom = moment;
    notifyAll();
  }

  synchronized Progress progress() {
    return new Progress(calls, waitedFor);
  }

  // --- the fetcher's side ------------------------------------------------------------

  /** The partitions without a known start. */
  synchronized List<Wanted> withoutPosition() {
    List<Wanted> missing = new ArrayList<>();
    for (Cursor cursor : cursors.values()) {
      if (cursor.position == UNKNOWN && !errors.containsKey(cursor.tp)) {
        missing.add(new Wanted(cursor.tp, cursor.group, 0, cursor.generation));
      }
    }
    return missing;
  }

  private boolean isWanted(Cursor cursor) {
    return cursor.position != UNKNOWN
        && !errors.containsKey(cursor.tp)
        && !cursor.paused
        && cursor.buffered < partitionBytes
        && (cursor.chunks.isEmpty() || cursor.fetchOffset != cursor.refusedAt);
  }

  /** The partitions to fetch now: position known, room in the buffer. */
  synchronized List<Wanted> wanted() {
    List<Wanted> all = new ArrayList<>();
    for (Cursor cursor : cursors.values()) {
      if (isWanted(cursor)) {
        all.add(new Wanted(cursor.tp, cursor.group, cursor.fetchOffset, cursor.generation));
      }
    }
    return all;
  }

  /** Whether a stream's partition has room; null: nobody wants the stream any more. */
  synchronized Boolean room(Wanted w) {
    Cursor cursor = cursors.get(w.tp);
    boolean gone =
        closed
            || cursor == null
            || cursor.generation != w.generation
            || cursor.paused
            || errors.containsKey(w.tp);
    return gone ? null : cursor.buffered < partitionBytes;
  }

  /** Whether the partition's position was reached by reading. */
  synchronized boolean read(TopicPartition tp) {
    Cursor cursor = cursors.get(tp);
    return cursor != null && cursor.byReading;
  }

  /** Takes over one partition's answer. */
  synchronized Added add(Wanted w, PartitionRecords answer) {
    Cursor cursor = cursors.get(w.tp);
    if (cursor == null || cursor.generation != w.generation) {
      return Added.STALE;
    }
    long topic = answer.getTopicId();
    if (topic != 0 && topic != cursor.topicId) {
      if (Long.compareUnsigned(topic, cursor.topicId) < 0) {
        return Added.BEHIND; // ids only rise
      }
      boolean other = cursor.topicId != 0;
      cursor.topicId = topic;
      if (other) {
        return Added.ANEW;
      }
    }
    if (answer.getError() == PartitionError.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
        && !cursor.chunks.isEmpty()) {
      cursor.refusedAt = w.offset;
      return Added.STALE;
    }
    if (answer.getError() != PartitionError.PARTITION_ERROR_NONE) {
      return Added.REFUSED;
    }
    if (w.offset != cursor.fetchOffset) {
      return Added.STALE; // another answer has already brought these
    }
    for (StoredBatch stored : answer.getBatchesList()) {
      long at = cursor.fetchOffset;
      Chunk chunk = new Chunk(w.tp, stored, at, cursor.generation);
      // It may begin before the position: batches are sent whole, and may have been cut anew.
      if (chunk.base > at || chunk.end <= at) {
        errors.put(
            w.tp,
            Detail.corrupt(
                w.tp,
                at,
                "after offset %d came a batch with offsets %d to %d",
                at - 1,
                chunk.base,
                chunk.end - 1));
        break;
      }
      cursor.chunks.add(chunk);
      cursor.buffered += chunk.bytes;
      cursor.fetchOffset = chunk.end;
    }
    if (!cursor.chunks.isEmpty()) {
      turns.add(w.tp);
    }
    notifyAll();
    return Added.OK;
  }
}
