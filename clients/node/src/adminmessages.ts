/** Arguments and results of an Admin, from and to messages of the protocol. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  Balance,
  CleanupPolicy,
  ClusterInfo,
  ExpectedOffsets,
  NodeStatus,
  PermissionRule,
  ProducerState,
  SinkInfo,
  TopicConfig,
  TopicFormats,
  TopicInfo,
  TransactionInfo,
  UpgradeInfo,
} from "./admintypes.js";
import { OncelogError } from "./errors.js";
import type * as pb from "./gen/oncelog/v1/cluster_pb.js";
import type { ProducerState as ProducerStateMessage } from "./gen/oncelog/v1/producer_pb.js";
import type { PermissionRuleSchema } from "./gen/oncelog/v1/security_pb.js";
import type { SinkBefore, SinkDescription } from "./gen/oncelog/v1/sink_pb.js";
import { type TransactionDescription, TransactionState } from "./gen/oncelog/v1/transaction_pb.js";

const CLEANUP: readonly CleanupPolicy[] = ["delete", "compact", "compact_delete"];
const FORMATS: readonly TopicFormats[] = ["columnar", "kafka", "both"];
const EXPECTED: readonly ExpectedOffsets[] = ["checked", "ignored", "required"];

/** A message without protobuf's additions. */
export function plain<T extends { $typeName: string; $unknown?: unknown }>(
  message: T,
): Omit<T, "$typeName" | "$unknown"> {
  const { $typeName, $unknown, ...rest } = message;
  return rest;
}

export function topicInfo(topic: pb.TopicInfo | undefined): TopicInfo {
  if (topic === undefined) throw new OncelogError("INTERNAL", "the node named no topic");
  const told = topic.config;
  const config: TopicConfig = {
    expectedOffsets: EXPECTED[told?.expectedOffsets ?? 0] ?? "checked",
    formats: FORMATS[told?.formats ?? 0] ?? "columnar",
    cleanupPolicy: CLEANUP[told?.cleanupPolicy ?? 0] ?? "delete",
  };
  if (told?.retentionMs !== undefined) config.retentionMs = told.retentionMs;
  if (told?.retentionBytes !== undefined) config.retentionBytes = told.retentionBytes;
  if (told?.maxBatchBytes !== undefined) config.maxBatchBytes = told.maxBatchBytes;
  if (told?.minCompactionLagMs !== undefined) config.minCompactionLagMs = told.minCompactionLagMs;
  if (told?.maxCompactionLagMs !== undefined) config.maxCompactionLagMs = told.maxCompactionLagMs;
  if (told?.deleteRetentionMs !== undefined) config.deleteRetentionMs = told.deleteRetentionMs;
  if (told?.minCleanableDirtyRatio !== undefined)
    config.minCleanableDirtyRatio = told.minCleanableDirtyRatio;
  return { ...plain(topic), config, partitions: topic.partitions.map(plain) };
}

/** Of a topic's settings. */
export function topicConfig(config: TopicConfig): MessageInitShape<typeof pb.TopicConfigSchema> {
  const { expectedOffsets, formats, cleanupPolicy, ...rest } = config;
  return {
    ...rest,
    expectedOffsets: EXPECTED.indexOf(expectedOffsets ?? "checked"),
    ...(formats && { formats: FORMATS.indexOf(formats) }),
    ...(cleanupPolicy && { cleanupPolicy: CLEANUP.indexOf(cleanupPolicy) }),
  };
}

/** Whether a topic has the settings that a call gives; nodes may omit defaults. */
export function fits(asked: TopicConfig, has: TopicConfig): boolean {
  return Object.entries(asked).every(([setting, value]) => {
    const given = has[setting as keyof TopicConfig];
    return value === undefined || given === undefined || value === given;
  });
}

export function clusterInfo(answer: pb.DescribeClusterResponse): ClusterInfo {
  const { limits: _, ...rest } = plain(answer);
  return {
    ...rest,
    nodes: answer.nodes.map(plain),
    upgrade: upgradeInfo(answer.upgrade),
    settings: settings(answer.settings),
  };
}

export function nodeStatus(node: pb.NodeStatus): NodeStatus {
  const busy = node.expected || node.joining || node.leaving || node.coming + node.going > 0;
  return { ...plain(node), settled: !busy && !(node.drained && node.leaderships > 0) };
}

export function balance(answer: pb.BalanceClusterResponse): Balance {
  const settled = !answer.balancing && answer.count === 0;
  return { ...plain(answer), moves: answer.moves.map(plain), settled };
}

export function ruleMessage(rule: PermissionRule): MessageInitShape<typeof PermissionRuleSchema> {
  return { ...rule, operations: [...rule.operations] };
}

export function producerState(one: ProducerStateMessage): ProducerState {
  return { ...plain(one), recent: one.recent.map(plain) };
}

export function transactionInfo(one: TransactionDescription | undefined): TransactionInfo {
  if (one === undefined) throw new OncelogError("INTERNAL", "the node named no transaction");
  const state = TransactionState[one.state] ?? `${one.state}`;
  return { ...plain(one), state, partitions: one.partitions.map(plain) };
}

export function upgradeInfo(upgrade: pb.UpgradeInfo | undefined): UpgradeInfo {
  // A node of an older release says nothing of it: its cluster was never upgraded.
  const { features = [], targetFeatures = [], hinderedBy = [] } = upgrade ?? {};
  const clusterVersion = Math.max(upgrade?.clusterVersion ?? 0, 1);
  const targetVersion = Math.max(upgrade?.targetVersion ?? 0, clusterVersion);
  return { clusterVersion, features, targetVersion, targetFeatures, hinderedBy };
}

export function settings(all: pb.ClusterSetting[]): Map<string, bigint> {
  return new Map(all.map(({ name, value }) => [name, value]));
}

export function sinkInfo(one: SinkDescription | undefined): SinkInfo {
  if (one === undefined) throw new OncelogError("INTERNAL", "the node named no sink");
  const { ticket: _, digest: __, version: ___, ...rest } = plain(one);
  return {
    ...rest,
    openBatch: one.openTransactionId === 0n ? -1n : one.openBatch,
    committed: one.committed.map(plain),
    before: one.before === undefined ? null : before(one.before),
  };
}

function before({ query, batch, recordCount }: SinkBefore): SinkInfo["before"] {
  return { query, batch, recordCount };
}
