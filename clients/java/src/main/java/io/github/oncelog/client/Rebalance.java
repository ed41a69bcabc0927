package io.github.oncelog.client;

import io.github.oncelog.client.GroupMember.Change;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The consumer's work when its partitions change: on its own thread, between two polls.
 *
 * <pre>
 * GroupMember --Change--> FetchBuffer --interruption--> Rebalance --> listener, commits
 * </pre>
 */
final class Rebalance {
  private static final RebalanceListener NOBODY = new RebalanceListener() {};

  private final ConsumerConfig config;
  private final FetchBuffer buffer;
  private final Fetcher fetcher;
  private final GroupMember member;
  private final RebalanceListener listener;
  // Under which ownership the records of each partition are being read.
  private final Map<TopicPartition, Long> numbers = new TreeMap<>();
  private final Map<TopicPartition, Long> stored = new TreeMap<>(); // by commits of this class
  private long commitAt;

  Rebalance(ConsumerConfig config, Fetcher fetcher, GroupMember member) {
    this.config = config;
    this.fetcher = fetcher;
    this.member = member;
    buffer = fetcher.buffer;
    listener = config.rebalanceListener() == null ? NOBODY : config.rebalanceListener();
    commitAt = Times.now() + config.autoCommitInterval().toNanos();
  }

  Map<TopicPartition, Long> numbers() {
    return numbers;
  }

  /**
   * The user has come back for more: does all that is due. Throws the listener's error, and the
   * error that ended the membership.
   */
  void follow() {
    for (Change change = buffer.interruption(); change != null; change = buffer.interruption()) {
      take(change);
    }
    OncelogException error = member.error();
    if (error != null) {
      throw error;
    }
    if (config.enableAutoCommit() && Times.now() >= commitAt) {
      commit(numbers.keySet());
    }
  }

  /** When {@link #follow} has something to do at the latest. */
  long due() {
    return config.enableAutoCommit() ? commitAt : Times.NEVER;
  }

  /** The consumer closes. failed: the records given out last may not have been worked on. */
  void leave(boolean failed) {
    List<TopicPartition> tps = List.copyOf(numbers.keySet());
    try {
      if (!failed) {
        finish(tps, Times.now() + config.revokeTimeout().toNanos());
      } else if (!tps.isEmpty()) {
        listener.onLost(tps);
      }
    } finally {
      drop(tps);
      member.leave();
    }
  }

  // --- parts ---------------------------------------------------------------------------

  /** All of it, even if the listener throws. */
  private void take(Change change) {
    Throwable first = null;
    for (Runnable part : parts(change)) {
      try {
        part.run();
      } catch (RuntimeException | Error e) {
        if (first == null) {
          first = e;
        } else {
          first.addSuppressed(e);
        }
      }
    }
    if (first instanceof Error bad) {
      throw bad;
    } else if (first != null) {
      throw (RuntimeException) first;
    }
  }

  private List<Runnable> parts(Change change) {
    List<Runnable> parts = new ArrayList<>(List.of(() -> lose(change)));
    if (!change.step().revoked().isEmpty()) {
      parts.add(() -> giveBack(change));
    }
    if (!change.step().assigned().isEmpty()) {
      parts.add(() -> gain(change));
    }
    return parts;
  }

  private void lose(Change change) {
    List<TopicPartition> lost = new ArrayList<>(change.step().lost());
    lost.retainAll(numbers.keySet());
    drop(lost);
    try {
      if (!lost.isEmpty()) {
        listener.onLost(lost);
      }
    } finally {
      if (change.ended()) {
        member.comeBack();
      }
    }
  }

  private void giveBack(Change change) {
    List<TopicPartition> asked = member.askedBack(change);
    List<TopicPartition> known = new ArrayList<>(asked);
    known.retainAll(numbers.keySet());
    List<TopicPartition> kept = asked;
    try {
      finish(known, change.deadline());
    } finally {
      kept = member.release(change, asked);
      List<TopicPartition> gone = new ArrayList<>(known);
      gone.removeAll(kept);
      drop(gone);
    }
    known.retainAll(kept);
    if (!known.isEmpty()) {
      // A new connection has begun meanwhile, and said that they are held.
      listener.onAssigned(known);
    }
  }

  private void gain(Change change) {
    Map<TopicPartition, Long> fresh = member.stillOwned(change.step().assigned());
    if (fresh.isEmpty()) {
      return;
    }
    numbers.putAll(fresh);
    List<TopicPartition> all = buffer.assignment();
    all.addAll(fresh.keySet());
    buffer.assign(all);
    fetcher.wake();
    listener.onAssigned(List.copyOf(fresh.keySet()));
  }

  /** The records given out are worked on and committed, even if the listener throws. */
  private void finish(List<TopicPartition> tps, long deadline) {
    if (tps.isEmpty()) {
      return;
    }
    try {
      listener.onRevoked(tps, Instant.now().plus(Duration.ofNanos(deadline - Times.now())));
    } finally {
      if (config.enableAutoCommit()) {
        commit(tps);
      }
    }
  }

  /** The user's places, as far as they have moved. */
  private void commit(Collection<TopicPartition> tps) {
    commitAt = Times.now() + config.autoCommitInterval().toNanos();
    Map<TopicPartition, OffsetCommit> moved = new TreeMap<>();
    buffer
        .places(tps)
        .forEach(
            (tp, at) -> {
              if (!at.equals(stored.get(tp))) {
                moved.put(tp, OffsetCommit.of(at));
              }
            });
    if (moved.isEmpty()) {
      return;
    }
    try {
      fetcher.positions.groups.commit(
          config.groupId(), moved, member.commitTerms(moved.keySet(), numbers));
      moved.forEach((tp, one) -> stored.put(tp, one.offset()));
    } catch (OncelogException e) {
      // Another member's partition is the other's to commit; the rest is committed the next time.
      if (!e.isRetriable() && e.kind() != ErrorKind.FENCED_MEMBER) {
        throw e;
      }
    }
  }

  private void drop(List<TopicPartition> tps) {
    if (tps.isEmpty()) {
      return;
    }
    numbers.keySet().removeAll(tps);
    stored.keySet().removeAll(tps);
    List<TopicPartition> left = buffer.assignment();
    left.removeAll(new HashSet<>(tps));
    buffer.assign(left);
  }
}
