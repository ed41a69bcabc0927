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
  private static final int LIST_PAGE = 1000;

  private final Cluster cluster;
  private final Map<String, String> coordinators = new ConcurrentHashMap<>();

  Groups(Cluster cluster) {
    this.cluster = cluster;
  }

  /** Asks the group's coordinator, wherever it is now. */
  private <Q, A> A call(String group, MethodDescriptor<Q, A> method, Q request) {
    long deadline = Times.now() + cluster.requestTimeout;
    int turn = 0;
    for (int failures = 1; ; failures++) {
      List<String> known = cluster.addresses();
      String address = coordinators.getOrDefault(group, known.get(turn % known.size()));
      OncelogException problem;
      try {
        long limit = Math.min(deadline - Times.now(), 2 * Times.SECOND);
        A answer = cluster.callAt(address, limit, method, request);
        coordinators.put(group, address);
        return answer;
      } catch (OncelogException e) {
        problem = e;
      }
      if (!problem.isRetriable()) {
        throw problem;
      }
      String hint = problem.details().leaderAddress();
      boolean hinted = !hint.isEmpty() && !hint.equals(address);
      long pause = cluster.backoff.delay(failures);
      if (hinted) {
        coordinators.put(group, hint);
        // A hint needs no pause the first time; then somebody must be wrong.
        pause = failures == 1 ? 0 : pause;
      } else {
        coordinators.remove(group);
        turn++;
      }
      if (Times.now() + pause >= deadline) {
        throw problem;
      }
      Times.sleep(pause);
    }
  }

  void commit(String group, Map<TopicPartition, OffsetCommit> offsets) {
    CommitOffsetsRequest.Builder request = CommitOffsetsRequest.newBuilder().setGroup(group);
    new TreeMap<>(offsets)
        .forEach(
            (tp, commit) ->
                request.addOffsets(
                    io.github.oncelog.client.proto.OffsetCommit.newBuilder()
                        .setTopic(tp.topic())
                        .setPartition(tp.partition())
                        .setOffset(commit.offset())
                        .setMetadata(commit.metadata())
                        .setProducerId(commit.producerId())
                        .setEpoch(commit.epoch())
                        .setSequence(commit.sequence())));
    var answer = call(group, GroupServiceGrpc.getCommitOffsetsMethod(), request.build());
    for (OffsetCommitResult result : answer.getResultsList()) {
      if (!result.getError().isEmpty()) {
        throw refused(result);
      }
    }
  }

  private static OncelogException refused(OffsetCommitResult result) {
    ErrorKind kind = ErrorKind.of(result.getError());
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

  /** What is committed of these partitions, or of all. */
  Map<TopicPartition, CommittedOffset> committed(String group, Collection<TopicPartition> tps) {
    FetchOffsetsRequest.Builder request = FetchOffsetsRequest.newBuilder().setGroup(group);
    for (TopicPartition tp : tps) {
      request.addPartitions(Identities.message(tp));
    }
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
        offsets(answer.getOffsetsList()));
  }

  boolean delete(String group) {
    DeleteGroupRequest request = DeleteGroupRequest.newBuilder().setGroup(group).build();
    return call(group, GroupServiceGrpc.getDeleteGroupMethod(), request).getExisted();
  }

  /** All groups, by name: each node tells those that it leads. */
  List<Admin.GroupInfo> all() {
    long deadline = Times.now() + cluster.requestTimeout;
    for (int failures = 1; ; failures++) {
      Map<String, Admin.GroupInfo> found = new TreeMap<>();
      Set<Integer> covered = new HashSet<>();
      int count = 0;
      DescribeClusterResponse info =
          cluster.call(
              cluster.limits(),
              ClusterServiceGrpc.getDescribeClusterMethod(),
              DescribeClusterRequest.getDefaultInstance());
      for (NodeInfo node : info.getNodesList()) {
        if (node.getAlive() && !node.getAddress().isEmpty()) {
          count = Math.max(count, listNode(node.getAddress(), found, covered));
        }
      }
      if (covered.size() >= count) {
        return new ArrayList<>(found.values());
      }
      long pause = cluster.backoff.delay(failures);
      if (Times.now() + pause >= deadline) {
        throw new OncelogException(
            ErrorKind.NOT_READY,
            "%d partitions of __offsets have no leader",
            count - covered.size());
      }
      Times.sleep(pause);
    }
  }

  /** The number of all partitions; 0: the node does not say. */
  private int listNode(String address, Map<String, Admin.GroupInfo> found, Set<Integer> covered) {
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
