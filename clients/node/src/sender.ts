/**
 * The producer's IO: it takes ripe batches, finds leaders and keeps a stream to each node.
 */

import { Accumulator, type OpenBatch } from "./accumulator.js";
import { tells } from "./attempts.js";
import { Backoff, now } from "./clock.js";
import { type Cluster, CONNECT_TIMEOUT } from "./cluster.js";
import type { ProducerConfig } from "./config.js";
import { Failures } from "./delivery.js";
import { asError, OncelogError } from "./errors.js";
import type { BatchResult } from "./gen/oncelog/v1/log_pb.js";
import { Identities, type Identity, NO_IDENTITY } from "./identities.js";
import { LeaderWatch, STALL_AFTER } from "./leaderwatch.js";
import type { ProducerTransaction } from "./staging.js";
import { answerText, isRetriableVerdict } from "./status.js";
import { ProduceStream, type StreamEvents } from "./stream.js";
import { keyOf, PartitionMap, type TopicPartition } from "./types.js";
import { lostWithTopic, type ProducerStats, type Reaction, Window } from "./window.js";

export const TICK_EVERY = 100;
/** The loop that comes so late has been held up, or the process stood still (ADR 89). */
const LATE = 2 * TICK_EVERY;
const SEARCH_PAUSES = new Backoff(500, 5000);
/** A node's limit of timeout_ms. */
const MOST_COMMIT_TIMEOUT = 600_000;

/** Runs work soon after it was woken, and again at the time that the work returned. */
export class Loop {
  #woken = false;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(readonly work: (at: number) => number) {}

  wake(): void {
    if (this.#woken || this.#stopped) return;
    this.#woken = true;
    setImmediate(() => this.#run());
  }

  #run(): void {
    this.#woken = false;
    clearTimeout(this.#timer);
    if (this.#stopped) return;
    const next = this.work(now());
    if (next === Number.POSITIVE_INFINITY || this.#stopped) return;
    this.#timer = setTimeout(() => this.#run(), Math.min(Math.max(1, next - now()), 2 ** 31 - 1));
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }
}

export class Sender implements StreamEvents {
  readonly stats: ProducerStats = {
    recordsSent: 0,
    recordsAcked: 0,
    recordsFailed: 0,
    batchesSent: 0,
    batchesAcked: 0,
    batchesRetried: 0,
    bytesSent: 0,
    duplicates: 0,
    resets: 0,
    maxAckLatencyMs: 0,
  };
  readonly accumulator: Accumulator;
  readonly identities: Identities;
  readonly failed = new Failures();
  readonly #loop = new Loop((at) => this.#work(at));
  readonly #windows = new PartitionMap<Window>();
  readonly #busy = new PartitionMap<Window>();
  // Nothing is sent to these: they wait for a producer id, or for news of their topic.
  readonly #identifying = new PartitionMap<true>();
  // Batches that wait for a partition to have a producer id.
  readonly #identified = new PartitionMap<((identity: Identity) => void)[]>();
  readonly #streams = new Map<string, ProduceStream>();
  readonly #sentTo = new PartitionMap<string>();
  readonly #watch: LeaderWatch;
  #searchAt = 0;
  #searches = 0;
  #attemptId = 0n;
  #tickedAt = 0;
  #dueAt = Number.POSITIVE_INFINITY;
  #stopped = false;

  constructor(
    readonly config: ProducerConfig,
    readonly cluster: Cluster,
  ) {
    const wake = () => this.#loop.wake();
    const { leaders } = cluster;
    this.accumulator = new Accumulator(config, wake, (tp) => leaders.isAvailable(tp));
    this.identities = new Identities(config, cluster);
    const connected = (address: string) => this.#streams.get(address)?.opened ?? false;
    const asked = () => {
      this.accumulator.leaveUnavailable();
      wake();
    };
    this.#watch = new LeaderWatch(cluster, asked, () => this.#busy.keys(), connected);
  }

  // --- the end -----------------------------------------------------------------------

  /** Ends all IO; unacknowledged batches fail, with their outcome. */
  stop(): void {
    if (!this.#stopped) {
      this.#failEverything(
        new OncelogError("DELIVERY_TIMEOUT", "the producer was closed before an acknowledgement"),
        new OncelogError("CLIENT_CLOSED", "the producer is closed"),
      );
    }
    this.#closeStreams();
    this.#loop.stop();
  }

  #closeStreams(): void {
    for (const stream of this.#streams.values()) stream.close("the producer has ended");
  }

  /** The producer cannot go on. All pending records fail, further ones are refused. */
  fail(error: OncelogError): void {
    if (this.#stopped) return;
    this.#failEverything(error, error);
    this.#closeStreams();
  }

  #failEverything(error: OncelogError, later: OncelogError): void {
    this.#stopped = true;
    const { transaction } = this.accumulator;
    if (transaction !== undefined) this.accumulator.failTransaction(transaction, error);
    this.#failBatches(this.accumulator.stop(later), error);
    for (const tp of this.#identified.keys()) this.#tellIdentified(tp, NO_IDENTITY);
  }

  #failBatches(unsent: readonly OpenBatch[], error: OncelogError): void {
    for (const batch of unsent) {
      this.stats.recordsFailed += batch.count;
      batch.delivery.fail(error.withOutcome("never_sent"));
      this.#batchDone(batch);
    }
    for (const window of this.#windows.values()) window.failAll(error);
    this.#busy.clear();
  }

  #batchDone(batch: OpenBatch): void {
    // Of a transaction's failure its end tells.
    const tells = batch.delivery.error !== undefined && batch.transaction === undefined;
    if (tells) this.failed.add(batch.delivery);
    this.accumulator.release(batch);
  }

  // --- sending -----------------------------------------------------------------------

  /** Sends all batches that can be sent now, and returns when to look again. */
  #work(at: number): number {
    if (this.#stopped) return Number.POSITIVE_INFINITY;
    if (at - this.#dueAt > LATE) this.#putOff(at - this.#dueAt, at);
    if (at - this.#tickedAt >= TICK_EVERY) {
      this.#tickedAt = at;
      this.#tick(at);
    }
    const { transaction } = this.accumulator;
    if (transaction?.failure !== undefined) this.drop(transaction, transaction.refusal());
    const { ready, next: lingers } = this.accumulator.readyPartitions(at);
    let next = lingers;
    const mayHave = new Set(ready.map(keyOf));
    for (const tp of ready) this.#busy.set(tp, this.#window(tp));
    for (const [tp, window] of this.#busy) {
      this.#react(window, this.#feed(window, at));
      if (this.#stopped) return Number.POSITIVE_INFINITY;
      if (window.idle && !mayHave.has(keyOf(tp))) this.#busy.delete(tp);
      else if (window.retryAt > at) next = Math.min(next, window.retryAt);
    }
    for (const stream of this.#streams.values()) stream.write();
    next = Math.min(next, this.#search(at), this.#watch.work(at));
    const tick = this.#tickedAt + TICK_EVERY;
    const renewal = Math.max(tick, this.identities.current?.renewAt ?? Number.POSITIVE_INFINITY);
    this.#dueAt = Math.min(next, this.#busy.size > 0 ? tick : renewal);
    return this.#dueAt;
  }

  /**
   * Records without a key avoid partitions without a leader, so nothing would notice that it is
   * back: leaders that are away are looked for. Returns when to look again.
   */
  #search(at: number): number {
    if (at < this.#searchAt) return this.#searchAt;
    const { topics, addresses } = this.cluster.leaders.lacking();
    const isWhole = topics.length + addresses.length === 0;
    this.#searches = isWhole ? 0 : this.#searches + 1;
    this.#searchAt = at + (isWhole ? SEARCH_PAUSES.first : SEARCH_PAUSES.delay(this.#searches));
    for (const topic of topics) this.#watch.ask(topic);
    for (const address of addresses) if (!this.#streams.has(address)) this.#connect(address);
    return isWhole ? Number.POSITIVE_INFINITY : this.#searchAt;
  }

  #feed(window: Window, at: number): Reaction {
    const { tp } = window;
    if (this.cluster.leaders.isGone(tp)) {
      this.#gone(window);
      return window.gapReaction;
    }
    if (this.#identifying.has(tp)) return undefined;
    const { transaction } = this.accumulator;
    if (transaction !== undefined && !this.#mayStage(window, transaction, at)) return undefined;
    if (window.needsIdentity(at, this.identities.current)) return this.#identify(window);
    const address = this.cluster.leaders.address(tp);
    if (address === "") {
      window.lacksLeader(this.#watch.noMetadata);
      this.#watch.ask(tp.topic);
      return undefined;
    }
    if (this.#sentTo.get(tp) !== address) {
      this.#sentTo.set(tp, address);
      window.obstacles.met(`${address}: no answer yet`);
      window.onLeaderChanged(at);
    }
    const stream = this.#streams.get(address) ?? this.#connect(address);
    if (!stream.opened) {
      // It may be down, and another node lead by now.
      this.#watch.ask(tp.topic);
      return undefined;
    }
    while (true) {
      if (!stream.hasRoom) {
        stream.write();
        if (!stream.hasRoom) return undefined; // it says when there is
      }
      const batch = window.next(at, this.identities.current);
      if (batch === undefined) return window.gapReaction;
      this.#attemptId++;
      window.sent(batch, this.#attemptId, at);
      stream.send(window, batch, this.#attemptId);
    }
  }

  /** The topic was created anew, and has no such partition: nothing of this can be stored there. */
  #gone(window: Window): void {
    const text = "the topic was deleted and created anew, without this partition";
    const error = new OncelogError("DELIVERY_FAILED", `${keyOf(window.tp)}: ${text}`);
    for (const batch of this.accumulator.takeAll(window.tp)) window.refuse(batch, error);
    window.failAll(error);
  }

  /** Whether the transaction goes on. It ends with its lease: a new one would fence it. */
  #mayStage(window: Window, transaction: ProducerTransaction, at: number): boolean {
    const { current } = this.identities;
    if (current === undefined || at >= current.expireAt || window.hasUsedUp(current)) {
      const text = `the lease of "${this.config.producerName}" cannot be used on`;
      const error = new OncelogError("PRODUCER_EXPIRED", `${keyOf(window.tp)}: ${text}`);
      this.accumulator.failTransaction(transaction, error);
    }
    return transaction.failure === undefined;
  }

  /** It cannot be committed: batches that are not staged fail now, nobody waits for them. */
  drop(transaction: ProducerTransaction, error: OncelogError): void {
    this.accumulator.failTransaction(transaction, error);
    this.#failBatches(this.accumulator.dropTransaction(), error);
  }

  /** It was aborted: its sequences are free. */
  rollBack(transaction: ProducerTransaction): void {
    if (transaction.failure !== undefined) this.drop(transaction, transaction.failure);
    for (const window of this.#windows.values()) window.rollBack(transaction);
  }

  /** Whether a partition can no longer go on under this identity. */
  hasUsedUp(identity: Identity): boolean {
    return [...this.#windows.values()].some((window) => window.hasUsedUp(identity));
  }

  #window(tp: TopicPartition): Window {
    let window = this.#windows.get(tp);
    if (window === undefined) {
      const { accumulator, config, stats } = this;
      const done = (batch: OpenBatch) => this.#batchDone(batch);
      window = new Window(tp, accumulator, config, this.cluster.backoff, stats, done);
      this.#windows.set(tp, window);
    }
    return window;
  }

  /** Gets a producer id for a partition, while others go on. */
  #identify(window: Window): Reaction {
    const { tp } = window;
    if (window.wasReset && this.config.resumeFrom !== null) {
      const text = "after a batch of unknown outcome the given producer id cannot go on";
      return { fatal: new OncelogError("PRODUCER_FAILED", `${keyOf(tp)}: ${text}`) };
    }
    this.#identifying.set(tp, true);
    window.obstacles.met("no producer id yet");
    this.cluster.spawn(async () => {
      try {
        const { identity, last } = await this.identities.acquire(tp, window.identity);
        this.#adopt(window, identity, last);
      } catch (e) {
        this.fail(noProducerId(e));
      }
      this.#loop.wake();
    });
    return undefined;
  }

  #adopt(window: Window, identity: Identity, last: bigint): void {
    const { tp } = window;
    this.#identifying.delete(tp);
    if (this.#stopped) return;
    if (this.config.producerName !== null && last < window.storedGiven) {
      this.fail(lostWithTopic(tp, window.storedGiven));
      return;
    }
    window.adopt(identity, last, this.#topicId(tp.topic));
    this.#tellIdentified(tp, identity);
  }

  #topicId(topic: string): bigint {
    return this.cluster.leaders.topics.get(topic)?.id ?? 0n;
  }

  #tellIdentified(tp: TopicPartition, identity: Identity): void {
    for (const tell of this.#identified.get(tp) ?? []) tell(identity);
    this.#identified.delete(tp);
  }

  /** The producer id that the partition has, or gets now; none if the producer has stopped. */
  identityOf(tp: TopicPartition): Promise<Identity> {
    const window = this.#window(tp);
    if (window.identity !== NO_IDENTITY || this.#stopped) return Promise.resolve(window.identity);
    return new Promise((resolve) => {
      this.#identified.set(tp, [...(this.#identified.get(tp) ?? []), resolve]);
      if (!this.#identifying.has(tp)) this.#react(window, this.#identify(window));
    });
  }

  // --- streams -----------------------------------------------------------------------

  #connect(address: string): ProduceStream {
    const { requestTimeoutMs } = this.config;
    const commit = Math.floor((requestTimeoutMs * 4) / 5);
    const commitMs = Math.min(Math.max(1, commit), MOST_COMMIT_TIMEOUT);
    const connectMs = Math.min(CONNECT_TIMEOUT, requestTimeoutMs);
    const stream = new ProduceStream(address, this.cluster, commitMs, connectMs, this);
    this.#streams.set(address, stream);
    return stream;
  }

  opened(stream: ProduceStream): void {
    this.cluster.leaders.unreachable.delete(stream.address);
    this.cluster.reachability.answered(stream.address);
    this.#loop.wake();
  }

  room(): void {
    this.#loop.wake();
  }

  closed(stream: ProduceStream, why: string): void {
    const { address } = stream;
    if (this.#streams.get(address) === stream) this.#streams.delete(address);
    if (this.#stopped) return;
    if (stream.refused !== undefined) {
      const text = `the producer cannot go on: ${stream.refused.message}`;
      this.fail(new OncelogError("PRODUCER_FAILED", text));
      return;
    }
    this.cluster.avoid(address);
    this.cluster.leaders.unreachable.add(address);
    this.accumulator.leaveUnavailable();
    this.cluster.reachability.failed(`${address}: ${why}`);
    for (const [tp, window] of this.#busy) {
      if (this.#sentTo.get(tp) === address) {
        window.obstacles.met(`${address}: ${why}`, stream.told);
        window.onConnectionLost(now());
        this.cluster.leaders.forget(tp, address);
        this.#watch.ask(tp.topic);
      }
    }
    this.#loop.wake();
  }

  results(stream: ProduceStream, results: BatchResult[]): void {
    for (const result of results) {
      const waiting = stream.outstanding.get(result.id);
      if (waiting === undefined || this.#stopped) continue;
      stream.outstanding.delete(result.id);
      const { window, batch } = waiting;
      const reaction = window.onResult(batch, result.id, result, now());
      if (isRetriableVerdict(result.verdict)) {
        window.obstacles.met(`${stream.address}: ${answerText(result)}`, true);
      } else this.#watch.leads(window.tp); // after all
      this.#react(window, reaction);
    }
    this.#loop.wake();
  }

  #react(window: Window, reaction: Reaction): void {
    if (reaction === undefined) return;
    const { tp } = window;
    if ("fatal" in reaction) this.fail(reaction.fatal);
    else if ("fatalUnlessRecreated" in reaction) {
      // Else it is being looked into.
      if (!this.#identifying.has(tp)) this.#findTopic(window, reaction.fatalUnlessRecreated);
    } else if ("leaderAddress" in reaction) {
      this.cluster.leaders.hint(tp, reaction.leaderId, reaction.leaderAddress);
    } else this.#watch.suspect(tp, this.#sentTo.get(tp) ?? "");
  }

  /** A leader does not know the producer. Either all is lost, or it is another topic. */
  #findTopic(window: Window, error: OncelogError): void {
    const { tp } = window;
    this.#identifying.set(tp, true);
    this.cluster.spawn(async () => {
      let asked = true;
      try {
        // Nobody else can be sure to know of the topic that this node leads.
        await this.cluster.refreshAt(this.#sentTo.get(tp) ?? "", tp.topic);
      } catch (e) {
        if (!(e instanceof OncelogError)) throw e;
        asked = false;
      }
      this.#identifying.delete(tp);
      if (this.#stopped) return;
      if (!asked) window.sendAgain(now());
      else if (this.#topicId(tp.topic) === window.topicId) this.fail(error);
      else this.#react(window, window.onTopicCreatedAnew());
      this.#loop.wake();
    });
  }

  // --- time --------------------------------------------------------------------------

  /** New partitions are not read yet: nothing is judged by that time. */
  #putOff(late: number, at: number): void {
    this.accumulator.putOff(late, at);
    for (const window of this.#windows.values()) window.putOff(late, at);
  }

  #tick(at: number): void {
    const why = this.identities.attempts.telling;
    if (why !== undefined) {
      for (const tp of this.#identifying.keys()) {
        this.#window(tp).obstacles.met(`no producer id yet: ${why.message}`, tells(why));
      }
    }
    for (const batch of this.accumulator.expire(at)) {
      const window = this.#window(batch.lane.tp);
      this.#react(window, window.expireUnsent(batch));
    }
    for (const window of this.#busy.values()) this.#react(window, window.expire(at));
    if (this.#stopped) return;
    this.#checkStalls(at);
    const { current } = this.identities;
    if (current !== undefined && at >= current.renewAt) {
      this.cluster.spawn(async () => {
        try {
          if (!this.accumulator.isTransactional) await this.identities.renewIfDue();
        } catch (e) {
          // Taken over by another instance, most likely: to go on would be to fight.
          this.fail(noProducerId(e));
        }
        this.#loop.wake();
      });
    }
  }

  #checkStalls(at: number): void {
    const stalled = new Map<string, Set<string>>(); // topic -> nodes that do not answer
    for (const [tp, window] of this.#busy) {
      const oldest = window.oldestAttempt;
      const address = this.#sentTo.get(tp);
      if (oldest === undefined || address === undefined) continue;
      const stream = this.#streams.get(address);
      if (at - oldest > this.config.requestTimeoutMs && stream !== undefined) {
        stream.close("no answer within requestTimeoutMs");
      } else if (at - oldest > STALL_AFTER) {
        stalled.set(tp.topic, (stalled.get(tp.topic) ?? new Set()).add(address));
      }
    }
    this.#watch.stalled(stalled, at);
  }
}

/** Fatal error of a producer that gets no producer id. */
function noProducerId(e: unknown): OncelogError {
  const error = asError(e);
  return error.is("PRODUCER_FAILED")
    ? error
    : new OncelogError("PRODUCER_FAILED", `no producer id: ${error.message}`);
}
