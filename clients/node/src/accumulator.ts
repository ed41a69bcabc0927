/**
 * Holds records, per partition, until they form a batch that can be sent. A batch keeps growing
 * after its linger time until the sender has room for it, so slow acknowledgements make batches
 * larger and not more.
 */

import { Change, now } from "./clock.js";
import { checksum, compress } from "./codecs.js";
import { BATCH_OVERHEAD, Columns } from "./columns.js";
import type { ProducerConfig } from "./config.js";
import { BatchDelivery, Delivery, WHOLE_BATCH } from "./delivery.js";
import { invalid, OncelogError } from "./errors.js";
import type { ProducerTransaction } from "./staging.js";
import { keyOf, type Message, PartitionMap, type TopicPartition } from "./types.js";

/** Of the delivery timeout, how old an open batch may be for records that come. */
const FOR_OTHERS = 0.25;

/** Batches that wait in one partition. */
export interface Lane {
  readonly tp: TopicPartition;
  open: OpenBatch | undefined;
  readonly closed: OpenBatch[];
  // The side that numbers the records: the producer, or the application, up to lastGiven.
  counted: boolean;
  given: boolean;
  lastGiven: bigint;
}

/** Records of one partition that will be one batch. */
export class OpenBatch {
  readonly delivery: BatchDelivery;
  created = now();
  columns: Columns | undefined = new Columns(); // until it is encoded
  size = BATCH_OVERHEAD;
  due = false;
  isClosed = false;
  /** It has waited for so long that further records would have too little time. */
  isOld = false;
  sequences: bigint[] | undefined;
  expectedOffset: bigint | undefined;
  /** The payload as it is sent. It outlives a change of sequences. */
  payload: { data: Buffer; crc: number; maxTimestamp: bigint } | undefined;

  constructor(
    readonly lane: Lane,
    /** Never larger than this with more than one record. */
    readonly cap: number,
    readonly transaction: ProducerTransaction | undefined,
  ) {
    this.delivery = new BatchDelivery(lane.tp);
  }

  get count(): number {
    return this.delivery.count;
  }

  /** Makes the payload, once. */
  encode(config: ProducerConfig): { data: Buffer; crc: number; maxTimestamp: bigint } {
    if (this.payload === undefined) {
      const columns = this.columns ?? new Columns();
      const data = compress(config.compressionType, config.compressionLevel, columns.encode());
      this.payload = { data, crc: checksum(data), maxTimestamp: columns.maxTimestamp };
      this.columns = undefined;
    }
    return this.payload;
  }
}

/** A record, or several that are to be one batch, to be queued. */
export interface Addition {
  readonly tp: TopicPartition;
  /** It may go elsewhere: to where messages without a key go now. */
  readonly sticky: boolean;
  readonly records: readonly Message[];
  readonly size: number;
  readonly sequences: readonly bigint[] | undefined;
  readonly expectedOffset: bigint | undefined;
  /** Exactly one batch. */
  readonly whole: boolean;
  readonly maxBatchBytes: number;
}

function stampOf(message: Message): bigint {
  const { timestamp } = message;
  if (timestamp === undefined) {
    return BigInt(Math.floor((performance.timeOrigin + performance.now()) * 1000));
  }
  // A number is as good, if it is whole: it has been checked.
  return timestamp instanceof Date ? BigInt(timestamp.getTime()) * 1000n : BigInt(timestamp);
}

export class Accumulator {
  failure: OncelogError | undefined;
  used = 0;
  /** To which batches belong. */
  transaction: ProducerTransaction | undefined;
  // Why no batch may be begun just now: a transaction begins or ends.
  #paused: OncelogError | undefined;
  // The side that numbered the records of a lane before the transaction.
  readonly #numberedBefore = new Map<Lane, Pick<Lane, "counted" | "given" | "lastGiven">>();
  readonly #lanes = new PartitionMap<Lane>();
  // Of the open batches, the one of each topic that messages without a key go to.
  readonly #sticky = new Map<string, OpenBatch>();
  readonly #ready = new PartitionMap<true>();
  #lingering: OpenBatch[] = [];
  #flushing = 0;
  readonly #incomplete = new Set<OpenBatch>();
  readonly #room = new Change();
  #woken = false;

  constructor(
    readonly config: ProducerConfig,
    readonly wake: () => void,
    /** Whether a partition has a leader that can be reached, as far as is known. */
    readonly isAvailable: (tp: TopicPartition) => boolean,
  ) {}

  /** Queues records; undefined: there is no room. */
  append(add: Addition): Delivery | undefined {
    this.#woken = false;
    const alone = add.whole || add.expectedOffset !== undefined;
    const batch = this.#place(add, alone);
    if (batch === undefined) return undefined;
    const delivery = new Delivery(batch.delivery, this.#put(batch, add, alone));
    if (this.#woken || alone) this.wake();
    return delivery;
  }

  /** Queues records when there is room. */
  async appendLater(add: Addition): Promise<Delivery> {
    const until = now() + this.config.maxBlockMs;
    while (true) {
      // Lingering records hold the room that is waited for.
      this.#makeAllDue();
      this.wake();
      if (!(await this.#room.next(until))) {
        const { bufferMemory, maxBlockMs } = this.config;
        const text = `bufferMemory=${bufferMemory} stayed full for maxBlockMs=${maxBlockMs}`;
        throw new OncelogError("BUFFER_FULL", text);
      }
      const delivery = this.append(add);
      if (delivery !== undefined) return delivery;
    }
  }

  /** An open batch with room. */
  #place(add: Addition, alone: boolean): OpenBatch | undefined {
    if (this.failure !== undefined) throw this.failure;
    this.#checkTransaction(add);
    const { bufferMemory, batchSize } = this.config;
    const need = BATCH_OVERHEAD + add.size;
    if (need > add.maxBatchBytes || need > bufferMemory) {
      const text =
        `${need} bytes with overhead, the topic takes ${add.maxBatchBytes} and the buffer ` +
        `${bufferMemory}`;
      throw new OncelogError("BATCH_TOO_LARGE", text, {}, "never_sent");
    }
    const stuck = add.sticky ? this.#sticky.get(add.tp.topic) : undefined;
    if (stuck !== undefined && stuck.size + add.size > stuck.cap) {
      this.#close(stuck); // messages without a key go on with another partition
      this.#woken = true;
    }
    const lane = this.#laneOf(add);
    checkSequences(lane, add.sequences);
    const { open } = lane;
    const isFull = open !== undefined && open.size + add.size > open.cap;
    if (open !== undefined && (alone || isFull || open.isOld)) {
      this.#close(open);
      this.#woken = true;
    }
    if (lane.open !== undefined) {
      return this.used + add.size > bufferMemory ? undefined : lane.open;
    }
    if (this.#paused !== undefined) throw this.#paused;
    if (this.used + need > bufferMemory) return undefined;
    return this.#start(lane, Math.max(Math.min(batchSize, add.maxBatchBytes), need));
  }

  #laneOf(add: Addition): Lane {
    const stuck = add.sticky ? this.#sticky.get(add.tp.topic) : undefined;
    if (stuck !== undefined) return stuck.lane;
    let lane = this.#lanes.get(add.tp);
    if (lane === undefined) {
      const { tp } = add;
      lane = { tp, open: undefined, closed: [], counted: false, given: false, lastGiven: -1n };
      this.#lanes.set(tp, lane);
    }
    return lane;
  }

  #start(lane: Lane, cap: number): OpenBatch {
    const batch = new OpenBatch(lane, cap, this.transaction);
    lane.open = batch;
    this.used += BATCH_OVERHEAD;
    this.#incomplete.add(batch);
    if (this.config.lingerMs === 0 || this.#flushing > 0) {
      batch.due = true;
      this.#ready.set(lane.tp, true);
      this.#woken = true;
    } else {
      this.#lingering.push(batch);
      this.#woken ||= this.#lingering.length === 1;
    }
    return batch;
  }

  /** Adds the records to the batch and returns the first one's place. */
  #put(batch: OpenBatch, add: Addition, alone: boolean): number {
    const { lane } = batch;
    const columns = batch.columns ?? new Columns();
    const index = add.whole ? WHOLE_BATCH : columns.count;
    for (const r of add.records) {
      columns.add(r.value ?? null, r.key ?? null, r.headers ?? [], stampOf(r));
    }
    if (this.transaction !== undefined && !this.#numberedBefore.has(lane)) {
      const { counted, given, lastGiven } = lane;
      this.#numberedBefore.set(lane, { counted, given, lastGiven });
    }
    if (add.sequences === undefined) lane.counted = true;
    else {
      lane.given = true;
      lane.lastGiven = add.sequences.at(-1) ?? lane.lastGiven;
      batch.sequences = [...(batch.sequences ?? []), ...add.sequences];
    }
    batch.size += add.size;
    this.used += add.size;
    const { topic } = lane.tp;
    if (add.sticky && this.#sticky.get(topic) !== batch && this.isAvailable(lane.tp)) {
      this.#sticky.set(topic, batch);
    }
    if (alone) {
      batch.expectedOffset = add.expectedOffset;
      this.#close(batch);
    }
    return index;
  }

  #close(batch: OpenBatch): void {
    const { lane } = batch;
    lane.open = undefined;
    if (this.#sticky.get(lane.tp.topic) === batch) this.#sticky.delete(lane.tp.topic);
    batch.isClosed = true;
    batch.delivery.count = batch.columns?.count ?? 0;
    batch.delivery.sequences = batch.sequences;
    lane.closed.push(batch);
    this.#ready.set(lane.tp, true);
  }

  #makeAllDue(): void {
    for (const lane of this.#lanes.values()) {
      if (lane.open !== undefined) {
        lane.open.due = true;
        this.#ready.set(lane.tp, true);
      }
    }
    this.#lingering = [];
  }

  /** Makes everything due at once and returns the batches that are not yet done. */
  beginFlush(): BatchDelivery[] {
    this.#flushing++;
    this.#makeAllDue();
    this.wake();
    return [...this.#incomplete].map((batch) => batch.delivery);
  }

  endFlush(): void {
    this.#flushing--;
  }

  /** Those that may have something to send, and when to look again. */
  readyPartitions(at: number): { ready: TopicPartition[]; next: number } {
    let next = Number.POSITIVE_INFINITY;
    while (this.#lingering.length > 0) {
      const batch = this.#lingering[0] as OpenBatch;
      if (!batch.isClosed) {
        if (batch.created + this.config.lingerMs > at) {
          next = batch.created + this.config.lingerMs;
          break;
        }
        batch.due = true;
        this.#ready.set(batch.lane.tp, true);
      }
      this.#lingering.shift();
    }
    return { ready: this.#ready.keys(), next };
  }

  /** The partition's oldest batch that is due, closed. */
  take(tp: TopicPartition): OpenBatch | undefined {
    const lane = this.#lanes.get(tp);
    if (lane === undefined) return undefined;
    if (lane.closed.length === 0 && lane.open?.due) this.#close(lane.open);
    const batch = lane.closed.shift();
    if (batch === undefined) this.#ready.delete(tp);
    return batch;
  }

  /** The process stood still for so long: that does not count. */
  putOff(late: number, at: number): void {
    for (const { open, closed } of this.#lanes.values()) {
      for (const batch of open === undefined ? closed : [...closed, open]) {
        batch.created = Math.min(batch.created + late, at);
      }
    }
  }

  /** Takes out all that waits for a partition. */
  takeAll(tp: TopicPartition): OpenBatch[] {
    const lane = this.#lanes.get(tp);
    if (lane?.open !== undefined) this.#close(lane.open);
    this.#ready.delete(tp);
    return lane?.closed.splice(0) ?? [];
  }

  /** Takes out the batches that are past their delivery timeout; none has been sent. */
  expire(at: number): OpenBatch[] {
    const { deliveryTimeoutMs } = this.config;
    const limit = at - deliveryTimeoutMs;
    const expired: OpenBatch[] = [];
    for (const lane of this.#lanes.values()) {
      if (lane.open?.due) lane.open.isOld = lane.open.created < at - deliveryTimeoutMs * FOR_OTHERS;
      if (lane.open !== undefined && lane.open.created <= limit) this.#close(lane.open);
      while (lane.closed[0] !== undefined && lane.closed[0].created <= limit) {
        expired.push(...lane.closed.splice(0, 1));
      }
    }
    return expired;
  }

  /** Batches that wait for a leader must not attract more. */
  leaveUnavailable(): void {
    for (const [topic, batch] of this.#sticky) {
      if (!this.isAvailable(batch.lane.tp)) this.#sticky.delete(topic);
    }
  }

  /** Takes no further records, for this reason. */
  refuse(failure: OncelogError): void {
    this.failure ??= failure;
  }

  /** Refuses further records and returns all waiting batches. */
  stop(failure: OncelogError): OpenBatch[] {
    this.refuse(failure);
    const left: OpenBatch[] = [];
    for (const lane of this.#lanes.values()) {
      if (lane.open !== undefined) this.#close(lane.open);
      left.push(...lane.closed.splice(0));
    }
    this.#ready.clear();
    this.#room.notify();
    return left;
  }

  // --- transactions ------------------------------------------------------------------

  /** Refuses records that cannot become part of the transaction, if there is one. */
  #checkTransaction(add: Addition): void {
    if (this.transaction === undefined) return;
    if (add.expectedOffset !== undefined) {
      const text = `expectedOffset=${add.expectedOffset}: records of a transaction have no offset`;
      throw invalid("expected_offset", `${text} before its commit`);
    }
    if (this.transaction.failure !== undefined) throw this.transaction.refusal();
  }

  /** Begins no further batch, until `resume`; the open batch is still filled. */
  pause(why: OncelogError): void {
    this.#paused = why;
  }

  /** Goes on; records belong to this transaction from now on, or to none. */
  resume(transaction: ProducerTransaction | undefined): void {
    if (transaction !== this.transaction && this.#incomplete.size > 0) {
      throw new Error("a transaction begins and ends without batches");
    }
    this.transaction = transaction;
    this.#paused = undefined;
    this.#numberedBefore.clear();
  }

  /** Whether a transaction is open, or is being begun or ended. */
  get isTransactional(): boolean {
    return this.transaction !== undefined || this.#paused !== undefined;
  }

  /** It cannot be committed any more: no further records are taken for it. */
  failTransaction(transaction: ProducerTransaction, error: OncelogError): void {
    transaction.fail(error);
    this.#room.notify();
    this.wake();
  }

  /** Takes out batches that wait to be sent; sequences that were given may be given again. */
  dropTransaction(): OpenBatch[] {
    const left: OpenBatch[] = [];
    for (const lane of this.#lanes.values()) {
      if (lane.open !== undefined) this.#close(lane.open);
      left.push(...lane.closed.splice(0));
    }
    for (const [lane, before] of this.#numberedBefore) Object.assign(lane, before);
    this.#ready.clear();
    return left;
  }

  /** How many records have no outcome yet. */
  get pending(): number {
    const counts = [...this.#incomplete].map((one) => one.columns?.count ?? one.count);
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** Frees the room of a batch with a known outcome. */
  release(batch: OpenBatch): void {
    if (this.#incomplete.delete(batch)) this.used -= batch.size;
    this.#room.notify();
  }
}

/** Refuses sequences that do not fit the numbering of the partition's records. */
function checkSequences(lane: Lane, sequences: readonly bigint[] | undefined): void {
  const tp = keyOf(lane.tp);
  const [first] = sequences ?? [];
  if (first === undefined) {
    if (lane.given) {
      throw invalid("sequence", `sequence is missing: ${tp} has application-controlled sequences`);
    }
  } else if (lane.counted) {
    const text = `sequence=${first}: ${tp} already has sequences that the producer counts`;
    throw invalid("sequence", text);
  } else if (first <= lane.lastGiven) {
    const text = `sequence=${first} is not above the last one of ${tp}, ${lane.lastGiven}`;
    throw invalid("sequence", text);
  }
}
