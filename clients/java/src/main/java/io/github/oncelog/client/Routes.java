package io.github.oncelog.client;

import io.github.oncelog.client.proto.PartitionError;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Which node a consumer asks for a partition, and when: the leader, a near replica or, if any
 * replica will do, one of them that is not known to be damaged; after a failure not before a pause
 * that grows.
 */
final class Routes {
  private record Place(TopicPartition tp, String address) {}

  /** A near replica that has failed. */
  private record LeftOut(long until, long pause) {}

  /** How long a near replica is left out after a failure; doubled by each further one, */
  private static final long FAR_FOR = 10 * Times.SECOND;

  /** up to this. */
  private static final long MOST_FAR_FOR = 60 * Times.SECOND;

  private final ConsumerConfig config;
  private final Cluster cluster;
  private final Map<TopicPartition, Long> notBefore = new HashMap<>();
  private final Map<TopicPartition, Integer> failures = new HashMap<>();
  // Replicas that cannot read their log, where another may be asked.
  private final Set<Place> damaged = new HashSet<>();
  private final Map<Place, LeftOut> far = new HashMap<>();
  private final Set<String> outdated = new HashSet<>();

  Routes(ConsumerConfig config, Cluster cluster) {
    this.config = config;
    this.cluster = cluster;
  }

  /** Where to go for records; "": it is not known. */
  synchronized String address(TopicPartition tp) {
    String near = near(tp);
    return near.isEmpty() ? offsetAddress(tp) : near;
  }

  /** A replica in the client's rack; "": the leader is to be asked. */
  private String near(TopicPartition tp) {
    Leaders.Leader known = cluster.leaders.leader(tp);
    if (config.rack() == null || known == null) {
      return "";
    }
    List<Integer> near = new ArrayList<>(known.replicas());
    near.removeIf(id -> !cluster.leaders.rack(id).equals(config.rack()));
    if (near.contains(known.nodeId())) {
      return "";
    }
    for (int i = 0; i < near.size(); i++) {
      String address = cluster.leaders.node(near.get((tp.partition() + i) % near.size()));
      LeftOut failed = far.get(new Place(tp, address));
      if (failed == null || Times.now() >= failed.until) {
        return address;
      }
    }
    return "";
  }

  /** Whether this node is asked because it is near, not because it leads. */
  private boolean isNear(TopicPartition tp, String address) {
    Leaders.Leader known = cluster.leaders.leader(tp);
    boolean leads = known != null && known.address().equals(address);
    return config.rack() != null && !address.isEmpty() && !leads;
  }

  /** Whether to ask another node than this silent one: the leader, if it is only near. */
  boolean isElsewhere(TopicPartition tp, String address) {
    return !address(tp).equals(address) || isNear(tp, address);
  }

  /** Where to ask for an offset; "": it is not known. */
  synchronized String offsetAddress(TopicPartition tp) {
    Leaders.Leader known = cluster.leaders.leader(tp);
    if (known == null) {
      return "";
    }
    if (!config.anyReplica()) {
      return known.address();
    }
    int chosen = config.replicaNodeId();
    if (chosen != 0) {
      return known.replicas().contains(chosen) ? cluster.leaders.node(chosen) : "";
    }
    List<String> all = new ArrayList<>();
    for (int id : known.replicas()) {
      String address = cluster.leaders.node(id);
      if (!address.isEmpty()) {
        all.add(address);
      }
    }
    List<String> sound = new ArrayList<>(all);
    sound.removeIf(address -> damaged.contains(new Place(tp, address)));
    List<String> choice = sound.isEmpty() ? all : sound;
    // Spread, but always the same for a partition until it fails.
    return choice.isEmpty()
        ? ""
        : choice.get((tp.partition() + failures.getOrDefault(tp, 0)) % choice.size());
  }

  /** The time from which the partition may be asked for. */
  synchronized long readyAt(TopicPartition tp) {
    return notBefore.getOrDefault(tp, 0L);
  }

  synchronized void answered(TopicPartition tp, String address) {
    failures.remove(tp);
    far.remove(new Place(tp, address));
  }

  /** Topics to ask for again: a near replica has failed, and may have moved. */
  synchronized List<String> takeOutdated() {
    List<String> topics = List.copyOf(outdated);
    outdated.clear();
    return topics;
  }

  /** Nothing from this node. Ask for the leader, after a pause that grows. */
  void failed(TopicPartition tp, String address) {
    int count;
    synchronized (this) {
      count = failures.merge(tp, 1, Integer::sum);
      notBefore.put(tp, Times.now() + cluster.backoff.delay(count - 1));
      if (isNear(tp, address)) {
        Place place = new Place(tp, address);
        LeftOut before = far.get(place);
        long pause = before == null ? FAR_FOR : Math.min(2 * before.pause, MOST_FAR_FOR);
        far.put(place, new LeftOut(Times.now() + pause, pause));
        outdated.add(tp.topic());
      }
    }
    cluster.leaders.forget(tp, address);
    cluster.leaderFailed(address, count);
  }

  /** The node refused, and perhaps named the leader. */
  void leadsElsewhere(TopicPartition tp, String address, int leaderId, String leaderAddress) {
    failed(tp, address);
    if (!leaderAddress.equals(address)) {
      cluster.leaders.hint(tp, leaderId, leaderAddress);
    }
  }

  /** Whether, after an error, the replica is damaged and a sound one may be asked. */
  synchronized boolean elsewhere(TopicPartition tp, String address, PartitionError error) {
    if (error == PartitionError.PARTITION_ERROR_STORAGE && isNear(tp, address)) {
      return true;
    }
    if (error == PartitionError.PARTITION_ERROR_STORAGE && config.anyReplica()) {
      damaged.add(new Place(tp, address));
    }
    return damaged.contains(new Place(tp, address))
        && !damaged.contains(new Place(tp, address(tp)));
  }
}
