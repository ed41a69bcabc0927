/** Outcome of records. */

import { now, within } from "./clock.js";
import { OncelogError } from "./errors.js";
import { span } from "./numbers.js";
import type { StagedRun } from "./staging.js";
import { keyOf, type RecordMetadata, type TopicPartition } from "./types.js";

export const WHOLE_BATCH = -1;
const MOST_KEPT = 1000;

/** Numbers of a batch when it was last sealed. */
interface Stamp {
  readonly producerId: bigint;
  readonly epoch: number;
  readonly baseSequence: bigint;
}

/** Outcome of one batch. All its records share it. */
export class BatchDelivery {
  stamp: Stamp = { producerId: 0n, epoch: 0, baseSequence: -1n };
  // Set when the batch is closed.
  count = 0;
  sequences: readonly bigint[] | undefined; // the application's own
  // Set when the outcome is known.
  isDone = false;
  baseOffset = -1n; // in a transaction within its run
  run: StagedRun | undefined;
  duplicate = false;
  error: OncelogError | undefined;
  readonly #looked = new Set<number>();
  #tell: (() => void) | undefined;
  #done: Promise<void> | undefined;

  constructor(readonly tp: TopicPartition) {}

  /** Fulfilled when the outcome is known. Made when it is first asked for. */
  get done(): Promise<void> {
    if (this.isDone) return Promise.resolve();
    this.#done ??= new Promise((resolve) => {
      this.#tell = resolve;
    });
    return this.#done;
  }

  store(baseOffset: bigint, duplicate: boolean): void {
    this.baseOffset = baseOffset;
    this.duplicate = duplicate;
    this.#settle();
  }

  fail(error: OncelogError): void {
    this.error = error.is("DELIVERY_FAILED") ? this.#named(error) : error;
    this.#settle();
  }

  /** The same error with the name of this batch, so that the caller can ask for it later. */
  #named(error: OncelogError): OncelogError {
    const { topic, partition } = this.tp;
    const { producerId, epoch } = this.stamp;
    const sequence = this.#sequence(this.count - 1);
    const numbers = producerId === 0n ? {} : { producerId, epoch, sequence };
    const details = { ...error.details, topic, partition, ...numbers };
    let text = error.message;
    if (producerId !== 0n && error.outcome === "unknown") {
      // These words are the same in all clients: tools read them.
      text += `; ${keyOf(this.tp)} producer ${producerId} epoch ${epoch} `;
      text += `sequences ${this.#sequence(0)}..${sequence} may be stored, resolveSequence tells`;
    }
    return new OncelogError(error.kind, text, details, error.outcome, error.cause);
  }

  #settle(): void {
    this.isDone = true;
    this.#tell?.();
  }

  #sequence(index: number): bigint {
    const { baseSequence } = this.stamp;
    if (baseSequence < 0n) return -1n;
    return this.sequences?.[index] ?? baseSequence + BigInt(index);
  }

  /** -1 if it is not known: in a transaction, until that is committed. */
  get #firstOffset(): bigint {
    if (this.run === undefined || this.baseOffset < 0n) return this.baseOffset;
    return this.run.baseOffset < 0n ? -1n : this.run.baseOffset + this.baseOffset;
  }

  metadata(first: number, last: number): RecordMetadata {
    const base = this.#firstOffset;
    const known = this.error === undefined && base >= 0n;
    return {
      topic: this.tp.topic,
      partition: this.tp.partition,
      offset: known ? base + BigInt(first) : -1n,
      sequence: this.#sequence(first),
      lastSequence: this.#sequence(last),
      producerId: this.stamp.producerId,
      epoch: this.stamp.epoch,
      duplicate: this.duplicate,
    };
  }

  look(index: number): void {
    this.#looked.add(index);
  }

  /** How many failed records nobody has looked at. */
  unlooked(): number {
    return this.#looked.has(WHOLE_BATCH) ? 0 : this.count - this.#looked.size;
  }
}

/** The future outcome of a record, or of a batch that was sent as one. */
export class Delivery {
  /** @internal */
  readonly batch: BatchDelivery;
  readonly #index: number;

  /** @internal */
  constructor(batch: BatchDelivery, index: number) {
    this.batch = batch;
    this.#index = index;
  }

  /** Whether the outcome is known. */
  get isDone(): boolean {
    return this.batch.isDone;
  }

  /**
   * Where the record is stored. Throws an error below DELIVERY_FAILED, with the known outcome of
   * the record; and after this time, if it is given, REQUEST_TIMEOUT: the record is still on its
   * way.
   */
  async result(timeoutMs = Number.POSITIVE_INFINITY): Promise<RecordMetadata> {
    span("timeout_ms", timeoutMs);
    if (!this.isDone && !(await within(this.batch.done, now() + timeoutMs))) {
      const text = `${keyOf(this.batch.tp)}: the outcome is not known after ${timeoutMs} ms`;
      throw new OncelogError("REQUEST_TIMEOUT", text);
    }
    if (this.batch.error !== undefined) {
      this.batch.look(this.#index);
      throw this.batch.error;
    }
    const first = this.#index === WHOLE_BATCH ? 0 : this.#index;
    return this.batch.metadata(first, this.last);
  }

  /** @internal The place of its last record in the batch. */
  get last(): number {
    return this.#index === WHOLE_BATCH ? this.batch.count - 1 : this.#index;
  }
}

/** Batches that failed and that flush and close have not reported yet. */
export class Failures {
  #batches: BatchDelivery[] = [];
  #dropped = 0; // records of batches that are no longer kept

  add(delivery: BatchDelivery): void {
    this.#batches.push(delivery);
    if (this.#batches.length > MOST_KEPT) this.#dropped += this.#batches.shift()?.unlooked() ?? 0;
  }

  /** Throws if there is a failed record that nobody has looked at. */
  report(): void {
    const left = this.#batches.map((one) => ({ one, count: one.unlooked() }));
    const count = left.reduce((sum, each) => sum + each.count, this.#dropped);
    const first = left.find((each) => each.count > 0)?.one.error;
    this.#batches = [];
    this.#dropped = 0;
    if (count === 0) return;
    const more = first === undefined ? "" : `, the first: ${first.message}`;
    const text = `${count} records were not delivered${more}`;
    const outcome = first?.outcome ?? "unknown";
    throw new OncelogError("UNDELIVERED_RECORDS", text, { count }, outcome, first);
  }
}
