/**
 * The consumer's work when its partitions change: when the user polls, between two records.
 *
 *     GroupMember --Change--> FetchBuffer --interruption--> Rebalance --> onLost, onRevoked,
 *     owned, commits <-- GroupMember <---------------------'             onAssigned
 */

import { type FetchBuffer, UNKNOWN_POSITION } from "./buffer.js";
import { now } from "./clock.js";
import type { ConsumerConfig } from "./config.js";
import { OncelogError } from "./errors.js";
import type { Change, GroupMember } from "./member.js";
import { PartitionMap, type TopicPartition } from "./types.js";

export class Rebalance {
  /** Under which ownership the records of each partition are being read. */
  readonly numbers = new PartitionMap<bigint>();
  readonly #stored = new PartitionMap<bigint>(); // by automatic commits
  #commitAt: number;

  constructor(
    readonly config: ConsumerConfig,
    readonly buffer: FetchBuffer,
    readonly member: GroupMember,
    readonly wakeFetcher: () => void,
  ) {
    this.#commitAt = now() + config.autoCommitIntervalMs;
  }

  /** When there is something to do, without any event. */
  get dueAt(): number {
    return this.config.enableAutoCommit ? this.#commitAt : Number.POSITIVE_INFINITY;
  }

  /** Does all that is due. Throws callbacks' errors, and the error that ended the membership. */
  async follow(): Promise<void> {
    const errors: unknown[] = [];
    const { interruptions } = this.buffer;
    // A change is taken out when it is carried out, all of it, even if callbacks throw.
    for (let [change] = interruptions; change !== undefined; [change] = interruptions) {
      errors.push(...(await this.#take(change)));
      interruptions.shift();
    }
    if (this.member.error !== undefined) errors.push(this.member.error);
    if (errors.length > 0) throw errors[0];
    if (now() >= this.dueAt) await this.#commit(this.numbers.keys());
  }

  /** The consumer closes. `failed`: the records given out last may not have been worked on. */
  async leave(failed: boolean): Promise<void> {
    const tps = this.numbers.keys();
    try {
      if (!failed) await this.#finish(tps, now() + this.config.revokeTimeoutMs);
      else if (tps.length > 0) await this.config.onLost?.(tps);
    } finally {
      this.#drop(tps);
      await this.member.leave();
    }
  }

  /** All of it; callbacks' errors are returned. */
  async #take(change: Change): Promise<unknown[]> {
    const errors: unknown[] = [];
    const attempt = (task: () => Promise<void>) => task().catch((e: unknown) => errors.push(e));
    await attempt(() => this.#lose(change));
    if (change.ended) this.member.comesBack();
    if (change.step.revoked.length > 0) await attempt(() => this.#giveBack(change));
    if (change.step.assigned.size > 0) await attempt(() => this.#gain(change));
    return errors;
  }

  async #lose(change: Change): Promise<void> {
    const lost = change.step.lost.filter((tp) => this.numbers.has(tp));
    this.#drop(lost);
    if (lost.length > 0) await this.config.onLost?.(lost);
  }

  async #giveBack(change: Change): Promise<void> {
    const asked = this.member.askedBack(change);
    const known = asked.filter((tp) => this.numbers.has(tp));
    let again: TopicPartition[] = [];
    try {
      await this.#finish(known, change.deadline);
    } finally {
      const kept = new PartitionMap<true>();
      for (const tp of this.member.release(change, asked)) kept.set(tp, true);
      this.#drop(known.filter((tp) => !kept.has(tp)));
      again = known.filter((tp) => kept.has(tp));
    }
    // A new connection has begun meanwhile, and said that they are held.
    if (again.length > 0) await this.config.onAssigned?.(again);
  }

  async #gain(change: Change): Promise<void> {
    const fresh = this.member.stillOwned(change.step.assigned);
    if (fresh.length === 0) return;
    for (const [tp, number] of fresh) this.numbers.set(tp, number);
    const tps = fresh.map(([tp]) => tp);
    this.buffer.assign([...this.buffer.assignment, ...tps]);
    this.wakeFetcher();
    await this.config.onAssigned?.(tps);
  }

  /** The records given out are worked on and committed. */
  async #finish(tps: readonly TopicPartition[], deadline: number): Promise<void> {
    if (tps.length === 0) return;
    try {
      const left = Math.min(Math.max(0, Math.floor(deadline - now())), 2 ** 31 - 1);
      await this.config.onRevoked?.(tps, AbortSignal.timeout(left));
    } finally {
      if (this.config.enableAutoCommit) await this.#commit(tps);
    }
  }

  /** The user's places, as far as they have moved. */
  async #commit(tps: readonly TopicPartition[]): Promise<void> {
    this.#commitAt = now() + this.config.autoCommitIntervalMs;
    const moved = tps
      .map((tp) => ({ ...tp, offset: this.buffer.place(tp) }))
      .filter((one) => one.offset !== UNKNOWN_POSITION && one.offset !== this.#stored.get(one));
    if (moved.length === 0) return;
    try {
      const terms = this.member.commitTerms(moved, this.numbers);
      await this.member.groups.commit(this.member.group, moved, terms);
    } catch (e) {
      // The next one stores it, or nobody may.
      if (e instanceof OncelogError && (e.retriable || e.kind === "FENCED_MEMBER")) return;
      throw e;
    }
    for (const { topic, partition, offset } of moved)
      this.#stored.set({ topic, partition }, offset);
  }

  #drop(tps: readonly TopicPartition[]): void {
    if (tps.length === 0) return;
    const gone = new PartitionMap<true>();
    for (const tp of tps) {
      gone.set(tp, true);
      this.numbers.delete(tp);
      this.#stored.delete(tp);
    }
    this.buffer.assign(this.buffer.assignment.filter((tp) => !gone.has(tp)));
  }
}
