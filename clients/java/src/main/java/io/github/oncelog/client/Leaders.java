package io.github.oncelog.client;

import io.github.oncelog.client.proto.DescribeTopicsResponse;
import io.github.oncelog.client.proto.NodeInfo;
import io.github.oncelog.client.proto.PartitionInfo;
import io.github.oncelog.client.proto.TopicInfo;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/**
 * A client's view of topics. News of an older term never replaces a newer leader, so a node that is
 * behind cannot send a client back.
 */
final class Leaders {
  private static final int DEFAULT_MAX_BATCH_BYTES = 4 << 20;

  /** Of a topic: far above the limits of a cluster. */
  private static final int MOST_PARTITIONS = 1_000_000;

  /**
   * A partition's leader, as known at one moment; an address that is not known is "". added: after
   * the topic's creation.
   */
  record Leader(int nodeId, String address, long term, List<Integer> replicas, boolean added) {}

  /** A topic's id, largest payload and number of partitions, as known at one moment. */
  record Topic(long id, int maxBatchBytes, int partitions) {}

  private static final class Entry {
    int nodeId;
    String address = "";
    long term = -1;
    // A node refused and named this one instead, without a term: another may know better.
    boolean hinted;
    // The node that did so; "": none, or its word has been doubted since.
    String refused = "";
    // The newest answer names nobody; the address that is known stays, nodes may be behind.
    boolean leaderless = true;
    List<Integer> replicas = List.of();
    boolean added;
  }

  private static final class View {
    final long id;
    int maxBatchBytes = DEFAULT_MAX_BATCH_BYTES;
    final List<Entry> partitions = new ArrayList<>();
    // Looked at for each record that is sent.
    volatile Topic summary;

    View(long id) {
      this.id = id;
    }
  }

  private final Map<Integer, String> nodes = new HashMap<>();
  private final Map<Integer, String> racks = new HashMap<>(); // of the same nodes
  // Nodes to which the last connection failed, and no other was made since.
  private final Set<String> unreachable = new HashSet<>();
  // Whether a partition has no leader, or one that cannot be reached; perhaps no longer.
  private volatile boolean lacks;
  private int recreations;
  private final Map<String, View> topics = new java.util.concurrent.ConcurrentHashMap<>();

  synchronized void update(DescribeTopicsResponse answer) {
    for (NodeInfo node : answer.getNodesList()) {
      if (!node.getAddress().isEmpty()) {
        nodes.put(node.getNodeId(), node.getAddress());
        racks.put(node.getNodeId(), node.getRack());
      }
    }
    for (TopicInfo topic : answer.getTopicsList()) {
      View view = topics.get(topic.getName());
      if (view != null && Long.compareUnsigned(topic.getTopicId(), view.id) < 0) {
        continue; // the node has not heard yet that this one was deleted: ids only rise
      }
      if (view == null || view.id != topic.getTopicId()) {
        recreations += view == null ? 0 : 1;
        // Deleted and created again: terms start anew.
        view = new View(topic.getTopicId());
      }
      if (topic.getConfig().getMaxBatchBytes() > 0) {
        view.maxBatchBytes = topic.getConfig().getMaxBatchBytes();
      }
      for (PartitionInfo info : topic.getPartitionsList()) {
        if (info.getPartition() < 0 || info.getPartition() >= MOST_PARTITIONS) {
          continue; // no node says so
        }
        while (view.partitions.size() <= info.getPartition()) {
          view.partitions.add(new Entry());
        }
        update(view.partitions.get(info.getPartition()), info);
      }
      view.summary = new Topic(view.id, view.maxBatchBytes, view.partitions.size());
      topics.put(topic.getName(), view);
    }
    lookForLacking();
  }

  private void update(Entry known, PartitionInfo info) {
    known.replicas = List.copyOf(info.getReplicasList());
    known.added = info.getAddedMs() > 0;
    String address = nodes.getOrDefault(info.getLeaderId(), "");
    if (info.getTerm() < known.term) {
      return;
    }
    known.leaderless = address.isEmpty();
    if (known.leaderless) {
      return;
    }
    if (info.getTerm() == known.term && !known.address.isEmpty()) {
      if (address.equals(known.refused)) {
        return; // it led in this term, and does not any more
      }
      if (!known.hinted && info.getLeaderId() != known.nodeId) {
        return; // same term, same leader; but its address may be news
      }
    }
    known.nodeId = info.getLeaderId();
    known.address = address;
    known.term = info.getTerm();
    known.hinted = false;
    known.refused = "";
  }

  private Entry entry(TopicPartition tp) {
    View view = topics.get(tp.topic());
    boolean known = view != null && tp.partition() >= 0 && tp.partition() < view.partitions.size();
    return known ? view.partitions.get(tp.partition()) : null;
  }

  /** Takes over the leader named by a node that refused as not the leader. */
  synchronized void hint(TopicPartition tp, int nodeId, String address) {
    Entry known = entry(tp);
    if (known == null || address.isEmpty()) {
      return;
    }
    nodes.putIfAbsent(nodeId, address);
    if (!known.address.equals(address)) {
      known.refused = known.address;
      known.hinted = true;
    }
    known.nodeId = nodeId;
    known.address = address;
    known.leaderless = false;
  }

  /** The supposed leader does not lead, and names nobody. Any node's word may take its place. */
  synchronized void suspect(TopicPartition tp) {
    Entry known = entry(tp);
    if (known != null) {
      known.refused = "";
    }
  }

  /** This node does not lead the partition, in spite of the client's view. */
  synchronized void forget(TopicPartition tp, String address) {
    Entry known = entry(tp);
    if (known != null && known.address.equals(address)) {
      known.address = "";
      known.hinted = false;
      known.refused = "";
      lacks = true;
    }
  }

  // --- for records that may go anywhere ------------------------------------------------

  /** A node cannot be reached, until another connection to it is made. */
  synchronized void reached(String address, boolean isReached) {
    if (isReached) {
      unreachable.remove(address);
    } else {
      unreachable.add(address);
      lacks = true;
    }
  }

  private boolean available(Entry known) {
    return !known.leaderless && !known.address.isEmpty() && !unreachable.contains(known.address);
  }

  /** Whether it has a leader, as far as is known, and that one can be reached. */
  boolean isAvailable(TopicPartition tp) {
    if (!lacks) {
      return true; // as nearly always: each record without a key asks
    }
    synchronized (this) {
      Entry known = entry(tp);
      return known != null && available(known);
    }
  }

  /** Any available partition of a topic that has so many; of all, if none is. */
  int anyPartition(String topic, int count) {
    int partition = ThreadLocalRandom.current().nextInt(count);
    if (isAvailable(new TopicPartition(topic, partition))) {
      return partition;
    }
    List<Integer> left = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      if (isAvailable(new TopicPartition(topic, number))) {
        left.add(number);
      }
    }
    return left.isEmpty() ? partition : left.get(ThreadLocalRandom.current().nextInt(left.size()));
  }

  /** Topics to ask for again, and nodes to connect to again: somebody may be back. */
  record Lacking(Set<String> topics, Set<String> addresses) {
    boolean isNothing() {
      return topics.isEmpty() && addresses.isEmpty();
    }
  }

  Lacking lacking() {
    return lacks ? lookForLacking() : new Lacking(Set.of(), Set.of());
  }

  private synchronized Lacking lookForLacking() {
    Set<String> lacking = new HashSet<>();
    Set<String> used = new HashSet<>();
    topics.forEach(
        (topic, view) ->
            view.partitions.forEach(
                known -> {
                  used.add(known.address);
                  if (known.leaderless || known.address.isEmpty()) {
                    lacking.add(topic);
                  }
                }));
    unreachable.retainAll(used);
    lacks = !lacking.isEmpty() || !unreachable.isEmpty();
    return new Lacking(lacking, Set.copyOf(unreachable));
  }

  /** How often a topic was found to be another one of the same name. */
  synchronized int recreations() {
    return recreations;
  }

  /** 0: nothing is known of the topic. */
  long topicId(String topic) {
    Topic known = topic(topic);
    return known == null ? 0 : known.id();
  }

  /** The topic is known, without this partition: it was created again, with fewer. */
  boolean isGone(TopicPartition tp) {
    Topic known = topic(tp.topic());
    return known != null && known.partitions() > 0 && tp.partition() >= known.partitions();
  }

  /** Null: there is no such partition, as far as is known. */
  synchronized Leader leader(TopicPartition tp) {
    Entry known = entry(tp);
    return known == null
        ? null
        : new Leader(known.nodeId, known.address, known.term, known.replicas, known.added);
  }

  synchronized String address(TopicPartition tp) {
    Entry known = entry(tp);
    return known == null ? "" : known.address;
  }

  /** Null: nothing is known of it. */
  Topic topic(String name) {
    View view = topics.get(name);
    return view == null ? null : view.summary;
  }

  synchronized String node(int id) {
    return nodes.getOrDefault(id, "");
  }

  /** The label of the node; "": it has none. */
  synchronized String rack(int id) {
    return racks.getOrDefault(id, "");
  }

  synchronized List<String> nodeAddresses() {
    return new ArrayList<>(nodes.values());
  }

  List<String> topicNames() {
    return new ArrayList<>(topics.keySet());
  }
}
