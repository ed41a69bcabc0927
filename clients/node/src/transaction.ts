/** A transaction as users see it. */

import { unlessAborted } from "./clock.js";
import type { Consumer } from "./consumer.js";
import type { Delivery } from "./delivery.js";
import type { Producer, SendBatchOptions, SendOptions } from "./producer.js";
import type { CommittedTransaction, ProducerTransaction, TransactionState } from "./staging.js";
import type { Transactions } from "./transactions.js";
import type { Message, OffsetCommit, TopicPartition } from "./types.js";

/** For how long a transaction may be open; left out: the nodes' own. */
export interface TransactionOptions {
  /** It is aborted after so long without a sign of life; the producer gives them by itself. */
  idleTimeoutMs?: number;
  /** It is aborted after so long altogether. */
  totalTimeoutMs?: number;
  /** Ends the waiting of `begin`: it throws the signal's reason, and no transaction is open. */
  signal?: AbortSignal;
}

/**
 * Records in several partitions that become readable together, or never, and how far a group has
 * read with them. `Producer.begin` begins it, `commit` or `abort` ends it; one that is open at the
 * end of an `await using` is aborted.
 *
 *     await producer.transact(async (txn) => {
 *       await txn.send({ topic: "accounts", value: "-10" }, { partition: 0 });
 *       await txn.send({ topic: "accounts", value: "+10" }, { partition: 1 });
 *       await txn.commitOffsets(consumer); // where there is input: how far it was read
 *     });
 *
 * While it is open, all that its producer sends belongs to it. The result of a record's delivery
 * is there when the record is staged: on disks of a majority, and not readable. Its offset is -1
 * until the commit. One transaction of a producer is open at a time.
 */
export class Transaction implements AsyncDisposable {
  readonly #producer: Producer;
  readonly #transactions: Transactions;
  readonly #begun: ProducerTransaction;

  /** @internal */
  constructor(producer: Producer, transactions: Transactions, begun: ProducerTransaction) {
    this.#producer = producer;
    this.#transactions = transactions;
    this.#begun = begun;
  }

  /** Its number, which is never used again. */
  get id(): bigint {
    return this.#begun.id;
  }

  /** How far it is. */
  get state(): TransactionState {
    return this.#begun.state;
  }

  /** As `Producer.send`. Throws TRANSACTION_ABORTED once it cannot be committed. */
  async send(message: Message, options: SendOptions = {}): Promise<Delivery> {
    this.#begun.checkOpen();
    return this.#producer.send(message, options);
  }

  /** As `Producer.sendBatch`. */
  async sendBatch(
    tp: TopicPartition,
    messages: readonly Omit<Message, "topic">[],
    options: SendBatchOptions = {},
  ): Promise<Delivery> {
    this.#begun.checkOpen();
    return this.#producer.sendBatch(tp, messages, options);
  }

  /**
   * Stores how far a group has read, together with all of the transaction or not at all: these
   * offsets, or the positions of the consumer. For a group without members its name will do.
   *
   * Throws FENCED_MEMBER if a partition is another member's by now; the transaction is then only
   * to be aborted.
   */
  async commitOffsets(
    consumer: Consumer,
    offsets?: readonly OffsetCommit[],
    signal?: AbortSignal,
  ): Promise<void>;
  async commitOffsets(
    group: string,
    offsets: readonly OffsetCommit[],
    signal?: AbortSignal,
  ): Promise<void>;
  async commitOffsets(
    from: Consumer | string,
    offsets?: readonly OffsetCommit[],
    signal?: AbortSignal,
  ): Promise<void> {
    this.#begun.checkOpen();
    signal?.throwIfAborted();
    await unlessAborted(this.#transactions.stageOffsets(this.#begun, from, offsets), signal);
  }

  /**
   * Makes all of it readable. It returns when it is, with the places; called again after a
   * success, it answers the same.
   *
   * Throws, with nothing of it readable: TRANSACTION_ABORTED (a record failed, it was idle or open
   * for too long, an operator aborted it); FENCED and others that end the producer come as
   * themselves. COMMIT_TIMEOUT: not known yet, call it again.
   *
   * The signal ends the waiting, not the commit: call it again, and it tells how it ended.
   */
  async commit(signal?: AbortSignal): Promise<CommittedTransaction> {
    signal?.throwIfAborted();
    return unlessAborted(this.#transactions.commit(this.#begun), signal);
  }

  /**
   * Drops all of it. Again, it does nothing.
   *
   * Throws TRANSACTION_COMMITTED if a commit was decided, and COMMIT_TIMEOUT if nobody answers; it
   * is aborted then when it has been idle for long enough.
   */
  async abort(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    await unlessAborted(this.#transactions.abort(this.#begun), signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.state === "open") await this.abort();
  }
}
