package io.github.oncelog.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;

/**
 * Finds the leaders of partitions anew that the sender cannot reach. Used on the sender's thread
 * only.
 */
final class LeaderWatch {
  /**
   * A batch without an answer for so long makes the client ask for the leader: a node that was
   * frozen or cut off does not say so.
   */
  static final long STALL_AFTER = Times.SECOND;

  // An election may not be over by the first question: it is asked again soon at first, and then
  // once a second, for a cluster may also just be slow.
  private static final Backoff STALL_PAUSES = Backoff.ofMillis(250, 1000);
  private static final Backoff LEADER_PAUSES = Backoff.ofMillis(20, 250);

  private record Stall(int asked, long due) {}

  private record Suspect(String address, long term) {}

  private final Cluster cluster;
  private final Loop loop;
  private final Set<TopicPartition> busy; // those with something to send
  private final Predicate<String> connected;
  private final Runnable onAsked;
  private final Set<String> stale = new HashSet<>();
  private boolean refreshing;
  private long refreshAt;
  private int rounds;
  // Topics with stalled partitions: how often the leader was asked for, and when the next question
  // is due.
  private Map<String, Stall> stalls = new HashMap<>();
  // Leaders that refused, with their terms: there is another one, or will be.
  private final Map<TopicPartition, Suspect> suspected = new HashMap<>();
  private long askedAt = Times.now(); // without a reason
  private OncelogException noMetadata; // why the last question had no answer; null: it had one

  /**
   * @param onAsked leaders were asked for: some partition may have lost its own
   */
  LeaderWatch(
      Cluster cluster,
      Loop loop,
      Set<TopicPartition> busy,
      Predicate<String> connected,
      Runnable onAsked) {
    this.onAsked = onAsked;
    this.busy = busy;
    this.cluster = cluster;
    this.loop = loop;
    this.connected = connected;
  }

  /** Has the topic's leaders asked for. */
  void ask(String topic) {
    stale.add(topic);
  }

  /** Why the last question had no answer; null: it had one. */
  OncelogException noMetadata() {
    return noMetadata;
  }

  /** A node answered as a leader. */
  void leads(TopicPartition tp) {
    suspected.remove(tp);
  }

  /**
   * The supposed leader does not. Ask others, until one of them names another leader.
   *
   * <p>It may be cut off, and then tells every caller that it led last. So does a node that is cut
   * off with it, or one that has not heard of the election yet.
   */
  void suspect(TopicPartition tp, String refused) {
    cluster.avoid(refused);
    cluster.leaders.suspect(tp);
    Leaders.Leader known = cluster.leaders.leader(tp);
    if (known != null && known.address().equals(refused)) {
      suspected.put(tp, new Suspect(refused, known.term()));
    }
    stale.add(tp.topic());
  }

  /** Asks for the leaders of stale topics, again and again; returns when to look again. */
  long work(long now) {
    if (now - askedAt > cluster.config.metadataMaxAge().toNanos()) {
      askedAt = now;
      stale.addAll(cluster.leaders.topicNames());
    }
    if (stale.isEmpty() || refreshing) {
      return Times.NEVER;
    }
    if (refreshAt > now) {
      return refreshAt;
    }
    List<String> topics = new ArrayList<>(stale);
    stale.clear();
    refreshing = true;
    cluster.spawn(
        () -> {
          OncelogException why = refresh(topics);
          loop.post(() -> refreshed(topics, why));
        });
    return Times.NEVER;
  }

  /** Returns why there was no answer: then there are the same leaders as before. */
  private OncelogException refresh(List<String> topics) {
    try {
      cluster.refresh(topics);
      return null;
    } catch (OncelogException e) {
      return e;
    }
  }

  private void refreshed(Collection<String> topics, OncelogException why) {
    refreshing = false;
    noMetadata = why;
    onAsked.run();
    boolean lacking = false;
    for (TopicPartition tp : busy) {
      if (topics.contains(tp.topic()) && !reachable(tp)) {
        lacking = true;
        stale.add(tp.topic());
      }
    }
    rounds++;
    if (!lacking && stale.isEmpty()) {
      rounds = 1;
    }
    if (lacking && rounds % Cluster.MAX_LEADER_FAILURES == 0) {
      cluster.preferAnother();
    }
    refreshAt = Times.now() + LEADER_PAUSES.delay(rounds);
  }

  private boolean reachable(TopicPartition tp) {
    Leaders.Leader known = cluster.leaders.leader(tp);
    return known != null
        && connected.test(known.address())
        && !new Suspect(known.address(), known.term()).equals(suspected.get(tp));
  }

  /** By topic the nodes that do not answer. */
  void stalled(Map<String, Set<String>> stalled, long now) {
    Map<String, Stall> next = new HashMap<>();
    stalled.forEach(
        (topic, addresses) -> {
          Stall known = stalls.getOrDefault(topic, new Stall(0, 0));
          if (now >= known.due) {
            int asked = known.asked + 1;
            known = new Stall(asked, now + STALL_PAUSES.delay(asked));
            addresses.forEach(cluster::avoid);
            stale.add(topic);
          }
          next.put(topic, known);
        });
    stalls = next;
  }
}
