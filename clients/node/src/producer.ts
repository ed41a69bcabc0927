/** Sends records. */

import type { Addition } from "./accumulator.js";
import { now, within } from "./clock.js";
import { Cluster, noPartition } from "./cluster.js";
import { HEADER_OVERHEAD, RECORD_OVERHEAD, sizeOf } from "./columns.js";
import { type ProducerConfig, producerConfig } from "./config.js";
import type { Delivery } from "./delivery.js";
import { invalid, OncelogError } from "./errors.js";
import { LogService, Resolution } from "./gen/oncelog/v1/log_pb.js";
import { NO_IDENTITY } from "./identities.js";
import type { TopicView } from "./leaders.js";
import { keyPartition } from "./murmur2.js";
import { int32, int64, MIN_INT64, span, timeOf } from "./numbers.js";
import { MAX_PAYLOAD_BYTES } from "./payload.js";
import type { ConnectionStats } from "./reachability.js";
import { Sender } from "./sender.js";
import type { CommittedTransaction } from "./staging.js";
import { Transaction, type TransactionOptions } from "./transaction.js";
import { Transactions } from "./transactions.js";
import type { Message, RecordMetadata, ResolvedSequence, TopicPartition } from "./types.js";
import { closed, watchAtExit } from "./warnings.js";
import type { ProducerStats } from "./window.js";

/** How long a loop that sends may keep the connections waiting. */
const LONGEST_TURN = 5;

/** Options of one send beside its message. */
export interface SendOptions {
  /** The record's partition. */
  partition?: number;
  /**
   * The application's own number, rising per partition. It makes the record recognisable across
   * restarts, if it is sent again with the same bytes, so with the same timestamp too.
   */
  sequence?: bigint;
  /** Stores the record only if it gets exactly this offset. */
  expectedOffset?: bigint;
}

/** The same for a batch: one sequence for each record, rising. */
export interface SendBatchOptions {
  sequences?: readonly bigint[];
  expectedOffset?: bigint;
}

/**
 * Sends records; each is stored once, in order per partition, through any failure.
 *
 *     const producer = new Producer({ bootstrapServers: "localhost:7001" });
 *     const delivery = await producer.send({ topic: "greetings", value: "hello" });
 *     const metadata = await delivery.result();
 *     await producer.close();
 */
export class Producer implements AsyncDisposable {
  /** The settings in force. */
  readonly config: Readonly<ProducerConfig>;
  readonly #cluster: Cluster;
  readonly #sender: Sender;
  readonly #transactions: Transactions;
  #transaction: Transaction | undefined; // the newest one
  #closed = false;
  #turnBegan = 0;

  /**
   * Throws INVALID_CONFIG for settings that are out of range or contradict each other. No node is
   * asked yet.
   */
  constructor(config: Partial<ProducerConfig> = {}) {
    const all = producerConfig(config);
    this.config = all;
    this.#cluster = new Cluster(all);
    this.#sender = new Sender(all, this.#cluster);
    this.#transactions = new Transactions(this.#sender);
    watchAtExit(this);
  }

  // --- sending -----------------------------------------------------------------------

  /**
   * Queues one record; its future outcome is fulfilled with. The message's bytes are copied.
   *
   * Without a partition the key decides (Kafka's murmur2), without a key records stick to one
   * partition until its batch is closed. It waits for a topic that is not known yet, and while the
   * buffer is full, up to `maxBlockMs`. If it throws nothing was queued.
   */
  send(message: Message, options: SendOptions = {}): Promise<Delivery> {
    const { partition, sequence, expectedOffset } = options;
    const sequences = sequence === undefined ? undefined : [sequence];
    return this.#send(message.topic, [message], false, partition, sequences, expectedOffset);
  }

  /** Sends one record and waits for its outcome. */
  async sendSync(message: Message, options: SendOptions = {}): Promise<RecordMetadata> {
    return (await this.send(message, options)).result();
  }

  /**
   * Sends many records as exactly one batch of a partition; the messages' topics are not looked
   * at.
   */
  async sendBatch(
    tp: TopicPartition,
    messages: readonly Omit<Message, "topic">[],
    options: SendBatchOptions = {},
  ): Promise<Delivery> {
    if (messages.length === 0) throw invalid("messages", "a batch needs at least one record");
    const all = messages.map((message) => ({ ...message, topic: tp.topic }));
    const { sequences, expectedOffset } = options;
    return this.#send(tp.topic, all, true, tp.partition, sequences, expectedOffset);
  }

  async #send(
    topic: string,
    records: readonly Message[],
    whole: boolean,
    given: number | undefined,
    sequences: readonly bigint[] | undefined,
    expectedOffset: bigint | undefined,
  ): Promise<Delivery> {
    const own = this.#sequences(records.length, sequences);
    const expected =
      expectedOffset === undefined ? undefined : int64("expected_offset", expectedOffset);
    const size = records.reduce((sum, record) => sum + recordSize(record), 0);
    const known = this.#known(topic) ?? (await this.#learn(topic));
    const key = records[0]?.key ?? null;
    const { partitioner, compressionType } = this.config;
    const free = given === undefined && partitioner === null && key === null;
    const add: Addition = {
      tp: { topic, partition: this.#place(topic, key, given, known) },
      // A record with demands of its own does not set the place for others.
      sticky: free && own === undefined && expected === undefined,
      records,
      size,
      sequences: own,
      expectedOffset: expected,
      whole,
      // Compressed, only the size as sent counts: the node judges it.
      maxBatchBytes: compressionType === "none" ? known.maxBatchBytes : MAX_PAYLOAD_BYTES,
    };
    const delivery = this.#sender.accumulator.append(add);
    if (delivery === undefined) return this.#sender.accumulator.appendLater(add);
    // A loop that only sends would never let go otherwise.
    if (now() - this.#turnBegan > LONGEST_TURN) {
      await new Promise((resolve) => setImmediate(resolve));
      this.#turnBegan = now();
    }
    return delivery;
  }

  #sequences(count: number, given: readonly bigint[] | undefined): readonly bigint[] | undefined {
    if (given === undefined) return undefined;
    if (!this.config.enableIdempotence) {
      throw invalid("sequence", "sequence needs enableIdempotence");
    }
    const sequences = given.map((one) => int64("sequences", one));
    const rising = sequences.every((n, i) => n > (sequences[i - 1] ?? -1n));
    if (sequences.length !== count || !rising) {
      const text = `sequences must be ${count} rising numbers from 0, one for each record`;
      throw invalid("sequences", text);
    }
    return sequences;
  }

  #place(topic: string, key: Message["key"], given: number | undefined, known: TopicView): number {
    const partitions = known.partitions.length;
    const bytes = typeof key === "string" ? Buffer.from(key) : (key ?? null);
    let partition = given;
    if (partition === undefined && this.config.partitioner !== null) {
      partition = this.config.partitioner(topic, bytes, partitions);
    } else if (partition === undefined) {
      if (bytes !== null) return keyPartition(bytes, partitions);
      return this.#cluster.leaders.anyPartition(known);
    }
    if (!Number.isInteger(partition) || partition < 0 || partition >= partitions) {
      const text = `topic "${topic}" has the partitions 0 to ${partitions - 1}, not ${partition}`;
      throw new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", text, { topic, partition });
    }
    return partition;
  }

  #known(topic: string): TopicView | undefined {
    const known = this.#cluster.leaders.topics.get(topic);
    return known === undefined || known.partitions.length === 0 ? undefined : known;
  }

  async #learn(topic: string): Promise<TopicView> {
    if (topic === "") throw invalid("topic", "the topic must have a name");
    const { failure } = this.#sender.accumulator;
    if (failure !== undefined) throw failure;
    await this.#cluster.requireTopic(topic, this.config.maxBlockMs);
    const known = this.#known(topic);
    if (known === undefined) {
      throw new OncelogError("NOT_READY", `topic "${topic}" has no partitions yet`);
    }
    return known;
  }

  // --- transactions ------------------------------------------------------------------

  /**
   * Begins a transaction, when all that was sent before is settled. The producer needs a
   * `producerName`.
   *
   * Throws FENCED if another producer has taken over the name, TRANSACTION_OPEN if the one before
   * has not been ended, and an error below RETRIABLE when nobody answers.
   */
  async begin(options: TransactionOptions = {}): Promise<Transaction> {
    const { idleTimeoutMs = 0, totalTimeoutMs = 0, signal } = options;
    int32("idle_timeout_ms", idleTimeoutMs);
    int32("total_timeout_ms", totalTimeoutMs);
    const begun = await this.#transactions.begin({ idleTimeoutMs, totalTimeoutMs }, signal);
    this.#transaction = new Transaction(this, this.#transactions, begun);
    return this.#transaction;
  }

  /**
   * The transaction to which all that this producer sends belongs; null: none is open. It has also
   * the one of a `begin` with a promise that nobody waited for, which is to be ended as any other.
   */
  get transaction(): Transaction | null {
    const one = this.#transaction;
    const isOver = one === undefined || ["committed", "aborted", "unknown"].includes(one.state);
    return isOver ? null : one;
  }

  /**
   * Begins a transaction, waits for the task, and commits; if the task fails it aborts. Throws the
   * task's error, or that of `begin` and `commit`.
   */
  async transact(
    task: (transaction: Transaction) => Promise<void>,
    options: TransactionOptions = {},
  ): Promise<CommittedTransaction> {
    const transaction = await this.begin(options);
    try {
      await task(transaction);
    } catch (e) {
      // Its error says more; a transaction not aborted now is aborted when it has been idle.
      if (transaction.state === "open") await transaction.abort().catch(() => {});
      throw e;
    }
    // A task that has aborted it has its wish.
    if (transaction.state === "aborted") return { transactionId: transaction.id, runs: [] };
    return transaction.commit();
  }

  // --- waiting, asking ---------------------------------------------------------------

  /**
   * Sends lingering records and waits until the outcome of all records is known.
   *
   * Throws UNDELIVERED_RECORDS for failures since the last flush that nobody has looked at: the
   * result of no delivery was asked for. Waits no longer than `timeoutMs`: then it throws
   * REQUEST_TIMEOUT.
   */
  async flush(timeoutMs = Number.POSITIVE_INFINITY): Promise<void> {
    const left = await this.#flush(span("timeout_ms", timeoutMs));
    if (left > 0) {
      const text = `the outcome of ${left} batches is not known yet`;
      throw new OncelogError("REQUEST_TIMEOUT", text);
    }
    this.#sender.failed.report();
  }

  /** How many batches have no outcome when time is up. */
  async #flush(timeoutMs: number): Promise<number> {
    const until = now() + timeoutMs;
    const waiting = this.#sender.accumulator.beginFlush();
    try {
      for (const [i, delivery] of waiting.entries()) {
        if (!(await within(delivery.done, until))) return waiting.length - i;
      }
      return 0;
    } finally {
      this.#sender.accumulator.endFlush();
    }
  }

  /**
   * Flushes and frees everything; throws as `flush` does. A transaction that is open is aborted,
   * with a warning if it has records. A process that ends without this loses waiting records; a
   * line on stderr says how many records. Records without an outcome after `timeoutMs` fail. A
   * second close does nothing.
   */
  async close(timeoutMs = Number.POSITIVE_INFINITY): Promise<void> {
    span("timeout_ms", timeoutMs);
    if (this.#closed) return;
    this.#closed = true;
    await this.#transactions.close(timeoutMs);
    await this.#flush(timeoutMs); // the rest fails below, and is reported with its outcome
    this.#sender.stop();
    this.#cluster.close();
    closed(this);
    this.#sender.failed.report();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The number of a topic's partitions. */
  async partitions(topic: string): Promise<number> {
    return (this.#known(topic) ?? (await this.#learn(topic))).partitions.length;
  }

  /** The last sequence of this producer that is stored in a partition; -1: none. */
  async position(topic: string, partition: number): Promise<bigint> {
    const tp = { topic, partition: int32("partition", partition) };
    if (partition >= (await this.partitions(topic))) throw noPartition(tp);
    const asked = this.#sender.identityOf(tp);
    if (!(await within(asked, now() + this.config.maxBlockMs))) {
      const text = `${topic}-${partition}: no position within maxBlockMs=${this.config.maxBlockMs}`;
      throw new OncelogError("REQUEST_TIMEOUT", text);
    }
    const identity = await asked;
    if (identity === NO_IDENTITY) {
      const { failure } = this.#sender.accumulator;
      throw failure ?? new OncelogError("INVALID_REQUEST", "the producer has no id");
    }
    return this.#sender.identities.lastStored(tp, identity);
  }

  /**
   * Asks for the outcome of a record (or a batch, by its last record) after a timeout. A record
   * without idempotence, or one that was never sent, is INVALID_REQUEST: there is nothing to ask
   * for.
   */
  async resolve(delivery: Delivery): Promise<ResolvedSequence> {
    const last = delivery.batch.metadata(delivery.last, delivery.last);
    if (last.producerId === 0n || last.sequence < 0n) {
      const text = "the record has no sequence: it was never sent, or not with idempotence";
      throw invalid("record", text);
    }
    const { tp } = delivery.batch;
    return resolveSequence(this.#cluster, tp, last.producerId, last.epoch, last.sequence);
  }

  /** The producer id and epoch in use; 0 before the first record is on its way. */
  get identity(): { readonly producerId: bigint; readonly epoch: number } {
    const { producerId, epoch } = this.#sender.identities.current ?? NO_IDENTITY;
    return { producerId, epoch };
  }

  /** The producer's counters. */
  get stats(): ProducerStats & ConnectionStats {
    return { ...this.#sender.stats, ...this.#cluster.reachability.stats };
  }

  /** How many records have no outcome yet. */
  get pending(): number {
    return this.#sender.accumulator.pending;
  }

  /** Records that wait in this process, sent and not yet acknowledged included, in bytes. */
  get bufferUsed(): number {
    return this.#sender.accumulator.used;
  }
}

function recordSize(message: Message): number {
  let size = RECORD_OVERHEAD + sizeOf(message.value) + sizeOf(message.key);
  for (const header of message.headers ?? []) {
    size += HEADER_OVERHEAD + Buffer.byteLength(header.key) + sizeOf(header.value);
  }
  if (!Number.isInteger(size)) {
    const text = "value, key and values of headers are a string, bytes or null each";
    throw invalid("value", text);
  }
  if (message.timestamp instanceof Date) timeOf("timestamp", message.timestamp);
  else if (message.timestamp !== undefined) int64("timestamp", message.timestamp, MIN_INT64);
  return size;
}

/** Outcome of a sequence. */
export async function resolveSequence(
  cluster: Cluster,
  tp: TopicPartition,
  producerId: bigint,
  epoch: number,
  sequence: bigint,
): Promise<ResolvedSequence> {
  const { topic, partition } = tp;
  const request = { topic, partition, producerId, epoch, sequence };
  const answer = await cluster.callLeader(tp, LogService.method.resolveSequence, request);
  const { lastSequence, currentEpoch } = answer;
  const found = (resolution: ResolvedSequence["resolution"], offset = -1n) => ({
    resolution,
    offset,
    lastSequence,
    currentEpoch,
  });
  switch (answer.resolution) {
    case Resolution.COMMITTED:
      return found("committed", answer.offset);
    case Resolution.NEVER:
      return found("never");
    case Resolution.NOT_YET:
      return found("not_yet");
    default:
      return found("forgotten");
  }
}
