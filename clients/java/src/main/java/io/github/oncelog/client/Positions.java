package io.github.oncelog.client;

import io.github.oncelog.client.proto.ListOffsetsRequest;
import io.github.oncelog.client.proto.ListOffsetsResponse;
import io.github.oncelog.client.proto.LogServiceGrpc;
import io.github.oncelog.client.proto.OffsetQuery;
import io.github.oncelog.client.proto.OffsetResult;
import io.github.oncelog.client.proto.PartitionError;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Finds offsets to start from: where a group stands, where a log begins and ends. */
final class Positions {
  final Groups groups;
  private volatile GroupMember member;
  private final ConsumerConfig config;
  private final Cluster cluster;
  private final Routes routes;
  private final Growth growth;

  Positions(ConsumerConfig config, Cluster cluster, Routes routes, Growth growth) {
    this.config = config;
    this.cluster = cluster;
    this.routes = routes;
    this.growth = growth;
    groups = new Groups(cluster);
  }

  /** Asks as this member of the group from now on. */
  void as(GroupMember member) {
    this.member = member;
  }

  /**
   * Where to begin. Partitions in fresh may go on where the group stands. What was found before an
   * error is in {@code found}.
   */
  void start(
      Collection<TopicPartition> missing,
      Collection<TopicPartition> fresh,
      Map<TopicPartition, Long> found) {
    if (config.groupId() != null && !fresh.isEmpty()) {
      GroupMember one = member;
      groups
          .committed(config.groupId(), fresh, one == null ? null : one.lookTerms(fresh))
          .forEach((tp, committed) -> found.put(tp, committed.commit().offset()));
    }
    List<TopicPartition> left = missing.stream().filter(tp -> !found.containsKey(tp)).toList();
    if (left.isEmpty()) {
      return;
    }
    if (config.autoOffsetReset() == OffsetReset.NONE) {
      throw new OncelogException(
          ErrorKind.OFFSET_OUT_OF_RANGE, "no position, and autoOffsetReset is none: seek first");
    }
    Map<TopicPartition, OffsetQuery> queries = new TreeMap<>();
    for (TopicPartition tp : left) {
      learn(tp);
      boolean fromStart = fresh.contains(tp) && growth.beginsAtStart(tp);
      queries.put(tp, query(tp, fromStart ? OffsetReset.EARLIEST : config.autoOffsetReset()));
    }
    list(queries, found);
  }

  static OffsetQuery query(TopicPartition tp, OffsetReset at) {
    OffsetQuery.Builder query =
        OffsetQuery.newBuilder().setTopic(tp.topic()).setPartition(tp.partition());
    return (at == OffsetReset.EARLIEST ? query.setEarliest(true) : query.setLatest(true)).build();
  }

  /** Offsets, following leader changes for the request timeout. -1: no such record. */
  Map<TopicPartition, Long> list(Map<TopicPartition, OffsetQuery> queries) {
    Map<TopicPartition, Long> found = new TreeMap<>();
    list(queries, found);
    return found;
  }

  private void list(Map<TopicPartition, OffsetQuery> queries, Map<TopicPartition, Long> found) {
    long deadline = Times.now() + cluster.requestTimeout;
    queries.keySet().forEach(this::learn);
    for (int failures = 1; ; failures++) {
      OncelogException problem = listOnce(queries, found);
      if (problem == null) {
        return;
      }
      if (!problem.isRetriable() || Times.now() >= deadline) {
        throw problem;
      }
      Times.sleep(cluster.backoff.delay(failures));
      for (TopicPartition tp : queries.keySet()) {
        if (!found.containsKey(tp)) {
          long left = Math.max(100 * Times.MS, deadline - Times.now());
          cluster.requireTopic(tp.topic(), left);
        }
      }
    }
  }

  /** Asks for a partition that is not known yet. */
  private void learn(TopicPartition tp) {
    if (cluster.leaders.leader(tp) == null) {
      cluster.requireTopic(tp.topic(), cluster.requestTimeout);
    }
    if (cluster.leaders.leader(tp) == null) {
      throw Detail.noPartition(tp);
    }
  }

  /** Null, or what some of the partitions are lacking for. */
  private OncelogException listOnce(
      Map<TopicPartition, OffsetQuery> queries, Map<TopicPartition, Long> found) {
    Map<String, List<TopicPartition>> byNode = new HashMap<>();
    for (TopicPartition tp : queries.keySet()) {
      if (found.containsKey(tp)) {
        continue;
      }
      String address = routes.address(tp);
      if (address.isEmpty()) {
        return new OncelogException(ErrorKind.NOT_READY, "%s has no leader", tp);
      }
      byNode.computeIfAbsent(address, key -> new ArrayList<>()).add(tp);
    }
    OncelogException problem = null;
    for (var entry : byNode.entrySet()) {
      String address = entry.getKey();
      List<TopicPartition> tps = entry.getValue();
      OncelogException one = ask(address, tps, queries, found);
      if (one != null) {
        if (!one.isRetriable()) {
          return one;
        }
        problem = one;
      }
    }
    return problem;
  }

  private OncelogException ask(
      String address,
      List<TopicPartition> tps,
      Map<TopicPartition, OffsetQuery> queries,
      Map<TopicPartition, Long> found) {
    ListOffsetsRequest.Builder request =
        ListOffsetsRequest.newBuilder().setAnyReplica(config.anyReplica());
    tps.forEach(tp -> request.addQueries(queries.get(tp)));
    ListOffsetsResponse answer;
    try {
      answer =
          cluster.callAt(
              address,
              cluster.requestTimeout,
              LogServiceGrpc.getListOffsetsMethod(),
              request.build());
    } catch (OncelogException e) {
      if (e.isRetriable()) {
        tps.forEach(tp -> routes.failed(tp, address));
      }
      return e;
    }
    if (answer.getResultsCount() != tps.size()) {
      return new OncelogException(
          ErrorKind.INTERNAL,
          "the node gave %d answers to %d questions",
          answer.getResultsCount(),
          tps.size());
    }
    OncelogException problem = null;
    for (int i = 0; i < tps.size(); i++) {
      OncelogException one = take(tps.get(i), answer.getResults(i), address, found);
      if (one != null && (problem == null || !one.isRetriable())) {
        problem = one;
      }
    }
    return problem;
  }

  private OncelogException take(
      TopicPartition tp, OffsetResult result, String address, Map<TopicPartition, Long> found) {
    PartitionError error = result.getError();
    if (error == PartitionError.PARTITION_ERROR_NONE) {
      found.put(tp, result.getOffset());
      return null;
    }
    routes.leadsElsewhere(tp, address, result.getLeaderId(), result.getLeaderAddress());
    String text = text(error, result.getMessage());
    if (error == PartitionError.PARTITION_ERROR_STORAGE && !routes.elsewhere(tp, address, error)) {
      return Detail.corrupt(tp, -1, "%s", text);
    }
    return new OncelogException(ErrorKind.NOT_READY, "%s: %s", tp, text);
  }

  static String text(PartitionError error, String message) {
    return message.isEmpty() ? error.name() : message;
  }
}
