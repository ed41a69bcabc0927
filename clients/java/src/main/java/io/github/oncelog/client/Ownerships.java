package io.github.oncelog.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Partitions that a member of a group owns over all its connections, and those it has to give back.
 * No IO; one lock of its user's guards it.
 *
 * <p>An ownership has a number. The same partition under another number is another ownership:
 * records read and not committed under the first may belong to another member, so it is lost first.
 */
final class Ownerships {
  /**
   * Consequences of an assignment, in the order in which they are to be done.
   *
   * @param lost gone already: drop positions, abort transactions, commit nothing
   * @param revoked finish the records that were read, commit, then call {@link #released}
   * @param assigned read from the committed offset on; with the number for commits
   */
  record Step(
      List<TopicPartition> lost, List<TopicPartition> revoked, Map<TopicPartition, Long> assigned) {
    static final Step NOTHING = new Step(List.of(), List.of(), Map.of());
  }

  /** The answer to an assignment that asked for something back: partitions still held. */
  record Owned(long epoch, List<TopicPartition> partitions) {}

  private long connection; // of the newest hello; rises
  private long epoch; // of the newest assignment; 0: none yet, or fenced since
  private final Map<TopicPartition, Long> owned = new TreeMap<>();
  private Set<TopicPartition> revoking = new HashSet<>();
  private long commits;

  long connection() {
    return connection;
  }

  long epoch() {
    return epoch;
  }

  /** A copy. */
  Map<TopicPartition, Long> owned() {
    return new TreeMap<>(owned);
  }

  /** Null: it is not owned. */
  Long number(TopicPartition tp) {
    return owned.get(tp);
  }

  /**
   * A new connection begins; returns its number. Owned partitions stay owned: the hello that
   * follows says so, and the same partitions are asked back again.
   */
  long connect() {
    revoking.clear();
    return ++connection;
  }

  /** Whether new records of it may be handed out. */
  boolean mayPoll(TopicPartition tp) {
    return owned.containsKey(tp) && !revoking.contains(tp);
  }

  /** The number of the next commit. */
  long nextCommit() {
    return ++commits;
  }

  /** The newest assignment. One of an older connection changes nothing. */
  Step assignment(
      long connection,
      long epoch,
      Map<TopicPartition, Long> partitions,
      Collection<TopicPartition> revoke) {
    if (connection != this.connection) {
      return Step.NOTHING;
    }
    this.epoch = epoch;
    Set<TopicPartition> asked = new TreeSet<>(revoke);
    List<TopicPartition> lost = new ArrayList<>();
    owned.forEach(
        (tp, number) -> {
          Long now = partitions.get(tp);
          if (now == null ? !asked.contains(tp) : !now.equals(number)) {
            lost.add(tp);
          }
        });
    lost.forEach(owned::remove);
    Map<TopicPartition, Long> assigned = new TreeMap<>(partitions);
    assigned.keySet().removeAll(owned.keySet());
    owned.putAll(assigned);
    asked.retainAll(owned.keySet());
    List<TopicPartition> revoked = new ArrayList<>(asked);
    revoked.removeAll(revoking);
    revoking = asked;
    return new Step(lost, revoked, assigned);
  }

  /**
   * The work on these is finished and committed: the message that gives them back. Null if a new
   * connection has begun since they were asked back: its hello said that they are held, so they
   * are, until they are asked back there.
   */
  Owned released(long connection, Collection<TopicPartition> tps) {
    if (connection != this.connection) {
      return null;
    }
    for (TopicPartition tp : tps) {
      if (revoking.remove(tp)) {
        owned.remove(tp);
      }
    }
    return new Owned(epoch, List.copyOf(owned.keySet()));
  }

  /** The coordinator has ended the membership; returns the partitions lost by that. */
  List<TopicPartition> fenced() {
    List<TopicPartition> lost = List.copyOf(owned.keySet());
    owned.clear();
    revoking.clear();
    epoch = 0;
    return lost;
  }
}
