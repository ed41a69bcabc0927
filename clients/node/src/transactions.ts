/**
 * A producer's transactions, one after the other: the calls, the signs of life. Staged records go
 * the way of all records; a transaction begins and ends with nothing on its way, so that a batch
 * belongs to the transaction that was open when it began. The meaning of an answer is decided in
 * staging.
 */

import { Attempts } from "./attempts.js";
import { Lock, now, sleep, within } from "./clock.js";
import type { Consumer } from "./consumer.js";
import { asError, invalid, isRetriable, OncelogError } from "./errors.js";
import {
  type BeginTransactionResponse,
  type CommitTransactionResponse,
  TransactionService,
} from "./gen/oncelog/v1/transaction_pb.js";
import { type CommitTerms, Groups } from "./groups.js";
import { type Identity, NO_IDENTITY } from "./identities.js";
import type { Sender } from "./sender.js";
import { type CommittedTransaction, type EndCall, ProducerTransaction } from "./staging.js";
import type { OffsetCommit, TopicPartition } from "./types.js";
import { warn } from "./warnings.js";

const { beginTransaction, commitTransaction, abortTransaction, keepTransactionsAlive } =
  TransactionService.method;

// A node that hangs must not hold up a call that another one answers. A commit waits for markers
// in all partitions.
const ATTEMPT = 2000;
const COMMIT_ATTEMPT = 4000;
/** A node's default. */
const DEFAULT_TOTAL = 900_000;
/** So often within the idle time a transaction says that it lives. */
const SIGNS_OF_LIFE = 3;
/** A producer that begins so soon after a commit is expected to do so again; for so long one is
 * kept. */
const SOON = 1000;
/** Part of the idle time that may pass before it is taken: its first sign of life is due then. */
const IDLE_SHARE = 4;

/** For how long a transaction may be open; 0: the node's own times. */
export interface Times {
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
}

interface Next extends Times {
  readonly nonce: bigint;
  readonly partitions: readonly TopicPartition[];
}

export class Transactions {
  readonly #groups: Groups;
  readonly #lock = new Lock();
  #current: ProducerTransaction | undefined;
  // The nonce of a begin that was not answered is used again: it may have begun one.
  #nonce = 0n;
  #nonceOf = 0; // the identity's serial
  #answered = true;
  #alive: NodeJS.Timeout | undefined;
  // Options of the newest transaction's begin, and the time when the one before had ended.
  #terms: (Times & { identity: Identity }) | undefined;
  #endedAt = Number.NEGATIVE_INFINITY;
  #isExpected = false;
  // That a commit has begun for the next begin, which saves a call. A ticket that is not taken soon
  // is aborted: an open transaction keeps the cluster from forgetting ended ones.
  #following: BeginTransactionResponse | undefined;
  #next: Next | undefined; // that the commit under way shall begin
  #unused: NodeJS.Timeout | undefined;

  constructor(readonly sender: Sender) {
    this.#groups = new Groups(sender.cluster);
  }

  // --- begin -------------------------------------------------------------------------

  /**
   * Begins one, when all that was sent before is settled. A caller that gives up by the signal
   * hears of it at once: records belong to none then, and a transaction that was begun is kept for
   * the next begin, or aborted.
   */
  begin(times: Times, signal?: AbortSignal): Promise<ProducerTransaction> {
    if (this.sender.config.producerName === null) {
      throw invalid("producer_name", "a transaction needs a producer with a producerName");
    }
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        reject(signal?.reason);
        if (pauses) this.sender.accumulator.resume(undefined);
      };
      let pauses = false;
      const task = async () => {
        signal?.throwIfAborted();
        await this.#endBefore();
        signal?.throwIfAborted();
        pauses = true;
        // Once it is open it has an owner, even if the signal is aborted then.
        const owned = () => signal?.removeEventListener("abort", giveUp);
        resolve(await this.#beginPaused(times, signal, owned));
      };
      signal?.addEventListener("abort", giveUp);
      if (signal?.aborted) giveUp();
      this.#lock.hold(task).catch((e) => {
        signal?.removeEventListener("abort", giveUp);
        reject(e);
      });
    });
  }

  async #beginPaused(
    times: Times,
    signal: AbortSignal | undefined,
    owned: () => void,
  ): Promise<ProducerTransaction> {
    const { accumulator } = this.sender;
    accumulator.pause(invalid("transaction", "a transaction is being begun"));
    let begun: ProducerTransaction | undefined;
    try {
      await this.#drain();
      if (accumulator.failure !== undefined) throw accumulator.failure;
      signal?.throwIfAborted();
      const answer = await this.#begin(times);
      if (signal?.aborted) {
        this.#keep(answer);
        throw signal.reason;
      }
      begun = this.#begun(answer);
      owned();
    } catch (e) {
      const error = asError(e);
      if (error.is("PRODUCER_FAILED")) this.sender.fail(error);
      throw e;
    } finally {
      // The caller that gave up has resumed it, and may have sent records since.
      if (begun !== undefined || !signal?.aborted) accumulator.resume(begun);
    }
    this.#current = begun;
    this.#sayThatItLives(begun);
    return begun;
  }

  /** The end of the one before must be known. */
  async #endBefore(): Promise<void> {
    const before = this.#current;
    if (before === undefined || before.isOver) return;
    if (before.state !== "open") {
      // It was to be ended, and nobody has said yet how it did.
      await this.#end(before, before.state === "committing" ? "commit" : "abort");
      if (before.isOver) return;
    }
    const text = `transaction ${before.id} of this producer is ${before.state}`;
    const how = "end it with commit or abort; Producer.transaction has it";
    throw new OncelogError("TRANSACTION_OPEN", `${text}: ${how}`);
  }

  async #begin(times: Times): Promise<BeginTransactionResponse> {
    const { identities } = this.sender;
    const usedUp = (one: Identity) => this.sender.hasUsedUp(one);
    const { maxBlockMs, requestTimeoutMs } = this.sender.config;
    const until = now() + Math.max(maxBlockMs, requestTimeoutMs);
    const total = times.totalTimeoutMs || DEFAULT_TOTAL;
    const identity = await identities.forTransaction(total, usedUp, until);
    const terms = this.#terms;
    const sameTerms =
      terms?.identity === identity &&
      terms.idleTimeoutMs === times.idleTimeoutMs &&
      terms.totalTimeoutMs === times.totalTimeoutMs;
    if (!sameTerms) await this.#abortFollowing();
    this.#terms = { ...times, identity };
    this.#isExpected = now() - this.#endedAt < SOON;
    clearTimeout(this.#unused);
    const answer = this.#takeFollowing() ?? (await this.#callBegin(identity, times));
    if (answer.transactionId <= 0n || answer.idleTimeoutMs <= 0) {
      const text = "the node has begun a transaction without a number or time";
      throw new OncelogError("INTERNAL", text);
    }
    return answer;
  }

  #begun(answer: BeginTransactionResponse): ProducerTransaction {
    const { producerId, epoch } = this.#terms?.identity ?? NO_IDENTITY;
    return new ProducerTransaction(answer.transactionId, producerId, epoch, answer.idleTimeoutMs);
  }

  async #callBegin(identity: Identity, times: Times): Promise<BeginTransactionResponse> {
    if (this.#nonceOf !== identity.serial) {
      this.#nonce = 0n;
      this.#nonceOf = identity.serial;
      this.#answered = true;
    }
    const { producerName, maxBlockMs, requestTimeoutMs } = this.sender.config;
    const { producerId, epoch, leaseToken } = identity;
    const request = {
      producerName: producerName ?? "",
      producerId,
      epoch,
      leaseToken,
      nonce: this.#drawNonce(),
      ...times,
      partitions: written(this.#current),
    };
    let doubt = false;
    try {
      const answer = await this.sender.cluster.call(beginTransaction, request, {
        total: Math.max(maxBlockMs, requestTimeoutMs),
        attempt: ATTEMPT,
        first: this.#near(this.#current),
        onRetry: () => {
          doubt = true;
        },
      });
      this.#answered = true;
      return answer;
    } catch (e) {
      // A refusal says nothing of an attempt before it that had no answer.
      if (e instanceof OncelogError && !e.retriable) this.#answered = !doubt;
      throw e;
    }
  }

  #drawNonce(): bigint {
    if (this.#answered) this.#nonce++;
    this.#answered = false;
    return this.#nonce;
  }

  /** A node that leads where the transaction writes has a hop less to make. */
  #near(transaction: ProducerTransaction | undefined): string {
    const [first] = written(transaction);
    return first === undefined ? "" : this.sender.cluster.leaders.address(first);
  }

  #takeFollowing(): BeginTransactionResponse | undefined {
    const following = this.#following;
    this.#following = undefined;
    return following;
  }

  async #abortFollowing(): Promise<void> {
    const following = this.#takeFollowing();
    if (following === undefined || this.#terms === undefined) return;
    const { producerId, epoch } = this.#terms.identity;
    const { transactionId } = following;
    try {
      const limits = { total: ATTEMPT, attempt: ATTEMPT };
      const request = { transactionId, producerId, epoch };
      await this.sender.cluster.call(abortTransaction, request, limits);
    } catch (e) {
      // Where nobody answers it is aborted when it has been idle, or by the next lease.
      if (!(e instanceof OncelogError)) throw e;
    }
  }

  /** Returns when nothing waits any more and nothing is on its way: no batch may be begun. */
  async #drain(): Promise<void> {
    const { accumulator } = this.sender;
    const waiting = accumulator.beginFlush();
    try {
      for (const delivery of waiting) await delivery.done;
    } finally {
      accumulator.endFlush();
    }
  }

  // --- while it is open --------------------------------------------------------------

  /** In time for one answer that is lost. */
  #sayThatItLives(transaction: ProducerTransaction): void {
    const pause = transaction.idleMs / SIGNS_OF_LIFE;
    const { cluster } = this.sender;
    const say = async () => {
      try {
        const request = { transactionIds: [transaction.id] };
        const limits = { total: pause, attempt: ATTEMPT };
        const { ended } = await cluster.call(keepTransactionsAlive, request, limits);
        if (ended.length > 0 && transaction.state === "open") {
          const text =
            `transaction ${transaction.id} is not open any more: it was idle or open for too ` +
            "long, or was aborted by a successor or an operator";
          this.sender.drop(transaction, new OncelogError("TRANSACTION_ABORTED", text));
        }
      } catch (e) {
        if (!(e instanceof OncelogError)) throw e; // else the next one may be heard
      }
      if (!transaction.isOver && !cluster.signal.aborted) this.#sayThatItLives(transaction);
    };
    this.#alive = setTimeout(() => cluster.spawn(say), Math.min(pause, 2 ** 31 - 1));
    this.#alive.unref();
  }

  /** Stores offsets with it. A batch that cannot be stored fails the transaction. */
  stageOffsets(
    transaction: ProducerTransaction,
    from: Consumer | string,
    given: readonly OffsetCommit[] | undefined,
  ): Promise<void> {
    return this.#lock.hold(async () => {
      transaction.checkOpen();
      try {
        const own = typeof from === "string" ? undefined : from.commitTerms(given);
        const offsets = own?.offsets ?? given ?? [];
        const group = own?.group ?? String(from);
        if (offsets.length > 0) await this.#stage(transaction, group, offsets, own?.terms);
      } catch (e) {
        const error = asError(e);
        if (error.kind !== "INVALID_REQUEST") this.sender.drop(transaction, error);
        throw e;
      }
    });
  }

  async #stage(
    transaction: ProducerTransaction,
    group: string,
    offsets: readonly OffsetCommit[],
    terms: CommitTerms | undefined,
  ): Promise<void> {
    const number = terms?.number ?? (transaction.offsets.get(group)?.lastNumber ?? 0n) + 1n;
    const deadline = now() + this.sender.config.deliveryTimeoutMs;
    const { cluster } = this.sender;
    const attempts = new Attempts();
    for (let failures = 1; ; failures++) {
      const pause = cluster.backoff.delay(failures);
      try {
        await this.#groups.stage(transaction, group, offsets, number, terms);
        transaction.stagedOffsets(group, number, offsets.length);
        return;
      } catch (e) {
        if (!isRetriable(e)) throw e;
        attempts.failed(asError(e));
        if (now() + pause >= deadline || transaction.failure !== undefined) throw attempts.error();
      }
      await sleep(pause, cluster.signal);
    }
  }

  // --- end ---------------------------------------------------------------------------

  commit(transaction: ProducerTransaction): Promise<CommittedTransaction> {
    return this.#lock.hold(async () => {
      if (!transaction.isOver) {
        this.#pause(transaction);
        await this.#drain();
        const failed = transaction.failure !== undefined || transaction.state === "aborting";
        await this.#end(transaction, failed ? "abort" : "commit");
      }
      if (transaction.result === undefined) throw transaction.error;
      return transaction.result;
    });
  }

  abort(transaction: ProducerTransaction): Promise<void> {
    return this.#lock.hold(async () => {
      if (!transaction.isOver) {
        this.#pause(transaction);
        const text = `transaction ${transaction.id} was aborted`;
        this.sender.drop(transaction, new OncelogError("TRANSACTION_ABORTED", text));
        await this.#end(transaction, "abort");
      }
      if (transaction.state === "committed") {
        const text = `transaction ${transaction.id} is committed, nothing is undone`;
        throw new OncelogError("TRANSACTION_COMMITTED", text, {}, "unknown"); // stored, that is
      }
      if (transaction.state !== "aborted") throw transaction.error;
    });
  }

  #pause(transaction: ProducerTransaction): void {
    const text = `transaction ${transaction.id} is being ended`;
    this.sender.accumulator.pause(invalid("transaction", text));
  }

  /** Makes calls until an answer is final, or time is up: COMMIT_TIMEOUT. */
  async #end(transaction: ProducerTransaction, call: EndCall): Promise<void> {
    let next: EndCall | undefined = transaction.end(call);
    const { cluster, config } = this.sender;
    const deadline = now() + config.deliveryTimeoutMs;
    const attempts = new Attempts();
    for (let failures = 1; ; failures++) {
      let answer: CommitTransactionResponse | undefined;
      let error: OncelogError | undefined;
      try {
        const left = deadline - now();
        if (next === "commit") answer = await this.#callCommit(transaction, left);
        else await this.#callAbort(transaction, left);
      } catch (e) {
        const isAnswer = e instanceof OncelogError && e.kind !== "CLIENT_CLOSED";
        if (next === "commit" && !isAnswer) transaction.noteDoubt();
        if (!(e instanceof OncelogError)) throw e;
        error = e;
      }
      if (error?.kind === "CLIENT_CLOSED") throw timeout(transaction, error);
      next = transaction.answered(next, error);
      if (next === undefined) {
        this.#over(transaction, answer);
        return;
      }
      if (!error?.retriable) continue;
      attempts.failed(error);
      const pause = cluster.backoff.delay(failures);
      if (now() + pause >= deadline) throw timeout(transaction, attempts.error());
      await sleep(pause, cluster.signal);
    }
  }

  async #callAbort(transaction: ProducerTransaction, left: number): Promise<void> {
    const { id: transactionId, producerId, epoch } = transaction;
    const request = { transactionId, producerId, epoch };
    const limits = { total: left, attempt: ATTEMPT };
    await this.sender.cluster.call(abortTransaction, request, limits);
  }

  #callCommit(transaction: ProducerTransaction, left: number): Promise<CommitTransactionResponse> {
    if (this.#next === undefined && this.#isExpected && this.#terms !== undefined) {
      const { idleTimeoutMs, totalTimeoutMs } = this.#terms;
      const partitions = written(transaction);
      this.#next = { nonce: this.#drawNonce(), idleTimeoutMs, totalTimeoutMs, partitions };
    }
    const { id: transactionId, producerId, epoch } = transaction;
    // The same in each call, in one order: nothing is staged after the first one.
    const runs = [...transaction.runs].map(([tp, { recordCount, lastSequence }]) => ({
      ...tp,
      recordCount,
      lastSequence,
    }));
    const offsets = [...transaction.offsets].map(([group, { count, lastNumber }]) => ({
      group,
      offsetCount: count,
      lastNumber,
    }));
    const request = {
      transactionId,
      producerId,
      epoch,
      timeoutMs: COMMIT_ATTEMPT * 0.8,
      runs: runs.sort((a, b) => compare(a.topic, b.topic) || a.partition - b.partition),
      offsets: offsets.sort((a, b) => compare(a.group, b.group)),
      ...(this.#next && { beginNext: { ...this.#next, partitions: [...this.#next.partitions] } }),
    };
    return this.sender.cluster.call(commitTransaction, request, {
      total: left,
      attempt: COMMIT_ATTEMPT,
      first: this.#near(transaction),
      // It may be decided by a call without an answer, even if the next call is told otherwise.
      onRetry: () => transaction.noteDoubt(),
    });
  }

  /** An answer was final; or the last call was refused, and it may be asked again. */
  #over(transaction: ProducerTransaction, answer: CommitTransactionResponse | undefined): void {
    if (transaction.state === "committed") {
      const runs = answer?.runs ?? [];
      transaction.published(
        runs.map(({ topic, partition, baseOffset, recordCount }) => ({
          topic,
          partition,
          baseOffset,
          recordCount,
        })),
      );
    } else if (transaction.state === "aborted") this.sender.rollBack(transaction);
    else if (transaction.state === "unknown") {
      // Nobody knows which sequences are stored, either.
      const text = `how transaction ${transaction.id} ended is not known`;
      this.sender.fail(new OncelogError("PRODUCER_FAILED", text));
    } else return;
    clearTimeout(this.#alive);
    this.#endedAt = now();
    this.#next = undefined;
    if (answer?.next !== undefined) {
      this.#answered = true;
      this.#keep(answer.next);
    }
    this.sender.accumulator.resume(undefined);
  }

  /** For the next begin, if that comes soon. */
  #keep(begun: BeginTransactionResponse): void {
    this.#following = begun;
    const kept = Math.min(SOON, begun.idleTimeoutMs / IDLE_SHARE);
    const abort = () => this.#lock.hold(() => this.#abortFollowing());
    clearTimeout(this.#unused);
    this.#unused = setTimeout(() => this.sender.cluster.spawn(abort), kept);
    this.#unused.unref();
  }

  /** Aborts the open transaction. A transaction with a requested commit is left to the cluster. */
  async close(timeoutMs: number): Promise<void> {
    clearTimeout(this.#unused);
    const current = this.#current;
    const ending = async () => {
      if (current?.state === "open") {
        const records = current.runs.values().reduce((sum, run) => sum + run.recordCount, 0n);
        if (records > 0n || current.offsets.size > 0) {
          const text = `transaction ${current.id} was neither committed nor aborted before its`;
          warn(`${text} producer was closed: it is aborted, with its ${records} records`);
        }
        await this.abort(current);
      }
      await this.#lock.hold(() => this.#abortFollowing());
    };
    // Where nobody answers it is aborted when it has been idle.
    const limit = Math.min(timeoutMs, this.sender.config.requestTimeoutMs);
    await within(
      ending().catch(() => {}),
      now() + limit,
    );
    clearTimeout(this.#alive);
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function timeout(transaction: ProducerTransaction, cause: OncelogError): OncelogError {
  const text =
    `transaction ${transaction.id} is ${transaction.state}, and nobody has said how it ended; ` +
    `commit or abort it again: ${cause.message}`;
  return new OncelogError("COMMIT_TIMEOUT", text, {}, "unknown", cause);
}

/** Where it has staged something; the next one probably does as well. */
function written(transaction: ProducerTransaction | undefined): TopicPartition[] {
  return transaction === undefined ? [] : transaction.runs.keys();
}
