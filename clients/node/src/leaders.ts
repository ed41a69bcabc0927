/** A client's view of topics. */

import type { DescribeTopicsResponse, PartitionInfo } from "./gen/oncelog/v1/cluster_pb.js";
import type { TopicPartition } from "./types.js";

const DEFAULT_MAX_BATCH_BYTES = 4 << 20;
/** Of a topic: far above the limits of a cluster. */
const MOST_PARTITIONS = 1_000_000;

/** Known leader of a partition. An address that is not known is "". */
export interface Leader {
  nodeId: number;
  address: string;
  term: bigint;
  /** A node refused and named this one instead, without a term: another may know better. */
  hinted: boolean;
  /** The node that did so; "": none, or its word has been doubted since. */
  refused: string;
  /** The newest answer names nobody; the address that is known stays, nodes may be behind. */
  leaderless: boolean;
  replicas: readonly number[];
  /** After the topic's creation. */
  added: boolean;
}

export interface TopicView {
  id: bigint;
  maxBatchBytes: number;
  partitions: Leader[];
}

/**
 * News of an older term never replaces a newer leader, so a node that is behind cannot send a
 * client back.
 */
export class Leaders {
  readonly nodes = new Map<number, string>();
  /** The labels of the same nodes; "": the node has none. */
  readonly racks = new Map<number, string>();
  readonly topics = new Map<string, TopicView>();
  /** How often a topic was found to be another one of the same name. */
  recreations = 0;
  /** Nodes to which the last connection failed, and no other was made since. */
  readonly unreachable = new Set<string>();

  update(answer: DescribeTopicsResponse): void {
    for (const node of answer.nodes) {
      if (node.address === "") continue;
      this.nodes.set(node.nodeId, node.address);
      this.racks.set(node.nodeId, node.rack);
    }
    for (const topic of answer.topics) {
      let view = this.topics.get(topic.name);
      // The node has not heard yet that this one was deleted: ids only rise.
      if (view !== undefined && topic.topicId < view.id) continue;
      if (view?.id !== topic.topicId) {
        if (view !== undefined) this.recreations++;
        // Deleted and created again: terms start anew.
        view = { id: topic.topicId, maxBatchBytes: DEFAULT_MAX_BATCH_BYTES, partitions: [] };
        this.topics.set(topic.name, view);
      }
      const limit = topic.config?.maxBatchBytes ?? 0;
      if (limit > 0) view.maxBatchBytes = limit;
      for (const info of topic.partitions) {
        if (info.partition < 0 || info.partition >= MOST_PARTITIONS) continue; // no node says so
        while (view.partitions.length <= info.partition) {
          view.partitions.push({
            nodeId: 0,
            address: "",
            term: -1n,
            hinted: false,
            refused: "",
            leaderless: true,
            replicas: [],
            added: false,
          });
        }
        const known = view.partitions[info.partition];
        if (known !== undefined) this.#updateLeader(known, info);
      }
    }
  }

  #updateLeader(known: Leader, info: PartitionInfo): void {
    known.replicas = info.replicas;
    known.added = info.addedMs > 0n;
    const address = this.nodes.get(info.leaderId) ?? "";
    if (info.term < known.term) return;
    known.leaderless = address === "";
    if (known.leaderless) return;
    if (info.term === known.term && known.address !== "") {
      // It led in this term, and does not any more.
      if (address === known.refused) return;
      // Same term, same leader; but its address may be news.
      if (!known.hinted && info.leaderId !== known.nodeId) return;
    }
    known.nodeId = info.leaderId;
    known.address = address;
    known.term = info.term;
    known.hinted = false;
    known.refused = "";
  }

  leader(tp: TopicPartition): Leader | undefined {
    return this.topics.get(tp.topic)?.partitions[tp.partition];
  }

  /** 0: nothing is known of the topic. */
  topicId(topic: string): bigint {
    return this.topics.get(topic)?.id ?? 0n;
  }

  /** The topic is known, without this partition: it was created again, with fewer. */
  isGone(tp: TopicPartition): boolean {
    const count = this.topics.get(tp.topic)?.partitions.length ?? 0;
    return count > 0 && tp.partition >= count;
  }

  address(tp: TopicPartition): string {
    return this.leader(tp)?.address ?? "";
  }

  /** Takes over the leader named by a node that refused as not the leader. */
  hint(tp: TopicPartition, nodeId: number, address: string): void {
    const known = this.leader(tp);
    if (known === undefined || address === "") return;
    if (!this.nodes.has(nodeId)) this.nodes.set(nodeId, address);
    if (known.address !== address) {
      known.refused = known.address;
      known.hinted = true;
    }
    known.nodeId = nodeId;
    known.address = address;
    known.leaderless = false;
  }

  /** Whether it has a leader, as far as is known, and that one can be reached. */
  isAvailable(tp: TopicPartition): boolean {
    const known = this.leader(tp);
    return known !== undefined && this.#isAvailable(known);
  }

  #isAvailable(known: Leader): boolean {
    if (known.leaderless || known.address === "") return false;
    return this.unreachable.size === 0 || !this.unreachable.has(known.address);
  }

  /** Any available partition of a topic; of all, if none is. */
  anyPartition({ partitions }: TopicView): number {
    const partition = Math.floor(Math.random() * partitions.length);
    const known = partitions[partition];
    if (known !== undefined && this.#isAvailable(known)) return partition; // as nearly always
    const all = partitions.map((one, number) => (this.#isAvailable(one) ? number : -1));
    const left = all.filter((number) => number >= 0);
    return left[Math.floor(Math.random() * left.length)] ?? partition;
  }

  /** Topics to ask for again, and nodes to connect to again: somebody may be back. */
  lacking(): { topics: string[]; addresses: string[] } {
    const topics = new Set<string>();
    const used = new Set<string>();
    for (const [topic, { partitions }] of this.topics) {
      for (const one of partitions) {
        if (one.leaderless || one.address === "") topics.add(topic);
        else used.add(one.address);
      }
    }
    for (const address of this.unreachable)
      if (!used.has(address)) this.unreachable.delete(address);
    return { topics: [...topics], addresses: [...this.unreachable] };
  }

  /** The supposed leader does not lead, and names nobody. Any node's word may take its place. */
  suspect(tp: TopicPartition): void {
    const known = this.leader(tp);
    if (known !== undefined) known.refused = "";
  }

  /** This node does not lead the partition, in spite of the client's view. */
  forget(tp: TopicPartition, address: string): void {
    const known = this.leader(tp);
    if (known?.address === address) {
      known.address = "";
      known.hinted = false;
      known.refused = "";
    }
  }
}
