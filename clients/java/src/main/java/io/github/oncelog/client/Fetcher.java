package io.github.oncelog.client;

import io.github.oncelog.client.FetchBuffer.Wanted;
import io.github.oncelog.client.proto.FetchRequest;
import io.github.oncelog.client.proto.FetchResponse;
import io.github.oncelog.client.proto.LogServiceGrpc;
import io.github.oncelog.client.proto.OffsetQuery;
import io.github.oncelog.client.proto.PartitionError;
import io.github.oncelog.client.proto.PartitionFetch;
import io.github.oncelog.client.proto.PartitionRecords;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;

/**
 * The consumer's IO: long polls to each leader, streams where there is much to read. One poll is on
 * its way per node and 1000 partitions; it covers those that the node leads, that have room and
 * that no stream brings. Leader changes, restarts and broken connections never reach the user. All
 * its state belongs to the thread of its loop.
 */
final class Fetcher {
  /** A node takes no more partitions in a Fetch. */
  static final int MOST_FETCHED = 1000;

  /**
   * How long an offset above a leader's high watermark may last: a new leader learns how far the
   * log is committed a moment after its election.
   */
  private static final long AHEAD_GRACE = 10 * Times.SECOND;

  private static final long MOST_WAIT_MS = 60_000; // a node's limit

  /** A poll that is late by so much: others are asked for the leader. */
  private static final long LATE_BY = Times.SECOND;

  /** At the same time; further partitions are polled until one of these is done. */
  private static final int MOST_STREAMS = 8;

  private static final long UNKNOWN_TOPIC_GRACE = 5 * Times.SECOND;

  /** The longest that a seek waits for a leader. */
  private static final long ELECTION = 2 * Times.SECOND;

  private record Reset(OffsetReset place, int generation) {}

  /** Where a Fetch goes, and for which partitions: a group of them, or one alone. */
  private record Place(String address, int group, TopicPartition alone) {}

  /** A Fetch on its way. */
  private final class Poll implements ClientResponseObserver<FetchRequest, FetchResponse> {
    final Place place;
    final List<Wanted> partitions;
    long lateAt;
    private FetchResponse answer;
    private volatile boolean cancelled;
    private ClientCallStreamObserver<FetchRequest> call;

    Poll(Place place, List<Wanted> partitions, long lateAt) {
      this.place = place;
      this.partitions = partitions;
      this.lateAt = lateAt;
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<FetchRequest> call) {
      this.call = call;
    }

    @Override
    public void onNext(FetchResponse answer) {
      this.answer = answer;
    }

    @Override
    public void onError(Throwable failure) {
      if (!cancelled) {
        cluster.heard(
            place.address, Status.fromThrowable(failure), Status.trailersFromThrowable(failure));
      }
      loop.post(() -> ended(this, null, Statuses.error(place.address, failure)));
    }

    @Override
    public void onCompleted() {
      cluster.reachability.answered(place.address);
      FetchResponse got = answer;
      loop.post(() -> ended(this, got, null));
    }

    void cancel() {
      cancelled = true;
      call.cancel("given up by the client", null);
    }

    boolean covers(List<Wanted> wanted) {
      Map<TopicPartition, Integer> asked = new HashMap<>();
      partitions.forEach(w -> asked.put(w.tp(), w.generation()));
      return wanted.stream().allMatch(w -> asked.getOrDefault(w.tp(), -1) == w.generation());
    }
  }

  final FetchBuffer buffer;
  final Positions positions;
  final Growth growth;
  private final ConsumerConfig config;
  private final Cluster cluster;
  private final Routes routes;
  private final Loop loop;
  private final Map<Place, Poll> polls = new HashMap<>();
  private final Map<TopicPartition, Integer> locating = new HashMap<>(); // by generation
  // Position to go on from without a look at the group's committed offsets; guarded by itself.
  private final Map<TopicPartition, Reset> reset = new HashMap<>();
  // Partition that is polled alone, after a poll of several that failed for good.
  private final Set<TopicPartition> alone = new HashSet<>();
  private final Map<TopicPartition, Long> aheadSince = new HashMap<>();
  // Partitions that are not polled because a stream brings them.
  private final Map<TopicPartition, CatchUp> streams = new HashMap<>();
  private boolean refreshing;
  private int searches; // for leaders, since all had one
  private long searchAt;
  private int recreations; // that were looked at
  private long refreshedAt = Times.now();

  Fetcher(ConsumerConfig config, Cluster cluster) {
    this.config = config;
    this.cluster = cluster;
    routes = new Routes(config, cluster);
    loop = new Loop(config.clientId() + "-fetcher", this::work, this::failed);
    buffer = new FetchBuffer(config.maxPartitionFetchBytes(), loop::wake, cluster.leaders::topicId);
    growth = new Growth(cluster.leaders, buffer, config.groupId() != null);
    positions = new Positions(config, cluster, routes, growth);
    loop.start();
  }

  void wake() {
    loop.wake();
  }

  /** Its loop has met a bug. Nobody is to wait for records that cannot come. */
  private void failed(Throwable bug) {
    buffer.fail(bug(bug));
  }

  private static OncelogException bug(Throwable bug) {
    return new OncelogException(ErrorKind.INTERNAL, "a bug of the client: %s", bug).because(bug);
  }

  void stop() {
    loop.post(
        () -> {
          polls.values().forEach(Poll::cancel);
          streams.values().forEach(CatchUp::cancel);
        });
    loop.stop();
  }

  // --- groups and coordinators ---------------------------------------------------------

  /** Starts polls where there is something to ask, and returns when to look again. */
  private long work(long now) {
    long next = Times.NEVER;
    if (now - refreshedAt > config.metadataMaxAge().toNanos()) {
      refreshedAt = now;
      refresh(cluster.leaders.topicNames());
    }
    checkTopics();
    locateMissing();
    if (!refreshing) {
      refresh(routes.takeOutdated());
    }
    new ArrayList<>(streams.values()).forEach(stream -> stream.work(now));
    Map<Place, List<Wanted>> byPlace = new HashMap<>();
    Set<String> lost = new HashSet<>();
    for (Wanted w : buffer.wanted()) {
      if (isStreamed(w)) {
        continue;
      }
      long readyAt = routes.readyAt(w.tp());
      if (readyAt > now) {
        next = Math.min(next, readyAt);
        continue;
      }
      String address = routes.address(w.tp());
      if (address.isEmpty()) {
        lost.add(w.tp().topic());
      } else {
        TopicPartition one = alone.contains(w.tp()) ? w.tp() : null;
        Place place = new Place(address, w.group(), one);
        byPlace.computeIfAbsent(place, key -> new ArrayList<>()).add(w);
      }
    }
    byPlace.forEach(this::poll);
    if (lost.isEmpty()) {
      searches = 0;
    } else {
      if (now >= searchAt) {
        searches++;
        searchAt = now + cluster.backoff.delay(searches);
        if (searches % Cluster.MAX_LEADER_FAILURES == 0) {
          cluster.preferAnother(); // the one that is asked may be cut off, and know of no leader
        }
        refresh(lost);
      }
      next = Math.min(next, searchAt);
    }
    if (!polls.isEmpty() || !streams.isEmpty()) {
      polls.values().forEach(poll -> askAboutLate(poll, now));
      next = Math.min(next, now + Sender.TICK_EVERY);
    }
    return Math.min(next, refreshedAt + config.metadataMaxAge().toNanos() + Times.MS);
  }

  /** Whether a topic was deleted and created again: its offsets mean nothing there, all is news. */
  private void checkTopics() {
    if (recreations == cluster.leaders.recreations()) {
      return;
    }
    recreations = cluster.leaders.recreations();
    Map<TopicPartition, Integer> recreated = buffer.recreated();
    buffer.assignment().forEach(tp -> growth.recreated(tp.topic()));
    recreated.forEach(
        (tp, generation) -> {
          if (cluster.leaders.isGone(tp)) {
            buffer.fail(tp, generation, Detail.noPartition(tp));
          } else {
            beginAnew(tp, generation);
          }
        });
  }

  /** Where the group stands in the new topic, or at its start. */
  private void beginAnew(TopicPartition tp, int generation) {
    aheadSince.remove(tp);
    growth.isNews(tp);
    buffer.seek(tp, generation, FetchBuffer.UNKNOWN);
  }

  private void poll(Place place, List<Wanted> partitions) {
    Poll running = polls.get(place);
    if (running != null) {
      if (running.covers(partitions)) {
        return;
      }
      // A partition has room again, or was sought elsewhere: do not let it wait for the poll that
      // is on its way.
      polls.remove(place);
      running.cancel();
    }
    int waitMs = (int) Math.min(config.fetchMaxWait().toMillis(), MOST_WAIT_MS);
    FetchRequest.Builder request =
        FetchRequest.newBuilder()
            .setMinBytes(config.fetchMinBytes())
            .setMaxBytes(config.fetchMaxBytes())
            .setMaxWaitMs(waitMs)
            .setAnyReplica(config.anyReplica())
            .setNear(config.rack() != null);
    for (Wanted w : partitions) {
      request.addPartitions(
          PartitionFetch.newBuilder()
              .setTopic(w.tp().topic())
              .setPartition(w.tp().partition())
              .setOffset(w.offset())
              .setMaxBytes(config.maxPartitionFetchBytes()));
    }
    Poll poll = new Poll(place, partitions, Times.now() + waitMs * Times.MS + LATE_BY);
    polls.put(place, poll);
    ClientCall<FetchRequest, FetchResponse> call =
        cluster
            .channel(place.address)
            .newCall(
                LogServiceGrpc.getFetchMethod(),
                CallOptions.DEFAULT.withDeadlineAfter(
                    cluster.requestTimeout, TimeUnit.NANOSECONDS));
    ClientCalls.asyncUnaryCall(call, request.build(), poll);
  }

  /**
   * A node that hangs keeps its connections, so a poll would time out first. If it says nothing and
   * another one leads by now, the poll is given up.
   */
  private void askAboutLate(Poll poll, long now) {
    if (now < poll.lateAt) {
      return;
    }
    poll.lateAt = Times.NEVER;
    cluster.avoid(poll.place.address);
    Set<String> topics = new HashSet<>();
    poll.partitions.forEach(w -> topics.add(w.tp().topic()));
    cluster.spawn(
        () -> {
          try {
            cluster.refresh(topics);
          } catch (OncelogException e) {
            // it is asked again
          }
          loop.post(
              () -> {
                poll.lateAt = Times.now() + LATE_BY;
                boolean elsewhere =
                    poll.partitions.stream()
                        .anyMatch(w -> routes.isElsewhere(w.tp(), poll.place.address));
                if (elsewhere) {
                  poll.cancel();
                }
              });
        });
  }

  private void refresh(Collection<String> topics) {
    if (refreshing || topics.isEmpty()) {
      return;
    }
    refreshing = true;
    List<String> all = new ArrayList<>(topics);
    cluster.spawn(
        () -> {
          try {
            refreshNow(all);
            growth.take();
          } finally {
            loop.post(() -> refreshing = false);
          }
        });
  }

  private void refreshNow(List<String> topics) {
    try {
      cluster.refresh(topics);
    } catch (OncelogException e) {
      // without an answer it is asked again
      if (e.kind() == ErrorKind.OTHER_CLUSTER) {
        failAll(topics, e);
      }
    }
  }

  private void failAll(Collection<String> topics, OncelogException problem) {
    for (Wanted w : buffer.wanted()) {
      if (topics.contains(w.tp().topic())) {
        buffer.fail(w.tp(), w.generation(), problem);
      }
    }
  }

  // --- answers -----------------------------------------------------------------------

  private void ended(Poll poll, FetchResponse answer, OncelogException failure) {
    if (polls.get(poll.place) != poll) {
      return; // it was given up
    }
    polls.remove(poll.place);
    OncelogException problem = failure;
    if (answer != null && answer.getPartitionsCount() != poll.partitions.size()) {
      problem =
          new OncelogException(
              ErrorKind.INTERNAL,
              "the node gave %d answers to %d questions",
              answer.getPartitionsCount(),
              poll.partitions.size());
    }
    for (int i = 0; i < poll.partitions.size(); i++) {
      Wanted w = poll.partitions.get(i);
      if (problem == null) {
        took(poll.place.address, w, answer.getPartitions(i));
      } else if (problem.isRetriable()) {
        routes.failed(w.tp(), poll.place.address);
        if (problem.kind() == ErrorKind.OTHER_CLUSTER) {
          buffer.fail(w.tp(), w.generation(), problem);
        }
      } else if (poll.partitions.size() > 1) {
        alone.add(w.tp()); // one of them is the cause: each is polled alone then, until it is read
      } else {
        buffer.fail(w.tp(), w.generation(), problem);
      }
    }
  }

  private void took(String address, Wanted w, PartitionRecords records) {
    switch (buffer.add(w, records)) {
      case REFUSED -> refused(w, records, address);
      case OK -> {
        routes.answered(w.tp(), address);
        alone.remove(w.tp());
        aheadSince.remove(w.tp());
        if (streams.size() < MOST_STREAMS && CatchUp.worthIt(config, records)) {
          Wanted rest = new Wanted(w.tp(), w.group(), CatchUp.end(records), w.generation());
          streams.put(
              w.tp(), new CatchUp(config, cluster, buffer, loop, address, rest, this::streamed));
        }
      }
      case BEHIND -> routes.failed(w.tp(), address);
      case ANEW -> {
        beginAnew(w.tp(), w.generation());
        cluster.spawn(() -> lookAt(address, w.tp().topic())); // it may have fewer partitions
      }
      case STALE -> {}
    }
  }

  private boolean isStreamed(Wanted w) {
    CatchUp stream = streams.get(w.tp());
    if (stream != null && stream.generation() != w.generation()) {
      stream.cancel();
      streams.remove(w.tp());
      return false;
    }
    return stream != null;
  }

  private void streamed(CatchUp stream, Wanted rest, PartitionRecords refused) {
    // Unless a seek has already put polls, or another one, in its place.
    if (streams.remove(rest.tp(), stream) && refused != null) {
      refused(rest, refused, stream.address);
    }
    loop.wake();
  }

  /** Deals with an answer that carries an error. */
  void refused(Wanted w, PartitionRecords records, String address) {
    PartitionError error = records.getError();
    switch (error) {
      case PARTITION_ERROR_NOT_LEADER ->
          routes.leadsElsewhere(w.tp(), address, records.getLeaderId(), records.getLeaderAddress());
      case PARTITION_ERROR_NOT_READY -> routes.failed(w.tp(), address);
      case PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION -> {
        routes.failed(w.tp(), address);
        cluster.spawn(() -> confirmUnknown(w));
      }
      case PARTITION_ERROR_OFFSET_OUT_OF_RANGE -> outOfRange(w, records, address);
      default -> {
        if (routes.elsewhere(w.tp(), address, error)) {
          routes.failed(w.tp(), address);
        } else {
          String text = Positions.text(error, records.getMessage());
          OncelogException problem = Detail.corrupt(w.tp(), w.offset(), "%s", text);
          buffer.fail(w.tp(), w.generation(), problem);
        }
      }
    }
  }

  /** A topic may vanish from one node's view for a moment; really gone is an error. */
  private void confirmUnknown(Wanted w) {
    try {
      cluster.requireTopic(w.tp().topic(), UNKNOWN_TOPIC_GRACE);
      loop.wake();
    } catch (OncelogException e) {
      if (e.kind() == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION) {
        buffer.fail(w.tp(), w.generation(), e);
      }
    }
  }

  private void outOfRange(Wanted w, PartitionRecords records, String address) {
    boolean ahead = w.offset() > records.getHighWatermark();
    if (ahead && (buffer.read(w.tp()) || config.anyReplica() || config.rack() != null)) {
      // These records were read once, so they exist: the node lags, wait for it.
      long since = aheadSince.computeIfAbsent(w.tp(), key -> Times.now());
      if (Times.now() - since < AHEAD_GRACE) {
        routes.failed(w.tp(), address);
        cluster.spawn(() -> lookAt(address, w.tp().topic())); // or it is another one of that name
        return;
      }
    } else if (config.autoOffsetReset() != OffsetReset.NONE) {
      seekWhenKnown(w.tp(), w.generation(), config.autoOffsetReset());
      return;
    }
    buffer.fail(
        w.tp(),
        w.generation(),
        new OncelogException(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                "%s: offset %d is out of range, the log has %d to %d",
                w.tp(),
                w.offset(),
                records.getLogStartOffset(),
                records.getHighWatermark())
            .with(
                new Detail()
                    .at(w.tp())
                    .offset(w.offset())
                    .log(records.getLogStartOffset(), records.getHighWatermark())));
  }

  private void lookAt(String address, String topic) {
    try {
      cluster.refreshAt(address, topic);
      loop.wake();
    } catch (OncelogException e) {
      // without an answer it is asked again
    }
  }

  // --- positions ---------------------------------------------------------------------

  /** Goes to an end of these. One that nobody leads holds up the others for a moment. */
  void seekAll(Collection<TopicPartition> tps, OffsetReset where) {
    Map<TopicPartition, OffsetQuery> queries = new TreeMap<>();
    tps.forEach(tp -> queries.put(tp, Positions.query(tp, where)));
    Positions.Search search = new Positions.Search(buffer::seek, tp -> true);
    positions.search(queries, search, Times.now() + Math.min(cluster.requestTimeout, ELECTION));
    List<TopicPartition> later = search.left(tps);
    search.leave(later);
    later.forEach(tp -> seekWhenKnown(tp, FetchBuffer.ANY, where));
    search.check();
  }

  /** A seek since that generation wins. */
  private void seekWhenKnown(TopicPartition tp, int since, OffsetReset where) {
    synchronized (reset) {
      int generation = buffer.seek(tp, since, FetchBuffer.UNKNOWN);
      if (generation != 0) {
        reset.put(tp, new Reset(where, generation));
      }
    }
    loop.wake();
  }

  /** Finds out where to start partitions without a position. */
  private void locateMissing() {
    Map<TopicPartition, Integer> missing = new TreeMap<>();
    Map<TopicPartition, OffsetReset> places = new TreeMap<>();
    synchronized (reset) {
      for (Wanted w : buffer.withoutPosition()) {
        if (locating.getOrDefault(w.tp(), -1) == w.generation()) {
          continue;
        }
        locating.put(w.tp(), w.generation());
        missing.put(w.tp(), w.generation());
        // After a seek, or an offset that is out of range, the group's own would lead elsewhere.
        Reset own = reset.get(w.tp());
        if (own != null && own.generation == w.generation()) {
          places.put(w.tp(), own.place);
        }
      }
    }
    if (!missing.isEmpty()) {
      cluster.spawn(() -> locate(missing, places));
    }
  }

  private void locate(
      Map<TopicPartition, Integer> missing, Map<TopicPartition, OffsetReset> places) {
    Positions.Search search =
        new Positions.Search(
            (tp, offset) -> {
              // At once: it does not wait for those that have no leader.
              buffer.found(tp, missing.get(tp), offset);
              loop.post(() -> locating.remove(tp, missing.get(tp)));
            },
            tp -> buffer.generation(tp) == missing.get(tp));
    OncelogException problem = null;
    List<TopicPartition> fresh = new ArrayList<>(missing.keySet());
    fresh.removeAll(places.keySet());
    try {
      positions.start(fresh, places, search);
    } catch (OncelogException e) {
      problem = e;
    } catch (CancellationException e) {
      throw e; // the client was closed meanwhile
    } catch (RuntimeException e) {
      problem = bug(e);
    }
    if (problem != null && problem.kind() == ErrorKind.FENCED_MEMBER) {
      // Polls pass it over: the group will name the new owners. Until then there is nothing to
      // read.
      for (TopicPartition tp : fresh) {
        buffer.fail(tp, missing.get(tp), problem);
      }
      Times.sleep(config.retryBackoffMax().toNanos());
      problem = null;
    }
    OncelogException ofAll = problem;
    loop.post(() -> located(missing, search, ofAll));
  }

  private void located(
      Map<TopicPartition, Integer> missing, Positions.Search search, OncelogException problem) {
    checkTopics(); // partitions that a topic no longer has may be read no longer
    Map<TopicPartition, Long> found = search.found();
    missing.forEach(
        (tp, generation) -> {
          OncelogException own = problem != null ? problem : search.problem(tp);
          if (!found.containsKey(tp) && own != null) {
            buffer.fail(tp, generation, own);
          }
          locating.remove(tp, generation);
        });
  }
}
