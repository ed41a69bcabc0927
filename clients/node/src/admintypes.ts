/** Arguments and results of an Admin. */

import type { TopicPartition } from "./types.js";

/** A topic's treatment of a batch's expected offset: checks it where a batch carries one, ... */
export type ExpectedOffsets = "checked" | "ignored" | "required";

/** Formats of the batches that a topic takes: of this protocol, of Kafka's, or both. */
export type TopicFormats = "columnar" | "kafka" | "both";

/**
 * Treatment of a topic's old records: the limits of retention delete them; each key's newest record
 * stays, for ever; it stays up to the limits of retention.
 */
export type CleanupPolicy = "delete" | "compact" | "compact_delete";

/**
 * A topic's settings. A field left out has the cluster's default or, when a topic is altered, stays
 * as it is.
 */
export interface TopicConfig {
  /** -1: for ever. */
  retentionMs?: bigint;
  /** -1: no limit. */
  retentionBytes?: bigint;
  maxBatchBytes?: number;
  expectedOffsets?: ExpectedOffsets;
  /**
   * Of an existing topic it can only change to both. Not columnar: needs the cluster's feature
   * "kafka".
   */
  formats?: TopicFormats;
  /** This and the settings below need the cluster's feature "compaction". */
  cleanupPolicy?: CleanupPolicy;
  /** Records stay as they are for so long. */
  minCompactionLagMs?: bigint;
  /** And are compacted at the latest then; -1: no limit. */
  maxCompactionLagMs?: bigint;
  /** How long a record without a value stays after it. */
  deleteRetentionMs?: bigint;
  /** Share of new bytes that makes one due. */
  minCleanableDirtyRatio?: number;
}

/** A partition's leader and replicas, as the answering node knows them. */
export interface PartitionInfo {
  readonly partition: number;
  /** 0: none known. */
  readonly leaderId: number;
  readonly term: bigint;
  /** The first is preferred as leader. */
  readonly replicas: readonly number[];
  /** -1: the node that answered has no replica. */
  readonly logStartOffset: bigint;
  readonly highWatermark: bigint;
  readonly groupId: bigint;
  /** The nodes that it is being moved to; empty: it is not moved. */
  readonly target: readonly number[];
  /** When the topic got it; 0: with its creation. */
  readonly addedMs: bigint;
}

/** A topic with its partitions. */
export interface TopicInfo {
  readonly name: string;
  readonly topicId: bigint;
  readonly partitions: readonly PartitionInfo[];
  readonly config: TopicConfig;
  readonly createdMs: bigint;
}

/** A partition that comes, moves, or would; the first node is preferred as leader. */
export interface PartitionMove extends TopicPartition {
  /** Now; empty: it comes. */
  readonly replicas: readonly number[];
  readonly target: readonly number[];
  /** That the replicas which come hold when they are whole. */
  readonly bytes: bigint;
  /** And hold by now. */
  readonly copied: bigint;
  /** For people: progress, or the reason for none. */
  readonly waitsFor: string;
}

/** A topic that gets more partitions, or another number of replicas. */
export interface Resized {
  /** Afterwards. */
  readonly topic: TopicInfo;
  /** The first of `count`. */
  readonly moves: readonly PartitionMove[];
  readonly count: number;
}

/** Changes of `resizeTopic`: partitions or replicas. */
export interface Resize {
  /**
   * More than the topic has. Records of a key go to another partition from then on, and nothing
   * that is stored moves.
   */
  readonly partitions?: number;
  /** Of each partition. */
  readonly replicas?: number;
  /** Check it, and describe its effect. */
  readonly dryRun?: boolean;
}

/** Part of a transaction in one partition. Its topic is empty if it was deleted. */
export interface TransactionPart extends TopicPartition {
  /** The partition knows the outcome. */
  readonly ended: boolean;
  /** Records staged there now; -1: the partition's leader does not answer. */
  readonly stagedRecords: bigint;
  readonly stagedBytes: bigint;
  /** In __offsets: of how many partitions. */
  readonly stagedOffsets: bigint;
}

/** A transaction, and how far it is. */
export interface TransactionInfo extends ProducerEpoch {
  readonly transactionId: bigint;
  /** OPEN, COMMITTING, ABORTING, COMMITTED or ABORTED. */
  readonly state: string;
  /** Of an abort. */
  readonly reason: string;
  /** Or the sink's. */
  readonly producerName: string;
  readonly sink: boolean;
  readonly begunMs: bigint;
  readonly ageMs: bigint;
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
  /** In all partitions that answer. */
  readonly stagedBytes: bigint;
  readonly partitions: readonly TransactionPart[];
}

/** A node, as the answering node sees it; its release is empty, and 0, while it is not heard. */
export interface NodeInfo {
  readonly nodeId: number;
  readonly address: string;
  readonly alive: boolean;
  /** With a majority's, so the node does not lead. */
  readonly clockDisagrees: boolean;
  readonly release: string;
  readonly oldestClusterVersion: number;
  readonly newestClusterVersion: number;
  readonly features: readonly string[];
  /** It listens without TLS beyond its machine. */
  readonly insecure: boolean;
}

/** How a node is changed. */
export interface NodeChange {
  /** Check the change and return its effects. */
  readonly dryRun?: boolean;
}

/** How `replaceNode` treats losses. */
export interface NodeReplacement extends NodeChange {
  /** Go on although partitions have no majority, or no replica, without the node. */
  readonly acceptLoss?: boolean;
  /** The lost data directory's id, if one of two nodes is lost and the other decides alone. */
  readonly directoryId?: bigint;
}

/** State of a node, as the answering node knows it. */
export interface NodeStatus {
  readonly nodeId: number;
  /** Empty: it has not joined. */
  readonly address: string;
  readonly alive: boolean;
  /** It may join with a new data directory. */
  readonly expected: boolean;
  /** It has one, and not the metadata yet. */
  readonly joining: boolean;
  readonly leaving: boolean;
  /** It is to lead nothing. */
  readonly drained: boolean;
  readonly replicas: number;
  readonly leaderships: number;
  /** Partitions, and the metadata, of which its replica may not count yet. */
  readonly coming: number;
  /** Partitions of which its replica is to go. */
  readonly going: number;
  /** For people: why its change is not done yet. */
  readonly waitsFor: readonly string[];
  /** Bytes that it will hold of the partitions that come to it. */
  readonly comingBytes: bigint;
  /** And holds by now. */
  readonly copiedBytes: bigint;
  /** Nothing is under way with it. */
  readonly settled: boolean;
}

/** Progress of the partitions that move for any reason; of a plan: the moves that it would make. */
export interface Balance {
  /** More may begin. */
  readonly balancing: boolean;
  /** The first of `count`. */
  readonly moves: readonly PartitionMove[];
  readonly count: number;
  /** Of all of them. */
  readonly bytes: bigint;
  readonly copied: bigint;
  /** For people: omissions and their reasons. */
  readonly waitsFor: readonly string[];
  /** Nothing is under way. */
  readonly settled: boolean;
}

/** The cluster's version, and the version it could be upgraded to. */
export interface UpgradeInfo {
  readonly clusterVersion: number;
  readonly features: readonly string[];
  readonly targetVersion: number;
  readonly targetFeatures: readonly string[];
  /** For people: a line for each node that stands in the way. */
  readonly hinderedBy: readonly string[];
}

/** The cluster, as the answering node sees it. */
export interface ClusterInfo {
  readonly clusterId: string;
  readonly answeringNodeId: number;
  /** Leader of the metadata group; 0: not known. */
  readonly controllerId: number;
  readonly nodes: readonly NodeInfo[];
  readonly topics: number;
  readonly partitions: number;
  readonly leaderlessPartitions: number;
  readonly underReplicatedPartitions: number;
  readonly maxMessageBytes: bigint;
  readonly upgrade: UpgradeInfo;
  /** Settings of all nodes. */
  readonly settings: ReadonlyMap<string, bigint>;
  /** For people: of the answering node, and the state of each. */
  readonly damagedReplicas: readonly string[];
  /** Of the answering node, as OTHER_CLUSTER names it; "": not told. */
  readonly founding: string;
}

/** A producer id and epoch. */
export interface ProducerEpoch {
  readonly producerId: bigint;
  readonly epoch: number;
}

/** The right to use a producer id until expireMs, Unix time. */
export interface ProducerLease extends ProducerEpoch {
  readonly expireMs: bigint;
  readonly lifetimeMs: bigint;
  readonly leaseToken: Uint8Array;
}

/** A producer name and the id and epoch it stands for. */
export interface ProducerName extends ProducerEpoch {
  readonly name: string;
  readonly lastLeaseMs: bigint;
}

/** A producer as a partition remembers it; the oldest batch first. */
export interface ProducerState extends ProducerEpoch {
  readonly lastSequence: bigint;
  readonly lastAppendMs: bigint;
  readonly recent: readonly {
    readonly firstSequence: bigint;
    readonly lastSequence: bigint;
    readonly baseOffset: bigint;
    readonly recordCount: number;
    readonly crc32c: number;
  }[];
}

/** Allows, or denies, a principal operations on a topic, group, producer, sink, or the cluster. */
export interface PermissionRule {
  /** "*": every known principal. */
  readonly principal: string;
  /** read, write, create, ...; "*": each. */
  readonly operations: readonly string[];
  /** topic, group, producer, sink or cluster. */
  readonly kind: string;
  /** "*": all of the kind. The cluster has none. */
  readonly name?: string;
  /** `name` is how names begin. */
  readonly prefix?: boolean;
  /** Stands above all rules that allow. */
  readonly deny?: boolean;
}

/** The rules, and how the node that answered goes by them. */
export interface Permissions {
  readonly rules: readonly Required<PermissionRule>[];
  readonly enforced: boolean;
  /** The principal that the node sees; empty: it knows nobody. */
  readonly caller: string;
}

/** Which quota. */
export interface QuotaKey {
  /** "*": each one that has no value of its own. */
  readonly principal: string;
  /** in_bytes_per_s, requests_per_s, streams, ...; when removed, empty: all of the principal's. */
  readonly name: string;
}

/** How much of something a principal may use at each node. */
export interface Quota extends QuotaKey {
  /** 0: no limit. */
  readonly value: bigint;
}

/** An output of a streaming query, or of batch jobs, and its committed batches. */
export interface SinkInfo {
  readonly sink: string;
  readonly jobs: boolean;
  /** That it belongs to; empty: of jobs, or none yet. */
  readonly query: string;
  /** Of the newest batch. */
  readonly run: string;
  /** The newest one; -1: none. */
  readonly committedBatch: bigint;
  /** Of that. */
  readonly recordCount: bigint;
  /** 0: none. */
  readonly openTransactionId: bigint;
  /** -1: none. */
  readonly openBatch: bigint;
  /** Batches of jobs, both ends included. */
  readonly committed: readonly { readonly first: bigint; readonly last: bigint }[];
  /** Its committed batch when it was reset; null: it was not. */
  readonly before: {
    readonly query: string;
    readonly batch: bigint;
    readonly recordCount: bigint;
  } | null;
}
