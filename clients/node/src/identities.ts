/** The producer's identity: leases of producer ids, names, and where a partition goes on. */

import { randomBytes } from "node:crypto";
import { Attempts } from "./attempts.js";
import { now, sleep } from "./clock.js";
import type { Cluster } from "./cluster.js";
import type { ProducerConfig } from "./config.js";
import { asError, isRetriable, OncelogError } from "./errors.js";
import {
  type LeaseProducerResponse,
  type OpenedPartition,
  ProducerService,
} from "./gen/oncelog/v1/producer_pb.js";
import { keyOf, type TopicPartition } from "./types.js";

const { leaseProducer, openProducer, describeProducers } = ProducerService.method;

/** The right to write as (producerId, epoch). */
export interface Identity {
  readonly producerId: bigint;
  readonly epoch: number;
  /** Rises with each new one. */
  readonly serial: number;
  /** When to get the next one. */
  readonly renewAt: number;
  readonly expireAt: number;
  /** Proves it to a partition that does not know it yet. */
  readonly leaseToken: Uint8Array;
}

const NEVER = Number.POSITIVE_INFINITY;

export const NO_IDENTITY: Identity = {
  producerId: 0n,
  epoch: 0,
  serial: 0,
  renewAt: NEVER,
  expireAt: NEVER,
  leaseToken: new Uint8Array(),
};

/** Whether it need not be renewed for so long, or for half of its lifetime. */
function lasts(identity: Identity, totalMs: number): boolean {
  if (identity.renewAt === NEVER) return true;
  // The last tenth of a lease lies between its renewal and its end.
  const lifetime = (identity.expireAt - identity.renewAt) * 10;
  return identity.renewAt - now() >= Math.min(totalMs, lifetime / 2);
}

/** One number for all attempts of a call: repeated, it raises an epoch once. */
export function nonce(): bigint {
  return randomBytes(8).readBigUInt64LE() | 1n;
}

/**
 * All partitions share one identity; one that was reset gets its own, so the others are left
 * alone.
 */
export class Identities {
  current: Identity | undefined;
  /** Of the call in progress. */
  readonly attempts = new Attempts();
  // Callers that lease, one after the other.
  #leasing: Promise<unknown> | undefined;
  #serial = 0;
  // The newest epoch that this producer has leased under its name.
  #newest: Identity | undefined;
  // Of a lease that was not answered. It may have been granted, so the next one repeats it: under
  // another number it would be refused, as if somebody else had taken over the name.
  #nonce: bigint | undefined;

  constructor(
    readonly config: ProducerConfig,
    readonly cluster: Cluster,
  ) {}

  get #attempt(): number {
    return Math.min(2000, this.config.requestTimeoutMs);
  }

  /**
   * An identity that the partition has not used, and its last sequence there. It goes on trying
   * while errors are retriable; records have their own deadline.
   */
  async acquire(tp: TopicPartition, used: Identity): Promise<{ identity: Identity; last: bigint }> {
    while (this.#leasing !== undefined) await this.#leasing.catch(() => {});
    const identity = await this.#alone(() => this.#unused(used));
    const { resumeFrom } = this.config;
    if (resumeFrom !== null) {
      const next = resumeFrom.nextSequences?.find((one) => keyOf(one) === keyOf(tp));
      return { identity, last: (next?.sequence ?? 0n) - 1n };
    }
    const named = this.config.producerName !== null;
    return { identity, last: named ? await this.#open(tp, identity) : -1n };
  }

  /**
   * An identity that lasts for a transaction, if leases last so long. It is not renewed while one
   * is open: that would raise the name's epoch, and fence it. `usedUp`: whether one will not do.
   */
  async forTransaction(
    totalMs: number,
    usedUp: (one: Identity) => boolean,
    until: number,
  ): Promise<Identity> {
    while (this.#leasing !== undefined) await this.#leasing.catch(() => {});
    const newest = this.#newest;
    const fits = newest !== undefined && lasts(newest, totalMs) && !usedUp(newest);
    this.current = fits ? newest : await this.#alone(() => this.#lease(until));
    return this.current;
  }

  async #alone<T>(task: () => Promise<T>): Promise<T> {
    const running = task();
    this.#leasing = running;
    try {
      return await running;
    } finally {
      this.#leasing = undefined;
    }
  }

  async #unused(used: Identity): Promise<Identity> {
    const known = this.current;
    if (known === undefined || now() >= known.expireAt) {
      this.current = await this.#lease(NEVER);
      return this.current;
    }
    return known.serial <= used.serial ? this.#lease(NEVER) : known;
  }

  /**
   * Leases the next id at 90 % of the lifetime; partitions change over when drained. Returns
   * without a lease while somebody else leases.
   */
  async renewIfDue(): Promise<void> {
    const known = this.current;
    if (this.#leasing !== undefined || known === undefined || now() < known.renewAt) return;
    try {
      this.current = await this.#alone(() => this.#lease(now() + 1000));
    } catch (e) {
      if (!isRetriable(e)) throw e; // else it is tried again
    }
  }

  async #lease(until: number): Promise<Identity> {
    const serial = ++this.#serial;
    const { resumeFrom, producerName } = this.config;
    if (resumeFrom !== null) {
      const { producerId, epoch = 0, leaseToken = new Uint8Array() } = resumeFrom;
      return { producerId, epoch, serial, renewAt: NEVER, expireAt: NEVER, leaseToken };
    }
    // Counted from before the call, so that it ends too early rather than too late.
    const begin = now();
    const answer = await this.#askForLease(until);
    const lifetime = answer.lifetimeMs > 0n ? Number(answer.lifetimeMs) : NEVER;
    const identity = {
      producerId: answer.producerId,
      epoch: answer.epoch,
      serial,
      renewAt: begin + lifetime * 0.9,
      expireAt: begin + lifetime,
      leaseToken: answer.leaseToken,
    };
    this.#nonce = undefined;
    if (producerName !== null) this.#newest = identity;
    return identity;
  }

  async #askForLease(until: number): Promise<LeaseProducerResponse> {
    const { producerName } = this.config;
    this.#nonce ??= nonce();
    const request =
      producerName === null
        ? {}
        : {
            producerName,
            // One number for all attempts of this lease: the epoch rises by one at most.
            nonce: this.#nonce,
            // A name that another instance has leased since must not be taken back.
            heldProducerId: this.#newest?.producerId ?? 0n,
            heldEpoch: this.#newest?.epoch ?? 0,
          };
    for (let failures = 1; ; failures++) {
      try {
        const total = Math.min(this.config.requestTimeoutMs, until - now());
        const attempt = Math.min(this.#attempt, total);
        const onRetry = (error: OncelogError) => this.attempts.failed(error);
        const answer = await this.cluster.call(leaseProducer, request, { total, attempt, onRetry });
        this.attempts.clear();
        return answer;
      } catch (e) {
        if (!isRetriable(e)) this.#nonce = undefined;
        if (!isRetriable(e) || now() >= until) throw e;
      }
      await sleep(this.cluster.backoff.delay(failures), this.cluster.signal);
    }
  }

  /** Fences the predecessor in this partition and returns the last stored sequence. */
  async #open(tp: TopicPartition, identity: Identity): Promise<bigint> {
    const { leaders } = this.cluster;
    for (let failures = 1; ; failures++) {
      const address = leaders.address(tp);
      const opened = await this.#openAt(address, tp, identity);
      const error = opened?.error ?? "NOT_READY";
      if (opened !== undefined && error === "") {
        this.attempts.clear();
        return opened.lastSequence;
      }
      if (error === "FENCED") {
        const currentEpoch = opened?.currentEpoch ?? 0;
        const text = `producerName "${this.config.producerName}" was taken over, epoch ${currentEpoch}`;
        throw new OncelogError("FENCED", `${keyOf(tp)}: ${text}`, { ...tp, currentEpoch });
      }
      if (error === "UNKNOWN_PRODUCER" || error === "PRODUCER_EXPIRED") {
        const text = `${keyOf(tp)}: ${error}: ${opened?.message}`;
        throw new OncelogError("UNKNOWN_PRODUCER", text);
      }
      if (opened !== undefined) {
        const text = `${keyOf(tp)}: ${error}: ${opened.message}`;
        this.attempts.failed(new OncelogError("NOT_READY", text));
      }
      this.cluster.leaderFailed(address, failures);
      await sleep(this.cluster.backoff.delay(failures), this.cluster.signal);
      if (opened !== undefined && error === "NOT_LEADER" && failures === 1) {
        leaders.hint(tp, opened.leaderId, opened.leaderAddress);
        continue;
      }
      leaders.suspect(tp);
      try {
        await this.cluster.refresh([tp.topic]);
      } catch (e) {
        if (!isRetriable(e)) throw e;
      }
    }
  }

  /** The node's message; undefined: nothing, and a retry is worth it. */
  async #openAt(
    address: string,
    tp: TopicPartition,
    identity: Identity,
  ): Promise<OpenedPartition | undefined> {
    if (address === "") return undefined;
    try {
      const answer = await this.cluster.callAt(address, this.#attempt, openProducer, {
        producerId: identity.producerId,
        epoch: identity.epoch,
        leaseToken: identity.leaseToken,
        partitions: [{ topic: tp.topic, partition: tp.partition }],
      });
      if (answer.partitions.length !== 1) {
        const text = `the node gave ${answer.partitions.length} answers to 1 question`;
        throw new OncelogError("INTERNAL", text);
      }
      return answer.partitions[0];
    } catch (e) {
      if (!isRetriable(e)) throw e;
      this.attempts.failed(asError(e));
      return undefined;
    }
  }

  /** The producer's last sequence in a partition, from its leader; -1: none. */
  async lastStored(tp: TopicPartition, identity: Identity): Promise<bigint> {
    const answer = await this.cluster.callLeader(tp, describeProducers, {
      topic: tp.topic,
      partition: tp.partition,
      producerId: identity.producerId,
      limit: 1,
    });
    return answer.producers[0]?.lastSequence ?? -1n;
  }
}
