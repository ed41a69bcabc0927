package io.github.oncelog.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Follows topics that get more partitions while they are read by subscription, outside of a group;
 * a member of one is given them by its coordinator.
 *
 * <p>A reader that begins at the end reads a partition that is younger than it is from its start:
 * earlier records would be lost otherwise. Since when a group reads nobody knows, so for a group
 * each partition counts as younger that its topic did not begin with.
 */
final class Growth {
  private final Leaders leaders;
  private final FetchBuffer buffer;
  private final boolean inGroup;
  private final Map<String, Integer> counts = new HashMap<>(); // of the topics that are followed
  private final Set<TopicPartition> came = new HashSet<>();

  Growth(Leaders leaders, FetchBuffer buffer, boolean inGroup) {
    this.leaders = leaders;
    this.buffer = buffer;
    this.inGroup = inGroup;
  }

  /** Reads all partitions of these topics, with known metadata. */
  synchronized void subscribe(Collection<String> topics) {
    counts.clear();
    List<TopicPartition> tps = new ArrayList<>();
    topics.forEach(topic -> tps.addAll(follow(topic)));
    buffer.assign(tps);
  }

  /** Reads exactly these, and follows nothing. */
  synchronized void assign(Collection<TopicPartition> tps) {
    counts.clear();
    buffer.assign(tps);
  }

  /** The partitions that the topic has beyond those that are followed. */
  private List<TopicPartition> follow(String topic) {
    List<TopicPartition> tps = new ArrayList<>();
    int known = counts.getOrDefault(topic, 0);
    int now = Math.max(known, leaders.topic(topic).partitions());
    for (int partition = known; partition < now; partition++) {
      tps.add(new TopicPartition(topic, partition));
    }
    counts.put(topic, now);
    return tps;
  }

  /** The topic is another one of the same name: all of the partition is news. */
  synchronized void isNews(TopicPartition tp) {
    came.add(tp);
  }

  /** The same: partitions that it lacks are no longer read. */
  synchronized void recreated(String topic) {
    Leaders.Topic known = leaders.topic(topic);
    int count = known == null ? 0 : known.partitions();
    if (counts.getOrDefault(topic, 0) <= count) {
      return;
    }
    counts.put(topic, count);
    List<TopicPartition> left = buffer.assignment();
    left.removeIf(tp -> tp.topic().equals(topic) && tp.partition() >= count);
    buffer.assign(left);
  }

  /** Reads new partitions, too. */
  synchronized void take() {
    List<TopicPartition> fresh = new ArrayList<>();
    List.copyOf(counts.keySet()).forEach(topic -> fresh.addAll(follow(topic)));
    if (!fresh.isEmpty()) {
      came.addAll(fresh);
      List<TopicPartition> all = buffer.assignment();
      all.addAll(fresh);
      buffer.assign(all);
    }
  }

  /** A reader without a position goes to its start, though others are begun at their end. */
  synchronized boolean beginsAtStart(TopicPartition tp) {
    Leaders.Leader known = leaders.leader(tp);
    return came.contains(tp) || inGroup && known != null && known.added();
  }
}
