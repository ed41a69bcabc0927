/**
 * The Node.js client of Oncelog, a replicated, partitioned log that keeps every record exactly
 * once. Its behaviour on the wire is laid down in docs/protocol.md; settings and errors mean the
 * same as in all Oncelog clients.
 */

export { Admin } from "./admin.js";
export type {
  Balance,
  CleanupPolicy,
  ClusterInfo,
  ExpectedOffsets,
  NodeChange,
  NodeInfo,
  NodeReplacement,
  NodeStatus,
  PartitionInfo,
  PartitionMove,
  PermissionRule,
  Permissions,
  ProducerEpoch,
  ProducerLease,
  ProducerName,
  ProducerState,
  Quota,
  QuotaKey,
  Resize,
  Resized,
  SinkInfo,
  TopicConfig,
  TopicFormats,
  TopicInfo,
  TransactionInfo,
  TransactionPart,
  UpgradeInfo,
} from "./admintypes.js";
export type {
  Assignor,
  ClientConfig,
  Compression,
  ConsumerConfig,
  Membership,
  OffsetReset,
  OnPartitions,
  OnRevoked,
  Partitioner,
  ProducerConfig,
} from "./config.js";
export { Consumer, type PartitionOffset } from "./consumer.js";
export { Delivery } from "./delivery.js";
export { type ErrorDetails, type ErrorKind, OncelogError, type Outcome } from "./errors.js";
export type { GroupDescription, GroupInfo, GroupMemberInfo, OwnedPartition } from "./groups.js";
export type { GroupLag, PartitionLag } from "./lag.js";
export { Producer, type SendBatchOptions, type SendOptions } from "./producer.js";
export type { ConnectionStats } from "./reachability.js";
export type { CommittedTransaction, PublishedRun, TransactionState } from "./staging.js";
export { Transaction, type TransactionOptions } from "./transaction.js";
export type {
  CommittedOffset,
  Content,
  Header,
  Message,
  OffsetCommit,
  ProducerIdentity,
  RecordMetadata,
  ResolvedSequence,
  StoredRecord,
  TopicPartition,
} from "./types.js";
export type { ProducerStats } from "./window.js";

/** The version of this client. */
export const VERSION = "0.1.0";
