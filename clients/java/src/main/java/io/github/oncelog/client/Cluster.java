package io.github.oncelog.client;

import io.github.oncelog.client.proto.ClusterServiceGrpc;
import io.github.oncelog.client.proto.DescribeTopicsRequest;
import io.github.oncelog.client.proto.DescribeTopicsResponse;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.stub.ClientCalls;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * The cluster as one thing to call: connections to its nodes, calls that find a node that answers,
 * and threads for waiting callers.
 */
final class Cluster {
  private static final int MAX_MESSAGE = 128 << 20;

  /** How long a topic that was created elsewhere may take to be known everywhere. */
  private static final long UNKNOWN_TOPIC_GRACE = 2 * Times.SECOND;

  /**
   * After so many failures in a row to reach the leader that one node names, another node is asked
   * for it: a node that is cut off from the others tells of a leader that is long gone.
   */
  static final int MAX_LEADER_FAILURES = 4;

  /** A node that hangs must not hold up the answers of another. */
  static final long CONNECT_TIMEOUT = 2 * Times.SECOND;

  final ClientConfig<?> config;
  final Leaders leaders = new Leaders();
  final Backoff backoff;
  final long requestTimeout;
  final Reachability reachability;

  private final ChannelCredentials credentials;
  private final Founding founding = new Founding();
  private final ExecutorService pool;
  private final Map<String, ManagedChannel> channels = new HashMap<>();
  private String preferred;
  // Nodes that others are asked before, the one avoided last at the end.
  private final List<String> avoided = new ArrayList<>();
  // Topics of which the last node that was asked knew nothing: perhaps deleted.
  private final Set<String> unknown = new HashSet<>();
  private volatile boolean closed;

  Cluster(ClientConfig<?> config) {
    this.config = config;
    backoff = new Backoff(config.retryBackoff(), config.retryBackoffMax());
    requestTimeout = config.requestTimeout().toNanos();
    reachability = new Reachability(requestTimeout, Times::now, Warnings::warn);
    credentials = Security.credentials(config);
    List<String> servers = config.bootstrapServers();
    preferred = servers.get(ThreadLocalRandom.current().nextInt(servers.size()));
    pool =
        Executors.newCachedThreadPool(
            task -> {
              Thread thread = new Thread(task, config.clientId() + "-call");
              thread.setDaemon(true);
              return thread;
            });
  }

  /** Runs work that waits for nodes on a thread of its own; false: not at all, all is closed. */
  boolean spawn(Runnable task) {
    try {
      pool.execute(
          () -> {
            try {
              task.run();
            } catch (CancellationException e) {
              // The client was closed meanwhile, and nobody wants to know any more.
            }
          });
      return true;
    } catch (RejectedExecutionException e) {
      return false;
    }
  }

  synchronized ManagedChannel channel(String address) {
    if (closed) {
      throw new OncelogException(ErrorKind.CLIENT_CLOSED, "the client is closed");
    }
    ManagedChannel known = channels.get(address);
    if (known == null) {
      NettyChannelBuilder builder = NettyChannelBuilder.forTarget("dns:///" + address, credentials);
      if (System.getenv("GRPC_PROXY_EXP") == null) {
        // That of the JVM's HTTP is not meant for this; this variable asks for one.
        builder.proxyDetector(target -> null);
      }
      known =
          builder
              .userAgent(config.clientId())
              .withOption(ChannelOption.CONNECT_TIMEOUT_MILLIS, (int) (CONNECT_TIMEOUT / Times.MS))
              .maxInboundMessageSize(MAX_MESSAGE)
              .flowControlWindow(8 << 20)
              .intercept(founding)
              .disableRetry()
              .directExecutor()
              .build();
      channels.put(address, known);
    } else if (known.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
      // A restarted node must be found again soon, not after two minutes. The caller has pauses.
      known.resetConnectBackoff();
    }
    return known;
  }

  void close() {
    List<ManagedChannel> open;
    synchronized (this) {
      closed = true;
      open = new ArrayList<>(channels.values());
    }
    pool.shutdownNow();
    open.forEach(ManagedChannel::shutdownNow);
  }

  /**
   * All known nodes: the one that answered last, the others in random order, and avoided nodes at
   * the end.
   */
  synchronized List<String> addresses() {
    Set<String> known = new LinkedHashSet<>(leaders.nodeAddresses());
    known.addAll(config.bootstrapServers());
    List<String> others = new ArrayList<>(known);
    others.remove(preferred);
    others.removeAll(avoided);
    Collections.shuffle(others);
    List<String> result = new ArrayList<>();
    result.add(preferred);
    result.addAll(others);
    for (String address : avoided) {
      if (!address.equals(preferred) && known.contains(address)) {
        result.add(address);
      }
    }
    return result;
  }

  /** Has the other nodes asked first, until they are avoided, too. */
  synchronized void avoid(String address) {
    if (address.isEmpty()) {
      return;
    }
    avoided.remove(address);
    avoided.add(address);
    if (preferred.equals(address)) {
      List<String> all = addresses();
      if (all.size() > 1) {
        preferred = all.get(1);
      }
    }
  }

  /** The node that was asked first knows too little; begin with another next time. */
  synchronized void preferAnother() {
    avoid(preferred);
  }

  /** A node did not serve as the leader that it was said to be, so often in a row. */
  void leaderFailed(String address, int failures) {
    avoid(address);
    if (failures % MAX_LEADER_FAILURES == 0) {
      preferAnother();
    }
  }

  // --- calls -------------------------------------------------------------------------

  /** Calls one node, once. */
  <Q, A> A callAt(String address, long limit, MethodDescriptor<Q, A> method, Q request) {
    Channel channel = channel(address);
    long deadline = Math.max(limit, 50 * Times.MS);
    try {
      A answer =
          ClientCalls.blockingUnaryCall(
              channel,
              method,
              CallOptions.DEFAULT.withDeadlineAfter(deadline, TimeUnit.NANOSECONDS),
              request);
      reachability.answered(address);
      return answer;
    } catch (StatusRuntimeException e) {
      if (closed) {
        throw new OncelogException(ErrorKind.CLIENT_CLOSED, "the client is closed");
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new CancellationException("interrupted");
      }
      heard(address, e.getStatus(), e.getTrailers());
      throw Statuses.error(address, e);
    }
  }

  /** Takes note of a status with which a call has ended. */
  void heard(String address, Status status, Metadata trailers) {
    if (Statuses.isAnswer(status, trailers)) {
      reachability.answered(address);
    } else {
      reachability.failed(address + ": " + status.getDescription());
    }
  }

  /** How long to try, and how long once. */
  record Limits(long total, long attempt, Consumer<OncelogException> onRetry) {}

  Limits limits() {
    return new Limits(requestTimeout, requestTimeout, e -> {});
  }

  Limits limits(long attempt) {
    return new Limits(requestTimeout, Math.min(attempt, requestTimeout), e -> {});
  }

  /** Calls any node that answers; limits are those of the settings. */
  <Q, A> A call(MethodDescriptor<Q, A> method, Q request) {
    return call(limits(), method, request);
  }

  /**
   * Calls any node that answers, until it succeeds, fails for good, or time is up: the error is
   * then the last one from a node, not that another attempt had no answer. It fails at once if no
   * node of the client's own cluster answers, and one of another does.
   */
  <Q, A> A call(Limits limits, MethodDescriptor<Q, A> method, Q request) {
    long deadline = Times.now() + limits.total;
    Attempts attempts = new Attempts();
    for (int failures = 1; ; failures++) {
      OncelogException other = null;
      for (String address : addresses()) {
        try {
          long left = Math.min(limits.attempt, deadline - Times.now());
          A answer = callAt(address, left, method, request);
          synchronized (this) {
            preferred = address;
          }
          return answer;
        } catch (OncelogException e) {
          if (!e.isRetriable() || e.kind() == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION) {
            throw attempts.finalAnswer(e);
          }
          attempts.failed(e);
          other = e.kind() == ErrorKind.OTHER_CLUSTER ? e : other;
          limits.onRetry.accept(e);
          if (Times.now() >= deadline) {
            throw attempts.error();
          }
        }
      }
      if (other != null) {
        throw attempts.withDoubt(other);
      }
      long pause = backoff.delay(failures);
      if (Times.now() + pause >= deadline) {
        throw attempts.error();
      }
      Times.sleep(pause);
    }
  }

  /** Calls a partition's leader, following it where it goes. */
  <Q, A> A callLeader(TopicPartition tp, MethodDescriptor<Q, A> method, Q request) {
    long deadline = Times.now() + requestTimeout;
    requireTopic(tp.topic(), requestTimeout);
    if (leaders.leader(tp) == null) {
      throw Detail.noPartition(tp);
    }
    Attempts attempts = new Attempts();
    for (int failures = 1; ; failures++) {
      String address = leaders.address(tp);
      OncelogException problem;
      try {
        if (!address.isEmpty()) {
          return callAt(address, deadline - Times.now(), method, request);
        }
        problem = new OncelogException(ErrorKind.NOT_READY, "%s has no leader", tp);
      } catch (OncelogException e) {
        problem = e;
      }
      if (!problem.isRetriable()) {
        throw attempts.finalAnswer(problem);
      }
      attempts.failed(problem);
      String hint = problem.details().leaderAddress();
      boolean hinted = problem.kind() == ErrorKind.NOT_LEADER && !hint.isEmpty();
      if (hinted) {
        leaders.hint(tp, problem.details().leaderId(), hint);
      } else {
        leaders.suspect(tp);
      }
      leaderFailed(address, failures);
      long pause = hinted && failures == 1 ? 0 : backoff.delay(failures);
      if (Times.now() + pause >= deadline) {
        throw attempts.error();
      }
      Times.sleep(pause);
      if (failures > 1 || !hinted) {
        try {
          requireTopic(tp.topic(), Math.max(50 * Times.MS, deadline - Times.now()));
        } catch (OncelogException e) {
          if (!e.isRetriable() || e.kind() == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION) {
            throw attempts.finalAnswer(e);
          }
          attempts.failed(e);
          throw attempts.error();
        }
      }
    }
  }

  // --- topics ------------------------------------------------------------------------

  /** Asks for topics' leaders. A topic that does not exist is left out of the answer. */
  void refresh(Collection<String> topics) {
    refresh(topics, requestTimeout);
  }

  private void refresh(Collection<String> topics, long total) {
    try {
      Limits limits = new Limits(total, Math.min(Times.SECOND, total), e -> {});
      leaders.update(call(limits, ClusterServiceGrpc.getDescribeTopicsMethod(), describe(topics)));
      setUnknown(topics, false);
    } catch (OncelogException e) {
      if (e.kind() != ErrorKind.UNKNOWN_TOPIC_OR_PARTITION) {
        throw e;
      }
      // The node may be behind, or cut off from the others: they are asked next.
      preferAnother();
      if (topics.size() == 1) {
        setUnknown(topics, true);
      } else {
        topics.forEach(topic -> refresh(List.of(topic), total));
      }
    }
  }

  private static DescribeTopicsRequest describe(Collection<String> topics) {
    return DescribeTopicsRequest.newBuilder().addAllNames(topics).build();
  }

  private synchronized void setUnknown(Collection<String> topics, boolean is) {
    if (is) {
      unknown.addAll(topics);
    } else {
      topics.forEach(unknown::remove);
    }
  }

  /** Takes over this node's view of a topic. */
  void refreshAt(String address, String topic) {
    DescribeTopicsResponse answer =
        callAt(
            address,
            Math.min(Times.SECOND, requestTimeout),
            ClusterServiceGrpc.getDescribeTopicsMethod(),
            describe(List.of(topic)));
    leaders.update(answer);
  }

  private synchronized boolean knows(String topic) {
    return leaders.topic(topic) != null && !unknown.contains(topic);
  }

  /**
   * Waits until the topic's metadata is known. A topic that does not exist is asked for again for a
   * short while: it may have been created a moment ago at another node.
   */
  void requireTopic(String topic, long limit) {
    long begin = Times.now();
    Attempts attempts = new Attempts();
    for (int failures = 1; ; failures++) {
      OncelogException problem = null;
      try {
        long left = Math.max(50 * Times.MS, begin + limit - Times.now());
        long total = Math.min(left, requestTimeout);
        refresh(List.of(topic), total);
      } catch (OncelogException e) {
        if (!e.isRetriable()) {
          throw e;
        }
        problem = e;
        attempts.failed(e);
      }
      long passed = Times.now() - begin;
      if (problem != null && passed >= limit) {
        throw attempts.late(
            String.format("no metadata of topic \"%s\" within %s", topic, Times.text(limit)));
      }
      if (knows(topic)) {
        return;
      }
      if (problem == null && passed >= Math.min(limit, UNKNOWN_TOPIC_GRACE)) {
        throw new OncelogException(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
                "topic \"%s\" does not exist: oncelog topic create %s",
                topic,
                topic)
            .with(new Detail().at(new TopicPartition(topic, -1)));
      }
      long pause = backoff.delay(Math.min(failures, 4));
      Times.sleep(Math.max(0, Math.min(pause, begin + limit - Times.now())));
    }
  }
}
