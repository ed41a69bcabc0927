/**
 * Follows topics that get more partitions while they are read by subscription, outside of a group;
 * a member of one is given them by its coordinator.
 *
 * A reader that begins at the end reads a partition that is younger than it is from its start:
 * earlier records would be lost otherwise. Since when a group reads nobody knows, so for a group
 * each partition counts as younger that its topic did not begin with.
 */

import type { FetchBuffer } from "./buffer.js";
import type { Leaders } from "./leaders.js";
import { PartitionMap, type TopicPartition } from "./types.js";

export class Growth {
  /** Of the topics that are followed. */
  readonly #counts = new Map<string, number>();
  readonly #came = new PartitionMap<true>();

  constructor(
    readonly leaders: Leaders,
    readonly buffer: FetchBuffer,
    readonly inGroup: boolean,
  ) {}

  /** Reads all partitions of these topics, with known metadata. */
  subscribe(topics: readonly string[]): void {
    this.#counts.clear();
    this.buffer.assign(topics.flatMap((topic) => this.#follow(topic)));
  }

  /** Reads exactly these, and follows nothing. */
  assign(tps: readonly TopicPartition[]): void {
    this.#counts.clear();
    this.buffer.assign(tps);
  }

  /** The partitions that the topic has beyond those that are followed. */
  #follow(topic: string): TopicPartition[] {
    const tps: TopicPartition[] = [];
    const known = this.#counts.get(topic) ?? 0;
    const count = Math.max(known, this.leaders.topics.get(topic)?.partitions.length ?? 0);
    for (let partition = known; partition < count; partition++) tps.push({ topic, partition });
    this.#counts.set(topic, count);
    return tps;
  }

  /** The topic is another one of the same name: all of the partition is news. */
  isNews(tp: TopicPartition): void {
    this.#came.set(tp, true);
  }

  /** The same: partitions that it lacks are no longer read. */
  recreated(topic: string): void {
    const count = this.leaders.topics.get(topic)?.partitions.length ?? 0;
    if ((this.#counts.get(topic) ?? 0) <= count) return;
    this.#counts.set(topic, count);
    const isThere = (tp: TopicPartition) => tp.topic !== topic || tp.partition < count;
    this.buffer.assign(this.buffer.assignment.filter(isThere));
  }

  /** Reads new partitions, too. */
  take(): void {
    const fresh = [...this.#counts.keys()].flatMap((topic) => this.#follow(topic));
    if (fresh.length === 0) return;
    for (const tp of fresh) this.#came.set(tp, true);
    this.buffer.assign([...this.buffer.assignment, ...fresh]);
  }

  /** A reader without a position goes to its start, though others are begun at their end. */
  beginsAtStart(tp: TopicPartition): boolean {
    const added = this.leaders.leader(tp)?.added ?? false;
    return this.#came.has(tp) || (this.inGroup && added);
  }
}
