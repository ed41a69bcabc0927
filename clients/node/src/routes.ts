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

/** For how long the leader is asked after a near replica has failed or refused. */
const FAR_FOR = 10_000;

export class Routes {
  readonly #notBefore = new PartitionMap<number>();
  readonly #failures = new PartitionMap<number>();
  // Replicas that cannot read their log, where another may be asked.
  readonly #damaged = new PartitionMap<Set<string>>();
  readonly #nearFrom = new PartitionMap<number>();

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
    if (rack === null || known === undefined || now() < (this.#nearFrom.get(tp) ?? 0)) return "";
    const near = known.replicas.filter((id) => leaders.racks.get(id) === rack);
    if (near.includes(known.nodeId)) return "";
    return leaders.nodes.get(near[tp.partition % near.length] ?? 0) ?? "";
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

  answered(tp: TopicPartition): void {
    this.#failures.delete(tp);
  }

  /** Nothing from this node. Ask who leads, after a pause that grows. */
  failed(tp: TopicPartition, address: string): void {
    const failures = (this.#failures.get(tp) ?? 0) + 1;
    this.#failures.set(tp, failures);
    this.#notBefore.set(tp, now() + this.cluster.backoff.delay(failures - 1));
    if (this.#isNear(tp, address)) this.#nearFrom.set(tp, now() + FAR_FOR);
    this.cluster.leaders.forget(tp, address);
    this.cluster.leaderFailed(address, failures);
  }

  /** The node refused, and perhaps said who leads. */
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
