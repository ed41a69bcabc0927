/** Finds offsets to start from: where a group stands, where a log begins and ends. */

import { now, sleep } from "./clock.js";
import { type Cluster, noPartition } from "./cluster.js";
import type { ConsumerConfig } from "./config.js";
import { OncelogError } from "./errors.js";
import { LogService, type OffsetResult, PartitionError } from "./gen/oncelog/v1/log_pb.js";
import { Groups } from "./groups.js";
import type { Growth } from "./growth.js";
import type { GroupMember } from "./member.js";
import type { Routes } from "./routes.js";
import { keyOf, PartitionMap, type TopicPartition } from "./types.js";

/** What is asked for: an end of the log, or a time in microseconds since the Unix epoch. */
export type Place = "earliest" | "latest" | bigint;

export function corrupt(tp: TopicPartition, offset: bigint, text: string): OncelogError {
  return new OncelogError("CORRUPT_LOG", `${keyOf(tp)}: ${text}`, { ...tp, offset });
}

export function textOf(error: PartitionError, message: string): string {
  return message || PartitionError[error] || `error ${error}`;
}

function position(at: Place) {
  if (at === "earliest") return { case: "earliest", value: true } as const;
  if (at === "latest") return { case: "latest", value: true } as const;
  return { case: "timestampUs", value: at } as const;
}

export class Positions {
  readonly groups: Groups;
  /** Of the group, if it shares its partitions. */
  member: GroupMember | undefined;

  constructor(
    readonly config: ConsumerConfig,
    readonly cluster: Cluster,
    readonly routes: Routes,
    readonly growth: Growth,
  ) {
    this.groups = new Groups(cluster);
  }

  /**
   * Where to begin. Partitions in fresh may go on where the group stands. What was found before an
   * error is in `found`.
   */
  async start(
    missing: readonly TopicPartition[],
    fresh: readonly TopicPartition[],
    found: PartitionMap<bigint>,
  ): Promise<void> {
    const { groupId, autoOffsetReset } = this.config;
    if (groupId !== null && fresh.length > 0) {
      const { member } = this;
      const lost = fresh.find((tp) => member !== undefined && !member.machine.owned.has(tp));
      if (lost !== undefined) {
        throw new OncelogError("FENCED_MEMBER", `${keyOf(lost)}: the group has taken it back`);
      }
      const committed = await this.groups.committed(groupId, fresh, member?.terms());
      for (const one of committed) found.set(one, one.offset);
    }
    const left = missing.filter((tp) => !found.has(tp));
    if (left.length === 0) return;
    if (autoOffsetReset === "none") {
      const text = "no position, and autoOffsetReset is none: seek first";
      throw new OncelogError("OFFSET_OUT_OF_RANGE", text);
    }
    const queries = new PartitionMap<Place>();
    for (const tp of left) {
      await this.#learn(tp);
      const isFresh = fresh.some((one) => keyOf(one) === keyOf(tp));
      const fromStart = isFresh && this.growth.beginsAtStart(tp);
      queries.set(tp, fromStart ? "earliest" : autoOffsetReset);
    }
    await this.list(queries, found);
  }

  /** Offsets, following leader changes for the request timeout. -1: no such record. */
  async list(
    queries: PartitionMap<Place>,
    found = new PartitionMap<bigint>(),
  ): Promise<PartitionMap<bigint>> {
    const deadline = now() + this.config.requestTimeoutMs;
    for (const tp of queries.keys()) await this.#learn(tp);
    for (let failures = 1; ; failures++) {
      const problem = await this.#listOnce(queries, found);
      if (problem === undefined) return found;
      if (!problem.retriable || now() >= deadline) throw problem;
      await sleep(this.cluster.backoff.delay(failures), this.cluster.signal);
      for (const tp of queries.keys()) {
        if (!found.has(tp)) {
          await this.cluster.requireTopic(tp.topic, Math.max(100, deadline - now()));
        }
      }
    }
  }

  /** Asks for a partition that is not known yet. */
  async #learn(tp: TopicPartition): Promise<void> {
    const { leaders } = this.cluster;
    if (leaders.leader(tp) === undefined) {
      await this.cluster.requireTopic(tp.topic, this.config.requestTimeoutMs);
    }
    if (leaders.leader(tp) === undefined) throw noPartition(tp);
  }

  /** What some of the partitions are lacking for. */
  async #listOnce(
    queries: PartitionMap<Place>,
    found: PartitionMap<bigint>,
  ): Promise<OncelogError | undefined> {
    const byNode = new Map<string, TopicPartition[]>();
    for (const tp of queries.keys()) {
      if (found.has(tp)) continue;
      const address = this.routes.address(tp);
      if (address === "") return new OncelogError("NOT_READY", `${keyOf(tp)} has no leader`);
      byNode.set(address, [...(byNode.get(address) ?? []), tp]);
    }
    let problem: OncelogError | undefined;
    for (const [address, tps] of byNode) {
      const one = await this.#ask(address, tps, queries, found);
      if (one !== undefined && !one.retriable) return one;
      problem = one ?? problem;
    }
    return problem;
  }

  async #ask(
    address: string,
    tps: TopicPartition[],
    queries: PartitionMap<Place>,
    found: PartitionMap<bigint>,
  ): Promise<OncelogError | undefined> {
    const request = {
      anyReplica: this.config.anyReplica,
      queries: tps.map((tp) => ({
        topic: tp.topic,
        partition: tp.partition,
        position: position(queries.get(tp) ?? "latest"),
      })),
    };
    let results: OffsetResult[];
    try {
      const limit = this.config.requestTimeoutMs;
      const method = LogService.method.listOffsets;
      results = (await this.cluster.callAt(address, limit, method, request)).results;
    } catch (e) {
      if (!(e instanceof OncelogError)) throw e;
      if (e.retriable) for (const tp of tps) this.routes.failed(tp, address);
      return e;
    }
    if (results.length !== tps.length) {
      const text = `the node gave ${results.length} answers to ${tps.length} questions`;
      return new OncelogError("INTERNAL", text);
    }
    let problem: OncelogError | undefined;
    for (const [i, tp] of tps.entries()) {
      const one = this.#take(tp, results[i] as OffsetResult, address, found);
      if (one !== undefined && (problem === undefined || !one.retriable)) problem = one;
    }
    return problem;
  }

  #take(
    tp: TopicPartition,
    result: OffsetResult,
    address: string,
    found: PartitionMap<bigint>,
  ): OncelogError | undefined {
    const { error } = result;
    if (error === PartitionError.NONE) {
      found.set(tp, result.offset);
      return undefined;
    }
    this.routes.leadsElsewhere(tp, address, result.leaderId, result.leaderAddress);
    const text = textOf(error, result.message);
    if (error === PartitionError.STORAGE && !this.routes.elsewhere(tp, address, error)) {
      return corrupt(tp, -1n, text);
    }
    return new OncelogError("NOT_READY", `${keyOf(tp)}: ${text}`);
  }
}
