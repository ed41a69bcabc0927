/**
 * Which node a consumer asks for a partition, and when: the leader, a near replica or, if any
 * replica will do, one of them that is not known to be damaged; after a failure not before a pause
 * that grows.
 */

import { now } from "./clock.js";
import type { Cluster } from "./cluster.js";
import type { ConsumerConfig } from "./config.js";
import { PartitionError } from "./gen/oncelog/v1/log_pb.js";
import { PartitionMap, type TopicPartition } from "./types.js";

/** For how long a near replica is left out after a failure; doubled by each further one, */
const FAR_FOR = 10_000;
/** up to this. */
const MOST_FAR_FOR = 60_000;

export class Routes {
  readonly #notBefore = new PartitionMap<number>();
  readonly #failures = new PartitionMap<number>();
  // Replicas that cannot read their log, where another may be asked.
  readonly #damaged = new PartitionMap<Set<string>>();
  // Near replicas that have failed, by address: when to ask them again, after which pause.
  readonly #far = new PartitionMap<Map<string, { until: number; pause: number }>>();
  readonly #outdated = new Set<string>();

  constructor(
    readonly config: ConsumerConfig,
    readonly cluster: Cluster,
  ) {}

  /** Where to go for records; "": it is not known. */
  address(tp: TopicPartition): string {
    return this.#near(tp) || this.offsetAddress(tp);
  }

  /** A replica in the client's rack; "": the leader is to be asked. */
  #near(tp: TopicPartition): string {
    const { rack } = this.config;
    const { leaders } = this.cluster;
    const known = leaders.leader(tp);
    if (rack === null || known === undefined) return "";
    const near = known.replicas.filter((id) => leaders.racks.get(id) === rack);
    if (near.includes(known.nodeId)) return "";
    const turn = tp.partition % near.length;
    const inTurn = [...near.slice(turn), ...near.slice(0, turn)];
    const far = this.#far.get(tp);
    const addresses = inTurn.map((id) => leaders.nodes.get(id) ?? "");
    return addresses.find((address) => now() >= (far?.get(address)?.until ?? 0)) ?? "";
  }

  /** Whether this node is asked because it is near, not because it leads. */
  #isNear(tp: TopicPartition, address: string): boolean {
    const leads = this.cluster.leaders.leader(tp)?.address === address;
    return this.config.rack !== null && address !== "" && !leads;
  }

  /** Whether to ask another node than this silent one: the leader, if it is only near. */
  isElsewhere(tp: TopicPartition, address: string): boolean {
    return this.address(tp) !== address || this.#isNear(tp, address);
  }

  /** Where to ask for an offset; "": it is not known. */
  offsetAddress(tp: TopicPartition): string {
    const { leaders } = this.cluster;
    const known = leaders.leader(tp);
    if (known === undefined) return "";
    if (!this.config.anyReplica) return known.address;
    const chosen = this.config.replicaNodeId;
    if (chosen !== null) {
      return known.replicas.includes(chosen) ? (leaders.nodes.get(chosen) ?? "") : "";
    }
    const all = known.replicas.flatMap((id) => leaders.nodes.get(id) ?? []);
    const sound = all.filter((address) => !this.#isDamaged(tp, address));
    const choice = sound.length > 0 ? sound : all;
    // Spread, but always the same for a partition until it fails.
    return choice[(tp.partition + (this.#failures.get(tp) ?? 0)) % choice.length] ?? "";
  }

  #isDamaged(tp: TopicPartition, address: string): boolean {
    return this.#damaged.get(tp)?.has(address) ?? false;
  }

  /** The time from which the partition may be asked for. */
  readyAt(tp: TopicPartition): number {
    return this.#notBefore.get(tp) ?? 0;
  }

  answered(tp: TopicPartition, address: string): void {
    this.#failures.delete(tp);
    this.#far.get(tp)?.delete(address);
  }

  /** Topics to ask for again: a near replica has failed, and may have moved. */
  takeOutdated(): string[] {
    const topics = [...this.#outdated];
    this.#outdated.clear();
    return topics;
  }

  /** Nothing from this node. Ask for the leader, after a pause that grows. */
  failed(tp: TopicPartition, address: string): void {
    const failures = (this.#failures.get(tp) ?? 0) + 1;
    this.#failures.set(tp, failures);
    this.#notBefore.set(tp, now() + this.cluster.backoff.delay(failures - 1));
    if (this.#isNear(tp, address)) {
      const far = this.#far.get(tp) ?? new Map<string, { until: number; pause: number }>();
      const pause = Math.min(2 * (far.get(address)?.pause ?? FAR_FOR / 2), MOST_FAR_FOR);
      this.#far.set(tp, far.set(address, { until: now() + pause, pause }));
      this.#outdated.add(tp.topic);
    }
    this.cluster.leaders.forget(tp, address);
    this.cluster.leaderFailed(address, failures);
  }

  /** The node refused, and perhaps named the leader. */
  leadsElsewhere(
    tp: TopicPartition,
    address: string,
    leaderId: number,
    leaderAddress: string,
  ): void {
    this.failed(tp, address);
    if (leaderAddress !== address) this.cluster.leaders.hint(tp, leaderId, leaderAddress);
  }

  /** Whether, after an error, the replica is damaged and a sound one may be asked. */
  elsewhere(tp: TopicPartition, address: string, error: PartitionError): boolean {
    if (error === PartitionError.STORAGE && this.#isNear(tp, address)) return true;
    if (error === PartitionError.STORAGE && this.config.anyReplica) {
      this.#damaged.set(tp, (this.#damaged.get(tp) ?? new Set()).add(address));
    }
    return this.#isDamaged(tp, address) && !this.#isDamaged(tp, this.address(tp));
  }
}
