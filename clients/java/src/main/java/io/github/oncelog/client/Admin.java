package io.github.oncelog.client;

import io.github.oncelog.client.proto.AbortTransactionRequest;
import io.github.oncelog.client.proto.AlterPermissionsRequest;
import io.github.oncelog.client.proto.AlterQuotasRequest;
import io.github.oncelog.client.proto.AlterTopicRequest;
import io.github.oncelog.client.proto.BalanceAction;
import io.github.oncelog.client.proto.BalanceClusterRequest;
import io.github.oncelog.client.proto.ChangeNodeRequest;
import io.github.oncelog.client.proto.CheckPermissionRequest;
import io.github.oncelog.client.proto.ClusterServiceGrpc;
import io.github.oncelog.client.proto.ClusterSetting;
import io.github.oncelog.client.proto.CreateTopicRequest;
import io.github.oncelog.client.proto.DeleteTopicRequest;
import io.github.oncelog.client.proto.DescribeClusterRequest;
import io.github.oncelog.client.proto.DescribeProducersRequest;
import io.github.oncelog.client.proto.DescribeProducersResponse;
import io.github.oncelog.client.proto.DescribeSinkRequest;
import io.github.oncelog.client.proto.DescribeTopicsRequest;
import io.github.oncelog.client.proto.DescribeTopicsResponse;
import io.github.oncelog.client.proto.DescribeTransactionRequest;
import io.github.oncelog.client.proto.FenceProducerRequest;
import io.github.oncelog.client.proto.FinalizeUpgradeRequest;
import io.github.oncelog.client.proto.LeaseProducerRequest;
import io.github.oncelog.client.proto.ListNodesRequest;
import io.github.oncelog.client.proto.ListPermissionsRequest;
import io.github.oncelog.client.proto.ListProducerNamesRequest;
import io.github.oncelog.client.proto.ListQuotasRequest;
import io.github.oncelog.client.proto.ListSinksRequest;
import io.github.oncelog.client.proto.ListTransactionsRequest;
import io.github.oncelog.client.proto.NodeAction;
import io.github.oncelog.client.proto.ProducerServiceGrpc;
import io.github.oncelog.client.proto.ReassignPartitionRequest;
import io.github.oncelog.client.proto.ResetSinkRequest;
import io.github.oncelog.client.proto.ResizeTopicRequest;
import io.github.oncelog.client.proto.SecurityServiceGrpc;
import io.github.oncelog.client.proto.SetClusterSettingRequest;
import io.github.oncelog.client.proto.SinkServiceGrpc;
import io.github.oncelog.client.proto.TransactionServiceGrpc;
import io.github.oncelog.client.proto.TransferLeadershipRequest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Manages topics, the cluster and its permissions, and looks at its producers, groups, transactions
 * and sinks. It is for use by any number of threads. Calls are tried at other nodes while errors
 * are retriable.
 */
public final class Admin implements AutoCloseable {
  private static final int LIST_PAGE = 1000;
  private static final Duration CREATE_LIMIT = Duration.ofSeconds(30);

  private final Cluster cluster;
  private final Groups groups;

  /** With the default settings, for the nodes of the environment. */
  public Admin() {
    this(new AdminConfig());
  }

  /** With the default settings, for nodes as "host:port,...". */
  public Admin(String servers) {
    this(new AdminConfig(servers));
  }

  /** Throws {@link ErrorKind#INVALID_CONFIG} for settings that are out of range. */
  public Admin(AdminConfig config) {
    AdminConfig own = new AdminConfig(config);
    own.check();
    cluster = new Cluster(own);
    groups = new Groups(cluster);
  }

  /** Frees everything. */
  @Override
  public void close() {
    cluster.close();
  }

  // --- results ----------------------------------------------------------------------

  /** A topic's treatment of a batch's expected offset. */
  public enum ExpectedOffsets {
    /** Checks it where a batch carries one. */
    CHECKED,
    /** Does nothing with it. */
    IGNORED,
    /** Refuses a batch without one. */
    REQUIRED
  }

  /** Formats of the batches that a topic takes. */
  public enum TopicFormats {
    /** Those of this protocol. */
    COLUMNAR,
    /** Those of clients of Kafka's protocol. */
    KAFKA,
    /** All. */
    BOTH
  }

  /** Treatment of a topic's old records. */
  public enum CleanupPolicy {
    /** The limits of retention delete them. */
    DELETE,
    /** Each key's newest record stays, for ever. */
    COMPACT,
    /** Each key's newest record stays, up to the limits of retention. */
    COMPACT_DELETE
  }

  /**
   * A topic's settings. A null field has the cluster's default or, when a topic is altered, stays
   * as it is.
   *
   * @param retentionMs -1: for ever
   * @param retentionBytes -1: no limit
   * @param formats of an existing topic it can only change to both; not columnar: needs the
   *     cluster's feature "kafka"
   * @param cleanupPolicy it and the settings behind it need the cluster's feature "compaction"
   * @param minCompactionLagMs records stay as they are for so long
   * @param maxCompactionLagMs and are compacted at the latest then; -1: no limit
   * @param deleteRetentionMs how long a record without a value stays after it
   * @param minCleanableDirtyRatio share of new bytes that makes one due
   */
  public record TopicConfig(
      Long retentionMs,
      Long retentionBytes,
      Integer maxBatchBytes,
      ExpectedOffsets expectedOffsets,
      TopicFormats formats,
      CleanupPolicy cleanupPolicy,
      Long minCompactionLagMs,
      Long maxCompactionLagMs,
      Long deleteRetentionMs,
      Double minCleanableDirtyRatio) {
    /** Nothing is set. */
    public static final TopicConfig DEFAULT = new TopicConfig(null, null, null, null);

    /** Sets nothing of formats and compaction. */
    public TopicConfig(
        Long retentionMs,
        Long retentionBytes,
        Integer maxBatchBytes,
        ExpectedOffsets expectedOffsets) {
      this(
          retentionMs,
          retentionBytes,
          maxBatchBytes,
          expectedOffsets,
          null,
          null,
          null,
          null,
          null,
          null);
    }
  }

  /**
   * A partition's leader and replicas, as the answering node knows them.
   *
   * @param leaderId 0: none known
   * @param replicas the first is preferred as leader
   * @param logStartOffset -1: the node that answered has no replica
   * @param target the nodes that it is being moved to; empty: it is not moved
   * @param addedMs when the topic got it; 0: with its creation
   */
  public record PartitionInfo(
      int partition,
      int leaderId,
      long term,
      List<Integer> replicas,
      long logStartOffset,
      long highWatermark,
      long groupId,
      List<Integer> target,
      long addedMs) {}

  /** A topic with its partitions. */
  public record TopicInfo(
      String name,
      long topicId,
      List<PartitionInfo> partitions,
      TopicConfig config,
      long createdMs) {}

  /**
   * A partition that comes, moves, or would; the first node is preferred as leader.
   *
   * @param replicas now; empty: it comes
   * @param bytes that the replicas which come hold when they are whole
   * @param copied and hold by now
   * @param waitsFor for people: progress, or the reason for none
   */
  public record PartitionMove(
      String topic,
      int partition,
      List<Integer> replicas,
      List<Integer> target,
      long bytes,
      long copied,
      String waitsFor) {}

  /**
   * A topic that gets more partitions, or another number of replicas.
   *
   * @param topic afterwards
   * @param moves the first of count
   */
  public record Resized(TopicInfo topic, List<PartitionMove> moves, int count) {}

  /**
   * Changes of {@link #resizeTopic}: partitions or replicas, the other one is 0.
   *
   * @param partitions more than the topic has: records of a key go to another partition from then
   *     on, and nothing that is stored moves
   * @param replicas of each partition
   * @param dryRun check it, and describe its effect
   */
  public record Resize(int partitions, int replicas, boolean dryRun) {
    /** So many partitions. */
    public static Resize toPartitions(int partitions) {
      return new Resize(partitions, 0, false);
    }

    /** So many replicas of each partition. */
    public static Resize toReplicas(int replicas) {
      return new Resize(0, replicas, false);
    }
  }

  /**
   * Part of a transaction in one partition.
   *
   * @param partition its topic is empty if it was deleted
   * @param ended the partition knows the outcome
   * @param stagedRecords records staged there now; -1: the partition's leader does not answer
   * @param stagedOffsets in __offsets: of how many partitions
   */
  public record TransactionPart(
      TopicPartition partition,
      boolean ended,
      long stagedRecords,
      long stagedBytes,
      long stagedOffsets) {}

  /**
   * A transaction, and how far it is.
   *
   * @param state OPEN, COMMITTING, ABORTING, COMMITTED or ABORTED
   * @param reason of an abort
   * @param producerName or the sink's
   * @param stagedBytes in all partitions that answer
   */
  public record TransactionInfo(
      long transactionId,
      String state,
      String reason,
      String producerName,
      boolean sink,
      long producerId,
      int epoch,
      long begunMs,
      Duration age,
      Duration idleTimeout,
      Duration totalTimeout,
      long stagedBytes,
      List<TransactionPart> partitions) {}

  /**
   * A node, as the answering node sees it; its release is empty, and 0, while it is not heard.
   *
   * @param insecure it listens without TLS beyond its machine
   */
  public record NodeInfo(
      int nodeId,
      String address,
      boolean alive,
      boolean clockDisagrees,
      String release,
      int oldestClusterVersion,
      int newestClusterVersion,
      List<String> features,
      boolean insecure) {}

  /**
   * How {@link #replaceNode} treats losses.
   *
   * @param dryRun check the replacement and return its effects
   * @param acceptLoss go on although partitions have no majority, or no replica, without the node
   * @param directoryId the lost data directory's, unsigned, if one of two nodes is lost and the
   *     other decides alone; else 0
   */
  public record NodeReplacement(boolean dryRun, boolean acceptLoss, long directoryId) {
    /** It is done, unless data would be lost. */
    public static final NodeReplacement WITHOUT_LOSS = new NodeReplacement(false, false, 0);
  }

  /**
   * State of a node, as the answering node knows it.
   *
   * @param address empty: it has not joined
   * @param expected it may join with a new data directory
   * @param joining it has one, and not the metadata yet
   * @param drained it is to lead nothing
   * @param coming partitions, and the metadata, of which its replica may not count yet
   * @param going partitions of which its replica is to go
   * @param waitsFor for people: why its change is not done yet
   * @param comingBytes bytes that it will hold of the partitions that come to it
   * @param copiedBytes and holds by now
   */
  public record NodeStatus(
      int nodeId,
      String address,
      boolean alive,
      boolean expected,
      boolean joining,
      boolean leaving,
      boolean drained,
      int replicas,
      int leaderships,
      int coming,
      int going,
      List<String> waitsFor,
      long comingBytes,
      long copiedBytes) {
    /** Nothing is under way with it. */
    public boolean settled() {
      boolean busy = expected || joining || leaving || coming > 0 || going > 0;
      return !busy && !(drained && leaderships > 0);
    }
  }

  /**
   * Progress of the partitions that move for any reason; of a plan: the moves that it would make.
   *
   * @param balancing more may begin
   * @param moves the first of count
   * @param bytes of all of them
   * @param waitsFor for people: omissions and their reasons
   */
  public record Balance(
      boolean balancing,
      List<PartitionMove> moves,
      int count,
      long bytes,
      long copied,
      List<String> waitsFor) {
    /** Nothing is under way. */
    public boolean settled() {
      return !balancing && count == 0;
    }
  }

  /** The cluster's version, and the version it could be upgraded to. */
  public record UpgradeInfo(
      int clusterVersion,
      List<String> features,
      int targetVersion,
      List<String> targetFeatures,
      List<String> hinderedBy) {}

  /**
   * The cluster, as the answering node sees it.
   *
   * @param controllerId leader of the metadata group; 0: not known
   * @param settings of all nodes
   * @param damagedReplicas for people: of the answering node, and the state of each
   * @param founding of the answering node, as {@link ErrorKind#OTHER_CLUSTER} names it; empty: not
   *     told
   */
  public record ClusterInfo(
      String clusterId,
      int answeringNodeId,
      int controllerId,
      List<NodeInfo> nodes,
      int topics,
      int partitions,
      int leaderlessPartitions,
      int underReplicatedPartitions,
      long maxMessageBytes,
      UpgradeInfo upgrade,
      Map<String, Long> settings,
      List<String> damagedReplicas,
      String founding) {}

  /**
   * Allows, or denies, a principal operations on a topic, group, producer, sink, or the cluster.
   *
   * @param principal "*": every known principal
   * @param operations read, write, create, ...; "*": each
   * @param kind topic, group, producer, sink or cluster
   * @param name "*": all of the kind; empty for the cluster
   * @param prefix name is how names begin
   * @param deny stands above all rules that allow
   */
  public record PermissionRule(
      String principal,
      List<String> operations,
      String kind,
      String name,
      boolean prefix,
      boolean deny) {}

  /** How many rules were new, and how many were there and are removed. */
  public record AlteredPermissions(int added, int removed) {}

  /**
   * The rules, and how the node that answered goes by them.
   *
   * @param caller the principal that the node sees; empty: it knows nobody
   */
  public record Permissions(List<PermissionRule> rules, boolean enforced, String caller) {}

  /**
   * How much of something a principal may use at each node.
   *
   * @param principal "*": each one that has no value of its own
   * @param name in_bytes_per_s, requests_per_s, streams, ...
   * @param value 0: no limit
   */
  public record Quota(String principal, String name, long value) {}

  /**
   * Which quota.
   *
   * @param name empty: all of the principal's
   */
  public record QuotaKey(String principal, String name) {}

  /** The right to use a producer id until expireMs, Unix time. */
  public record ProducerLease(
      long producerId, int epoch, long expireMs, Duration lifetime, byte[] leaseToken) {}

  /** A producer id and epoch. */
  public record ProducerEpoch(long producerId, int epoch) {}

  /** A producer name and the id and epoch it stands for. */
  public record ProducerName(String name, long producerId, int epoch, long lastLeaseMs) {}

  /** One of the last batches of a producer in a partition. */
  public record RecentBatch(
      long firstSequence, long lastSequence, long baseOffset, int recordCount, int crc32c) {}

  /** A producer as a partition remembers it; the oldest batch first. */
  public record ProducerState(
      long producerId, int epoch, long lastSequence, long lastAppendMs, List<RecentBatch> recent) {}

  /** A group, and for how many partitions it has committed offsets. */
  public record GroupInfo(String group, int offsets, long lastCommitMs) {}

  /**
   * A member of a group.
   *
   * @param instanceId empty: it goes by none
   * @param owned its partitions, each with the number of the ownership
   * @param revoking those that are asked back
   * @param idleMs since it last came back for records
   */
  public record GroupMember(
      String memberId,
      String instanceId,
      String clientHost,
      Map<TopicPartition, Long> owned,
      List<TopicPartition> revoking,
      long idleMs,
      boolean connected) {}

  /**
   * A group's committed offsets, and its members.
   *
   * @param epoch of the newest assignment
   * @param assignor empty: the group has no members
   */
  public record GroupDescription(
      String group,
      boolean exists,
      long lastCommitMs,
      int coordinatorId,
      Map<TopicPartition, CommittedOffset> offsets,
      List<GroupMember> members,
      long epoch,
      String assignor) {}

  /**
   * How far a group is in a partition. Unknown fields are null.
   *
   * @param committed null for a partition that a member owns and has not committed
   * @param lag the number of readable records behind the committed offset
   * @param error why no leader answered
   */
  public record PartitionLag(
      CommittedOffset committed,
      Long logStartOffset,
      Long highWatermark,
      Long lag,
      OncelogException error) {}

  /** A group's lag in each partition that it has committed or that a member owns. */
  public record GroupLag(GroupDescription group, Map<TopicPartition, PartitionLag> partitions) {
    /** The sum of the known lags. */
    public long lag() {
      return partitions.values().stream()
          .filter(one -> one.lag() != null)
          .mapToLong(PartitionLag::lag)
          .sum();
    }
  }

  /** Batches from the first to the last one. */
  public record BatchRange(long first, long last) {}

  /** Batch that a sink had committed before it was reset. */
  public record SinkBefore(String query, long batch, long recordCount) {}

  /**
   * An output of a streaming query, or of batch jobs, and its committed batches.
   *
   * @param query that it belongs to; empty: of jobs, or none yet
   * @param run of the newest batch
   * @param committedBatch the newest one; -1: none
   * @param recordCount of that
   * @param openTransactionId 0: none
   * @param openBatch -1: none
   * @param committed batches of jobs
   * @param before null: it was not reset
   */
  public record SinkInfo(
      String sink,
      boolean jobs,
      String query,
      String run,
      long committedBatch,
      long recordCount,
      long openTransactionId,
      long openBatch,
      List<BatchRange> committed,
      SinkBefore before) {}

  // --- topics ------------------------------------------------------------------------

  /**
   * Creates a topic and waits, up to half a minute, until each partition has a leader. 0 partitions
   * or replicas: the cluster's default.
   */
  public TopicInfo createTopic(String name, int partitions, int replicas, TopicConfig config) {
    return createTopic(name, partitions, replicas, config, CREATE_LIMIT);
  }

  /** Waits no longer than this. */
  public TopicInfo createTopic(
      String name, int partitions, int replicas, TopicConfig config, Duration limit) {
    CreateTopicRequest request =
        CreateTopicRequest.newBuilder()
            .setName(name)
            .setPartitions(partitions)
            .setReplicas(replicas)
            .setConfig(AdminMessages.config(config))
            .setTimeoutMs((int) Math.min(Math.max(limit.toMillis(), 1), Integer.MAX_VALUE))
            .build();
    AtomicBoolean inDoubt = new AtomicBoolean();
    try {
      return AdminMessages.info(
          cluster
              .call(heldFor(limit, inDoubt), ClusterServiceGrpc.getCreateTopicMethod(), request)
              .getTopic());
    } catch (OncelogException e) {
      if (e.kind() != ErrorKind.TOPIC_ALREADY_EXISTS || !inDoubt.get()) {
        throw e;
      }
      // After a call without an answer it may be the topic of this call.
      TopicInfo found = present(name, e);
      int most = found.partitions.stream().mapToInt(one -> one.replicas.size()).max().orElse(0);
      if (partitions != 0 && partitions != found.partitions.size()
          || replicas != 0 && replicas != most
          || !AdminMessages.fits(config, found.config)) {
        throw e;
      }
      return found;
    }
  }

  /** A topic that an earlier attempt may have changed. Throws `refusal` if nothing is known. */
  private TopicInfo present(String name, OncelogException refusal) {
    try {
      return describeTopics(name).get(0);
    } catch (OncelogException e) {
      throw refusal;
    }
  }

  /** Of a call that the node may hold for so long; inDoubt: an earlier attempt may be done. */
  private static Cluster.Limits heldFor(Duration limit, AtomicBoolean inDoubt) {
    return limits(limit.toNanos() + Times.SECOND, inDoubt);
  }

  private static Cluster.Limits limits(long total, AtomicBoolean inDoubt) {
    return new Cluster.Limits(
        total, total, e -> inDoubt.compareAndSet(false, Attempts.mayHaveBeenDone(e)));
  }

  /** Deletes a topic with its records. */
  public void deleteTopic(String name) {
    AtomicBoolean inDoubt = new AtomicBoolean();
    long total = cluster.requestTimeout;
    DeleteTopicRequest request = DeleteTopicRequest.newBuilder().setName(name).build();
    try {
      cluster.call(limits(total, inDoubt), ClusterServiceGrpc.getDeleteTopicMethod(), request);
    } catch (OncelogException e) {
      // A lost answer to an earlier attempt may mean that we deleted it.
      if (e.kind() != ErrorKind.UNKNOWN_TOPIC_OR_PARTITION || !inDoubt.get()) {
        throw e;
      }
    }
  }

  /** Changes the settings that are given. Leaders hear of it a moment later. */
  public TopicInfo alterTopic(String name, TopicConfig config) {
    AlterTopicRequest request =
        AlterTopicRequest.newBuilder()
            .setName(name)
            .setConfig(AdminMessages.config(config))
            .setSetExpectedOffsets(config.expectedOffsets != null)
            .build();
    return AdminMessages.info(
        cluster.call(ClusterServiceGrpc.getAlterTopicMethod(), request).getTopic());
  }

  /** These topics, in this order, or all, by name. */
  public List<TopicInfo> describeTopics(String... names) {
    DescribeTopicsResponse answer;
    try {
      answer =
          cluster.call(
              ClusterServiceGrpc.getDescribeTopicsMethod(),
              DescribeTopicsRequest.newBuilder().addAllNames(List.of(names)).build());
    } catch (OncelogException e) {
      if (e.kind() == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION) {
        // The node may be behind: another call asks another node.
        cluster.preferAnother();
      }
      throw e;
    }
    cluster.leaders.update(answer);
    Map<String, TopicInfo> found = new TreeMap<>();
    answer.getTopicsList().forEach(topic -> found.put(topic.getName(), AdminMessages.info(topic)));
    if (names.length == 0) {
      return new ArrayList<>(found.values());
    }
    List<TopicInfo> topics = new ArrayList<>();
    for (String name : names) {
      if (!found.containsKey(name)) {
        throw new OncelogException(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, "topic \"%s\" does not exist", name)
            .with(new Detail().at(new TopicPartition(name, -1)));
      }
      topics.add(found.get(name));
    }
    return topics;
  }

  /**
   * Gives a topic more partitions, and waits up to half a minute until each has a leader; or all
   * its partitions another number of replicas, which are there later.
   */
  public Resized resizeTopic(String name, Resize resize) {
    ResizeTopicRequest request =
        ResizeTopicRequest.newBuilder()
            .setName(name)
            .setPartitions(resize.partitions)
            .setReplicas(resize.replicas)
            .setDryRun(resize.dryRun)
            .setTimeoutMs((int) CREATE_LIMIT.toMillis())
            .build();
    AtomicBoolean inDoubt = new AtomicBoolean();
    try {
      var answer =
          cluster.call(
              heldFor(CREATE_LIMIT, inDoubt), ClusterServiceGrpc.getResizeTopicMethod(), request);
      return new Resized(
          AdminMessages.info(answer.getTopic()),
          AdminMessages.moves(answer.getMovesList()),
          answer.getCount());
    } catch (OncelogException e) {
      boolean refused =
          e.kind() == ErrorKind.INVALID_REQUEST && "partitions".equals(e.details().field());
      if (!refused || !inDoubt.get() || resize.dryRun) {
        throw e;
      }
      // After a call without an answer they may be those of this call.
      TopicInfo found = present(name, e);
      if (found.partitions.size() != resize.partitions) {
        throw e;
      }
      return new Resized(found, List.of(), 0);
    }
  }

  /**
   * Has the partition's replicas on these nodes, the first preferred as leader. It returns when the
   * wish is stored; {@link #describeTopics} tells how far it is.
   */
  public TopicInfo reassignPartition(TopicPartition tp, List<Integer> replicas) {
    ReassignPartitionRequest request =
        ReassignPartitionRequest.newBuilder()
            .setTopic(tp.topic())
            .setPartition(tp.partition())
            .addAllReplicas(replicas)
            .build();
    return AdminMessages.info(
        cluster.call(ClusterServiceGrpc.getReassignPartitionMethod(), request).getTopic());
  }

  // --- cluster -----------------------------------------------------------------------

  /** The cluster, as the answering node sees it. */
  public ClusterInfo describeCluster() {
    return AdminMessages.info(
        cluster.call(
            ClusterServiceGrpc.getDescribeClusterMethod(),
            DescribeClusterRequest.newBuilder().setAskLeaders(true).build()));
  }

  /** All nodes, and the progress of their changes. */
  public List<NodeStatus> listNodes() {
    return cluster
        .call(ClusterServiceGrpc.getListNodesMethod(), ListNodesRequest.getDefaultInstance())
        .getNodesList()
        .stream()
        .map(AdminMessages::status)
        .toList();
  }

  /**
   * Lets a new node join, with an empty data directory. This and the next five return texts about
   * the effect when the change is decided, or is found possible ({@code dryRun}); {@link
   * #listNodes} shows the progress. After a call without an answer there may be no effect left.
   * Throws {@link ErrorKind#INVALID_REQUEST} or {@link ErrorKind#NOT_SUPPORTED}.
   */
  public List<String> addNode(int nodeId, boolean dryRun) {
    return changeNode(nodeId, NodeAction.NODE_ACTION_ADD, new NodeReplacement(dryRun, false, 0));
  }

  /** Moves a node's replicas to other nodes, then removes it. */
  public List<String> removeNode(int nodeId, boolean dryRun) {
    return changeNode(nodeId, NodeAction.NODE_ACTION_REMOVE, new NodeReplacement(dryRun, false, 0));
  }

  /** Keeps a node that is being removed; replicas that have moved do not come back. */
  public List<String> cancelNodeRemoval(int nodeId, boolean dryRun) {
    return changeNode(nodeId, NodeAction.NODE_ACTION_KEEP, new NodeReplacement(dryRun, false, 0));
  }

  /** Moves a node's leaderships away before a restart, until {@link #undrainNode}. */
  public List<String> drainNode(int nodeId, boolean dryRun) {
    return changeNode(nodeId, NodeAction.NODE_ACTION_DRAIN, new NodeReplacement(dryRun, false, 0));
  }

  /** Lets a drained node lead again. */
  public List<String> undrainNode(int nodeId, boolean dryRun) {
    return changeNode(
        nodeId, NodeAction.NODE_ACTION_UNDRAIN, new NodeReplacement(dryRun, false, 0));
  }

  /** Gives up a node's lost data directory, so that it can join with an empty one. */
  public List<String> replaceNode(int nodeId, NodeReplacement how) {
    return changeNode(nodeId, NodeAction.NODE_ACTION_REPLACE, how);
  }

  private List<String> changeNode(int nodeId, NodeAction action, NodeReplacement how) {
    ChangeNodeRequest request =
        ChangeNodeRequest.newBuilder()
            .setNodeId(nodeId)
            .setAction(action)
            .setDryRun(how.dryRun)
            .setAcceptLoss(how.acceptLoss)
            .setDirectoryId(how.directoryId)
            .build();
    return List.copyOf(
        cluster.call(ClusterServiceGrpc.getChangeNodeMethod(), request).getEffectsList());
  }

  /**
   * Spreads replicas and leaderships over the nodes, by count and then by bytes. Returns at once
   * with the progress of all moves. Throws {@link ErrorKind#NOT_SUPPORTED}.
   */
  public Balance startBalance() {
    return balance(BalanceAction.BALANCE_ACTION_START);
  }

  /** Starts no further move, and undoes the moves in progress. */
  public Balance cancelBalance() {
    return balance(BalanceAction.BALANCE_ACTION_CANCEL);
  }

  /** Returns the moves that {@link #startBalance} would make. */
  public Balance planBalance() {
    return balance(BalanceAction.BALANCE_ACTION_PLAN);
  }

  /** Returns the progress of all moves, of any origin. */
  public Balance describeBalance() {
    return balance(BalanceAction.BALANCE_ACTION_DESCRIBE);
  }

  private Balance balance(BalanceAction action) {
    BalanceClusterRequest request = BalanceClusterRequest.newBuilder().setAction(action).build();
    return AdminMessages.balance(
        cluster.call(ClusterServiceGrpc.getBalanceClusterMethod(), request));
  }

  /**
   * Turns on the features of the newest release; no node can go back to an older one afterwards. It
   * returns the features that are on, or throws {@link ErrorKind#NOT_SUPPORTED}, which names the
   * nodes in the way.
   */
  public UpgradeInfo finalizeUpgrade() {
    return AdminMessages.info(
        cluster
            .call(
                ClusterServiceGrpc.getFinalizeUpgradeMethod(),
                FinalizeUpgradeRequest.getDefaultInstance())
            .getUpgrade());
  }

  /** Sets a setting of all nodes, and returns all such settings. */
  public Map<String, Long> setClusterSetting(String name, long value) {
    ClusterSetting setting = ClusterSetting.newBuilder().setName(name).setValue(value).build();
    return AdminMessages.settings(
        cluster
            .call(
                ClusterServiceGrpc.getSetClusterSettingMethod(),
                SetClusterSettingRequest.newBuilder().setSetting(setting).build())
            .getSettingsList());
  }

  /** Has another replica lead (0: the most caught-up one) and returns its id. */
  public int transferLeadership(TopicPartition tp, int targetNodeId) {
    return cluster
        .callLeader(
            tp,
            ClusterServiceGrpc.getTransferLeadershipMethod(),
            TransferLeadershipRequest.newBuilder()
                .setTopic(tp.topic())
                .setPartition(tp.partition())
                .setTargetNodeId(targetNodeId)
                .build())
        .getLeaderId();
  }

  // --- permissions and quotas --------------------------------------------------------

  /**
   * Removes rules, then adds others, all or none; nodes follow a moment later. After a call without
   * an answer none may be new. Throws {@link ErrorKind#NOT_AUTHORIZED} or {@link
   * ErrorKind#INVALID_REQUEST}.
   */
  public AlteredPermissions alterPermissions(
      List<PermissionRule> add, List<PermissionRule> remove) {
    AlterPermissionsRequest request =
        AlterPermissionsRequest.newBuilder()
            .addAllAdd(add.stream().map(AdminMessages::message).toList())
            .addAllRemove(remove.stream().map(AdminMessages::message).toList())
            .build();
    var answer = cluster.call(SecurityServiceGrpc.getAlterPermissionsMethod(), request);
    return new AlteredPermissions(answer.getAdded(), answer.getRemoved());
  }

  /** All rules (principal empty), or those of one principal, and whether they are enforced. */
  public Permissions listPermissions(String principal) {
    ListPermissionsRequest request =
        ListPermissionsRequest.newBuilder().setPrincipal(principal).build();
    return AdminMessages.permissions(
        cluster.call(SecurityServiceGrpc.getListPermissionsMethod(), request));
  }

  /** Whether a principal (empty: this client's) may do something. */
  public boolean checkPermission(String operation, String kind, String name, String principal) {
    CheckPermissionRequest request =
        CheckPermissionRequest.newBuilder()
            .setPrincipal(principal)
            .setOperation(operation)
            .setKind(kind)
            .setName(name)
            .build();
    return cluster.call(SecurityServiceGrpc.getCheckPermissionMethod(), request).getAllowed();
  }

  /**
   * Removes quotas, then sets others, all or none; nodes follow a moment later. Throws {@link
   * ErrorKind#NOT_AUTHORIZED} or {@link ErrorKind#INVALID_REQUEST}.
   */
  public void alterQuotas(List<Quota> quotas, List<QuotaKey> remove) {
    AlterQuotasRequest request =
        AlterQuotasRequest.newBuilder()
            .addAllSet(quotas.stream().map(AdminMessages::message).toList())
            .addAllRemove(remove.stream().map(AdminMessages::message).toList())
            .build();
    cluster.call(SecurityServiceGrpc.getAlterQuotasMethod(), request);
  }

  /** All quotas (principal empty), or those of one principal. */
  public List<Quota> listQuotas(String principal) {
    ListQuotasRequest request = ListQuotasRequest.newBuilder().setPrincipal(principal).build();
    return cluster.call(SecurityServiceGrpc.getListQuotasMethod(), request).getQuotasList().stream()
        .map(AdminMessages::quota)
        .toList();
  }

  // --- producers ---------------------------------------------------------------------

  /** Leases a producer id; with a name, or null, its id with the epoch raised by one. */
  public ProducerLease leaseProducer(String producerName) {
    LeaseProducerRequest.Builder request = LeaseProducerRequest.newBuilder();
    if (producerName != null) {
      request.setProducerName(producerName).setNonce(Identities.nonce());
    }
    var answer = cluster.call(ProducerServiceGrpc.getLeaseProducerMethod(), request.build());
    return new ProducerLease(
        answer.getProducerId(),
        answer.getEpoch(),
        answer.getExpireMs(),
        Duration.ofMillis(answer.getLifetimeMs()),
        answer.getLeaseToken().toByteArray());
  }

  /** Raises a name's epoch for nobody: shuts its holder out. */
  public ProducerEpoch fenceProducer(String producerName) {
    var answer =
        cluster.call(
            ProducerServiceGrpc.getFenceProducerMethod(),
            FenceProducerRequest.newBuilder()
                .setProducerName(producerName)
                .setNonce(Identities.nonce())
                .build());
    return new ProducerEpoch(answer.getProducerId(), answer.getEpoch());
  }

  /** All names, as the node that answers knows them. */
  public List<ProducerName> listProducerNames() {
    var answer =
        cluster.call(
            ProducerServiceGrpc.getListProducerNamesMethod(),
            ListProducerNamesRequest.getDefaultInstance());
    List<ProducerName> names = new ArrayList<>();
    for (var one : answer.getNamesList()) {
      names.add(
          new ProducerName(
              one.getName(), one.getProducerId(), one.getEpoch(), one.getLastLeaseMs()));
    }
    return names;
  }

  /** The producers that a partition remembers, or one of them (0: all), at most limit. */
  public List<ProducerState> describeProducers(TopicPartition tp, long producerId, int limit) {
    List<ProducerState> states = new ArrayList<>();
    long after = 0;
    while (states.size() < limit) {
      int page = Math.min(limit - states.size(), LIST_PAGE);
      DescribeProducersResponse answer =
          cluster.callLeader(
              tp,
              ProducerServiceGrpc.getDescribeProducersMethod(),
              DescribeProducersRequest.newBuilder()
                  .setTopic(tp.topic())
                  .setPartition(tp.partition())
                  .setProducerId(producerId)
                  .setAfterProducerId(after)
                  .setLimit(page)
                  .build());
      for (var one : answer.getProducersList()) {
        after = one.getProducerId();
        states.add(AdminMessages.state(one));
      }
      if (producerId != 0 || answer.getProducersCount() < page) {
        break;
      }
    }
    return states;
  }

  /** Outcome of a record without an acknowledgement. */
  public ResolvedSequence resolveSequence(
      TopicPartition tp, long producerId, int epoch, long sequence) {
    return Producer.resolve(cluster, tp, producerId, epoch, sequence);
  }

  // --- groups ------------------------------------------------------------------------

  /** All groups that have committed offsets, by name. */
  public List<GroupInfo> listGroups() {
    return groups.all();
  }

  /** A group's committed offsets, and its members. */
  public GroupDescription describeGroup(String group) {
    return groups.describe(group);
  }

  /** Has a group go on at these offsets; throws as {@link Consumer#commit(Map)} does. */
  public void commitOffsets(String group, Map<TopicPartition, OffsetCommit> offsets) {
    groups.commit(group, offsets, null);
  }

  /**
   * A group's lag in records, with its members and committed offsets. No partition is missing: one
   * without an answer within 2 s has an error instead of a lag.
   */
  public GroupLag groupLag(String group) {
    return new Lags(cluster).of(groups.describe(group));
  }

  /**
   * Forgets a group and its offsets, and tells whether there was one: true also if an attempt
   * without an answer may have deleted it.
   */
  public boolean deleteGroup(String group) {
    return groups.delete(group);
  }

  // --- transactions ------------------------------------------------------------------

  /**
   * Transactions that have not ended everywhere, the oldest first: of a name (empty: of all), begun
   * longer ago than this, at most limit (0: 100).
   */
  public List<TransactionInfo> listTransactions(
      String producerName, Duration olderThan, int limit) {
    ListTransactionsRequest request =
        ListTransactionsRequest.newBuilder()
            .setProducerName(producerName)
            .setOlderThanMs(olderThan.toMillis())
            .setLimit(limit)
            .build();
    return cluster
        .call(TransactionServiceGrpc.getListTransactionsMethod(), request)
        .getTransactionsList()
        .stream()
        .map(AdminMessages::info)
        .toList();
  }

  /**
   * An open transaction, or an ended one if its owner has begun no other since. Throws {@link
   * ErrorKind#UNKNOWN_TRANSACTION} for any other.
   */
  public TransactionInfo describeTransaction(long transactionId) {
    DescribeTransactionRequest request =
        DescribeTransactionRequest.newBuilder().setTransactionId(transactionId).build();
    return AdminMessages.info(
        cluster
            .call(TransactionServiceGrpc.getDescribeTransactionMethod(), request)
            .getTransaction());
  }

  /**
   * Drops the staged records of any owner. Throws {@link ErrorKind#TRANSACTION_COMMITTED} if it is
   * too late.
   */
  public void abortTransaction(long transactionId) {
    AbortTransactionRequest request =
        AbortTransactionRequest.newBuilder().setTransactionId(transactionId).build();
    cluster.call(TransactionServiceGrpc.getAbortTransactionMethod(), request);
  }

  // --- sinks -------------------------------------------------------------------------

  /** Outputs of queries and jobs, by name, and the committed batch of each. */
  public List<SinkInfo> listSinks() {
    List<SinkInfo> sinks = new ArrayList<>();
    while (true) {
      ListSinksRequest.Builder request = ListSinksRequest.newBuilder().setLimit(LIST_PAGE);
      if (!sinks.isEmpty()) {
        request.setAfter(sinks.get(sinks.size() - 1).sink);
      }
      var page = cluster.call(SinkServiceGrpc.getListSinksMethod(), request.build()).getSinksList();
      page.forEach(one -> sinks.add(AdminMessages.info(one)));
      if (page.size() < LIST_PAGE) {
        return sinks;
      }
    }
  }

  /** Throws {@link ErrorKind#UNKNOWN_TRANSACTION} if there is none. */
  public SinkInfo describeSink(String sink) {
    DescribeSinkRequest request = DescribeSinkRequest.newBuilder().setSink(sink).build();
    return AdminMessages.info(
        cluster.call(SinkServiceGrpc.getDescribeSinkMethod(), request).getSink());
  }

  /** Takes the next batch of any query; runs of before write nothing more. */
  public void resetSink(String sink) {
    ResetSinkRequest request = ResetSinkRequest.newBuilder().setSink(sink).build();
    cluster.call(SinkServiceGrpc.getResetSinkMethod(), request);
  }
}
