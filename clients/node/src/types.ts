/** Arguments and results of the clients. */

/** A partition, by topic and number. */
export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** Topic and number, joined by a hyphen: different for different partitions. */
export function keyOf(tp: TopicPartition): string {
  return `${tp.topic}-${tp.partition}`;
}

/** A map by partition. */
export class PartitionMap<V> {
  readonly #entries = new Map<string, [TopicPartition, V]>();

  get(tp: TopicPartition): V | undefined {
    return this.#entries.get(keyOf(tp))?.[1];
  }

  has(tp: TopicPartition): boolean {
    return this.#entries.has(keyOf(tp));
  }

  set(tp: TopicPartition, value: V): void {
    this.#entries.set(keyOf(tp), [tp, value]);
  }

  delete(tp: TopicPartition): boolean {
    return this.#entries.delete(keyOf(tp));
  }

  clear(): void {
    this.#entries.clear();
  }

  get size(): number {
    return this.#entries.size;
  }

  keys(): TopicPartition[] {
    return [...this.#entries.values()].map(([tp]) => tp);
  }

  values(): V[] {
    return [...this.#entries.values()].map(([, value]) => value);
  }

  [Symbol.iterator](): IterableIterator<[TopicPartition, V]> {
    return this.#entries.values();
  }
}

/** Bytes, or a text that is written as UTF-8; a null is not an empty one. */
export type Content = Uint8Array | string | null;

/** A name with a value beside a record. */
export interface Header {
  readonly key: string;
  readonly value: Content;
}

/** A record to be sent. A key or value that is left out is a null. */
export interface Message {
  topic: string;
  value?: Content;
  key?: Content;
  headers?: readonly Header[];
  /** Microseconds since the Unix epoch, or a date; left out: the time of the call. */
  timestamp?: bigint | Date;
}

/** A record as it is stored. Its bytes share the memory of its batch: copy them to keep few. */
export interface StoredRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  /** Microseconds since the Unix epoch. */
  readonly timestampUs: bigint;
  readonly value: Buffer | null;
  readonly key: Buffer | null;
  readonly headers: readonly { readonly key: string; readonly value: Buffer | null }[];
}

/** Place of a record, or of a batch that was sent as one, and its numbers. */
export interface RecordMetadata {
  readonly topic: string;
  readonly partition: number;
  /** The (first) record's; -1 for a duplicate if the cluster no longer knows its place. */
  readonly offset: bigint;
  /** -1 without idempotence. */
  readonly sequence: bigint;
  /** The same as sequence for a single record. */
  readonly lastSequence: bigint;
  readonly producerId: bigint;
  readonly epoch: number;
  /** An earlier attempt had stored it. That is a success. */
  readonly duplicate: boolean;
}

/** A producer id to start with instead of a leased one. */
export interface ProducerIdentity {
  producerId: bigint;
  epoch?: number;
  /** That of the id's lease; a partition that starts at 0 is refused without it. */
  leaseToken?: Uint8Array;
  /** Where to go on; partitions that are not named start at 0. */
  nextSequences?: readonly (TopicPartition & { readonly sequence: bigint })[];
}

/** Outcome of a sequence without an acknowledgement. */
export interface ResolvedSequence {
  /**
   * "committed": it is stored. "never": it is not there and never will be. "not_yet": it is not
   * stored, but a copy on its way may still come. "forgotten": retention or compaction has deleted
   * the evidence of whether it was stored; it cannot be stored any more, unless its id is a Kafka
   * client's.
   */
  readonly resolution: "committed" | "never" | "not_yet" | "forgotten";
  /** The record's, or -1. */
  readonly offset: bigint;
  readonly lastSequence: bigint;
  readonly currentEpoch: number;
}

/**
 * Offset that a group commits for a partition: the next offset to read. With a producer id it is
 * checked as a batch of that producer is: an older epoch is fenced, a lower sequence refused, the
 * same one a duplicate.
 */
export interface OffsetCommit extends TopicPartition {
  readonly offset: bigint;
  /** The group's own, at most 4096 bytes. */
  readonly metadata?: string;
  readonly producerId?: bigint;
  readonly epoch?: number;
  readonly sequence?: bigint;
}

/** A group's committed offset of a partition, and its time, in ms since the Unix epoch. */
export interface CommittedOffset extends Required<OffsetCommit> {
  readonly commitMs: bigint;
}
