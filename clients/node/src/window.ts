/**
 * One partition's batches on their way: order, retries, and the meaning of each verdict. The sender
 * asks `next` for batches to send, reports answers, broken connections and the passing of time, and
 * carries out the returned reaction. No IO; the clock's reading is an argument.
 *
 * The rules that make a retry safe:
 *
 * - sequences are given when a batch is first sent, and never change after that;
 * - after any failure, everything that is not acknowledged is sent again from the head on, the
 *   same bytes;
 * - a batch behind a retried one may be answered OUT_OF_ORDER; the head, sent when all before it
 *   was acknowledged, may not: then this producer cannot go on;
 * - a batch that a node refused for good consumed no sequence. Batches behind it can never be
 *   stored under the same producer id, because the gap stays; so it is sealed anew under a new one
 *   (a reset, of this partition only);
 * - that holds only while no attempt of the refused batch is unaccounted for. If one is, the
 *   outcome is unknown, and everything behind it fails as unknown too.
 */

import type { Accumulator, OpenBatch } from "./accumulator.js";
import { Obstacles, tells } from "./attempts.js";
import type { Backoff } from "./clock.js";
import type { ProducerConfig } from "./config.js";
import { OncelogError, type Outcome } from "./errors.js";
import { type BatchResult, Verdict } from "./gen/oncelog/v1/log_pb.js";
import { type Identity, NO_IDENTITY } from "./identities.js";
import { SealedBatch } from "./sealed.js";
import type { ProducerTransaction } from "./staging.js";
import { fromVerdict, isRetriableVerdict, isStored, kindOfVerdict } from "./status.js";
import { keyOf, type TopicPartition } from "./types.js";

const MOST_RESETS = 3;

/** The sender's work after an event. */
export type Reaction =
  | undefined
  /** The leader is not known any more. */
  | { readonly leaderLost: true }
  /** A node refused and named the leader. */
  | { readonly leaderId: number; readonly leaderAddress: string }
  /** The whole producer stops. */
  | { readonly fatal: OncelogError }
  /** The same, unless the topic has been deleted and created anew. */
  | { readonly fatalUnlessRecreated: OncelogError };

/** A producer's counters since its start. */
export interface ProducerStats {
  recordsSent: number;
  recordsAcked: number;
  recordsFailed: number;
  batchesSent: number;
  batchesAcked: number;
  batchesRetried: number;
  bytesSent: number;
  /** Batches acknowledged as stored by an earlier attempt. */
  duplicates: number;
  /** Changes of a partition's producer id for a cause. */
  resets: number;
  maxAckLatencyMs: number;
}

/** Fatal error of a producer with sequences of its own that the partition has lost. */
export function lostWithTopic(tp: TopicPartition, stored: bigint): OncelogError {
  return new OncelogError(
    "PRODUCER_FAILED",
    `${keyOf(tp)}: the records with the application's sequences up to ${stored} are no longer ` +
      "there, the topic was deleted and created anew; later records must not be stored without " +
      "them: send all of them again with a new producer",
  );
}

/**
 * Fatal error of a producer that could not store a batch with given sequences. A refused
 * condition is no gap: the application asked for it.
 */
function gapAfter(batch: OpenBatch, error: OncelogError): OncelogError | undefined {
  if (batch.sequences === undefined || error.kind === "OFFSET_MISMATCH") return undefined;
  if (batch.transaction !== undefined) return undefined; // later batches go with it
  return new OncelogError(
    "PRODUCER_FAILED",
    `${keyOf(batch.lane.tp)}: the records with the application's sequences ` +
      `${batch.sequences[0]} to ${batch.sequences.at(-1)} failed, and later records must not be ` +
      "stored without them; go on behind Producer.position with a new producer: " +
      error.message,
  );
}

export class Window {
  identity: Identity = NO_IDENTITY;
  topicId = 0n; // of the topic in which the identity began
  retryAt = 0;
  /** The application's own sequence that was stored last; -1: none. */
  storedGiven = -1n;
  readonly obstacles = new Obstacles();
  #batches: SealedBatch[] = [];
  #cursor = 0; // batches before it were sent since the last rewind
  #again: OpenBatch[] = []; // to be sealed anew, before waiting batches
  #failures = 0;
  #prevSequence = -1n;
  #dead: boolean; // no batch may be sealed with the identity any more
  #resets = 0; // since the last acknowledgement
  #madeAnew = false; // the topic was, while a transaction wrote to it
  // Where a transaction began here.
  #before: { transaction: ProducerTransaction; prev: bigint; given: bigint } | undefined;
  // A batch with the application's own sequences has failed. Later batches must not be stored:
  // prev_sequence would hide the gap, and a copy lose records unseen.
  #gap: OncelogError | undefined;

  constructor(
    readonly tp: TopicPartition,
    readonly accumulator: Accumulator,
    readonly config: ProducerConfig,
    readonly backoff: Backoff,
    readonly stats: ProducerStats,
    /** Called once for each batch, after its delivery. */
    readonly onDone: (batch: OpenBatch) => void,
  ) {
    this.#dead = config.enableIdempotence;
  }

  /** Whether a batch with the application's own sequences has failed. */
  get gapReaction(): Reaction {
    return this.#gap === undefined ? undefined : { fatal: this.#gap };
  }

  /** The producer id is the cluster's, so another one can be had. */
  get #leased(): boolean {
    return this.config.resumeFrom === null;
  }

  // --- identity ----------------------------------------------------------------------

  /** Whether `adopt` must come before the next batch can be sealed. */
  needsIdentity(now: number, current: Identity | undefined): boolean {
    return this.#batches.length === 0 && this.#identityOver(now, current);
  }

  /** No further batch may be sealed with the identity; the window drains. */
  #identityOver(now: number, current: Identity | undefined): boolean {
    if (!this.config.enableIdempotence) return false;
    const newer = current !== undefined && current.serial > this.identity.serial;
    return this.#dead || newer || now >= this.identity.expireAt;
  }

  get wasReset(): boolean {
    return this.#dead && this.identity !== NO_IDENTITY;
  }

  hasUsedUp(identity: Identity): boolean {
    return this.wasReset && this.identity.serial >= identity.serial;
  }

  /** Goes on with this identity after lastSequence (-1: from the start). */
  adopt(identity: Identity, lastSequence: bigint, topicId: bigint): void {
    if (this.#batches.length > 0) throw new Error("an identity changes only in an empty window");
    this.identity = identity;
    this.#prevSequence = lastSequence;
    this.topicId = topicId;
    this.#dead = false;
    this.#madeAnew = false;
    this.obstacles.clear();
  }

  /** Nobody is known to send to. The last leader's word tells more than that. */
  lacksLeader(noMetadata: OncelogError | undefined): void {
    if (noMetadata !== undefined) {
      this.obstacles.met(`no metadata: ${noMetadata.message}`, tells(noMetadata));
    } else if (`${this.obstacles}` === "") this.obstacles.met("no leader is known");
  }

  // --- batches to send ---------------------------------------------------------------

  get idle(): boolean {
    return this.#batches.length === 0 && this.#again.length === 0;
  }

  /** The next batch to send; undefined: none now, see `gapReaction`. */
  next(now: number, current: Identity | undefined): SealedBatch | undefined {
    if (now < this.retryAt || this.#gap !== undefined) return undefined;
    while (this.#cursor < this.#batches.length) {
      const s = this.#batches[this.#cursor++];
      if (s !== undefined && !s.acked) return s;
    }
    const full = this.#batches.length >= this.config.maxInFlight;
    if (full || this.#identityOver(now, current)) return undefined;
    const s = this.#sealNext();
    if (s === undefined) return undefined;
    if (this.config.enableIdempotence) this.#prevSequence = s.lastSequence;
    this.#batches.push(s);
    this.#cursor = this.#batches.length;
    return s;
  }

  #sealNext(): SealedBatch | undefined {
    while (this.#gap === undefined) {
      const batch = this.#again.shift() ?? this.accumulator.take(this.tp);
      if (batch === undefined) return undefined;
      const { transaction } = batch;
      if (transaction !== undefined && this.#before?.transaction !== transaction) {
        this.#before = { transaction, prev: this.#prevSequence, given: this.storedGiven };
      }
      const deadline = batch.created + this.config.deliveryTimeoutMs;
      try {
        return new SealedBatch(batch, this.identity, this.#prevSequence, deadline, this.config);
      } catch (e) {
        if (!(e instanceof OncelogError)) throw e;
        const text = `${keyOf(this.tp)}: cannot be encoded: ${e.message}`;
        this.#failBatch(batch, new OncelogError("INVALID_BATCH", text, {}, "never_sent"));
      }
    }
    return undefined;
  }

  /** An attempt was handed to the connection; answers will name attemptId. */
  sent(s: SealedBatch, attemptId: bigint, now: number): void {
    if (s.attempts > 0) this.stats.batchesRetried++;
    else {
      s.firstSentAt = now;
      this.stats.batchesSent++;
      this.stats.recordsSent += s.batch.count;
      this.stats.bytesSent += s.size;
    }
    s.attempts++;
    s.attemptId = attemptId;
    s.sentAt = now;
    s.refused = false;
    s.sentAsHead = s === this.#head();
  }

  #head(): SealedBatch | undefined {
    return this.#batches.find((s) => !s.acked);
  }

  // --- events ------------------------------------------------------------------------

  onResult(s: SealedBatch, attemptId: bigint, result: BatchResult, now: number): Reaction {
    const { verdict } = result;
    // A second answer, or one for a batch that was given up.
    if (s.acked || !this.#batches.includes(s)) return undefined;
    if (isStored(verdict)) {
      // True whichever attempt it answers.
      this.#stored(s, result, now);
      return undefined;
    }
    // It says nothing about the attempt that is on its way.
    if (s.attemptId !== attemptId) return undefined;
    s.attemptId = undefined;
    if (isRetriableVerdict(verdict) || verdict === Verdict.UNSPECIFIED) {
      return this.#tryAgain(s, result, now);
    }
    if (verdict === Verdict.OUT_OF_ORDER && !(s === this.#head() && s.sentAsHead)) {
      s.refused = true;
      if (s === this.#head()) this.#rewind(now, 0);
      return undefined;
    }
    // A later version's word: it may mean that the batch is stored.
    if (kindOfVerdict(verdict) === undefined) s.ambiguous = true;
    let error = fromVerdict(result, this.tp);
    if (s.ambiguous) error = error.withOutcome("unknown");
    if (error.kind === "PRODUCER_EXPIRED" && this.#leased) return this.#refusedForGood(s, error);
    if (error.kind === "FENCED") {
      this.#fenced(s);
      return { fatal: error };
    }
    if (error.kind === "UNKNOWN_PRODUCER") return { fatalUnlessRecreated: error };
    return error.is("PRODUCER_FAILED") ? { fatal: error } : this.#refusedForGood(s, error);
  }

  /**
   * Batches sent behind a fenced one are refused, too. A partition's epoch never falls, and a
   * node takes the batches of a stream in order.
   */
  #fenced(s: SealedBatch): void {
    for (const behind of this.#batches.slice(this.#batches.indexOf(s) + 1)) {
      behind.attemptId = undefined;
    }
  }

  #stored(s: SealedBatch, result: BatchResult, now: number): void {
    s.acked = true;
    s.attemptId = undefined;
    this.#failures = 0;
    this.#resets = 0;
    this.obstacles.clear();
    const duplicate = result.verdict === Verdict.DUPLICATE;
    if (duplicate) this.stats.duplicates++;
    if (!s.abandoned) {
      this.stats.batchesAcked++;
      this.stats.recordsAcked += s.batch.count;
      this.stats.maxAckLatencyMs = Math.max(this.stats.maxAckLatencyMs, now - s.firstSentAt);
      if (s.batch.sequences !== undefined && s.lastSequence > this.storedGiven) {
        this.storedGiven = s.lastSequence;
      }
      const { transaction, delivery } = s.batch;
      delivery.run = transaction?.staged(this.tp, s.batch.count, s.lastSequence);
      delivery.store(result.baseOffset, duplicate);
      this.onDone(s.batch);
    }
    this.#dropAckedHead();
    // Its turn has come: the reason of the refusal, the gap before it, is filled.
    if (this.#batches[0]?.refused) this.#rewind(now, 0);
    this.#resetIfAbandoned();
  }

  /** The transaction was aborted. Its sequences are free, for late copies name it. */
  rollBack(transaction: ProducerTransaction): void {
    if (this.#before?.transaction !== transaction) return;
    if (!this.idle) throw new Error("batches fail before their transaction is rolled back");
    this.#prevSequence = this.#before.prev;
    this.storedGiven = this.#before.given;
    this.#before = undefined;
    this.#failures = 0;
    this.#resets = 0;
    this.retryAt = 0;
    this.#dead = this.#madeAnew;
  }

  #dropAckedHead(): void {
    while (this.#batches[0]?.acked) {
      this.#batches.shift();
      this.#cursor = Math.max(0, this.#cursor - 1);
    }
  }

  #tryAgain(s: SealedBatch, result: BatchResult, now: number): Reaction {
    this.#failures++;
    let delay = this.backoff.delay(this.#failures);
    let reaction: Reaction;
    let doubt = true; // whether this attempt may be stored
    const { leaderId, leaderAddress } = result;
    switch (result.verdict) {
      case Verdict.NOT_LEADER:
        if (leaderAddress !== "" && this.#failures === 1) {
          reaction = { leaderId, leaderAddress };
          delay = 0; // a fresh hint needs no pause
        } else reaction = { leaderLost: true };
        break;
      case Verdict.NOT_READY:
      case Verdict.UNKNOWN_TOPIC_OR_PARTITION:
        reaction = { leaderLost: true };
        doubt = false;
        break;
      case Verdict.THROTTLED:
      case Verdict.STORAGE_FULL:
        doubt = false;
        break;
      case Verdict.TIMEOUT:
      case Verdict.UNSPECIFIED:
        s.unanswered = true;
        break;
    }
    s.ambiguous ||= doubt;
    this.#rewind(now, delay);
    return reaction;
  }

  /** No answer will come for the attempts on their way. */
  onConnectionLost(now: number): void {
    if (this.#batches.some((s) => s.attemptId !== undefined)) {
      this.#failures++;
      // The first retry goes at once: a new leader may already be known.
      this.#rewind(now, this.backoff.delay(this.#failures - 1));
    }
  }

  /** Goes on at another node, at once. */
  onLeaderChanged(now: number): void {
    this.#rewind(now, 0);
  }

  /** Nobody knows the meaning of an answer. Hear it once more. */
  sendAgain(now: number): void {
    this.#failures++;
    this.#rewind(now, this.backoff.delay(this.#failures));
  }

  #rewind(now: number, delay: number): void {
    for (const s of this.#batches) {
      if (s.attemptId !== undefined) {
        s.ambiguous = true;
        s.unanswered = true;
        s.attemptId = undefined;
      }
      s.refused = false;
    }
    this.#cursor = 0;
    this.retryAt = now + delay;
  }

  /** When the oldest attempt that waits for its answer was sent. */
  get oldestAttempt(): number | undefined {
    const waiting = this.#batches.filter((s) => s.attemptId !== undefined);
    return waiting.length === 0 ? undefined : Math.min(...waiting.map((s) => s.sentAt));
  }

  // --- refused for good --------------------------------------------------------------

  #refusedForGood(s: SealedBatch, error: OncelogError): Reaction {
    if (s.batch.transaction !== undefined) {
      return this.#stagingFailed(s.batch.transaction, error);
    }
    // Offsets only grow: a delayed copy will be refused for the same reason.
    const beyond = (error.details.nextOffset ?? -1n) > (s.batch.expectedOffset ?? -1n);
    const certain = !s.ambiguous || (error.kind === "OFFSET_MISMATCH" && beyond);
    const told = error.withOutcome(certain ? "not_stored" : "unknown");
    const position = this.#batches.indexOf(s);
    if (!this.config.enableIdempotence) {
      // Batches without sequences do not depend on each other.
      this.#batches.splice(position, 1);
      if (position < this.#cursor) this.#cursor--;
      this.#fail([s], told);
      this.#dropAckedHead();
      return undefined;
    }
    const [, ...behind] = this.#batches.splice(position);
    this.#cursor = Math.min(this.#cursor, this.#batches.length);
    if (error.kind === "PRODUCER_EXPIRED" && certain) {
      // Nothing is wrong with its records: they need another producer id.
      return this.#sealAgain([s, ...behind], told);
    }
    this.#fail([s], told);
    if (!certain) {
      this.#dead = true;
      this.stats.resets++;
      const text = "a batch before it was refused and its outcome is not known";
      this.#fail(behind, this.#late("unknown", text));
      return this.gapReaction;
    }
    if (behind.length === 0) {
      this.#prevSequence = s.prevSequence;
      return this.gapReaction;
    }
    return this.#sealAgain(behind, told);
  }

  /**
   * The transaction cannot be committed any more. All of it fails; its stored part is dropped.
   */
  #stagingFailed(transaction: ProducerTransaction, error: OncelogError): Reaction {
    this.accumulator.failTransaction(transaction, error);
    this.failAll(error);
    return undefined;
  }

  /**
   * The topic was deleted and created again, and its leader knows nothing of this producer.
   *
   * A batch without an answer may have been stored in the topic that is gone: it fails. Refused
   * batches are in neither, nor those behind them: it goes to the new one, under a new producer id,
   * so that no delayed copy can take its place.
   */
  onTopicCreatedAnew(): Reaction {
    const anew = `${keyOf(this.tp)}: the topic was deleted and created anew`;
    if (!this.#leased) {
      const text = `${anew}; the given producer id cannot go on: make a new producer`;
      return { fatal: new OncelogError("PRODUCER_FAILED", text) };
    }
    if (this.#batches.some((s) => s.batch.sequences !== undefined)) {
      this.#gap = lostWithTopic(this.tp, this.storedGiven);
      this.accumulator.refuse(this.#gap);
      return this.gapReaction;
    }
    const left = this.#batches.filter((s) => !s.acked);
    const transaction = left[0]?.batch.transaction;
    if (transaction !== undefined) {
      this.#madeAnew = true;
      return this.#stagingFailed(transaction, new OncelogError("DELIVERY_FAILED", anew));
    }
    this.#batches = [];
    this.#cursor = 0;
    const first = left.findIndex((s) => !s.unanswered);
    const sure = first < 0 ? left.length : first;
    const text = `${anew} while this was on its way`;
    const gone = new OncelogError("DELIVERY_FAILED", text, {}, "unknown");
    this.#fail(left.slice(0, sure), gone);
    return this.#sealAgain(left.slice(sure), gone);
  }

  #sealAgain(behind: SealedBatch[], error: OncelogError): Reaction {
    if (!this.#leased || this.#resets >= MOST_RESETS) {
      this.#batches.push(...behind);
      // Records behind a refused one would need another producer id.
      const text = `${error.message}; the batches behind it need a new producer id`;
      return { fatal: new OncelogError("PRODUCER_FAILED", `${keyOf(this.tp)}: ${text}`) };
    }
    this.#resets++;
    this.stats.resets++;
    this.#dead = true;
    this.#again.unshift(...behind.filter((s) => !s.abandoned).map((s) => s.batch));
    return this.gapReaction;
  }

  #fail(batches: SealedBatch[], error: OncelogError): void {
    for (const s of batches) if (!s.abandoned && !s.acked) this.#failBatch(s.batch, error);
  }

  #failBatch(batch: OpenBatch, error: OncelogError): void {
    this.stats.recordsFailed += batch.count;
    if (batch.transaction !== undefined) {
      this.accumulator.failTransaction(batch.transaction, error);
    }
    if (this.#gap === undefined) {
      this.#gap = gapAfter(batch, error);
      // Before anybody learns of it: a window that does may send the next batch.
      if (this.#gap !== undefined) this.accumulator.refuse(this.#gap);
    }
    batch.delivery.fail(error);
    this.onDone(batch);
  }

  // --- time --------------------------------------------------------------------------

  #late(outcome: Outcome, text: string): OncelogError {
    const met = `${this.obstacles}`;
    const why = met === "" ? "" : `; ${met}`;
    return new OncelogError("DELIVERY_TIMEOUT", `${keyOf(this.tp)}: ${text}${why}`, {}, outcome);
  }

  /** The process stood still for so long: that does not count. */
  putOff(late: number, now: number): void {
    for (const s of this.#batches) {
      s.deadline = Math.min(s.deadline + late, now + this.config.deliveryTimeoutMs);
      s.sentAt = Math.min(s.sentAt + late, now);
    }
    for (const batch of this.#again) batch.created = Math.min(batch.created + late, now);
  }

  /** Fails a batch that was not sent. */
  refuse(batch: OpenBatch, error: OncelogError): void {
    this.#failBatch(batch, error.withOutcome("never_sent"));
  }

  /** Fails a batch that was past its delivery timeout before it was taken out. */
  expireUnsent(batch: OpenBatch): Reaction {
    const text = `not sent within deliveryTimeoutMs=${this.config.deliveryTimeoutMs}`;
    this.#failBatch(batch, this.#late("never_sent", text));
    return this.gapReaction;
  }

  /**
   * Fails batches past their delivery timeout.
   *
   * A batch that was sent may be stored, so it keeps its place in the window while batches behind
   * it are alive; when none is, the window is given up and the partition goes on under a new id.
   */
  expire(now: number): Reaction {
    const { deliveryTimeoutMs } = this.config;
    for (const s of this.#batches) {
      if (s.acked || s.abandoned || s.deadline > now) continue;
      s.abandoned = true;
      const text = `no acknowledgement within deliveryTimeoutMs=${deliveryTimeoutMs}`;
      const outcome = s.attempts > 0 ? "unknown" : "never_sent";
      this.#failBatch(s.batch, this.#late(outcome, `${text}, sent ${s.attempts} times`));
    }
    while (this.#again[0] !== undefined && this.#again[0].created <= now - deliveryTimeoutMs) {
      const text = `deliveryTimeoutMs=${deliveryTimeoutMs} is over`;
      this.#failBatch(this.#again[0], this.#late("not_stored", text));
      this.#again.shift();
    }
    this.#resetIfAbandoned();
    return this.gapReaction;
  }

  #resetIfAbandoned(): void {
    const [first] = this.#batches;
    if (first === undefined || this.#batches.some((s) => !s.acked && !s.abandoned)) return;
    if (this.#batches.every((s) => s.attempts === 0)) this.#prevSequence = first.prevSequence;
    else if (this.config.enableIdempotence) {
      this.#dead = true;
      this.stats.resets++;
    }
    this.#batches = [];
    this.#cursor = 0;
  }

  /** The producer stops, or its transaction. Batches on their way fail. */
  failAll(error: OncelogError): void {
    for (const s of this.#batches) {
      const sent = s.ambiguous || s.attemptId !== undefined;
      const doubt = sent && s.batch.transaction === undefined;
      this.#fail([s], error.withOutcome(doubt ? "unknown" : "not_stored"));
    }
    for (const batch of this.#again) this.#failBatch(batch, error.withOutcome("not_stored"));
    this.#batches = [];
    this.#again = [];
    this.#cursor = 0;
  }
}
