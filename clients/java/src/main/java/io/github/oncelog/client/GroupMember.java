package io.github.oncelog.client;

import io.github.oncelog.client.proto.GroupAssignment;
import io.github.oncelog.client.proto.GroupHeartbeatRequest;
import io.github.oncelog.client.proto.GroupServiceGrpc;
import io.github.oncelog.client.proto.JoinGroupRequest;
import io.github.oncelog.client.proto.JoinGroupResponse;
import io.github.oncelog.client.proto.MemberHello;
import io.github.oncelog.client.proto.MemberLeave;
import io.github.oncelog.client.proto.MemberOwned;
import io.github.oncelog.client.proto.MemberPing;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A consumer's place in its group, over all connections and memberships: a stream that brings
 * assignments, and calls that answer.
 *
 * <pre>
 * coordinator --JoinGroup stream--> GroupMember --> Ownerships --Change--> FetchBuffer
 * coordinator <--GroupHeartbeat---- GroupMember <-- Rebalance, on the user's thread
 * </pre>
 *
 * <p>Changes are put before the user's thread as an interruption; nothing of the user's changes
 * without him. All but the hello goes by calls, not by the stream: an answer shows that the
 * coordinator still has this member, and while none comes for a session's length nothing is given
 * out.
 */
final class GroupMember {
  private static final int MAX_HOST_CHARS = 255;

  /** Work of the user's thread. */
  record Change(long connection, Ownerships.Step step, long deadline, boolean ended) {}

  /** Message of the stream or answer to a call, or why it ended. */
  private record Event(JoinGroupResponse answer, OncelogException problem, boolean again) {}

  private final ConsumerConfig config;
  private final Cluster cluster;
  private final FetchBuffer buffer;
  private final Groups groups;
  private final String group;
  private final String memberId = UUID.randomUUID().toString();
  private final Ownerships machine = new Ownerships(); // guarded by this
  private List<String> topics;
  private OncelogException error; // for good
  private long claim;
  private boolean wasMember;
  private String address = ""; // of the coordinator, while connected
  private long ping;
  private final ArrayDeque<JoinGroupRequest> outbox = new ArrayDeque<>();
  private boolean helloAgain;
  private boolean joined;
  private boolean isIn; // an assignment came over the present connection
  private boolean cameBack = true;
  private OncelogException whyNotJoined;
  private FetchBuffer.Progress progress;
  private long progressAt = Times.now();
  private volatile boolean left;
  private final Thread thread;

  GroupMember(
      ConsumerConfig config,
      Cluster cluster,
      Groups groups,
      FetchBuffer buffer,
      List<String> topics) {
    this.config = config;
    this.cluster = cluster;
    this.groups = groups;
    this.buffer = buffer;
    this.topics = List.copyOf(topics);
    group = config.groupId();
    ping = config.sessionTimeout().toNanos() / 3;
    progress = buffer.progress();
    thread = new Thread(this::run, config.clientId() + "-member");
    thread.setDaemon(true);
  }

  void start() {
    thread.start();
  }

  // --- the user's questions ------------------------------------------------------------

  /** Waits until the group has answered; throws the error in the way. */
  synchronized void awaitJoined(long limit) {
    long until = Times.now() + limit;
    while (!joined && Times.now() < until) {
      await(until - Times.now());
    }
    if (error != null) {
      throw error;
    }
    if (!joined) {
      throw new OncelogException(
          ErrorKind.REQUEST_TIMEOUT,
          "group %s not joined within %s: %s",
          group,
          Times.text(limit),
          whyNotJoined == null ? "no answer" : whyNotJoined.getMessage());
    }
  }

  private void await(long span) {
    try {
      wait(Math.max(1, span / Times.MS));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted");
    }
  }

  /** Other topics from now on. */
  synchronized void subscribe(List<String> topics) {
    this.topics = List.copyOf(topics);
    helloAgain = true;
    notifyAll();
  }

  /** The error that ended the membership for good; null: nothing. */
  synchronized OncelogException error() {
    return error;
  }

  /** Those of the revoked that still have to be given back on this connection. */
  synchronized List<TopicPartition> askedBack(Change change) {
    if (change.connection != machine.connection()) {
      return List.of(); // asked again on the new one, if at all
    }
    List<TopicPartition> asked = new ArrayList<>(change.step.revoked());
    asked.removeIf(tp -> machine.number(tp) == null || machine.mayPoll(tp));
    return asked;
  }

  /**
   * Gives back finished and committed partitions; returns the partitions that are kept all the
   * same.
   */
  synchronized List<TopicPartition> release(Change change, List<TopicPartition> tps) {
    answer(change.connection, tps);
    List<TopicPartition> kept = new ArrayList<>(tps);
    kept.removeIf(tp -> machine.number(tp) == null);
    return kept;
  }

  /** Those that are owned under the same number. */
  synchronized Map<TopicPartition, Long> stillOwned(Map<TopicPartition, Long> numbers) {
    Map<TopicPartition, Long> still = new TreeMap<>(numbers);
    still.entrySet().removeIf(one -> !one.getValue().equals(machine.number(one.getKey())));
    return still;
  }

  /** The user knows that the membership has ended: another one may begin. */
  synchronized void comeBack() {
    cameBack = true;
    notifyAll();
  }

  /** The member's part of the next commit; throws FENCED_MEMBER. */
  synchronized CommitTerms commitTerms(
      Collection<TopicPartition> tps, Map<TopicPartition, Long> numbers) {
    for (TopicPartition tp : tps) {
      Long owned = machine.number(tp);
      if (owned == null || !owned.equals(numbers.get(tp))) {
        throw new OncelogException(
            ErrorKind.FENCED_MEMBER,
            "%s: offset not committed: it is not part of this consumer's assignment",
            tp);
      }
    }
    return new CommitTerms(memberId, machine.nextCommit(), Map.copyOf(numbers));
  }

  /** The same for a look at where to go on. */
  synchronized CommitTerms lookTerms(Collection<TopicPartition> tps) {
    Map<TopicPartition, Long> owned = machine.owned();
    if (!owned.keySet().containsAll(tps)) {
      throw new OncelogException(ErrorKind.FENCED_MEMBER, "the group has taken a partition back");
    }
    return new CommitTerms(memberId, 0, owned);
  }

  private synchronized long idle() {
    FetchBuffer.Progress now = buffer.progress();
    if (now.waitedFor() || !now.equals(progress)) {
      progress = now;
      progressAt = Times.now();
    }
    return Times.now() - progressAt;
  }

  private synchronized String address() {
    return address;
  }

  /** Ends the membership; that of a named instance ends with its session only. */
  void leave() {
    String place = address();
    left = true;
    thread.interrupt();
    try {
      if (!place.isEmpty() && config.groupInstanceId() == null) {
        JoinGroupRequest.Builder gone =
            JoinGroupRequest.newBuilder().setLeave(MemberLeave.getDefaultInstance());
        Times.uninterrupted(() -> say(place, gone));
      }
    } catch (OncelogException | CancellationException e) {
      // Its session will end.
    }
  }

  // --- connections ---------------------------------------------------------------------

  private void run() {
    int failures = 0;
    try {
      while (!left && error() == null) {
        awaitComeBack();
        String place = groups.coordinator(group);
        try {
          new Connection(place).run();
          failures = 0;
        } catch (OncelogException e) {
          if (!e.isRetriable()) {
            fail(e);
            return;
          }
          boolean was;
          synchronized (this) {
            was = isIn;
            whyNotJoined = e;
          }
          failures = was ? 1 : failures + 1;
          Times.sleep(groups.failed(group, place, e, failures));
        } finally {
          synchronized (this) {
            address = "";
            isIn = false;
          }
        }
      }
    } catch (CancellationException e) {
      // the consumer is closed
    } catch (RuntimeException | Error e) {
      Loop.report(e);
      fail(OncelogException.of(e)); // a bug: nobody is to wait for partitions that cannot come
    }
  }

  /** One that is stuck would only be given partitions that nobody reads then. */
  private synchronized void awaitComeBack() {
    while (!cameBack) {
      await(Times.SECOND);
    }
  }

  /** Until the coordinator, or this member, wants another one. */
  private final class Connection extends ClientCall.Listener<JoinGroupResponse> {
    private final String place;
    private final long number;
    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();
    private final ClientCall<JoinGroupRequest, JoinGroupResponse> call;
    private volatile boolean over;

    Connection(String place) {
      this.place = place;
      synchronized (GroupMember.this) {
        number = machine.connect();
        outbox.clear();
        helloAgain = false;
      }
      call =
          cluster
              .channel(place)
              .newCall(GroupServiceGrpc.getJoinGroupMethod(), CallOptions.DEFAULT);
    }

    @Override
    public void onMessage(JoinGroupResponse answer) {
      events.add(new Event(answer, null, false));
      call.request(1);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      OncelogException problem =
          status.isOk()
              ? new OncelogException(
                  ErrorKind.NOT_LEADER, "%s: the coordinator has ended the stream", place)
              : Statuses.error(place, status, trailers);
      events.add(new Event(null, problem, false));
    }

    void run() {
      try {
        long sent = Times.now();
        call.start(this, new Metadata());
        call.request(4);
        call.sendMessage(JoinGroupRequest.newBuilder().setHello(hello(number)).build());
        JoinGroupResponse answer = next(Groups.ATTEMPT);
        if (answer == null) {
          throw new OncelogException(ErrorKind.UNAVAILABLE, "%s: no answer to a hello", place);
        }
        groups.answered(group, place);
        synchronized (GroupMember.this) {
          address = place;
          ping = Math.max(answer.getPingIntervalMs(), 100) * Times.MS;
        }
        confirmed(sent);
        cluster.spawn(this::beat);
        while (answer != null && goesOn(number, answer)) {
          answer = next(Times.NEVER);
        }
      } finally {
        over = true;
        synchronized (GroupMember.this) {
          GroupMember.this.notifyAll();
        }
        call.cancel("given up by the client", null);
      }
    }

    /** The next message; null: time is up, or another hello is to be said. */
    private JoinGroupResponse next(long limit) {
      try {
        Event event = events.poll(limit, TimeUnit.NANOSECONDS);
        if (event == null || event.again) {
          return null;
        }
        if (event.problem != null) {
          throw event.problem;
        }
        return event.answer;
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new CancellationException("interrupted");
      }
    }

    /** Sends the next message, or a sign of life; on a thread of its own. */
    private void beat() {
      while (!over) {
        JoinGroupRequest.Builder request = request();
        if (over) {
          return;
        }
        if (request == null) {
          events.add(new Event(null, null, true));
          return;
        }
        long sent = Times.now();
        try {
          JoinGroupResponse answer = say(place, request);
          if (answer.getConnection() != number) {
            throw new OncelogException(
                ErrorKind.NOT_LEADER, "%s: the coordinator does not know this connection", place);
          }
          if (answer.hasFenced()) {
            events.add(new Event(answer, null, false));
            return;
          }
          confirmed(sent);
        } catch (CancellationException e) {
          return; // the consumer is closed
        } catch (RuntimeException e) {
          events.add(new Event(null, OncelogException.of(e), false));
          return;
        }
      }
    }

    /** The next message; null: a hello, on another connection. */
    private JoinGroupRequest.Builder request() {
      synchronized (GroupMember.this) {
        long until = Times.now() + ping;
        while (outbox.isEmpty() && !helloAgain && !over && Times.now() < until) {
          await(until - Times.now());
        }
        if (!outbox.isEmpty()) {
          return outbox.poll().toBuilder();
        }
        if (helloAgain) {
          return null;
        }
      }
      MemberPing alive = MemberPing.newBuilder().setIdleMs(idle() / Times.MS).build();
      return JoinGroupRequest.newBuilder().setPing(alive);
    }
  }

  private synchronized MemberHello hello(long connection) {
    String host;
    try {
      host = InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException e) {
      host = "";
    }
    String place = config.clientId() + "@" + host;
    MemberHello.Builder hello =
        MemberHello.newBuilder()
            .setGroup(group)
            .setMemberId(memberId)
            .setConnection(connection)
            .addAllTopics(topics)
            .setEpoch(machine.epoch())
            .setClaim(claim)
            .setAssignor(config.assignor().name().toLowerCase(Locale.ROOT))
            .setSessionTimeoutMs((int) config.sessionTimeout().toMillis())
            .setRevokeTimeoutMs((int) config.revokeTimeout().toMillis())
            .setProcessingTimeoutMs((int) config.processingTimeout().toMillis())
            .setClientHost(place.substring(0, Math.min(place.length(), MAX_HOST_CHARS)));
    if (config.groupInstanceId() != null) {
      hello.setInstanceId(config.groupInstanceId());
    }
    machine.owned().keySet().forEach(tp -> hello.addOwned(Identities.message(tp)));
    return hello.build();
  }

  private JoinGroupResponse say(String place, JoinGroupRequest.Builder request) {
    long connection;
    long limit;
    synchronized (this) {
      connection = machine.connection();
      limit = Math.min(Groups.ATTEMPT, Math.max(ping, Times.SECOND / 2));
    }
    return cluster.callAt(
        place,
        limit,
        GroupServiceGrpc.getGroupHeartbeatMethod(),
        GroupHeartbeatRequest.newBuilder()
            .setGroup(group)
            .setMemberId(memberId)
            .setConnection(connection)
            .setRequest(request)
            .build());
  }

  /** Tells which partitions are still held, without these. */
  private void answer(long connection, Collection<TopicPartition> tps) {
    Ownerships.Owned left = machine.released(connection, tps);
    if (left != null) {
      MemberOwned.Builder owned = MemberOwned.newBuilder().setEpoch(left.epoch());
      left.partitions().forEach(tp -> owned.addPartitions(Identities.message(tp)));
      outbox.add(JoinGroupRequest.newBuilder().setOwned(owned).build());
      notifyAll();
    }
  }

  /** The coordinator had this member when it answered the messages of that time. */
  private synchronized void confirmed(long sent) {
    buffer.holdFrom(sent + 3 * ping);
  }

  // --- messages that come ----------------------------------------------------------------

  /** Takes a message over; false: another connection is needed. */
  private synchronized boolean goesOn(long connection, JoinGroupResponse answer) {
    switch (answer.getMessageCase()) {
      case ASSIGNMENT -> assigned(connection, answer.getAssignment());
      case FENCED -> {
        fenced(answer.getFenced().getReason());
        return false;
      }
      case INSTANCE_HELD -> {
        if (wasMember) {
          fail(taken());
        }
        claim = answer.getInstanceHeld().getClaim();
        return false;
      }
      default -> {}
    }
    return true;
  }

  private void assigned(long connection, GroupAssignment assignment) {
    Map<TopicPartition, Long> numbers = new TreeMap<>();
    for (var p : assignment.getPartitionsList()) {
      numbers.put(new TopicPartition(p.getTopic(), p.getPartition()), p.getOwnership());
    }
    List<TopicPartition> revoke = new ArrayList<>();
    for (var p : assignment.getRevokeList()) {
      revoke.add(new TopicPartition(p.getTopic(), p.getPartition()));
    }
    Ownerships.Step step = machine.assignment(connection, assignment.getEpoch(), numbers, revoke);
    claim = 0;
    wasMember = true;
    isIn = true;
    if (!step.equals(Ownerships.Step.NOTHING)) {
      long deadline = Times.now() + config.revokeTimeout().toNanos();
      buffer.interrupt(new Change(connection, step, deadline, false));
    }
    if (revoke.stream().anyMatch(tp -> machine.number(tp) == null)) {
      // Given and asked back before this member heard of it: only the newest assignment is sent.
      // There is nothing to finish.
      answer(connection, List.of());
    }
    joined = true;
    notifyAll();
  }

  private void fenced(String reason) {
    switch (reason) {
      case "INSTANCE_TAKEN" -> fail(taken());
      case "GROUP_FULL" ->
          throw new OncelogException(
              ErrorKind.THROTTLED, "group %s has as many members as it may", group);
      default -> {
        cameBack = false;
        loseAll();
      }
    }
  }

  private void loseAll() {
    Ownerships.Step lost = new Ownerships.Step(machine.fenced(), List.of(), Map.of());
    buffer.interrupt(new Change(0, lost, 0, true));
  }

  private OncelogException taken() {
    return new OncelogException(
        ErrorKind.FENCED_MEMBER,
        "another process goes by groupInstanceId \"%s\"",
        config.groupInstanceId());
  }

  private synchronized void fail(OncelogException error) {
    this.error = error;
    loseAll();
    joined = true;
    notifyAll();
  }
}
