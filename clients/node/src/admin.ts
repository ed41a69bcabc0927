/** Manages topics and looks at the cluster, its producers and groups. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Cluster, isUnknownTopic } from "./cluster.js";
import { type ClientConfig, checkServers, clientConfig } from "./config.js";
import { OncelogError } from "./errors.js";
import * as pb from "./gen/oncelog/v1/cluster_pb.js";
import { ProducerService } from "./gen/oncelog/v1/producer_pb.js";
import {
  type TransactionDescription,
  TransactionService,
  TransactionState,
} from "./gen/oncelog/v1/transaction_pb.js";
import { type GroupDescription, type GroupInfo, Groups } from "./groups.js";
import { nonce } from "./identities.js";
import { resolveSequence } from "./producer.js";
import type { OffsetCommit, ResolvedSequence, TopicPartition } from "./types.js";

const LIST_PAGE = 1000;
const CREATE_TIMEOUT = 30_000;
const clusterCalls = pb.ClusterService.method;
const producerCalls = ProducerService.method;
const transactionCalls = TransactionService.method;

/** What a topic does with a batch's expected offset: checks it where a batch carries one, ... */
export type ExpectedOffsets = "checked" | "ignored" | "required";
const EXPECTED: readonly ExpectedOffsets[] = ["checked", "ignored", "required"];

/**
 * A topic's settings. What is left out has the cluster's default or, when a topic is altered,
 * stays as it is.
 */
export interface TopicConfig {
  /** -1: for ever. */
  retentionMs?: bigint;
  /** -1: no limit. */
  retentionBytes?: bigint;
  maxBatchBytes?: number;
  expectedOffsets?: ExpectedOffsets;
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
  /** For people: what is done, or why it is not. */
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

/** What `resizeTopic` changes: partitions or replicas. */
export interface Resize {
  /**
   * More than the topic has. Records of a key go to another partition from then on, and nothing
   * that is stored moves.
   */
  readonly partitions?: number;
  /** Of each partition. */
  readonly replicas?: number;
  /** Check it, and say what it would do. */
  readonly dryRun?: boolean;
}

/** What a transaction has in one partition. Its topic is empty if it was deleted. */
export interface TransactionPart extends TopicPartition {
  /** The partition knows the outcome. */
  readonly ended: boolean;
  /** What is staged there now; -1: the partition's leader does not answer. */
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

/** A node, as the answering node sees it; what it runs is empty, and 0, while it is not heard. */
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
}

/** What the cluster was upgraded to, and what it could be upgraded to. */
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
  /** What all nodes go by. */
  readonly settings: ReadonlyMap<string, bigint>;
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

/** What a partition remembers of a producer; the oldest batch first. */
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

/** A message without what protobuf adds. */
function plain<T extends { $typeName: string; $unknown?: unknown }>(
  message: T,
): Omit<T, "$typeName" | "$unknown"> {
  const { $typeName, $unknown, ...rest } = message;
  return rest;
}

function topicInfo(topic: pb.TopicInfo | undefined): TopicInfo {
  if (topic === undefined) throw new OncelogError("INTERNAL", "the node named no topic");
  const config: TopicConfig = {
    expectedOffsets: EXPECTED[topic.config?.expectedOffsets ?? 0] ?? "checked",
  };
  const { retentionMs, retentionBytes, maxBatchBytes } = topic.config ?? {};
  if (retentionMs !== undefined) config.retentionMs = retentionMs;
  if (retentionBytes !== undefined) config.retentionBytes = retentionBytes;
  if (maxBatchBytes !== undefined) config.maxBatchBytes = maxBatchBytes;
  return { ...plain(topic), config, partitions: topic.partitions.map(plain) };
}

function transactionInfo(one: TransactionDescription | undefined): TransactionInfo {
  if (one === undefined) throw new OncelogError("INTERNAL", "the node named no transaction");
  const state = TransactionState[one.state] ?? `${one.state}`;
  return { ...plain(one), state, partitions: one.partitions.map(plain) };
}

function upgradeInfo(upgrade: pb.UpgradeInfo | undefined): UpgradeInfo {
  if (upgrade !== undefined) return plain(upgrade);
  const none: string[] = [];
  return {
    clusterVersion: 0,
    features: none,
    targetVersion: 0,
    targetFeatures: none,
    hinderedBy: none,
  };
}

function settings(all: pb.ClusterSetting[]): Map<string, bigint> {
  return new Map(all.map(({ name, value }) => [name, value]));
}

/** Limits of a call that the node may hold for so long; `retries`: why it was made again. */
function heldFor(timeoutMs: number) {
  const total = timeoutMs + 1000;
  const retries: OncelogError[] = [];
  const onRetry = (e: OncelogError) => void retries.push(e);
  return { limits: { total, attempt: total, onRetry }, retries };
}

/** Calls are tried at other nodes while errors are retriable. */
export class Admin implements AsyncDisposable {
  readonly #cluster: Cluster;
  readonly #groups: Groups;

  /** For nodes as "host:port,...". Throws INVALID_CONFIG for settings that are out of range. */
  constructor(servers: string | readonly string[], config: Partial<ClientConfig> = {}) {
    this.#cluster = new Cluster(checkServers(servers), clientConfig(config));
    this.#groups = new Groups(this.#cluster);
  }

  /** Frees everything. */
  close(): void {
    this.#cluster.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  // --- topics ------------------------------------------------------------------------

  /**
   * Creates a topic and waits, up to half a minute, until each partition has a leader. 0
   * partitions or replicas: the cluster's default.
   */
  async createTopic(
    name: string,
    partitions = 0,
    replicas = 0,
    config: TopicConfig = {},
    timeoutMs = CREATE_TIMEOUT,
  ): Promise<TopicInfo> {
    const request = { name, partitions, replicas, config: configMessage(config), timeoutMs };
    const { limits, retries } = heldFor(timeoutMs);
    try {
      return topicInfo((await this.#cluster.call(clusterCalls.createTopic, request, limits)).topic);
    } catch (e) {
      if (!(e instanceof OncelogError) || e.kind !== "TOPIC_ALREADY_EXISTS" || retries.length === 0)
        throw e;
      // After a call whose answer was lost it may be the topic that we asked for.
      const [found] = await this.describeTopics(name);
      const most = Math.max(0, ...(found?.partitions.map((p) => p.replicas.length) ?? []));
      if (partitions !== 0 && partitions !== found?.partitions.length) throw e;
      if (found === undefined || (replicas !== 0 && replicas !== most)) throw e;
      return found;
    }
  }

  /** Deletes a topic with its records. */
  async deleteTopic(name: string): Promise<void> {
    await this.#cluster.call(clusterCalls.deleteTopic, { name });
  }

  /** Changes the settings that are given. Leaders hear of it a moment later. */
  async alterTopic(name: string, config: TopicConfig): Promise<TopicInfo> {
    const setExpectedOffsets = config.expectedOffsets !== undefined;
    const request = { name, config: configMessage(config), setExpectedOffsets };
    return topicInfo((await this.#cluster.call(clusterCalls.alterTopic, request)).topic);
  }

  /** These topics, in this order, or all, by name. */
  async describeTopics(...names: string[]): Promise<TopicInfo[]> {
    let answer: pb.DescribeTopicsResponse;
    try {
      answer = await this.#cluster.call(clusterCalls.describeTopics, { names });
    } catch (e) {
      // The node may be behind: who asks again asks another one.
      if (isUnknownTopic(e)) this.#cluster.preferAnother();
      throw e;
    }
    this.#cluster.leaders.update(answer);
    const found = new Map(answer.topics.map((topic) => [topic.name, topicInfo(topic)]));
    const wanted = names.length > 0 ? names : [...found.keys()].sort();
    return wanted.map((topic) => {
      const info = found.get(topic);
      if (info !== undefined) return info;
      const text = `topic "${topic}" does not exist`;
      throw new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", text, { topic, partition: -1 });
    });
  }

  /**
   * Gives a topic more partitions, and waits, up to half a minute, until each has a leader; or all
   * its partitions another number of replicas, which are there later.
   */
  async resizeTopic(name: string, resize: Resize, timeoutMs = CREATE_TIMEOUT): Promise<Resized> {
    const { limits, retries } = heldFor(timeoutMs);
    try {
      const request = { name, ...resize, timeoutMs };
      const answer = await this.#cluster.call(clusterCalls.resizeTopic, request, limits);
      const { topic, moves, count } = answer;
      return { topic: topicInfo(topic), moves: moves.map(plain), count };
    } catch (e) {
      const refused = e instanceof OncelogError && e.details.field === "partitions";
      if (!refused || retries.length === 0) throw e;
      // After a call whose answer was lost they may be those that we asked for.
      const [topic] = await this.describeTopics(name);
      if (topic === undefined || topic.partitions.length !== resize.partitions) throw e;
      return { topic, moves: [], count: 0 };
    }
  }

  /**
   * Has the partition's replicas on these nodes, the first preferred as leader. It returns when the
   * wish is stored; `describeTopics` tells how far it is.
   */
  async reassignPartition(tp: TopicPartition, replicas: readonly number[]): Promise<TopicInfo> {
    const { topic, partition } = tp;
    const request = { topic, partition, replicas: [...replicas] };
    return topicInfo((await this.#cluster.call(clusterCalls.reassignPartition, request)).topic);
  }

  // --- cluster -----------------------------------------------------------------------

  /** The cluster, as the answering node sees it. */
  async describeCluster(): Promise<ClusterInfo> {
    const answer = await this.#cluster.call(clusterCalls.describeCluster, {});
    return {
      ...plain(answer),
      nodes: answer.nodes.map(plain),
      upgrade: upgradeInfo(answer.upgrade),
      settings: settings(answer.settings),
    };
  }

  /**
   * Turns on what the newest release has; no node can go back to an older one afterwards. It
   * returns what is on now, or throws NOT_SUPPORTED, which names the nodes in the way.
   */
  async finalizeUpgrade(): Promise<UpgradeInfo> {
    return upgradeInfo((await this.#cluster.call(clusterCalls.finalizeUpgrade, {})).upgrade);
  }

  /** Sets what all nodes go by, and returns all such settings. */
  async setClusterSetting(name: string, value: bigint): Promise<Map<string, bigint>> {
    const request = { setting: { name, value } };
    return settings((await this.#cluster.call(clusterCalls.setClusterSetting, request)).settings);
  }

  /** Has another replica lead (0: the most caught-up one) and returns its id. */
  async transferLeadership(tp: TopicPartition, targetNodeId = 0): Promise<number> {
    const { topic, partition } = tp;
    const request = { topic, partition, targetNodeId };
    return (await this.#cluster.callLeader(tp, clusterCalls.transferLeadership, request)).leaderId;
  }

  // --- producers ---------------------------------------------------------------------

  /** Leases a producer id; with a name, its id with the epoch raised by one. */
  async leaseProducer(producerName?: string): Promise<ProducerLease> {
    const request = producerName === undefined ? {} : { producerName, nonce: nonce() };
    return plain(await this.#cluster.call(producerCalls.leaseProducer, request));
  }

  /** Raises a name's epoch for nobody: shuts its holder out. */
  async fenceProducer(producerName: string): Promise<ProducerEpoch> {
    const request = { producerName, nonce: nonce() };
    return plain(await this.#cluster.call(producerCalls.fenceProducer, request));
  }

  /** All names, as the node that answers knows them. */
  async listProducerNames(): Promise<ProducerName[]> {
    return (await this.#cluster.call(producerCalls.listProducerNames, {})).names.map(plain);
  }

  /** What a partition remembers of its producers, or of one of them (0: all), at most limit. */
  async describeProducers(
    tp: TopicPartition,
    producerId = 0n,
    limit = LIST_PAGE,
  ): Promise<ProducerState[]> {
    const { topic, partition } = tp;
    const states: ProducerState[] = [];
    let afterProducerId = 0n;
    while (states.length < limit) {
      const page = Math.min(limit - states.length, LIST_PAGE);
      const request = { topic, partition, producerId, afterProducerId, limit: page };
      const answer = await this.#cluster.callLeader(tp, producerCalls.describeProducers, request);
      for (const one of answer.producers) {
        afterProducerId = one.producerId;
        states.push({ ...plain(one), recent: one.recent.map(plain) });
      }
      if (producerId !== 0n || answer.producers.length < page) break;
    }
    return states;
  }

  /** What became of a record whose acknowledgement was lost. */
  resolveSequence(
    tp: TopicPartition,
    producerId: bigint,
    epoch: number,
    sequence: bigint,
  ): Promise<ResolvedSequence> {
    return resolveSequence(this.#cluster, tp, producerId, epoch, sequence);
  }

  // --- transactions ------------------------------------------------------------------

  /**
   * Transactions that have not ended everywhere, the oldest first: of a name (empty: of all), begun
   * longer ago than so many ms, at most limit (0: 100).
   */
  async listTransactions(
    producerName = "",
    olderThanMs = 0,
    limit = 0,
  ): Promise<TransactionInfo[]> {
    const request = { producerName, olderThanMs: BigInt(olderThanMs), limit };
    const answer = await this.#cluster.call(transactionCalls.listTransactions, request);
    return answer.transactions.map(transactionInfo);
  }

  /**
   * One of them, or one that has ended and whose owner has begun no other since. Throws
   * UNKNOWN_TRANSACTION for any other.
   */
  async describeTransaction(transactionId: bigint): Promise<TransactionInfo> {
    const call = transactionCalls.describeTransaction;
    return transactionInfo((await this.#cluster.call(call, { transactionId })).transaction);
  }

  /** Drops what is staged, whoever owns it. Throws TRANSACTION_COMMITTED if it is too late. */
  async abortTransaction(transactionId: bigint): Promise<void> {
    await this.#cluster.call(transactionCalls.abortTransaction, { transactionId });
  }

  // --- groups ------------------------------------------------------------------------

  /** All groups that have committed offsets, by name. */
  listGroups(): Promise<GroupInfo[]> {
    return this.#groups.all();
  }

  /** A group's committed offsets, and its members. */
  describeGroup(group: string): Promise<GroupDescription> {
    return this.#groups.describe(group);
  }

  /** Has a group go on at these offsets; throws as `Consumer.commit` does. */
  commitOffsets(group: string, offsets: readonly OffsetCommit[]): Promise<void> {
    return this.#groups.commit(group, offsets);
  }

  /** Forgets a group and its offsets, and tells whether there was one. */
  deleteGroup(group: string): Promise<boolean> {
    return this.#groups.delete(group);
  }
}

function configMessage(config: TopicConfig): MessageInitShape<typeof pb.TopicConfigSchema> {
  const { expectedOffsets, ...rest } = config;
  return { ...rest, expectedOffsets: EXPECTED.indexOf(expectedOffsets ?? "checked") };
}
