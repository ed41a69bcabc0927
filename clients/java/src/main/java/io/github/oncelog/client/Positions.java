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
import java.util.TreeSet;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.BiConsumer;
import java.util.function.Predicate;

/** Finds offsets to start from: where a group stands, where a log begins and ends. */
final class Positions {
  /** Findings of a search for offsets, and errors of partitions. For any thread. */
  static final class Search {
    private final Map<TopicPartition, Long> found = new TreeMap<>();
    private final Map<TopicPartition, Attempts> problems = new TreeMap<>();
    private final BiConsumer<TopicPartition, Long> onFound;
    private final Predicate<TopicPartition> isWanted;
    private boolean ended;

    Search(BiConsumer<TopicPartition, Long> onFound, Predicate<TopicPartition> isWanted) {
      this.onFound = onFound;
      this.isWanted = isWanted;
    }

    synchronized void take(TopicPartition tp, long offset) {
      if (!ended) {
        found.put(tp, offset);
        problems.remove(tp);
        onFound.accept(tp, offset);
      }
    }

    synchronized void lacks(TopicPartition tp, OncelogException problem) {
      problems.computeIfAbsent(tp, key -> new Attempts()).failed(problem);
    }

    /** Nobody waits for it any more. */
    synchronized void end() {
      ended = true;
    }

    /** Of these, the ones that may be found yet. */
    synchronized List<TopicPartition> left(Collection<TopicPartition> tps) {
      return tps.stream()
          .filter(tp -> !found.containsKey(tp) && mayBe(problems.get(tp)) && isWanted.test(tp))
          .toList();
    }

    private static boolean mayBe(Attempts attempts) {
      OncelogException problem = attempts == null ? null : attempts.last();
      return problem == null
          || problem.isRetriable() && problem.kind() != ErrorKind.UNKNOWN_TOPIC_OR_PARTITION;
    }

    synchronized Map<TopicPartition, Long> found() {
      return new TreeMap<>(found);
    }

    /** Null: it lacks nothing that is known. */
    synchronized OncelogException problem(TopicPartition tp) {
      Attempts attempts = problems.get(tp);
      if (attempts == null) {
        return null;
      }
      return mayBe(attempts) ? attempts.error() : attempts.last();
    }

    /** Partitions with errors are looked for elsewhere. */
    synchronized void leave(Collection<TopicPartition> tps) {
      problems.keySet().removeAll(tps);
    }

    /** Throws the errors of partitions, all of them named. */
    synchronized void check() {
      if (problems.isEmpty()) {
        return;
      }
      OncelogException first = problem(problems.keySet().iterator().next());
      if (problems.size() == 1) {
        throw first;
      }
      throw first.about(problems.keySet());
    }
  }

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
   * Where to begin: the fresh ones where the group stands, or by the reset policy, the others where
   * it is said. It goes on until all have their place, but for those that never can.
   */
  void start(
      Collection<TopicPartition> fresh, Map<TopicPartition, OffsetReset> places, Search search) {
    if (config.groupId() != null && !fresh.isEmpty()) {
      GroupMember one = member;
      groups
          .committed(config.groupId(), fresh, one == null ? null : one.lookTerms(fresh))
          .forEach((tp, committed) -> search.take(tp, committed.commit().offset()));
    }
    Map<TopicPartition, OffsetQuery> queries = new TreeMap<>();
    places.forEach((tp, place) -> queries.put(tp, query(tp, place)));
    for (TopicPartition tp : search.left(fresh)) {
      if (config.autoOffsetReset() == OffsetReset.NONE) {
        search.lacks(
            tp,
            new OncelogException(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                "%s: no position, and autoOffsetReset is none: seek first",
                tp));
        continue;
      }
      if (cluster.leaders.leader(tp) == null) {
        // Whether it was added later is told with its leader.
        learn(List.of(tp), search, Times.NEVER);
      }
      boolean fromStart = growth.beginsAtStart(tp);
      queries.put(tp, query(tp, fromStart ? OffsetReset.EARLIEST : config.autoOffsetReset()));
    }
    search(queries, search, Times.NEVER);
  }

  static OffsetQuery query(TopicPartition tp, OffsetReset at) {
    OffsetQuery.Builder query =
        OffsetQuery.newBuilder().setTopic(tp.topic()).setPartition(tp.partition());
    return (at == OffsetReset.EARLIEST ? query.setEarliest(true) : query.setLatest(true)).build();
  }

  /** Offsets, as {@link #search}; throws a partition's error. -1: no such record. */
  Map<TopicPartition, Long> list(Map<TopicPartition, OffsetQuery> queries) {
    Search search = new Search((tp, offset) -> {}, tp -> true);
    search(queries, search, Times.now() + cluster.requestTimeout);
    search.check();
    return search.found();
  }

  /** Offsets, following leader changes . A partition without a leader holds up no other one. */
  void search(Map<TopicPartition, OffsetQuery> queries, Search search, long deadline) {
    List<TopicPartition> unknown = new ArrayList<>(queries.keySet());
    unknown.removeIf(tp -> cluster.leaders.leader(tp) != null);
    try {
      for (int failures = 1; ; failures++) {
        learn(unknown, search, deadline);
        searchOnce(search.left(queries.keySet()), queries, search);
        unknown = search.left(queries.keySet());
        if (unknown.isEmpty() || Times.now() >= deadline) {
          return;
        }
        if (failures % Cluster.MAX_LEADER_FAILURES == 0) {
          cluster.preferAnother(); // the one that is asked may be cut off, and know of no leader
        }
        Times.sleep(cluster.backoff.delay(failures));
      }
    } finally {
      search.end();
    }
  }

  /** Asks for the leaders of these partitions. */
  private void learn(List<TopicPartition> tps, Search search, long deadline) {
    Map<String, OncelogException> problems = new HashMap<>();
    for (String topic : new TreeSet<>(tps.stream().map(TopicPartition::topic).toList())) {
      try {
        long left = Math.min(cluster.requestTimeout, deadline - Times.now());
        cluster.requireTopic(topic, Math.max(100 * Times.MS, left));
      } catch (OncelogException e) {
        problems.put(topic, e); // nobody is there to ask, or there is no such topic
      }
    }
    for (TopicPartition tp : tps) {
      OncelogException problem = problems.get(tp.topic());
      if (problem == null && cluster.leaders.leader(tp) == null) {
        problem = Detail.noPartition(tp);
      }
      if (problem != null) {
        search.lacks(tp, problem);
      }
    }
  }

  /** Asks all nodes at the same time: one that hangs holds up its own partitions only. */
  private void searchOnce(
      List<TopicPartition> tps, Map<TopicPartition, OffsetQuery> queries, Search search) {
    TreeMap<String, List<TopicPartition>> byNode = new TreeMap<>();
    for (TopicPartition tp : tps) {
      String address = routes.offsetAddress(tp);
      if (address.isEmpty()) {
        search.lacks(tp, new OncelogException(ErrorKind.NOT_READY, "%s has no leader", tp));
      } else {
        byNode.computeIfAbsent(address, key -> new ArrayList<>()).add(tp);
      }
    }
    List<CompletableFuture<Void>> others = new ArrayList<>();
    while (byNode.size() > 1) {
      var one = byNode.pollFirstEntry();
      CompletableFuture<Void> done = new CompletableFuture<>();
      boolean begun =
          cluster.spawn(
              () -> {
                try {
                  ask(one.getKey(), one.getValue(), queries, search);
                } finally {
                  done.complete(null);
                }
              });
      if (begun) {
        others.add(done);
      }
    }
    byNode.forEach((address, asked) -> ask(address, asked, queries, search));
    try {
      for (CompletableFuture<Void> done : others) {
        done.get();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    } catch (ExecutionException e) {
      throw new IllegalStateException(e); // it is never completed so
    }
  }

  private void ask(
      String address,
      List<TopicPartition> tps,
      Map<TopicPartition, OffsetQuery> queries,
      Search search) {
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
      if (answer.getResultsCount() != tps.size()) {
        throw new OncelogException(
            ErrorKind.INTERNAL,
            "the node gave %d answers to %d questions",
            answer.getResultsCount(),
            tps.size());
      }
    } catch (OncelogException e) {
      for (TopicPartition tp : tps) {
        if (e.isRetriable()) {
          routes.failed(tp, address);
        }
        search.lacks(tp, e);
      }
      return;
    }
    for (int i = 0; i < tps.size(); i++) {
      take(tps.get(i), answer.getResults(i), address, search);
    }
  }

  private void take(TopicPartition tp, OffsetResult result, String address, Search search) {
    PartitionError error = result.getError();
    if (error == PartitionError.PARTITION_ERROR_NONE) {
      search.take(tp, result.getOffset());
      return;
    }
    routes.leadsElsewhere(tp, address, result.getLeaderId(), result.getLeaderAddress());
    String text = text(error, result.getMessage());
    boolean damaged =
        error == PartitionError.PARTITION_ERROR_STORAGE && !routes.elsewhere(tp, address, error);
    search.lacks(
        tp,
        damaged
            ? Detail.corrupt(tp, -1, "%s", text)
            : new OncelogException(ErrorKind.NOT_READY, "%s: %s", tp, text));
  }

  static String text(PartitionError error, String message) {
    return message.isEmpty() ? error.name() : message;
  }
}
