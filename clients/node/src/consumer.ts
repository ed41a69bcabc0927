/** Reads records. */

import { type Chunk, UNKNOWN_POSITION } from "./buffer.js";
import { now } from "./clock.js";
import { Cluster, isUnknownTopic, noPartition } from "./cluster.js";
import { type ConsumerConfig, consumerConfig, isMember } from "./config.js";
import { invalid, OncelogError } from "./errors.js";
import { Fetcher } from "./fetcher.js";
import type { CommitTerms } from "./groups.js";
import { GroupMember } from "./member.js";
import { int32, int64, span, timeOf } from "./numbers.js";
import type { Place } from "./positions.js";
import type { ConnectionStats } from "./reachability.js";
import { Rebalance } from "./rebalance.js";
import { Records } from "./records.js";
import {
  type CommittedOffset,
  keyOf,
  type OffsetCommit,
  PartitionMap,
  type StoredRecord,
  type TopicPartition,
} from "./types.js";

/** Begins a pattern of topics. */
const PATTERN = "^";

/** A partition and an offset in it. */
export interface PartitionOffset extends TopicPartition {
  readonly offset: bigint;
}

/**
 * Reads topics, or assigned partitions, in offset order per partition, each record once per
 * consumer. It survives leader changes and restarts unseen.
 *
 *     const consumer = new Consumer({ autoOffsetReset: "earliest" });
 *     await consumer.subscribe("greetings");
 *     for await (const record of consumer) console.log(record.offset, record.value);
 *
 * With a `groupId` reading starts where the group committed last, if it did. The topics (or
 * patterns of topics, "^...") that are subscribed to are shared out among the group's consumers;
 * partitions come and go while you poll: onAssigned, onRevoked, onLost. With the membership
 * `manual`, or `assign` instead of `subscribe`, the group only keeps offsets. Commits are made by
 * `commit` only, unless `enableAutoCommit` is set.
 */
export class Consumer implements AsyncDisposable, AsyncIterable<StoredRecord> {
  /** The settings in force. */
  readonly config: Readonly<ConsumerConfig>;
  readonly #cluster: Cluster;
  readonly #fetcher: Fetcher;
  #rebalance: Rebalance | undefined; // of a member of a group
  #closed = false;
  #isLeaving = false;
  #isPolled = false;
  #subscribed: readonly string[] = [];

  /**
   * Throws INVALID_CONFIG for settings that are out of range or contradict each other. No node is
   * asked yet.
   */
  constructor(config: Partial<ConsumerConfig> = {}) {
    const all = consumerConfig(config);
    this.config = all;
    this.#cluster = new Cluster(all);
    this.#fetcher = new Fetcher(all, this.#cluster);
  }

  // --- partitions to read -------------------------------------------------------------

  /**
   * Reads all partitions of these topics, also those that come later, and nothing else; a member of
   * a group its share of them. It returns when the group has answered.
   */
  async subscribe(...topics: string[]): Promise<void> {
    if (isMember(this.config)) {
      await this.#join(topics);
      return;
    }
    if (topics.some((topic) => topic.startsWith(PATTERN))) {
      throw invalid("topics", "patterns of topics are for members of a group");
    }
    for (const topic of topics) await this.#learn(topic);
    this.#fetcher.growth.subscribe(topics);
    this.#subscribed = topics;
    this.#fetcher.wake();
  }

  /**
   * The topics, and patterns of topics, of `subscribe`, in order; none after `assign` or
   * `unsubscribe`.
   */
  get subscription(): string[] {
    return [...new Set(this.#subscribed)].sort();
  }

  /**
   * Reads nothing any more. A member of a group finishes the records it was given, as `close` does,
   * and leaves, not while a poll waits; its next `subscribe` joins again.
   */
  async unsubscribe(): Promise<void> {
    const rebalance = this.#rebalance;
    if (rebalance !== undefined) this.#beginTurn();
    try {
      await rebalance?.leave(false);
    } finally {
      if (rebalance !== undefined) {
        this.#isPolled = false;
        this.#forgetGroup();
      }
      this.#subscribed = [];
      this.#fetcher.growth.assign([]);
      this.#fetcher.wake();
    }
  }

  /** One poll at a time, and none while a member leaves. */
  #beginTurn(): void {
    if (this.#isPolled) {
      const text = "another poll of this consumer is waiting: await it, or abort its signal, first";
      throw invalid("consumer", text);
    }
    this.#isPolled = true;
  }

  /** The group's messages mean nothing any more. */
  #forgetGroup(): void {
    const { positions, buffer } = this.#fetcher;
    this.#rebalance = undefined;
    positions.member = undefined;
    buffer.interruptions.splice(0);
    buffer.holdFrom(Number.POSITIVE_INFINITY);
  }

  async #join(topics: string[]): Promise<void> {
    for (const topic of topics) if (!topic.startsWith(PATTERN)) await this.#learn(topic);
    if (this.#rebalance !== undefined) {
      this.#rebalance.member.subscribe(topics);
      this.#subscribed = topics;
      return;
    }
    const { positions, buffer } = this.#fetcher;
    const member = new GroupMember(this.config, this.#cluster, positions.groups, buffer, topics);
    positions.member = member;
    try {
      await member.joined();
    } catch (e) {
      await member.leave();
      this.#forgetGroup();
      throw e;
    }
    const wake = () => this.#fetcher.wake();
    this.#rebalance = new Rebalance(this.config, buffer, member, wake);
    this.#subscribed = topics;
  }

  /** Reads exactly these partitions; those already assigned keep their position. */
  async assign(partitions: readonly TopicPartition[]): Promise<void> {
    if (this.#rebalance !== undefined) {
      const text = "the group assigns the partitions; make the consumer with membership=manual";
      throw invalid("partitions", text);
    }
    for (const tp of partitions) {
      await this.#learn(tp.topic);
      if (this.#cluster.leaders.leader(tp) === undefined) throw noPartition(tp);
    }
    this.#fetcher.growth.assign(partitions);
    this.#subscribed = [];
    this.#fetcher.wake();
  }

  /** The partitions that are read. */
  get assignment(): TopicPartition[] {
    return this.#fetcher.buffer.assignment;
  }

  async #learn(topic: string): Promise<void> {
    if (!this.#cluster.leaders.topics.has(topic)) {
      await this.#cluster.requireTopic(topic, this.config.requestTimeoutMs);
    }
  }

  // --- reading -----------------------------------------------------------------------

  /**
   * Waits until there is a record or time is up, and returns the records there are, at most
   * `maxRecords`.
   *
   * Errors are OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION and CORRUPT_LOG. Reading can go on
   * after them, for instance after a seek; a damaged batch is never skipped, its error comes again
   * until a seek goes elsewhere. Records that were there before the error are returned first. In a
   * group: any error of its callbacks, and errors that end a membership for good, as FENCED_MEMBER.
   *
   * One poll at a time: a second one, while the first waits, throws INVALID_REQUEST. A caller that
   * does not want to wait any longer aborts the signal: the poll throws its reason and has taken no
   * record. A promise that is only dropped goes on waiting, and takes new records.
   */
  async poll(
    timeoutMs = Number.POSITIVE_INFINITY,
    maxRecords = this.config.maxPollRecords,
    signal?: AbortSignal,
  ): Promise<StoredRecord[]> {
    span("timeout_ms", timeoutMs);
    if (maxRecords !== Number.POSITIVE_INFINITY) int32("limit", maxRecords, 1);
    this.#beginTurn();
    const { buffer } = this.#fetcher;
    const wake = () => buffer.changed.notify();
    buffer.comesBack(true);
    signal?.addEventListener("abort", wake);
    try {
      return await this.#take(now() + timeoutMs, maxRecords, signal);
    } finally {
      signal?.removeEventListener("abort", wake);
      buffer.comesBack(false);
      this.#isPolled = false;
    }
  }

  async #take(until: number, maxRecords: number, signal?: AbortSignal): Promise<StoredRecord[]> {
    const { buffer } = this.#fetcher;
    const records: StoredRecord[] = [];
    while (records.length < maxRecords) {
      if (records.length === 0) await this.#rebalance?.follow();
      signal?.throwIfAborted();
      const first = this.#peek(records.length === 0);
      if (first === undefined) {
        if (records.length > 0) return records;
        if (buffer.interruptions.length > 0) continue;
        const due = this.#rebalance?.dueAt ?? until;
        if (!(await buffer.changed.next(Math.min(due, until))) && now() >= until) return records;
        continue;
      }
      try {
        first.take(first.open(this.config.checkCrcs), records, maxRecords - records.length);
      } catch (e) {
        if (records.length === 0) throw e;
        return records; // the error comes with the next call
      }
      buffer.advance(first);
    }
    return records;
  }

  #peek(mayFail: boolean): Chunk | undefined {
    for (;;) {
      try {
        return this.#fetcher.buffer.peek(mayFail);
      } catch (e) {
        // Of a member's: the group will take it away.
        const isFenced = e instanceof OncelogError && e.kind === "FENCED_MEMBER";
        if (this.#rebalance === undefined || !(isFenced || isUnknownTopic(e))) throw e;
      }
    }
  }

  /**
   * All records, as they come; it ends with the consumer. A position moves with each record. Leaving
   * the loop, or `return`, ends a `next` that waits; it has then taken no record. An error does not
   * end it: the next `next` goes on.
   */
  [Symbol.asyncIterator](): AsyncIterableIterator<StoredRecord, undefined> {
    return new Records(
      () => this.#isLeaving,
      (signal) => this.poll(Number.POSITIVE_INFINITY, 1, signal),
    );
  }

  // --- positions ---------------------------------------------------------------------

  /** Goes on at offset in this partition. */
  seek(tp: TopicPartition, offset: bigint): void {
    const whole = int64("offset", offset);
    this.#fetcher.buffer.requireAssigned(tp);
    this.#fetcher.buffer.seek(tp, whole);
  }

  /**
   * Goes to the first record that is kept, in these partitions or in all. One that has no leader for
   * 2 s holds up no other one: it goes there when it has one.
   */
  async seekToBeginning(partitions: readonly TopicPartition[] = this.assignment): Promise<void> {
    await this.#seek(partitions, "earliest");
  }

  /** Goes behind the last record, in these partitions or in all; without a leader as above. */
  async seekToEnd(partitions: readonly TopicPartition[] = this.assignment): Promise<void> {
    await this.#seek(partitions, "latest");
  }

  async #seek(partitions: readonly TopicPartition[], where: Place): Promise<void> {
    for (const tp of partitions) this.#fetcher.buffer.requireAssigned(tp);
    await this.#fetcher.seekAll(partitions, where);
  }

  /**
   * The offset of the next record that will be given out. Waits for a start position that is not
   * known yet. Throws FENCED_MEMBER if the group has just given the partition to another member,
   * which the next poll follows.
   */
  async position(tp: TopicPartition): Promise<bigint> {
    const { buffer } = this.#fetcher;
    const until = now() + this.config.requestTimeoutMs;
    while (true) {
      const position = buffer.position(tp);
      if (position !== UNKNOWN_POSITION) return position;
      if (!(await buffer.changed.next(until))) {
        const text = `${keyOf(tp)}: the start position is not known yet`;
        throw new OncelogError("REQUEST_TIMEOUT", text);
      }
    }
  }

  /** How many records there are to read, from the position to the high watermark. */
  async lag(tp: TopicPartition): Promise<bigint> {
    const position = await this.position(tp);
    const [[begin], [end]] = await Promise.all([
      this.beginningOffsets([tp]),
      this.endOffsets([tp]),
    ]);
    // Records before the start of the log can no longer be read.
    const from = begin !== undefined && begin.offset > position ? begin.offset : position;
    return end !== undefined && end.offset > from ? end.offset - from : 0n;
  }

  /** Each partition's first offset that is kept. */
  beginningOffsets(partitions: readonly TopicPartition[]): Promise<PartitionOffset[]> {
    return this.#list(partitions, "earliest");
  }

  /** Each partition's high watermark: the offset that comes next. */
  endOffsets(partitions: readonly TopicPartition[]): Promise<PartitionOffset[]> {
    return this.#list(partitions, "latest");
  }

  /**
   * Where to start to see everything from this time on; -1: nothing is there. It is the first
   * offset of the first batch with a record at or after the time.
   */
  async offsetsForTime(
    partitions: readonly TopicPartition[],
    at: Date,
  ): Promise<PartitionOffset[]> {
    return this.#list(partitions, timeOf("at", at));
  }

  async #list(partitions: readonly TopicPartition[], where: Place): Promise<PartitionOffset[]> {
    const found = await this.#fetcher.positions.list(everywhere(partitions, where));
    return [...found].map(([tp, offset]) => ({ ...tp, offset }));
  }

  /** How the connection to the cluster has been. */
  get stats(): ConnectionStats {
    return this.#cluster.reachability.stats;
  }

  /** Gives out nothing of these partitions until `resume`. */
  pause(partitions: readonly TopicPartition[]): void {
    for (const tp of partitions) this.#fetcher.buffer.pause(tp, true);
  }

  /** The partitions that are paused. */
  get paused(): TopicPartition[] {
    return this.#fetcher.buffer.paused;
  }

  /** Takes `pause` back. */
  resume(partitions: readonly TopicPartition[]): void {
    for (const tp of partitions) this.#fetcher.buffer.pause(tp, false);
  }

  // --- the group ---------------------------------------------------------------------

  /**
   * Stores these offsets, or the positions of all partitions, as where the group goes on. It
   * returns when they are stored on a majority. A commit with a producer id may be refused with
   * FENCED, OUT_OF_ORDER or SEQUENCE_CONFLICT; in a group with members one with FENCED_MEMBER, for
   * a partition that belongs to another member by now, or with GROUP_HAS_MEMBERS if this consumer
   * is none.
   */
  async commit(offsets?: readonly OffsetCommit[]): Promise<void> {
    const { group, offsets: all, terms } = this.commitTerms(offsets);
    if (all.length > 0) await this.#fetcher.positions.groups.commit(group, all, terms);
  }

  /** @internal The member's part of a commit of these offsets, or of the positions. */
  commitTerms(offsets?: readonly OffsetCommit[]): {
    readonly group: string;
    readonly offsets: readonly OffsetCommit[];
    readonly terms: CommitTerms | undefined;
  } {
    const group = this.#group;
    const all = offsets?.map(checkCommit) ?? this.#positions();
    const rebalance = all.length > 0 ? this.#rebalance : undefined;
    const terms = rebalance?.member.commitTerms(all, rebalance.numbers);
    return { group, offsets: all, terms };
  }

  #positions(): OffsetCommit[] {
    return this.assignment
      .map((tp) => ({ ...tp, offset: this.#fetcher.buffer.place(tp) }))
      .filter(({ offset }) => offset !== UNKNOWN_POSITION);
  }

  /** The group's committed offset of a partition; null: nothing. */
  async committed(tp: TopicPartition): Promise<CommittedOffset | null> {
    const { groups } = this.#fetcher.positions;
    const [found] = await groups.committed(this.#group, [tp], undefined, true);
    return found ?? null;
  }

  get #group(): string {
    const { groupId } = this.config;
    if (groupId === null) throw invalid("group_id", "the consumer has no groupId");
    return groupId;
  }

  /**
   * Frees everything. A poll that waits throws CLIENT_CLOSED. A member of a group has finished the
   * records it was given: `onRevoked` is called, `enableAutoCommit` commits, and it leaves.
   * Otherwise nothing is committed.
   */
  close(): Promise<void> {
    return this.#close(false);
  }

  /**
   * `close` for a caller that has failed to work on the records `poll` returned last: `onLost` is
   * called instead of
   * `onRevoked`, and nothing is committed.
   */
  abandon(): Promise<void> {
    return this.#close(true);
  }

  async #close(failed: boolean): Promise<void> {
    if (this.#closed || this.#isLeaving) return;
    this.#isLeaving = true;
    this.#fetcher.buffer.close();
    try {
      await this.#rebalance?.leave(failed);
    } finally {
      this.#closed = true;
      this.#fetcher.stop();
      this.#cluster.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function everywhere(partitions: readonly TopicPartition[], where: Place): PartitionMap<Place> {
  const queries = new PartitionMap<Place>();
  for (const { topic, partition } of partitions) {
    queries.set({ topic, partition: int32("partition", partition) }, where);
  }
  return queries;
}

/** Its numbers are those that the wire takes. */
function checkCommit(one: OffsetCommit): OffsetCommit {
  const { producerId, epoch, sequence } = one;
  return {
    ...one,
    partition: int32("partition", one.partition),
    offset: int64("offset", one.offset),
    ...(producerId !== undefined && { producerId: int64("producer_id", producerId) }),
    ...(epoch !== undefined && { epoch: int32("epoch", epoch) }),
    ...(sequence !== undefined && { sequence: int64("sequence", sequence) }),
  };
}
