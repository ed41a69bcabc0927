/** Manages topics, the cluster and its permissions; looks at producers, groups and sinks. */

import * as messages from "./adminmessages.js";
import type {
  Balance,
  ClusterInfo,
  NodeChange,
  NodeReplacement,
  NodeStatus,
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
  TopicInfo,
  TransactionInfo,
  UpgradeInfo,
} from "./admintypes.js";
import { Attempts } from "./attempts.js";
import { Cluster, isUnknownTopic } from "./cluster.js";
import { type ClientConfig, clientConfig } from "./config.js";
import { OncelogError } from "./errors.js";
import {
  BalanceAction,
  ClusterService,
  type DescribeTopicsResponse,
  NodeAction,
} from "./gen/oncelog/v1/cluster_pb.js";
import { ProducerService } from "./gen/oncelog/v1/producer_pb.js";
import { SecurityService } from "./gen/oncelog/v1/security_pb.js";
import { SinkService } from "./gen/oncelog/v1/sink_pb.js";
import { TransactionService } from "./gen/oncelog/v1/transaction_pb.js";
import { type GroupDescription, type GroupInfo, Groups } from "./groups.js";
import { nonce } from "./identities.js";
import { type GroupLag, lagOf } from "./lag.js";
import { resolveSequence } from "./producer.js";
import type { OffsetCommit, ResolvedSequence, TopicPartition } from "./types.js";

const LIST_PAGE = 1000;
const CREATE_TIMEOUT = 30_000;
const clusterCalls = ClusterService.method;
const producerCalls = ProducerService.method;
const transactionCalls = TransactionService.method;
const securityCalls = SecurityService.method;
const sinkCalls = SinkService.method;

/** Limits of a call that the node may hold for so long; `tried`: its failed attempts. */
function heldFor(timeoutMs: number) {
  const total = timeoutMs + 1000;
  const tried = new Attempts();
  return { limits: { total, attempt: total, onRetry: tried.failed.bind(tried) }, tried };
}

/** Calls are tried at other nodes while errors are retriable. */
export class Admin implements AsyncDisposable {
  readonly #cluster: Cluster;
  readonly #groups: Groups;

  /** Throws INVALID_CONFIG for settings that are out of range. */
  constructor(config: Partial<ClientConfig> = {}) {
    this.#cluster = new Cluster(clientConfig(config));
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
    const request = { name, partitions, replicas, config: messages.topicConfig(config), timeoutMs };
    const { limits, tried } = heldFor(timeoutMs);
    try {
      return messages.topicInfo(
        (await this.#cluster.call(clusterCalls.createTopic, request, limits)).topic,
      );
    } catch (e) {
      const refused = e instanceof OncelogError && e.kind === "TOPIC_ALREADY_EXISTS";
      if (!refused || !tried.inDoubt) throw e;
      // After a call without an answer it may be the topic of this call.
      const [found] = await this.describeTopics(name).catch(() => []);
      const most = Math.max(0, ...(found?.partitions.map((p) => p.replicas.length) ?? []));
      if (partitions !== 0 && partitions !== found?.partitions.length) throw e;
      if (found === undefined || (replicas !== 0 && replicas !== most)) throw e;
      if (!messages.fits(config, found.config)) throw e;
      return found;
    }
  }

  /** Deletes a topic with its records. */
  async deleteTopic(name: string): Promise<void> {
    const tried = new Attempts();
    const onRetry = tried.failed.bind(tried);
    try {
      await this.#cluster.call(clusterCalls.deleteTopic, { name }, { onRetry });
    } catch (e) {
      // A lost answer to an earlier attempt may mean that we deleted it.
      if (!isUnknownTopic(e) || !tried.inDoubt) throw e;
    }
  }

  /** Changes the settings that are given. Leaders hear of it a moment later. */
  async alterTopic(name: string, config: TopicConfig): Promise<TopicInfo> {
    const setExpectedOffsets = config.expectedOffsets !== undefined;
    const request = { name, config: messages.topicConfig(config), setExpectedOffsets };
    return messages.topicInfo((await this.#cluster.call(clusterCalls.alterTopic, request)).topic);
  }

  /** These topics, in this order, or all, by name. */
  async describeTopics(...names: string[]): Promise<TopicInfo[]> {
    let answer: DescribeTopicsResponse;
    try {
      answer = await this.#cluster.call(clusterCalls.describeTopics, { names });
    } catch (e) {
      // The node may be behind: another call asks another node.
      if (isUnknownTopic(e)) this.#cluster.preferAnother();
      throw e;
    }
    this.#cluster.leaders.update(answer);
    const found = new Map(answer.topics.map((topic) => [topic.name, messages.topicInfo(topic)]));
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
    const { limits, tried } = heldFor(timeoutMs);
    try {
      const request = { name, ...resize, timeoutMs };
      const answer = await this.#cluster.call(clusterCalls.resizeTopic, request, limits);
      const { topic, moves, count } = answer;
      return { topic: messages.topicInfo(topic), moves: moves.map(messages.plain), count };
    } catch (e) {
      const refused = e instanceof OncelogError && e.details.field === "partitions";
      if (!refused || !tried.inDoubt || resize.dryRun) throw e;
      // After a call without an answer they may be those of this call.
      const [topic] = await this.describeTopics(name).catch(() => []);
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
    return messages.topicInfo(
      (await this.#cluster.call(clusterCalls.reassignPartition, request)).topic,
    );
  }

  // --- cluster -----------------------------------------------------------------------

  /** The cluster, as the answering node sees it. */
  async describeCluster(): Promise<ClusterInfo> {
    const request = { askLeaders: true };
    return messages.clusterInfo(await this.#cluster.call(clusterCalls.describeCluster, request));
  }

  /** All nodes, and the progress of their changes. */
  async listNodes(): Promise<NodeStatus[]> {
    return (await this.#cluster.call(clusterCalls.listNodes, {})).nodes.map(messages.nodeStatus);
  }

  /**
   * Lets a new node join, with an empty data directory. This and the next five return texts about
   * the effect when the change is decided, or is found possible (`dryRun`); `listNodes` shows the
   * progress. After a call without an answer there may be no effect left. Throws
   * INVALID_REQUEST, NOT_SUPPORTED.
   */
  addNode(nodeId: number, change: NodeChange = {}): Promise<readonly string[]> {
    return this.#changeNode(nodeId, NodeAction.ADD, change);
  }

  /** Moves a node's replicas to other nodes, then removes it. */
  removeNode(nodeId: number, change: NodeChange = {}): Promise<readonly string[]> {
    return this.#changeNode(nodeId, NodeAction.REMOVE, change);
  }

  /** Keeps a node that is being removed; replicas that have moved do not come back. */
  cancelNodeRemoval(nodeId: number, change: NodeChange = {}): Promise<readonly string[]> {
    return this.#changeNode(nodeId, NodeAction.KEEP, change);
  }

  /** Moves a node's leaderships away before a restart, until `undrainNode`. */
  drainNode(nodeId: number, change: NodeChange = {}): Promise<readonly string[]> {
    return this.#changeNode(nodeId, NodeAction.DRAIN, change);
  }

  /** Lets a drained node lead again. */
  undrainNode(nodeId: number, change: NodeChange = {}): Promise<readonly string[]> {
    return this.#changeNode(nodeId, NodeAction.UNDRAIN, change);
  }

  /** Gives up a node's lost data directory, so that it can join with an empty one. */
  replaceNode(nodeId: number, how: NodeReplacement = {}): Promise<readonly string[]> {
    return this.#changeNode(nodeId, NodeAction.REPLACE, how);
  }

  async #changeNode(
    nodeId: number,
    action: NodeAction,
    how: NodeReplacement,
  ): Promise<readonly string[]> {
    const request = { nodeId, action, ...how };
    return (await this.#cluster.call(clusterCalls.changeNode, request)).effects;
  }

  /**
   * Spreads replicas and leaderships over the nodes, by count and then by bytes. It returns at
   * once with the progress of all moves. Throws NOT_SUPPORTED.
   */
  startBalance(): Promise<Balance> {
    return this.#balance(BalanceAction.START);
  }

  /** Starts no further move, and undoes the moves in progress. */
  cancelBalance(): Promise<Balance> {
    return this.#balance(BalanceAction.CANCEL);
  }

  /** Returns the moves that `startBalance` would make. */
  planBalance(): Promise<Balance> {
    return this.#balance(BalanceAction.PLAN);
  }

  /** Returns the progress of all moves, of any origin. */
  describeBalance(): Promise<Balance> {
    return this.#balance(BalanceAction.DESCRIBE);
  }

  async #balance(action: BalanceAction): Promise<Balance> {
    return messages.balance(await this.#cluster.call(clusterCalls.balanceCluster, { action }));
  }

  /**
   * Turns on the features of the newest release; no node can go back to an older one afterwards. It
   * returns the features that are on, or throws NOT_SUPPORTED, which names the nodes in the way.
   */
  async finalizeUpgrade(): Promise<UpgradeInfo> {
    return messages.upgradeInfo(
      (await this.#cluster.call(clusterCalls.finalizeUpgrade, {})).upgrade,
    );
  }

  /** Sets a setting of all nodes, and returns all such settings. */
  async setClusterSetting(name: string, value: bigint): Promise<Map<string, bigint>> {
    const request = { setting: { name, value } };
    return messages.settings(
      (await this.#cluster.call(clusterCalls.setClusterSetting, request)).settings,
    );
  }

  /** Has another replica lead (0: the most caught-up one) and returns its id. */
  async transferLeadership(tp: TopicPartition, targetNodeId = 0): Promise<number> {
    const { topic, partition } = tp;
    const request = { topic, partition, targetNodeId };
    return (await this.#cluster.callLeader(tp, clusterCalls.transferLeadership, request)).leaderId;
  }

  // --- permissions and quotas --------------------------------------------------------

  /**
   * Removes rules, then adds others, all or none, and returns how many were new, and were there.
   * After a call without an answer none may be new. Nodes follow a moment later. Throws
   * NOT_AUTHORIZED, INVALID_REQUEST.
   */
  async alterPermissions(
    add: readonly PermissionRule[] = [],
    remove: readonly PermissionRule[] = [],
  ): Promise<{ readonly added: number; readonly removed: number }> {
    const request = {
      add: add.map(messages.ruleMessage),
      remove: remove.map(messages.ruleMessage),
    };
    return messages.plain(await this.#cluster.call(securityCalls.alterPermissions, request));
  }

  /** All rules, or those of one principal, and whether they are enforced. */
  async listPermissions(principal = ""): Promise<Permissions> {
    const answer = await this.#cluster.call(securityCalls.listPermissions, { principal });
    return { ...messages.plain(answer), rules: answer.rules.map(messages.plain) };
  }

  /** Whether a principal (default: this client's) may do something. */
  async checkPermission(
    operation: string,
    kind: string,
    name = "",
    principal = "",
  ): Promise<boolean> {
    const request = { operation, kind, name, principal };
    return (await this.#cluster.call(securityCalls.checkPermission, request)).allowed;
  }

  /**
   * Removes quotas, then sets others, all or none; nodes follow a moment later. Throws
   * NOT_AUTHORIZED, INVALID_REQUEST.
   */
  async alterQuotas(
    quotas: readonly Quota[] = [],
    remove: readonly QuotaKey[] = [],
  ): Promise<void> {
    const request = { set: [...quotas], remove: [...remove] };
    await this.#cluster.call(securityCalls.alterQuotas, request);
  }

  /** All quotas, or those of one principal. */
  async listQuotas(principal = ""): Promise<Quota[]> {
    const answer = await this.#cluster.call(securityCalls.listQuotas, { principal });
    return answer.quotas.map(messages.plain);
  }

  // --- producers ---------------------------------------------------------------------

  /** Leases a producer id; with a name, its id with the epoch raised by one. */
  async leaseProducer(producerName?: string): Promise<ProducerLease> {
    const request = producerName === undefined ? {} : { producerName, nonce: nonce() };
    return messages.plain(await this.#cluster.call(producerCalls.leaseProducer, request));
  }

  /** Raises a name's epoch for nobody: shuts its holder out. */
  async fenceProducer(producerName: string): Promise<ProducerEpoch> {
    const request = { producerName, nonce: nonce() };
    return messages.plain(await this.#cluster.call(producerCalls.fenceProducer, request));
  }

  /** All names, as the node that answers knows them. */
  async listProducerNames(): Promise<ProducerName[]> {
    return (await this.#cluster.call(producerCalls.listProducerNames, {})).names.map(
      messages.plain,
    );
  }

  /** The producers that a partition remembers, or one of them (0: all), at most limit. */
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
        states.push(messages.producerState(one));
      }
      if (producerId !== 0n || answer.producers.length < page) break;
    }
    return states;
  }

  /** Outcome of a record without an acknowledgement. */
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
    return answer.transactions.map(messages.transactionInfo);
  }

  /**
   * An open transaction, or an ended one if its owner has begun no other since. Throws
   * UNKNOWN_TRANSACTION for any other.
   */
  async describeTransaction(transactionId: bigint): Promise<TransactionInfo> {
    const call = transactionCalls.describeTransaction;
    return messages.transactionInfo(
      (await this.#cluster.call(call, { transactionId })).transaction,
    );
  }

  /** Drops the staged records of any owner. Throws TRANSACTION_COMMITTED if it is too late. */
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

  /**
   * A group's lag in records, with its members and committed offsets. No partition is missing: one
   * without an answer within 2 s has an error instead of a lag.
   */
  async groupLag(group: string): Promise<GroupLag> {
    return lagOf(await this.#groups.describe(group), this.#cluster);
  }

  /**
   * Forgets a group and its offsets, and tells whether there was one: true also if an attempt without
   * an answer may have deleted it.
   */
  deleteGroup(group: string): Promise<boolean> {
    return this.#groups.delete(group);
  }
  // --- sinks -------------------------------------------------------------------------

  /** Outputs of queries and jobs, by name, and the committed batch of each. */
  async listSinks(): Promise<SinkInfo[]> {
    const found: SinkInfo[] = [];
    while (true) {
      const request = { after: found.at(-1)?.sink ?? "", limit: LIST_PAGE };
      const { sinks } = await this.#cluster.call(sinkCalls.listSinks, request);
      found.push(...sinks.map(messages.sinkInfo));
      if (sinks.length < LIST_PAGE) return found;
    }
  }

  /** Throws UNKNOWN_TRANSACTION if there is none. */
  async describeSink(sink: string): Promise<SinkInfo> {
    return messages.sinkInfo((await this.#cluster.call(sinkCalls.describeSink, { sink })).sink);
  }

  /** Takes the next batch of any query; runs of before write nothing more. */
  async resetSink(sink: string): Promise<void> {
    await this.#cluster.call(sinkCalls.resetSink, { sink });
  }
}
