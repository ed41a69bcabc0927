package io.github.oncelog.client;

import io.github.oncelog.client.proto.ClusterServiceGrpc;
import io.github.oncelog.client.proto.CommitOffsetsRequest;
import io.github.oncelog.client.proto.DeleteGroupRequest;
import io.github.oncelog.client.proto.DescribeClusterRequest;
import io.github.oncelog.client.proto.DescribeClusterResponse;
import io.github.oncelog.client.proto.DescribeGroupRequest;
import io.github.oncelog.client.proto.DescribeGroupResponse;
import io.github.oncelog.client.proto.FetchOffsetsRequest;
import io.github.oncelog.client.proto.GroupServiceGrpc;
import io.github.oncelog.client.proto.ListGroupsRequest;
import io.github.oncelog.client.proto.ListGroupsResponse;
import io.github.oncelog.client.proto.NodeInfo;
import io.github.oncelog.client.proto.OffsetCommitResult;
import io.github.oncelog.client.proto.StageOffsetsRequest;
import io.grpc.MethodDescriptor;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/** Finds the node that keeps a group's offsets, and asks it. */
final class Groups {
  /** A node that hangs must not hold up a question that another one answers. */
  static final long ATTEMPT = 2 * Times.SECOND;

  private static final int LIST_PAGE = 1000;

  private final Cluster cluster;
  private final Map<String, String> coordinators = new ConcurrentHashMap<>();

  Groups(Cluster cluster) {
    this.cluster = cluster;
  }

  /** Asks the group's coordinator, wherever it is now. */
  private <Q, A> A call(String group, MethodDescriptor<Q, A> method, Q request) {
    return call(group, method, request, new Attempts());
  }

  /** The same, with the failed attempts for the caller. */
  private <Q, A> A call(String group, MethodDescriptor<Q, A> method, Q request, Attempts attempts) {
    long deadline = Times.now() + cluster.requestTimeout;
    for (int failures = 1; ; failures++) {
      String address = coordinator(group);
      try {
        A answer =
            cluster.callAt(address, Math.min(deadline - Times.now(), ATTEMPT), method, request);
        answered(group, address);
        return answer;
      } catch (OncelogException e) {
        if (!e.isRetriable()) {
          throw attempts.finalAnswer(e);
        }
        attempts.failed(e);
        long pause = failed(group, address, e, failures);
        if (Times.now() + pause >= deadline) {
          throw attempts.error();
        }
        Times.sleep(pause);
      }
    }
  }

  /** The node to ask: the one that is known to keep the group, or one after the other. */
  String coordinator(String group) {
    String known = coordinators.get(group);
    return known != null ? known : cluster.addresses().get(0);
  }

  void answered(String group, String address) {
    coordinators.put(group, address);
  }

  /** It is another node, perhaps; returns the pause until one is to be asked again. */
  long failed(String group, String address, OncelogException problem, int failures) {
    String hint = problem.details().leaderAddress();
    if (!hint.isEmpty() && !hint.equals(address)) {
      coordinators.put(group, hint);
      // A hint needs no pause the first time; then somebody must be wrong.
      return failures == 1 ? 0 : cluster.backoff.delay(failures);
    }
    coordinators.remove(group);
    cluster.avoid(address);
    return cluster.backoff.delay(failures);
  }

  private static List<io.github.oncelog.client.proto.OffsetCommit> commits(
      Map<TopicPartition, OffsetCommit> offsets, CommitTerms terms) {
    List<io.github.oncelog.client.proto.OffsetCommit> all = new ArrayList<>();
    new TreeMap<>(offsets)
        .forEach(
            (tp, commit) ->
                all.add(
                    io.github.oncelog.client.proto.OffsetCommit.newBuilder()
                        .setTopic(tp.topic())
                        .setPartition(tp.partition())
                        .setOffset(commit.offset())
                        .setMetadata(commit.metadata())
                        .setProducerId(commit.producerId())
                        .setEpoch(commit.epoch())
                        .setSequence(commit.sequence())
                        .setOwnership(terms == null ? 0 : terms.ownerships().get(tp))
                        .build()));
    return all;
  }

  /**
   * Stores offsets with a transaction, all of them or none; a repeat has the same number. Throws
   * why nothing is staged.
   */
  void stage(
      ProducerTransaction transaction,
      String group,
      Map<TopicPartition, OffsetCommit> offsets,
      long number,
      CommitTerms terms) {
    StageOffsetsRequest request =
        StageOffsetsRequest.newBuilder()
            .setTransactionId(transaction.id)
            .setProducerId(transaction.producerId)
            .setEpoch(transaction.epoch)
            .setGroup(group)
            .setMemberId(terms == null ? "" : terms.memberId())
            .setNumber(number)
            .addAllOffsets(commits(offsets, terms))
            .build();
    var answer = call(group, GroupServiceGrpc.getStageOffsetsMethod(), request);
    if (!answer.getError().isEmpty()) {
      String text = answer.getMessage().isEmpty() ? answer.getError() : answer.getMessage();
      ErrorKind kind = ErrorKind.of(answer.getError());
      if (answer.getError().equals("TRANSACTION_CONFLICT")) {
        kind = ErrorKind.NOT_READY; // another one has to end first
      }
      throw new OncelogException(
          kind == null ? ErrorKind.INTERNAL : kind,
          "group %s: offsets not staged: %s",
          group,
          text);
    }
  }

  /**
   * @param terms of a member of the group, or null
   */
  void commit(String group, Map<TopicPartition, OffsetCommit> offsets, CommitTerms terms) {
    CommitOffsetsRequest.Builder request =
        CommitOffsetsRequest.newBuilder()
            .setGroup(group)
            .setMemberId(terms == null ? "" : terms.memberId())
            .setCommitNumber(terms == null ? 0 : terms.number())
            .addAllOffsets(commits(offsets, terms));
    var answer = call(group, GroupServiceGrpc.getCommitOffsetsMethod(), request.build());
    for (OffsetCommitResult result : answer.getResultsList()) {
      if (!result.getError().isEmpty()) {
        throw refused(result);
      }
    }
  }

  private static OncelogException refused(OffsetCommitResult result) {
    ErrorKind kind = ErrorKind.of(result.getError());
    if (result.getError().equals("TRANSACTION_CONFLICT")) {
      kind = ErrorKind.NOT_READY; // a transaction that has staged an offset there has to end first
    }
    String text = result.getMessage().isEmpty() ? result.getError() : result.getMessage();
    TopicPartition tp = new TopicPartition(result.getTopic(), result.getPartition());
    return new OncelogException(
            kind == null ? ErrorKind.INTERNAL : kind, "%s: offset not committed: %s", tp, text)
        .with(
            new Detail()
                .at(tp)
                .epoch(result.getCurrentEpoch())
                .lastSequence(result.getLastSequence()));
  }

  private static Map<TopicPartition, CommittedOffset> offsets(
      List<io.github.oncelog.client.proto.CommittedOffset> all) {
    Map<TopicPartition, CommittedOffset> found = new TreeMap<>();
    for (var o : all) {
      if (o.getOffset() >= 0) {
        OffsetCommit commit =
            new OffsetCommit(
                o.getOffset(), o.getMetadata(), o.getProducerId(), o.getEpoch(), o.getSequence());
        found.put(
            new TopicPartition(o.getTopic(), o.getPartition()),
            new CommittedOffset(commit, o.getCommitMs()));
      }
    }
    return found;
  }

  /**
   * Committed offsets of these partitions, or of all, for a caller that reads on from there: a
   * transaction that has staged offsets there is ended.
   *
   * @param terms of a member of the group, or null
   */
  Map<TopicPartition, CommittedOffset> committed(
      String group, Collection<TopicPartition> tps, CommitTerms terms) {
    FetchOffsetsRequest.Builder request = FetchOffsetsRequest.newBuilder().setGroup(group);
    for (TopicPartition tp : tps) {
      request.addPartitions(Identities.message(tp));
      if (terms != null) {
        request.addOwnerships(terms.ownerships().get(tp));
      }
    }
    if (terms != null) {
      request.setMemberId(terms.memberId());
    }
    return fetch(group, request);
  }

  /** For a caller that looks, and does not read on from there: open transactions go on. */
  CommittedOffset committedNow(String group, TopicPartition tp) {
    return fetch(
            group,
            FetchOffsetsRequest.newBuilder()
                .setGroup(group)
                .setIgnoreTransactions(true)
                .addPartitions(Identities.message(tp)))
        .get(tp);
  }

  private Map<TopicPartition, CommittedOffset> fetch(
      String group, FetchOffsetsRequest.Builder request) {
    return offsets(
        call(group, GroupServiceGrpc.getFetchOffsetsMethod(), request.build()).getOffsetsList());
  }

  Admin.GroupDescription describe(String group) {
    DescribeGroupResponse answer =
        call(
            group,
            GroupServiceGrpc.getDescribeGroupMethod(),
            DescribeGroupRequest.newBuilder().setGroup(group).build());
    return new Admin.GroupDescription(
        group,
        answer.getExists(),
        answer.getLastCommitMs(),
        answer.getCoordinatorId(),
        offsets(answer.getOffsetsList()),
        answer.getMembersList().stream().map(Groups::member).toList(),
        answer.getEpoch(),
        answer.getAssignor());
  }

  private static Admin.GroupMember member(io.github.oncelog.client.proto.GroupMember one) {
    Map<TopicPartition, Long> owned = new TreeMap<>();
    for (var p : one.getOwnedList()) {
      owned.put(new TopicPartition(p.getTopic(), p.getPartition()), p.getOwnership());
    }
    List<TopicPartition> revoking = new ArrayList<>();
    for (var p : one.getRevokingList()) {
      revoking.add(new TopicPartition(p.getTopic(), p.getPartition()));
    }
    return new Admin.GroupMember(
        one.getMemberId(),
        one.getInstanceId(),
        one.getClientHost(),
        owned,
        revoking,
        one.getIdleMs(),
        one.getConnected());
  }

  boolean delete(String group) {
    DeleteGroupRequest request = DeleteGroupRequest.newBuilder().setGroup(group).build();
    Attempts attempts = new Attempts();
    var answer = call(group, GroupServiceGrpc.getDeleteGroupMethod(), request, attempts);
    // A lost answer to an earlier attempt may mean that we deleted it.
    return answer.getExisted() || attempts.inDoubt();
  }

  /** All groups, by name: each node tells those that it leads. */
  List<Admin.GroupInfo> all() {
    long deadline = Times.now() + cluster.requestTimeout;
    Attempts attempts = new Attempts();
    for (int failures = 1; ; failures++) {
      Map<String, Admin.GroupInfo> found = new TreeMap<>();
      Set<Integer> covered = new HashSet<>();
      int count = 0;
      DescribeClusterResponse info =
          cluster.call(
              ClusterServiceGrpc.getDescribeClusterMethod(),
              DescribeClusterRequest.getDefaultInstance());
      for (NodeInfo node : info.getNodesList()) {
        if (node.getAlive() && !node.getAddress().isEmpty()) {
          count = Math.max(count, listNode(node.getAddress(), found, covered, attempts));
        }
      }
      if (covered.size() >= count) {
        return new ArrayList<>(found.values());
      }
      long pause = cluster.backoff.delay(failures);
      if (Times.now() + pause >= deadline) {
        String text =
            count - covered.size() + " partitions of __offsets have no leader that answers";
        throw attempts.telling() == null
            ? new OncelogException(ErrorKind.NOT_READY, "%s", text)
            : attempts.late(text);
      }
      Times.sleep(pause);
    }
  }

  /** The number of all partitions; 0: the node does not say. */
  private int listNode(
      String address, Map<String, Admin.GroupInfo> found, Set<Integer> covered, Attempts attempts) {
    Map<String, Admin.GroupInfo> own = new HashMap<>();
    String after = "";
    while (true) {
      ListGroupsResponse answer;
      try {
        answer =
            cluster.callAt(
                address,
                2 * Times.SECOND,
                GroupServiceGrpc.getListGroupsMethod(),
                ListGroupsRequest.newBuilder().setAfterGroup(after).setLimit(LIST_PAGE).build());
      } catch (OncelogException e) {
        if (e.isRetriable()) {
          attempts.failed(e);
          return 0;
        }
        throw e;
      }
      for (var info : answer.getGroupsList()) {
        after = info.getGroup();
        own.put(after, new Admin.GroupInfo(after, info.getOffsets(), info.getLastCommitMs()));
      }
      if (answer.getGroupsCount() < LIST_PAGE) {
        found.putAll(own);
        covered.addAll(answer.getPartitionsList());
        return answer.getPartitionCount();
      }
    }
  }
}
