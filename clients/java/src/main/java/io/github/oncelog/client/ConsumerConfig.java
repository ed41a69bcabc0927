package io.github.oncelog.client;

import java.time.Duration;

/** The settings of a {@link Consumer}. */
public final class ConsumerConfig extends ClientConfig<ConsumerConfig> {
  private String groupId;
  private Membership membership = Membership.ASSIGNED;
  private String groupInstanceId;
  private Assignor assignor = Assignor.UNIFORM;
  private Duration sessionTimeout = Duration.ofSeconds(10);
  private Duration revokeTimeout = Duration.ofMinutes(1);
  private Duration processingTimeout = Duration.ofMinutes(5);
  private boolean enableAutoCommit = false;
  private Duration autoCommitInterval = Duration.ofSeconds(5);
  private RebalanceListener rebalanceListener;
  private OffsetReset autoOffsetReset = OffsetReset.LATEST;
  private int fetchMinBytes = 1;
  private Duration fetchMaxWait = Duration.ofMillis(500);
  private int fetchMaxBytes = 16 << 20;
  private int maxPartitionFetchBytes = 4 << 20;
  private int maxPollRecords = 10_000;
  private boolean checkCrcs = true;
  private boolean anyReplica = false;
  private int replicaNodeId = 0;
  private String rack;

  /** Names the group that keeps the committed offsets; null: none. */
  public String groupId() {
    return groupId;
  }

  /** Sets {@link #groupId()}. */
  public ConsumerConfig groupId(String groupId) {
    this.groupId = groupId;
    return this;
  }

  /**
   * With a group: whether the nodes share the topics of {@link Consumer#subscribe} out among its
   * members.
   */
  public Membership membership() {
    return membership;
  }

  /** Sets {@link #membership()}. */
  public ConsumerConfig membership(Membership membership) {
    this.membership = membership;
    return this;
  }

  /**
   * A name that outlives the process, or null: a member that comes back within a session goes on as
   * it was.
   */
  public String groupInstanceId() {
    return groupInstanceId;
  }

  /** Sets {@link #groupInstanceId()}. */
  public ConsumerConfig groupInstanceId(String groupInstanceId) {
    this.groupInstanceId = groupInstanceId;
    return this;
  }

  /**
   * How partitions are shared out. The group's first member decides on this and on the three times
   * below.
   */
  public Assignor assignor() {
    return assignor;
  }

  /** Sets {@link #assignor()}. */
  public ConsumerConfig assignor(Assignor assignor) {
    this.assignor = assignor;
    return this;
  }

  /** After so long without a word a member is none any more. */
  public Duration sessionTimeout() {
    return sessionTimeout;
  }

  /** Sets {@link #sessionTimeout()}. */
  public ConsumerConfig sessionTimeout(Duration sessionTimeout) {
    this.sessionTimeout = sessionTimeout;
    return this;
  }

  /** How long a member may take to give a partition back. */
  public Duration revokeTimeout() {
    return revokeTimeout;
  }

  /** Sets {@link #revokeTimeout()}. */
  public ConsumerConfig revokeTimeout(Duration revokeTimeout) {
    this.revokeTimeout = revokeTimeout;
    return this;
  }

  /** How long a member may take to come back for more records. */
  public Duration processingTimeout() {
    return processingTimeout;
  }

  /** Sets {@link #processingTimeout()}. */
  public ConsumerConfig processingTimeout(Duration processingTimeout) {
    this.processingTimeout = processingTimeout;
    return this;
  }

  /**
   * Commits the records given out before the last call for records, each {@link
   * #autoCommitInterval()} and before partitions are given back, and those given out last when the
   * consumer closes, unless by {@link Consumer#abandon()}.
   */
  public boolean enableAutoCommit() {
    return enableAutoCommit;
  }

  /** Sets {@link #enableAutoCommit()}. */
  public ConsumerConfig enableAutoCommit(boolean enableAutoCommit) {
    this.enableAutoCommit = enableAutoCommit;
    return this;
  }

  /** How often it commits. */
  public Duration autoCommitInterval() {
    return autoCommitInterval;
  }

  /** Sets {@link #autoCommitInterval()}. */
  public ConsumerConfig autoCommitInterval(Duration autoCommitInterval) {
    this.autoCommitInterval = autoCommitInterval;
    return this;
  }

  /** Hears which partitions come and go; null: nobody. */
  public RebalanceListener rebalanceListener() {
    return rebalanceListener;
  }

  /** Sets {@link #rebalanceListener()}. */
  public ConsumerConfig rebalanceListener(RebalanceListener rebalanceListener) {
    this.rebalanceListener = rebalanceListener;
    return this;
  }

  /** Says where to start without a position. */
  public OffsetReset autoOffsetReset() {
    return autoOffsetReset;
  }

  /** Sets {@link #autoOffsetReset()}. */
  public ConsumerConfig autoOffsetReset(OffsetReset autoOffsetReset) {
    this.autoOffsetReset = autoOffsetReset;
    return this;
  }

  /** Size that a node waits for, at most {@link #fetchMaxWait()}. */
  public int fetchMinBytes() {
    return fetchMinBytes;
  }

  /** Sets {@link #fetchMinBytes()}. */
  public ConsumerConfig fetchMinBytes(int fetchMinBytes) {
    this.fetchMinBytes = fetchMinBytes;
    return this;
  }

  /** How long a node waits for {@link #fetchMinBytes()}. */
  public Duration fetchMaxWait() {
    return fetchMaxWait;
  }

  /** Sets {@link #fetchMaxWait()}. */
  public ConsumerConfig fetchMaxWait(Duration fetchMaxWait) {
    this.fetchMaxWait = fetchMaxWait;
    return this;
  }

  /** Bounds one answer. */
  public int fetchMaxBytes() {
    return fetchMaxBytes;
  }

  /** Sets {@link #fetchMaxBytes()}. */
  public ConsumerConfig fetchMaxBytes(int fetchMaxBytes) {
    this.fetchMaxBytes = fetchMaxBytes;
    return this;
  }

  /** Bounds a partition's part of one answer. */
  public int maxPartitionFetchBytes() {
    return maxPartitionFetchBytes;
  }

  /** Sets {@link #maxPartitionFetchBytes()}. */
  public ConsumerConfig maxPartitionFetchBytes(int maxPartitionFetchBytes) {
    this.maxPartitionFetchBytes = maxPartitionFetchBytes;
    return this;
  }

  /** Bounds the records of one poll. */
  public int maxPollRecords() {
    return maxPollRecords;
  }

  /** Sets {@link #maxPollRecords()}. */
  public ConsumerConfig maxPollRecords(int maxPollRecords) {
    this.maxPollRecords = maxPollRecords;
    return this;
  }

  /** Compares each batch with its checksum. */
  public boolean checkCrcs() {
    return checkCrcs;
  }

  /** Sets {@link #checkCrcs()}. */
  public ConsumerConfig checkCrcs(boolean checkCrcs) {
    this.checkCrcs = checkCrcs;
    return this;
  }

  /** Reads from any replica up to its own high watermark, not only from leaders. */
  public boolean anyReplica() {
    return anyReplica;
  }

  /** Sets {@link #anyReplica()}. */
  public ConsumerConfig anyReplica(boolean anyReplica) {
    this.anyReplica = anyReplica;
    return this;
  }

  /** Reads from this replica only; 0: any. Needs {@link #anyReplica()}. */
  public int replicaNodeId() {
    return replicaNodeId;
  }

  /** Sets {@link #replicaNodeId()}. */
  public ConsumerConfig replicaNodeId(int replicaNodeId) {
    this.replicaNodeId = replicaNodeId;
    return this;
  }

  /**
   * Reads from a replica in this rack that keeps up with its leader; where there is none, from the
   * leader. Null: always from the leader.
   */
  public String rack() {
    return rack;
  }

  /** Sets {@link #rack()}. */
  public ConsumerConfig rack(String rack) {
    this.rack = rack;
    return this;
  }

  /** The defaults, for the nodes of the environment; see {@link #bootstrapServers()}. */
  public ConsumerConfig() {}

  /** The defaults, for nodes as "host:port,...". */
  public ConsumerConfig(String servers) {
    super(servers);
  }

  ConsumerConfig(ConsumerConfig other) {
    super(other);
    groupId = other.groupId;
    membership = other.membership;
    groupInstanceId = other.groupInstanceId;
    assignor = other.assignor;
    sessionTimeout = other.sessionTimeout;
    revokeTimeout = other.revokeTimeout;
    processingTimeout = other.processingTimeout;
    enableAutoCommit = other.enableAutoCommit;
    autoCommitInterval = other.autoCommitInterval;
    rebalanceListener = other.rebalanceListener;
    autoOffsetReset = other.autoOffsetReset;
    fetchMinBytes = other.fetchMinBytes;
    fetchMaxWait = other.fetchMaxWait;
    fetchMaxBytes = other.fetchMaxBytes;
    maxPartitionFetchBytes = other.maxPartitionFetchBytes;
    maxPollRecords = other.maxPollRecords;
    checkCrcs = other.checkCrcs;
    anyReplica = other.anyReplica;
    replicaNodeId = other.replicaNodeId;
    rack = other.rack;
  }

  @Override
  ConsumerConfig self() {
    return this;
  }

  @Override
  void check() {
    super.check();
    Limits.number("fetchMinBytes", fetchMinBytes, 0, Integer.MAX_VALUE);
    Limits.span("fetchMaxWait", fetchMaxWait, 0);
    Limits.number("fetchMaxBytes", fetchMaxBytes, 1, Integer.MAX_VALUE);
    Limits.number("maxPartitionFetchBytes", maxPartitionFetchBytes, 1, Integer.MAX_VALUE);
    Limits.number("maxPollRecords", maxPollRecords, 1, Integer.MAX_VALUE);
    checkGroup();
    if (fetchMaxWait.compareTo(requestTimeout()) >= 0) {
      throw Limits.bad(
          "fetchMaxWait=%s must be below requestTimeout=%s", fetchMaxWait, requestTimeout());
    }
    Limits.number("replicaNodeId", replicaNodeId, 0, Integer.MAX_VALUE);
    if (replicaNodeId != 0 && !anyReplica) {
      throw Limits.bad("replicaNodeId needs anyReplica=true");
    }
    if (rack != null) {
      Limits.name("rack", rack);
      if (anyReplica) {
        throw Limits.bad("rack excludes anyReplica");
      }
    }
  }

  private void checkGroup() {
    if (groupId != null) {
      Limits.name("groupId", groupId);
    }
    if (groupInstanceId != null) {
      Limits.name("groupInstanceId", groupInstanceId);
    }
    Limits.span("sessionTimeout", sessionTimeout, Duration.ofSeconds(1), Duration.ofMinutes(30));
    Limits.span("revokeTimeout", revokeTimeout, Duration.ofSeconds(1), Duration.ofHours(1));
    Limits.span("processingTimeout", processingTimeout, Duration.ofSeconds(1), Duration.ofDays(1));
    Limits.span("autoCommitInterval", autoCommitInterval, 1);
    boolean forMembers = groupInstanceId != null || enableAutoCommit || rebalanceListener != null;
    if (forMembers && !isMember()) {
      throw Limits.bad(
          "groupInstanceId, enableAutoCommit and rebalanceListener are for members of a group: they"
              + " need a groupId, and membership=assigned");
    }
  }

  /** Whether the group gives it its partitions. */
  boolean isMember() {
    return groupId != null && membership == Membership.ASSIGNED;
  }
}
