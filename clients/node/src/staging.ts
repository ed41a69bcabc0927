/**
 * One transaction as its producer sees it: staged records, failures, and its end. No IO.
 *
 *     open --commit--> committing --answer--> committed
 *      |                   | refused: an earlier call, without an answer, may have decided
 *      +------abort--> aborting ---answer---> aborted
 *                          '-- "it was committed" --> committing: ask for the places
 *
 * No outcome is guessed. A call without an answer is made again, the same call, until one comes;
 * the coordinator's word is final.
 */

import { invalid, OncelogError } from "./errors.js";
import { PartitionMap, type TopicPartition } from "./types.js";

/** How far a transaction is. `unknown`: it has ended, and nobody knows how. */
export type TransactionState =
  | "open"
  | "committing"
  | "aborting"
  | "committed"
  | "aborted"
  | "unknown";

export type EndCall = "commit" | "abort";

/** Where a transaction's records are in one partition: they lie together. */
export interface PublishedRun extends TopicPartition {
  readonly baseOffset: bigint;
  readonly recordCount: bigint;
}

/** Answer to a commit: where its records are. Without runs it ended long ago, or has none. */
export interface CommittedTransaction {
  readonly transactionId: bigint;
  readonly runs: readonly PublishedRun[];
}

/** Part of a transaction in one partition; where it is, once it is committed. */
export interface StagedRun {
  recordCount: bigint;
  lastSequence: bigint;
  baseOffset: bigint; // -1: not known
}

/** Offsets of one group that a transaction has staged. */
export interface StagedOffsets {
  lastNumber: bigint;
  count: bigint;
}

export class ProducerTransaction {
  state: TransactionState = "open";
  readonly runs = new PartitionMap<StagedRun>();
  readonly offsets = new Map<string, StagedOffsets>();
  /** Why it can no longer be committed. */
  failure: OncelogError | undefined;
  result: CommittedTransaction | undefined;
  #askedToCommit = false;
  #inDoubt = false; // a commit call without an answer may have decided
  #refused: OncelogError | undefined;
  #wasCommitted = false;

  constructor(
    readonly id: bigint,
    readonly producerId: bigint,
    readonly epoch: number,
    readonly idleMs: number,
  ) {}

  get isOver(): boolean {
    return this.state === "committed" || this.state === "aborted" || this.state === "unknown";
  }

  // --- staging -----------------------------------------------------------------------

  #run(tp: TopicPartition): StagedRun {
    let run = this.runs.get(tp);
    if (run === undefined) {
      run = { recordCount: 0n, lastSequence: -1n, baseOffset: -1n };
      this.runs.set(tp, run);
    }
    return run;
  }

  /** A batch is on disks of a majority. Batches of a partition come in any order. */
  staged(tp: TopicPartition, records: number, lastSequence: bigint): StagedRun {
    const run = this.#run(tp);
    run.recordCount += BigInt(records);
    if (lastSequence > run.lastSequence) run.lastSequence = lastSequence;
    return run;
  }

  stagedOffsets(group: string, number: bigint, count: number): void {
    const known = this.offsets.get(group)?.count ?? 0n;
    this.offsets.set(group, { lastNumber: number, count: known + BigInt(count) });
  }

  /** Something of it will not be there: it must not be committed. The first one counts. */
  fail(error: OncelogError): void {
    if (this.state === "open") this.failure ??= error;
  }

  /** Error of a caller that goes on with a failed transaction. */
  refusal(): OncelogError {
    const text = `transaction ${this.id} cannot be committed: ${this.failure?.message}`;
    return new OncelogError("TRANSACTION_ABORTED", text, {}, "not_stored", this.failure);
  }

  /** Throws the error for a caller that goes on with it. */
  checkOpen(): void {
    if (this.failure !== undefined) throw this.refusal();
    if (this.state !== "open") {
      throw invalid("transaction", `transaction ${this.id} is ${this.state}`);
    }
  }

  // --- ending ------------------------------------------------------------------------

  /** The application asks for this call, the first of those to make. */
  end(call: EndCall): EndCall {
    if (this.isOver) throw new Error("a transaction ends once");
    if (call === "commit") {
      if (this.failure !== undefined) throw new Error("what has failed is aborted");
      this.state = "committing";
      this.#askedToCommit = true;
    } else this.state = "aborting";
    return call;
  }

  /** A commit call had no answer, or none that tells its outcome. */
  noteDoubt(): void {
    this.#inDoubt = true;
  }

  /** Takes note of an answer; returns the next call to make, if there is one. */
  answered(call: EndCall, error: OncelogError | undefined): EndCall | undefined {
    if (error?.retriable) {
      this.#inDoubt ||= call === "commit";
      return call;
    }
    return call === "commit" ? this.#commitAnswered(error) : this.#abortAnswered(error);
  }

  #commitAnswered(error: OncelogError | undefined): EndCall | undefined {
    if (error === undefined) {
      this.state = "committed";
      return undefined;
    }
    this.#refused ??= error;
    const unknown = error.kind === "UNKNOWN_TRANSACTION";
    if (error.kind === "TRANSACTION_ABORTED" || (unknown && !this.#inDoubt)) {
      this.state = "aborted";
    } else if (this.#wasCommitted) {
      // It is committed, but nobody says where its records are.
      this.state = "committed";
    } else if (unknown) this.state = "unknown";
    else {
      // Refused; yet an earlier call, which had no answer, may have been granted.
      this.state = "aborting";
      return "abort";
    }
    return undefined;
  }

  #abortAnswered(error: OncelogError | undefined): EndCall | undefined {
    if (error?.kind === "TRANSACTION_COMMITTED" && this.#askedToCommit) {
      this.#wasCommitted = true;
      this.#refused = undefined;
      this.state = "committing";
      return "commit";
    }
    if (error === undefined || !this.#askedToCommit) {
      // Without a commit call nothing of it is ever readable, whichever way this one ends: a
      // transaction that could not be aborted now is aborted when it has been idle.
      this.state = "aborted";
      return undefined;
    }
    this.#refused ??= error;
    const ended = error.kind === "TRANSACTION_ENDED" || error.kind === "UNKNOWN_TRANSACTION";
    this.state = ended ? "unknown" : "aborting";
    return undefined;
  }

  /** Why it was not committed, for the caller of commit. */
  get error(): OncelogError {
    if (this.failure !== undefined && this.#refused === undefined) {
      return this.failure.is("PRODUCER_FAILED") ? this.failure : this.refusal();
    }
    const text = `transaction ${this.id} was aborted`;
    let error = this.#refused ?? new OncelogError("TRANSACTION_ABORTED", text);
    if (this.state === "aborted" && error.kind === "UNKNOWN_TRANSACTION") {
      // No commit call of ours had a chance, and its name has begun another since.
      error = new OncelogError("TRANSACTION_ABORTED", error.message);
    }
    return error.withOutcome(this.state === "aborted" ? "not_stored" : "unknown");
  }

  /** It is committed, and its records are there. */
  published(runs: readonly PublishedRun[]): void {
    for (const run of runs) this.#run(run).baseOffset = run.baseOffset;
    this.result = { transactionId: this.id, runs };
  }
}
