/** Finds offsets to start from: where a group stands, where a log begins and ends. */

import { Attempts } from "./attempts.js";
import { now, sleep } from "./clock.js";
import { type Cluster, isUnknownTopic, MAX_LEADER_FAILURES, noPartition } from "./cluster.js";
import type { ConsumerConfig } from "./config.js";
import { OncelogError } from "./errors.js";
import { LogService, type OffsetResult, PartitionError } from "./gen/oncelog/v1/log_pb.js";
import { Groups } from "./groups.js";
import type { Growth } from "./growth.js";
import type { GroupMember } from "./member.js";
import type { Routes } from "./routes.js";
import { keyOf, PartitionMap, type TopicPartition } from "./types.js";

/** Requested partitions: an end of the log, or a time in microseconds since the Unix epoch. */
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

/** Findings of a search for offsets, and errors of partitions. */
export class Search {
  readonly found = new PartitionMap<bigint>();
  readonly #attempts = new PartitionMap<Attempts>();

  constructor(
    readonly onFound: (tp: TopicPartition, offset: bigint) => void = () => {},
    readonly isWanted: (tp: TopicPartition) => boolean = () => true,
  ) {}

  take({ topic, partition }: TopicPartition, offset: bigint): void {
    const tp = { topic, partition };
    this.found.set(tp, offset);
    this.#attempts.delete(tp);
    this.onFound(tp, offset);
  }

  lacks(tp: TopicPartition, problem: OncelogError): void {
    const attempts = this.#attempts.get(tp) ?? new Attempts();
    this.#attempts.set(tp, attempts);
    attempts.failed(problem);
  }

  /** Of these, the ones that are wanted and may be found yet. */
  left(tps: readonly TopicPartition[]): TopicPartition[] {
    return tps.filter((tp) => {
      const mayBe = !isFinal(this.#attempts.get(tp)?.last);
      return mayBe && !this.found.has(tp) && this.isWanted(tp);
    });
  }

  /** Errors of partitions. */
  get problems(): PartitionMap<OncelogError> {
    const problems = new PartitionMap<OncelogError>();
    for (const [tp, attempts] of this.#attempts) {
      const { last } = attempts;
      problems.set(tp, last !== undefined && isFinal(last) ? last : attempts.error());
    }
    return problems;
  }

  /** Throws the errors of partitions, all of them named. */
  check(limit: number): void {
    const [first, ...others] = [...this.problems];
    if (first === undefined) return;
    const [tp, problem] = first;
    if (others.length === 0) throw problem;
    const names = [tp, ...others.map(([one]) => one)].map(keyOf);
    const text = `no offsets of ${names.join(", ")} within ${limit} ms: ${problem.message}`;
    throw new OncelogError(problem.kind, text, problem.details, problem.outcome, problem);
  }
}

/** Whether to ask again is of no use. */
function isFinal(problem: OncelogError | undefined): boolean {
  return problem !== undefined && (!problem.retriable || isUnknownTopic(problem));
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
   * Where to begin: the fresh ones where the group stands, or by the reset policy, the others where
   * it is said. It goes on until all have their place, but for those that never can.
   */
  async start(
    fresh: readonly TopicPartition[],
    places: PartitionMap<Place>,
    search: Search,
  ): Promise<void> {
    const { groupId, autoOffsetReset } = this.config;
    if (groupId !== null && fresh.length > 0) {
      const { member } = this;
      const lost = fresh.find((tp) => member !== undefined && !member.machine.owned.has(tp));
      if (lost !== undefined) {
        throw new OncelogError("FENCED_MEMBER", `${keyOf(lost)}: the group has taken it back`);
      }
      const committed = await this.groups.committed(groupId, fresh, member?.terms());
      for (const one of committed) search.take(one, one.offset);
    }
    const queries = new PartitionMap<Place>();
    for (const [tp, place] of places) queries.set(tp, place);
    for (const tp of search.left(fresh)) {
      if (autoOffsetReset === "none") {
        const text = `${keyOf(tp)}: no position, and autoOffsetReset is none: seek first`;
        search.lacks(tp, new OncelogError("OFFSET_OUT_OF_RANGE", text));
        continue;
      }
      // Whether it was added later is told with its leader.
      if (!this.cluster.leaders.leader(tp)) await this.#learn(tp.topic, [tp], search);
      queries.set(tp, this.growth.beginsAtStart(tp) ? "earliest" : autoOffsetReset);
    }
    await this.search(queries, search, Number.POSITIVE_INFINITY);
  }

  /** Offsets, as `search`; throws a partition's error. -1: no such record. */
  async list(queries: PartitionMap<Place>): Promise<PartitionMap<bigint>> {
    const search = new Search();
    await this.search(queries, search, this.config.requestTimeoutMs);
    search.check(this.config.requestTimeoutMs);
    return search.found;
  }

  /** Offsets, following leader changes. A partition without a leader holds up no other one. */
  async search(queries: PartitionMap<Place>, search: Search, limit: number): Promise<void> {
    const deadline = now() + limit;
    const { leaders } = this.cluster;
    const all = queries.keys();
    let unknown = all.filter((tp) => leaders.leader(tp) === undefined);
    for (let failures = 1; ; failures++) {
      for (const topic of new Set(unknown.map((tp) => tp.topic))) {
        const tps = unknown.filter((tp) => tp.topic === topic);
        await this.#learn(topic, tps, search, deadline);
      }
      await this.#searchOnce(search.left(all), queries, search);
      unknown = search.left(all);
      if (unknown.length === 0 || now() >= deadline) return;
      // The node that is asked may be cut off, and know of no leader.
      if (failures % MAX_LEADER_FAILURES === 0) this.cluster.preferAnother();
      await sleep(this.cluster.backoff.delay(failures), this.cluster.signal);
    }
  }

  /** Asks for the leaders of a topic's partitions. */
  async #learn(
    topic: string,
    tps: readonly TopicPartition[],
    search: Search,
    deadline = Number.POSITIVE_INFINITY,
  ): Promise<void> {
    let problem: OncelogError | undefined;
    try {
      const left = Math.min(this.config.requestTimeoutMs, deadline - now());
      await this.cluster.requireTopic(topic, Math.max(100, left));
    } catch (e) {
      if (!(e instanceof OncelogError) || e.kind === "CLIENT_CLOSED") throw e;
      problem = e; // nobody is there to ask, or there is no such topic
    }
    for (const tp of tps) {
      if (problem !== undefined) search.lacks(tp, problem);
      else if (this.cluster.leaders.leader(tp) === undefined) search.lacks(tp, noPartition(tp));
    }
  }

  /** Asks all nodes at the same time: one that hangs holds up its own partitions only. */
  async #searchOnce(
    tps: readonly TopicPartition[],
    queries: PartitionMap<Place>,
    search: Search,
  ): Promise<void> {
    const byNode = new Map<string, TopicPartition[]>();
    for (const tp of tps) {
      const address = this.routes.offsetAddress(tp);
      if (address === "") {
        search.lacks(tp, new OncelogError("NOT_READY", `${keyOf(tp)} has no leader`));
      } else byNode.set(address, [...(byNode.get(address) ?? []), tp]);
    }
    await Promise.all(
      [...byNode].map(([address, asked]) => this.#ask(address, asked, queries, search)),
    );
  }

  async #ask(
    address: string,
    tps: TopicPartition[],
    queries: PartitionMap<Place>,
    search: Search,
  ): Promise<void> {
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
      if (results.length !== tps.length) {
        const text = `the node gave ${results.length} answers to ${tps.length} questions`;
        throw new OncelogError("INTERNAL", text);
      }
    } catch (e) {
      if (!(e instanceof OncelogError) || e.kind === "CLIENT_CLOSED") throw e;
      for (const tp of tps) {
        if (e.retriable) this.routes.failed(tp, address);
        search.lacks(tp, e);
      }
      return;
    }
    for (const [i, tp] of tps.entries())
      this.#take(tp, results[i] as OffsetResult, address, search);
  }

  #take(tp: TopicPartition, result: OffsetResult, address: string, search: Search): void {
    const { error } = result;
    if (error === PartitionError.NONE) {
      search.take(tp, result.offset);
      return;
    }
    this.routes.leadsElsewhere(tp, address, result.leaderId, result.leaderAddress);
    const text = textOf(error, result.message);
    const isDamaged =
      error === PartitionError.STORAGE && !this.routes.elsewhere(tp, address, error);
    search.lacks(
      tp,
      isDamaged ? corrupt(tp, -1n, text) : new OncelogError("NOT_READY", `${keyOf(tp)}: ${text}`),
    );
  }
}
