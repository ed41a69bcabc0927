package io.github.oncelog.client;

import java.time.Duration;

/** The settings of a {@link Consumer}. */
public final class ConsumerConfig extends ClientConfig<ConsumerConfig> {
  private String groupId;
  private OffsetReset autoOffsetReset = OffsetReset.LATEST;
  private int fetchMinBytes = 1;
  private Duration fetchMaxWait = Duration.ofMillis(500);
  private int fetchMaxBytes = 16 << 20;
  private int maxPartitionFetchBytes = 4 << 20;
  private int maxPollRecords = 10_000;
  private boolean checkCrcs = true;
  private boolean anyReplica = false;
  private int replicaNodeId = 0;

  /** Names the group whose committed offsets are read and written; null: none. */
  public String groupId() {
    return groupId;
  }

  /** Sets {@link #groupId()}. */
  public ConsumerConfig groupId(String groupId) {
    this.groupId = groupId;
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

  /** What a node waits for, at most {@link #fetchMaxWait()}. */
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

  /** Bounds what one poll returns. */
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

  /** The defaults, for nodes as "host:port,...". */
  public ConsumerConfig(String servers) {
    super(servers);
  }

  ConsumerConfig(ConsumerConfig other) {
    super(other);
    groupId = other.groupId;
    autoOffsetReset = other.autoOffsetReset;
    fetchMinBytes = other.fetchMinBytes;
    fetchMaxWait = other.fetchMaxWait;
    fetchMaxBytes = other.fetchMaxBytes;
    maxPartitionFetchBytes = other.maxPartitionFetchBytes;
    maxPollRecords = other.maxPollRecords;
    checkCrcs = other.checkCrcs;
    anyReplica = other.anyReplica;
    replicaNodeId = other.replicaNodeId;
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
    if (groupId != null) {
      Limits.name("groupId", groupId);
    }
    if (fetchMaxWait.compareTo(requestTimeout()) >= 0) {
      throw Limits.bad(
          "fetchMaxWait=%s must be below requestTimeout=%s", fetchMaxWait, requestTimeout());
    }
    Limits.number("replicaNodeId", replicaNodeId, 0, Integer.MAX_VALUE);
    if (replicaNodeId != 0 && !anyReplica) {
      throw Limits.bad("replicaNodeId needs anyReplica=true");
    }
  }
}
