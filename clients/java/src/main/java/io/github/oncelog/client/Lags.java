package io.github.oncelog.client;

import io.github.oncelog.client.proto.OffsetQuery;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** How far groups are behind the ends of their partitions. */
final class Lags {
  /** How long a partition's leader may take to answer, with an election. */
  private static final long WAIT = 2 * Times.SECOND;

  private final Cluster cluster;
  private final Positions positions;

  Lags(Cluster cluster) {
    this.cluster = cluster;
    ConsumerConfig config = new ConsumerConfig();
    positions =
        new Positions(
            config, cluster, new Routes(config, cluster), new Growth(cluster.leaders, null, false));
  }

  Admin.GroupLag of(Admin.GroupDescription group) {
    Set<TopicPartition> tps = new TreeSet<>(group.offsets().keySet());
    group.members().forEach(member -> tps.addAll(member.owned().keySet()));
    Map<TopicPartition, Admin.PartitionLag> lags = new TreeMap<>();
    if (tps.isEmpty()) {
      return new Admin.GroupLag(group, lags);
    }
    try {
      cluster.refresh(tps.stream().map(TopicPartition::topic).collect(Collectors.toSet()));
    } catch (OncelogException e) {
      if (!e.isRetriable()) {
        throw e;
      } // else it is asked again below
    }
    long deadline = Times.now() + WAIT;
    Positions.Search starts = new Positions.Search((tp, offset) -> {}, tp -> true);
    Positions.Search ends = new Positions.Search((tp, offset) -> {}, tp -> true);
    positions.search(queries(tps, OffsetReset.EARLIEST), starts, deadline);
    positions.search(queries(tps, OffsetReset.LATEST), ends, deadline);
    for (TopicPartition tp : tps) {
      CommittedOffset committed = group.offsets().get(tp);
      Long start = starts.found().get(tp);
      Long end = ends.found().get(tp);
      boolean known = committed != null && start != null && end != null;
      Long lag =
          known
              ? Long.valueOf(Math.max(0, end - Math.max(start, committed.commit().offset())))
              : null;
      OncelogException error = starts.problem(tp) != null ? starts.problem(tp) : ends.problem(tp);
      lags.put(tp, new Admin.PartitionLag(committed, start, end, lag, error));
    }
    return new Admin.GroupLag(group, lags);
  }

  private static Map<TopicPartition, OffsetQuery> queries(
      Set<TopicPartition> tps, OffsetReset where) {
    return tps.stream().collect(Collectors.toMap(tp -> tp, tp -> Positions.query(tp, where)));
  }
}
