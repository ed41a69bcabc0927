/**
 * Fetched records that are not yet taken. The fetcher fills it, the user empties it. Batches of a
 * partition follow each other without a hole, an answer to a question from before a seek is thrown
 * away, and records come before an error or a reset behind them.
 */

import { Change, now } from "./clock.js";
import { checksum, decompress, viewOf } from "./codecs.js";
import { invalid, OncelogError } from "./errors.js";
import type { StoredBatch } from "./gen/oncelog/v1/batch_pb.js";
import { PartitionError, type PartitionRecords } from "./gen/oncelog/v1/log_pb.js";
import type { Change as Interruption } from "./member.js";
import { Payload } from "./payload.js";
import { corrupt } from "./positions.js";
import { keyOf, PartitionMap, type StoredRecord, type TopicPartition } from "./types.js";

export const UNKNOWN_POSITION = -1n;
/** A node takes no more partitions in a Fetch. */
export const MOST_FETCHED = 1000;

/** One stored batch that was fetched, decoded when it is first looked at. */
export class Chunk {
  readonly base: bigint;
  readonly end: bigint;
  readonly bytes: number;
  #payload: Payload | undefined;

  constructor(
    readonly tp: TopicPartition,
    readonly stored: StoredBatch,
    /** The user's place in it. */
    public next: bigint,
    readonly generation: number,
  ) {
    this.base = stored.baseOffset;
    this.end = stored.baseOffset + BigInt(stored.header?.recordCount ?? 0);
    this.bytes = stored.payload.length;
  }

  /** Decodes the batch. An error stays: nothing of the batch is ever skipped. */
  open(checkCrcs: boolean): Payload {
    if (this.#payload === undefined) {
      const { header } = this.stored;
      try {
        const data = viewOf(this.stored.payload);
        if (checkCrcs && checksum(data) !== header?.crc32c) {
          throw new OncelogError("INVALID_BATCH", "checksum differs");
        }
        const plain = decompress(header?.codec ?? 0, data);
        this.#payload = new Payload(plain, header?.recordCount ?? 0);
      } catch (e) {
        if (!(e instanceof OncelogError)) throw e;
        throw corrupt(this.tp, this.base, `batch at offset ${this.base}: ${e.message}`);
      }
    }
    return this.#payload;
  }

  /** Adds up to limit records from the user's place on, which passes over blanks. */
  take(payload: Payload, into: StoredRecord[], limit: number): void {
    let left = limit;
    for (; this.next < this.end; this.next++) {
      const row = Number(this.next - this.base);
      if (this.stored.carried && payload.isBlank(row)) continue;
      if (left-- === 0) return;
      into.push(payload.record(this.tp, this.next, row));
    }
  }
}

/** A partition's next position to fetch; those of one group share a Fetch. */
export interface Wanted {
  readonly tp: TopicPartition;
  readonly group: number;
  readonly offset: bigint;
  readonly generation: number;
}

/**
 * Outcome of an answer. Stale: the user has gone elsewhere, or takes the records before an error
 * first; refused: it carries an error; anew: it is of another topic of the same name; behind: of one
 * that is gone.
 */
export type Added = "ok" | "stale" | "refused" | "anew" | "behind";

/** Where one partition stands. */
interface Cursor {
  readonly tp: TopicPartition;
  group: number;
  position: bigint; // next offset for the user, at the start of the first chunk
  fetchOffset: bigint; // next offset to ask for
  generation: number; // rises with each seek
  topicId: bigint; // of the topic that is read; 0: not known yet
  chunks: Chunk[];
  buffered: number;
  paused: boolean;
  /** A fetch ahead at this offset was out of range: asked again when the chunks are taken. */
  refusedAt: bigint;
  /** The position was reached by reading, so the records before it did exist. */
  byReading: boolean;
}

export class FetchBuffer {
  readonly changed = new Change();
  #cursors = new PartitionMap<Cursor>();
  #turns: TopicPartition[] = []; // with chunks, in turn
  // Thrown, in turn, when the partition's chunks are taken; it is not fetched until then.
  #errors = new PartitionMap<OncelogError>();
  #closed = false;
  // Of cursors and seeks: never given twice, so that no answer is taken for another's.
  #generations = 0;
  /** Work of the user before it gets more records: changes of his partitions. */
  readonly interruptions: Interruption[] = [];
  // From this time on nothing is given out: the group may have gone on without.
  #heldFrom = Number.POSITIVE_INFINITY;
  // When the user last came back for records, and whether he waits for some.
  #cameBack = now();
  #waits = false;

  constructor(
    readonly partitionBytes: number,
    readonly onRoom: () => void,
    /** As far as is known, else 0. */
    readonly topicId: (topic: string) => bigint = () => 0n,
  ) {}

  // --- the user's side ---------------------------------------------------------------

  /** Read exactly these; those that are kept keep their place. */
  assign(tps: readonly TopicPartition[]): void {
    const old = this.#cursors;
    this.#cursors = new PartitionMap();
    for (const { topic, partition } of tps) {
      const tp = { topic, partition };
      const cursor = old.get(tp) ?? {
        tp,
        group: 0,
        position: UNKNOWN_POSITION,
        fetchOffset: 0n,
        generation: ++this.#generations,
        topicId: this.topicId(tp.topic),
        chunks: [],
        buffered: 0,
        paused: false,
        refusedAt: UNKNOWN_POSITION,
        byReading: false,
      };
      cursor.group = Math.floor(this.#cursors.size / MOST_FETCHED);
      this.#cursors.set(tp, cursor);
    }
    this.#turns = this.#turns.filter((tp) => this.#cursors.has(tp));
    for (const tp of this.#errors.keys()) if (!this.#cursors.has(tp)) this.#errors.delete(tp);
    this.changed.notify();
  }

  get assignment(): TopicPartition[] {
    return this.#cursors.keys();
  }

  #cursor(tp: TopicPartition): Cursor {
    const cursor = this.#cursors.get(tp);
    if (cursor === undefined) throw invalid("partition", `${keyOf(tp)} is not assigned`);
    return cursor;
  }

  requireAssigned(tp: TopicPartition): void {
    this.#cursor(tp);
  }

  /** Goes on at offset or, with UNKNOWN_POSITION, where the reset policy says. */
  seek(tp: TopicPartition, offset: bigint): void {
    const cursor = this.#cursors.get(tp);
    if (cursor !== undefined) {
      cursor.generation = ++this.#generations;
      cursor.position = offset;
      cursor.fetchOffset = offset < 0n ? 0n : offset;
      cursor.chunks = [];
      cursor.buffered = 0;
      this.#errors.delete(tp);
      cursor.refusedAt = UNKNOWN_POSITION;
      cursor.byReading = false;
      this.#dropTurn(tp);
      this.changed.notify();
    }
    this.onRoom();
  }

  #dropTurn(tp: TopicPartition): void {
    this.#turns = this.#turns.filter((other) => keyOf(other) !== keyOf(tp));
  }

  /** The start position was found out; a seek in the meantime wins. */
  found(tp: TopicPartition, generation: number, offset: bigint): void {
    const cursor = this.#cursors.get(tp);
    if (cursor?.generation === generation && cursor.position === UNKNOWN_POSITION) {
      cursor.position = offset;
      cursor.fetchOffset = offset;
      this.changed.notify();
    }
  }

  /** The partitions of topics that were created anew under the same name. */
  recreated(): TopicPartition[] {
    const tps: TopicPartition[] = [];
    for (const cursor of this.#cursors.values()) {
      const id = this.topicId(cursor.tp.topic);
      if (cursor.topicId !== 0n && cursor.topicId < id) tps.push(cursor.tp);
      if (cursor.topicId < id) cursor.topicId = id;
    }
    return tps;
  }

  /** Rises with each seek; -1: it is not assigned. */
  generation(tp: TopicPartition): number {
    return this.#cursors.get(tp)?.generation ?? -1;
  }

  /** Has the user's next call throw this, once. */
  fail(tp: TopicPartition, generation: number, error: OncelogError): void {
    const cursor = this.#cursors.get(tp);
    if (cursor?.generation === generation) {
      this.#errors.set(tp, error);
      this.changed.notify();
    }
  }

  /**
   * The oldest chunk of the partition that is next. With mayFail false an error stays where it
   * is.
   */
  peek(mayFail: boolean): Chunk | undefined {
    if (this.#closed) throw new OncelogError("CLIENT_CLOSED", "the consumer is closed");
    if (this.interruptions.length > 0) return undefined;
    for (const [tp] of mayFail ? this.#errors : []) {
      if (this.#cursor(tp).chunks.length === 0) this.#throwError(tp);
    }
    for (const tp of now() < this.#heldFrom ? this.#turns : []) {
      const cursor = this.#cursors.get(tp);
      if (cursor !== undefined && !cursor.paused) return cursor.chunks[0];
    }
    return undefined;
  }

  /** The user asks for records, and waits for them or does not any more. */
  comesBack(waits: boolean): void {
    this.#cameBack = now();
    this.#waits = waits;
  }

  /** For how long the user has not come back for records. */
  get idle(): number {
    return this.#waits ? 0 : now() - this.#cameBack;
  }

  /** Has the user look at this before he is given more records. */
  interrupt(change: Interruption): void {
    this.interruptions.push(change);
    this.changed.notify();
  }

  /** Gives out nothing from that time on, unless it is put off. */
  holdFrom(moment: number): void {
    this.#heldFrom = moment;
    this.changed.notify();
  }

  /** The user's place; unknown also for unassigned partitions. */
  place(tp: TopicPartition): bigint {
    const cursor = this.#cursors.get(tp);
    return cursor?.chunks[0]?.next ?? cursor?.position ?? UNKNOWN_POSITION;
  }

  /** The user has moved the chunk's place. */
  advance(taken: Chunk): void {
    const cursor = this.#cursors.get(taken.tp);
    if (taken.next < taken.end || cursor === undefined) return;
    if (cursor.generation !== taken.generation || cursor.chunks[0] !== taken) return;
    cursor.chunks.shift();
    cursor.position = taken.end;
    cursor.byReading = true;
    const hadRoom = cursor.buffered < this.partitionBytes;
    cursor.buffered -= taken.bytes;
    this.#dropTurn(taken.tp);
    if (cursor.chunks.length > 0) this.#turns.push(cursor.tp);
    const asksAgain = cursor.chunks.length === 0 && cursor.fetchOffset === cursor.refusedAt;
    if (asksAgain || (!hadRoom && cursor.buffered < this.partitionBytes)) this.onRoom();
  }

  /** The user's place. */
  position(tp: TopicPartition): bigint {
    const cursor = this.#cursor(tp);
    if (cursor.position === UNKNOWN_POSITION) this.#throwError(tp);
    return cursor.chunks[0]?.next ?? cursor.position;
  }

  /** Throws the partition's error, if there is one; it is read on. */
  #throwError(tp: TopicPartition): void {
    const error = this.#errors.get(tp);
    if (error === undefined) return;
    this.#errors.delete(tp);
    this.onRoom();
    throw error;
  }

  get paused(): TopicPartition[] {
    return this.assignment.filter((tp) => this.#cursor(tp).paused);
  }

  pause(tp: TopicPartition, paused: boolean): void {
    this.#cursor(tp).paused = paused;
    this.changed.notify();
    this.onRoom();
  }

  close(): void {
    this.#closed = true;
    this.changed.notify();
  }

  // --- the fetcher's side ------------------------------------------------------------

  /** The partitions without a known start. */
  withoutPosition(): Wanted[] {
    return this.#cursors
      .values()
      .filter((c) => c.position === UNKNOWN_POSITION && !this.#errors.has(c.tp))
      .map((c) => ({ tp: c.tp, group: c.group, offset: 0n, generation: c.generation }));
  }

  /** The partitions to fetch now: position known, room in the buffer. */
  wanted(): Wanted[] {
    const all = this.#cursors.values().filter((c) => c.position !== UNKNOWN_POSITION);
    return all
      .filter((c) => !this.#errors.has(c.tp) && !c.paused && c.buffered < this.partitionBytes)
      .filter((c) => c.chunks.length === 0 || c.fetchOffset !== c.refusedAt)
      .map((c) => ({ tp: c.tp, group: c.group, offset: c.fetchOffset, generation: c.generation }));
  }

  /** Whether a stream's partition has room; undefined: nobody wants the stream any more. */
  room(w: Wanted): boolean | undefined {
    const cursor = this.#cursors.get(w.tp);
    const wants = cursor?.generation === w.generation && !cursor.paused && !this.#closed;
    if (!wants || this.#errors.has(w.tp)) return undefined;
    return cursor.buffered < this.partitionBytes;
  }

  /** Whether the partition's position was reached by reading. */
  read(tp: TopicPartition): boolean {
    return this.#cursors.get(tp)?.byReading ?? false;
  }

  /** Takes over one partition's answer. */
  add(w: Wanted, answer: PartitionRecords): Added {
    const cursor = this.#cursors.get(w.tp);
    if (cursor?.generation !== w.generation) return "stale";
    const { topicId } = answer;
    if (topicId !== 0n && cursor.topicId !== topicId) {
      if (topicId < cursor.topicId) return "behind"; // ids only rise
      const isOther = cursor.topicId !== 0n;
      cursor.topicId = topicId;
      if (isOther) return "anew";
    }
    if (answer.error === PartitionError.OFFSET_OUT_OF_RANGE && cursor.chunks.length > 0) {
      cursor.refusedAt = w.offset;
      return "stale";
    }
    if (answer.error !== PartitionError.NONE) return "refused";
    if (w.offset !== cursor.fetchOffset) return "stale"; // another answer has brought these
    for (const stored of answer.batches) {
      const at = cursor.fetchOffset;
      const chunk = new Chunk(cursor.tp, stored, at, cursor.generation);
      // It may begin before the position: batches are sent whole, and may have been cut anew.
      if (chunk.base > at || chunk.end <= at) {
        const offsets = `offsets ${chunk.base} to ${chunk.end - 1n}`;
        const text = `after offset ${at - 1n} came a batch with ${offsets}`;
        this.#errors.set(w.tp, corrupt(w.tp, at, text));
        break;
      }
      cursor.chunks.push(chunk);
      cursor.buffered += chunk.bytes;
      cursor.fetchOffset = chunk.end;
    }
    const waits = this.#turns.some((tp) => keyOf(tp) === keyOf(w.tp));
    if (cursor.chunks.length > 0 && !waits) this.#turns.push(cursor.tp);
    this.changed.notify();
    return "ok";
  }
}
