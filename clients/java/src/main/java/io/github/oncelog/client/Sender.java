package io.github.oncelog.client;

import io.github.oncelog.client.OncelogException.Outcome;
import io.github.oncelog.client.proto.BatchResult;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/**
 * The producer's IO: it takes ripe batches, finds leaders and keeps a stream to each node. All its
 * state belongs to the thread of its loop; others post to it.
 */
final class Sender implements ProduceStream.Events {
  static final long TICK_EVERY = 100 * Times.MS;

  /** The loop that comes so late was held up, or the process stood still (ADR 89). */
  private static final long LATE = 2 * TICK_EVERY;

  private static final Backoff SEARCH_PAUSES = Backoff.ofMillis(500, 5000);

  /** A node's limit of timeout_ms. */
  private static final long MOST_COMMIT_TIMEOUT_MS = 600_000;

  final Accumulator accumulator;
  final Identities identities;
  final Failures failed = new Failures();
  private final ProducerConfig config;
  private final Cluster cluster;
  private final Loop loop;
  private final Counters stats = new Counters();
  private volatile ProducerStats snapshot = stats.snapshot();

  private final Map<TopicPartition, Window> windows = new HashMap<>();
  private final Map<TopicPartition, Window> busy = new LinkedHashMap<>();
  // Nothing is sent to these: they wait for a producer id, or for news of their topic.
  private final Set<TopicPartition> identifying = new HashSet<>();
  // Batches that wait for a partition to have a producer id.
  private final Map<TopicPartition, List<Consumer<Identity>>> identified = new HashMap<>();
  private final Map<String, ProduceStream> streams = new HashMap<>();
  private final Map<TopicPartition, String> sentTo = new HashMap<>();
  private final LeaderWatch watch;
  private long attemptId;
  private long tickedAt;
  private long searchAt;
  private int searches;
  private long dueAt = Times.NEVER;
  private boolean stopped;

  // Batches with callbacks to call, one after the other, on a thread of its own.
  private final ConcurrentLinkedQueue<BatchDelivery> completed = new ConcurrentLinkedQueue<>();
  private final AtomicInteger completing = new AtomicInteger();
  private volatile Thread callbacks;

  Sender(ProducerConfig config, Cluster cluster) {
    this.config = config;
    this.cluster = cluster;
    loop = new Loop(config.clientId() + "-sender", this::work, this::failed);
    identities = new Identities(config, cluster);
    accumulator = new Accumulator(config, loop::wake, cluster.leaders::isAvailable);
    watch =
        new LeaderWatch(
            cluster, loop, busy.keySet(), this::connected, accumulator::leaveUnavailable);
    loop.start();
  }

  ProducerStats stats() {
    return snapshot;
  }

  // --- the end -----------------------------------------------------------------------

  /** Ends all IO; unacknowledged batches fail, with their outcome. */
  void stop() {
    loop.post(
        () -> {
          if (!stopped) {
            failEverything(
                new OncelogException(
                    ErrorKind.DELIVERY_TIMEOUT,
                    "the producer was closed before an acknowledgement"),
                new OncelogException(ErrorKind.CLIENT_CLOSED, "the producer is closed"));
          }
          closeStreams();
        });
    loop.stop();
  }

  private void closeStreams() {
    streams.values().forEach(stream -> stream.close("the producer has ended"));
  }

  /** The producer cannot go on. All pending records fail, further ones are refused. */
  void fail(OncelogException error) {
    if (!stopped) {
      failEverything(error, error);
      closeStreams();
    }
  }

  /** Its loop has met a bug. Nobody is to wait for its effect. */
  private void failed(Throwable bug) {
    fail(
        new OncelogException(ErrorKind.PRODUCER_FAILED, "a bug of the client: %s", bug)
            .because(bug));
  }

  private void failEverything(OncelogException error, OncelogException later) {
    stopped = true;
    ProducerTransaction transaction = accumulator.transaction();
    if (transaction != null) {
      accumulator.failTransaction(transaction, error);
    }
    failBatches(accumulator.stop(later), error);
    new ArrayList<>(identified.keySet()).forEach(tp -> tellIdentified(tp, Identity.NONE));
    snapshot = stats.snapshot();
  }

  private void failBatches(List<OpenBatch> unsent, OncelogException error) {
    for (OpenBatch batch : unsent) {
      stats.recordsFailed += batch.count;
      batch.delivery.fail(error.with(Outcome.NEVER_SENT));
      batchDone(batch);
    }
    windows.values().forEach(window -> window.failAll(error));
    busy.clear();
  }

  private void batchDone(OpenBatch batch) {
    // Of a transaction's failure its end tells.
    if (batch.delivery.error != null && batch.transaction == null) {
      failed.add(batch.delivery);
    }
    if (batch.delivery.callbacks.isEmpty()) {
      accumulator.release(batch.delivery);
      return;
    }
    completed.add(batch.delivery);
    if (completing.getAndIncrement() == 0) {
      Thread thread = new Thread(this::callBack, config.clientId() + "-callbacks");
      thread.setDaemon(true);
      thread.start();
    }
  }

  /** Whether this is the thread that calls callbacks. */
  boolean isCallback() {
    return Thread.currentThread() == callbacks;
  }

  private void callBack() {
    callbacks = Thread.currentThread();
    do {
      BatchDelivery delivery = completed.remove();
      delivery.callBack();
      accumulator.release(delivery);
    } while (completing.decrementAndGet() > 0);
  }

  /** Fatal error of a producer that gets no producer id. */
  private static OncelogException fatal(Throwable error) {
    OncelogException own = OncelogException.of(error);
    return own.is(ErrorKind.PRODUCER_FAILED)
        ? own
        : new OncelogException(ErrorKind.PRODUCER_FAILED, "no producer id: %s", own.getMessage());
  }

  // --- transactions ------------------------------------------------------------------

  /** Has this run on the loop's thread, and waits for it; not at all if all has ended. */
  void onLoop(Runnable task) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    loop.post(
        () -> {
          try {
            task.run();
          } finally {
            done.complete(null);
          }
        });
    loop.await(done);
  }

  /** It cannot be committed: batches that are not staged fail now, nobody waits for them. */
  void drop(ProducerTransaction transaction, OncelogException error) {
    accumulator.failTransaction(transaction, error);
    failBatches(accumulator.dropTransaction(), error);
  }

  /** It was aborted. */
  void rollBack(ProducerTransaction transaction) {
    windows.values().forEach(window -> window.rollBack(transaction));
  }

  /** Identities up to this serial cannot be used in all partitions any more. */
  int usedUp() {
    AtomicInteger highest = new AtomicInteger();
    onLoop(
        () -> windows.values().forEach(one -> highest.accumulateAndGet(one.usedUp(), Math::max)));
    return highest.get();
  }

  /** Whether it goes on. It ends with its lease: a new one would fence it. */
  private boolean mayStage(Window window, ProducerTransaction transaction, long now) {
    Identity current = identities.current();
    if (current == null || now >= current.expireAt() || window.usedUp() >= current.serial()) {
      accumulator.failTransaction(
          transaction,
          new OncelogException(
              ErrorKind.PRODUCER_EXPIRED,
              "%s: the lease of \"%s\" cannot be used on",
              window.tp,
              config.producerName()));
      loop.wake();
    }
    return transaction.failure() == null;
  }

  // --- sending -----------------------------------------------------------------------

  /** Sends all batches that can be sent now, and returns when to look again. */
  private long work(long now) {
    if (stopped) {
      return Times.NEVER;
    }
    if (now - dueAt > LATE) {
      // New partitions are not read yet: nothing is judged by that time.
      long late = now - dueAt;
      accumulator.putOff(late, now);
      windows.values().forEach(window -> window.putOff(late, now));
    }
    if (now - tickedAt >= TICK_EVERY) {
      tickedAt = now;
      tick(now);
    }
    ProducerTransaction transaction = accumulator.transaction();
    if (transaction != null && transaction.failure() != null) {
      drop(transaction, transaction.refused());
    }
    long next = dueAt = tickedAt + TICK_EVERY;
    Set<TopicPartition> ready = new LinkedHashSet<>();
    next = Math.min(next, accumulator.readyPartitions(now, ready));
    for (TopicPartition tp : ready) {
      busy.put(tp, window(tp));
    }
    for (Iterator<Window> all = busy.values().iterator(); all.hasNext() && !stopped; ) {
      Window window = all.next();
      Window.Reaction reaction = feed(window, now);
      if (reaction != Window.NOTHING) {
        react(window, reaction);
        return now; // it may have stopped everything; the next round goes on
      }
      if (window.idle() && !ready.contains(window.tp)) {
        all.remove();
      } else if (window.retryAt > now) {
        next = Math.min(next, window.retryAt);
      }
    }
    streams.values().forEach(ProduceStream::write);
    search(now);
    snapshot = stats.snapshot();
    return Math.min(next, watch.work(now));
  }

  /**
   * Records without a key avoid partitions without a leader, so nothing would notice that it is
   * back: leaders that are away are looked for.
   */
  private void search(long now) {
    if (now < searchAt) {
      return;
    }
    Leaders.Lacking lacking = cluster.leaders.lacking();
    searches = lacking.isNothing() ? 0 : searches + 1;
    searchAt = now + SEARCH_PAUSES.delay(Math.max(1, searches));
    lacking.topics().forEach(watch::ask);
    for (String address : lacking.addresses()) {
      if (!streams.containsKey(address)) {
        connect(address);
      }
    }
  }

  private Window.Reaction feed(Window window, long now) {
    TopicPartition tp = window.tp;
    if (cluster.leaders.isGone(tp)) {
      gone(window);
      return window.afterNext();
    }
    if (identifying.contains(tp)) {
      return Window.NOTHING;
    }
    ProducerTransaction transaction = accumulator.transaction();
    if (transaction != null && !mayStage(window, transaction, now)) {
      return Window.NOTHING;
    }
    if (window.needsIdentity(now, identities.current())) {
      return identify(window);
    }
    String address = cluster.leaders.address(tp);
    if (address.isEmpty()) {
      window.lacksLeader(watch.noMetadata());
      watch.ask(tp.topic());
      return Window.NOTHING;
    }
    if (!address.equals(sentTo.get(tp))) {
      sentTo.put(tp, address);
      window.obstacles.met(address + ": no answer yet");
      window.onLeaderChanged(now);
    }
    ProduceStream stream = streams.get(address);
    if (stream == null) {
      stream = connect(address);
    }
    if (!stream.opened()) {
      // It may be down, and another node lead by now.
      watch.ask(tp.topic());
      return Window.NOTHING;
    }
    while (true) {
      if (!stream.hasRoom()) {
        stream.write();
        if (!stream.hasRoom()) {
          return Window.NOTHING; // there will be an event when there is
        }
      }
      SealedBatch batch = window.next(now, identities.current());
      if (batch == null) {
        return window.afterNext();
      }
      attemptId++;
      window.sent(batch, attemptId, now);
      stream.send(window, batch, attemptId);
    }
  }

  /** The topic was created anew, and has no such partition: nothing of this can be stored there. */
  private void gone(Window window) {
    OncelogException error =
        new OncelogException(
            ErrorKind.DELIVERY_FAILED,
            "%s: the topic was deleted and created anew, without this partition",
            window.tp);
    accumulator.takeAll(window.tp).forEach(batch -> window.refuse(batch, error));
    window.failAll(error);
  }

  private Window window(TopicPartition tp) {
    return windows.computeIfAbsent(
        tp, key -> new Window(key, accumulator, config, cluster.backoff, stats, this::batchDone));
  }

  /** Gets a producer id for a partition, on a thread of its own. */
  private Window.Reaction identify(Window window) {
    TopicPartition tp = window.tp;
    if (window.wasReset() && config.resumeFrom() != null) {
      return new Window.Fatal(
          new OncelogException(
              ErrorKind.PRODUCER_FAILED,
              "%s: after a batch of unknown outcome the given producer id cannot go on",
              tp));
    }
    identifying.add(tp);
    window.obstacles.met("no producer id yet");
    Identity used = window.identity;
    cluster.spawn(
        () -> {
          try {
            Identities.Acquired acquired = identities.acquire(tp, used);
            loop.post(() -> adopt(window, acquired));
          } catch (OncelogException e) {
            loop.post(() -> fail(fatal(e)));
          }
        });
    return Window.NOTHING;
  }

  private void adopt(Window window, Identities.Acquired acquired) {
    identifying.remove(window.tp);
    if (stopped) {
      return;
    }
    if (config.producerName() != null && acquired.lastSequence() < window.storedGiven) {
      fail(Window.lostWithTopic(window.tp, window.storedGiven));
      return;
    }
    window.adopt(acquired.identity(), acquired.lastSequence(), topicId(window.tp.topic()));
    tellIdentified(window.tp, acquired.identity());
  }

  private long topicId(String topic) {
    Leaders.Topic known = cluster.leaders.topic(topic);
    return known == null ? 0 : known.id();
  }

  private void tellIdentified(TopicPartition tp, Identity identity) {
    List<Consumer<Identity>> waiting = identified.remove(tp);
    if (waiting != null) {
      waiting.forEach(one -> one.accept(identity));
    }
  }

  /** The producer id that the partition has, or gets now; NONE if the producer has stopped. */
  CompletableFuture<Identity> identityOf(TopicPartition tp) {
    CompletableFuture<Identity> answer = new CompletableFuture<>();
    loop.post(
        () -> {
          Window window = window(tp);
          if (window.identity != Identity.NONE || stopped) {
            answer.complete(window.identity);
            return;
          }
          identified.computeIfAbsent(tp, key -> new ArrayList<>()).add(answer::complete);
          if (!identifying.contains(tp)) {
            react(window, identify(window));
          }
        });
    if (loop.ended()) {
      answer.complete(Identity.NONE);
    }
    return answer;
  }

  // --- streams -----------------------------------------------------------------------

  private ProduceStream connect(String address) {
    long commitTimeout = cluster.requestTimeout / Times.MS * 4 / 5;
    ProduceStream stream =
        new ProduceStream(
            address,
            cluster.channel(address),
            loop,
            this,
            (int) Math.min(Math.max(1, commitTimeout), MOST_COMMIT_TIMEOUT_MS),
            Times.now() + Math.min(Cluster.CONNECT_TIMEOUT, cluster.requestTimeout));
    streams.put(address, stream);
    return stream;
  }

  @Override
  public void closed(ProduceStream stream, String why) {
    String address = stream.address;
    streams.remove(address, stream);
    if (stopped) {
      return;
    }
    if (stream.refused != null) {
      fail(
          new OncelogException(
                  ErrorKind.PRODUCER_FAILED,
                  "the producer cannot go on: %s",
                  stream.refused.getMessage())
              .because(stream.refused));
      return;
    }
    long now = Times.now();
    cluster.avoid(address);
    cluster.leaders.reached(address, false);
    accumulator.leaveUnavailable();
    cluster.reachability.failed(address + ": " + why);
    for (Window window : busy.values()) {
      if (address.equals(sentTo.get(window.tp))) {
        window.obstacles.met(address + ": " + why, stream.ended);
        window.onConnectionLost(now);
        cluster.leaders.forget(window.tp, address);
        watch.ask(window.tp.topic());
      }
    }
  }

  @Override
  public void opened(ProduceStream stream) {
    cluster.leaders.reached(stream.address, true);
    cluster.reachability.answered(stream.address);
  }

  @Override
  public void results(ProduceStream stream, List<BatchResult> results) {
    long now = Times.now();
    for (BatchResult result : results) {
      ProduceStream.Waiting waiting = stream.outstanding.remove(result.getId());
      if (waiting == null || stopped) {
        continue;
      }
      Window window = waiting.window();
      Window.Reaction reaction = window.onResult(waiting.batch(), result.getId(), result, now);
      if (Statuses.retriable(result.getVerdict())) {
        window.obstacles.told(stream.address + ": " + Statuses.answerText(result));
      } else {
        watch.leads(window.tp); // after all
      }
      react(window, reaction);
    }
  }

  private void react(Window window, Window.Reaction reaction) {
    TopicPartition tp = window.tp;
    if (reaction instanceof Window.Fatal fatal) {
      fail(fatal.error());
    } else if (reaction instanceof Window.FatalUnlessRecreated fatal) {
      if (!identifying.contains(tp)) { // else it is being looked into
        findTopic(window, fatal.error());
      }
    } else if (reaction instanceof Window.Hinted hint) {
      cluster.leaders.hint(tp, hint.nodeId(), hint.address());
    } else if (reaction instanceof Window.LeaderLost) {
      watch.suspect(tp, sentTo.getOrDefault(tp, ""));
    }
  }

  /** A leader does not know the producer. Either all is lost, or it is another topic. */
  private void findTopic(Window window, OncelogException error) {
    TopicPartition tp = window.tp;
    identifying.add(tp);
    String address = sentTo.get(tp);
    cluster.spawn(
        () -> {
          // Nobody else can be sure to know of the topic that this node leads.
          OncelogException problem = null;
          try {
            cluster.refreshAt(address, tp.topic());
          } catch (OncelogException e) {
            problem = e;
          }
          boolean asked = problem == null;
          loop.post(() -> foundTopic(window, error, asked));
        });
  }

  private void foundTopic(Window window, OncelogException error, boolean asked) {
    identifying.remove(window.tp);
    if (stopped) {
      return;
    }
    if (!asked) {
      window.sendAgain(Times.now());
    } else if (topicId(window.tp.topic()) == window.topicId) {
      fail(error);
    } else {
      react(window, window.onTopicCreatedAnew());
    }
  }

  // --- time --------------------------------------------------------------------------

  private boolean connected(String address) {
    ProduceStream stream = streams.get(address);
    return stream != null && stream.opened();
  }

  private void tick(long now) {
    new ArrayList<>(streams.values()).forEach(stream -> stream.tick(now));
    OncelogException why = identities.attempts.telling();
    if (why != null) {
      for (TopicPartition tp : identifying) {
        window(tp).obstacles.met("no producer id yet: " + why.getMessage(), why);
      }
    }
    for (OpenBatch batch : accumulator.expire(now)) {
      Window window = window(batch.lane.tp);
      react(window, window.expireUnsent(batch));
    }
    for (Window window : new ArrayList<>(busy.values())) {
      react(window, window.expire(now));
    }
    if (stopped) {
      return;
    }
    checkStalls(now);
    Identity current = identities.current();
    if (current != null && now >= current.renewAt() && !accumulator.isTransactional()) {
      cluster.spawn(
          () -> {
            try {
              identities.renewIfDue(accumulator::isTransactional);
            } catch (OncelogException e) {
              // Taken over by another instance, most likely: to go on would be to fight.
              loop.post(() -> fail(fatal(e)));
            }
          });
    }
  }

  private void checkStalls(long now) {
    Map<String, Set<String>> stalled = new HashMap<>(); // topic -> nodes that do not answer
    for (Window window : busy.values()) {
      long oldest = window.oldestAttempt();
      String address = sentTo.get(window.tp);
      ProduceStream stream = address == null ? null : streams.get(address);
      if (now - oldest > cluster.requestTimeout && stream != null) {
        stream.close("no answer within requestTimeout");
      } else if (now - oldest > LeaderWatch.STALL_AFTER) {
        stalled.computeIfAbsent(window.tp.topic(), key -> new HashSet<>()).add(address);
      }
    }
    watch.stalled(stalled, now);
  }
}
