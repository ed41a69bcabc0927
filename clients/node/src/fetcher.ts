/**
 * The consumer's IO: long polls to each leader, streams where there is much to read. One poll is
 * on its way per node and 1000 partitions; it covers those that the node leads, that have room and
 * that no stream brings. Leader changes, restarts and broken connections never reach the user.
 */

import { FetchBuffer, UNKNOWN_POSITION, type Wanted } from "./buffer.js";
import { CatchUp, endOffset, worthIt } from "./catchup.js";
import { now, sleep } from "./clock.js";
import {
  type Cluster,
  isOtherCluster,
  isUnknownTopic,
  MAX_LEADER_FAILURES,
  noPartition,
} from "./cluster.js";
import type { ConsumerConfig } from "./config.js";
import { asError, OncelogError } from "./errors.js";
import {
  type FetchResponse,
  LogService,
  PartitionError,
  type PartitionRecords,
} from "./gen/oncelog/v1/log_pb.js";
import { Growth } from "./growth.js";
import { corrupt, type Place, Positions, Search, textOf } from "./positions.js";
import { Routes } from "./routes.js";
import { Loop, TICK_EVERY } from "./sender.js";
import { keyOf, PartitionMap, type TopicPartition } from "./types.js";

/**
 * How long an offset above a leader's high watermark may last: a new leader learns how far the log
 * is committed a moment after its election.
 */
const AHEAD_GRACE = 10_000;
const MOST_WAIT = 60_000; // a node's limit
/** A poll that is late by so much: others are asked for the leader. */
const LATE_BY = 1000;
/** At the same time; further partitions are polled until one of these is done. */
const MOST_STREAMS = 8;
const UNKNOWN_TOPIC_GRACE = 5000;
/** The longest that a seek waits for a leader. */
const ELECTION = 2000;

/** A Fetch on its way. */
interface Poll {
  readonly address: string;
  readonly partitions: Wanted[];
  readonly abort: AbortController;
  lateAt: number;
}

export class Fetcher {
  readonly buffer: FetchBuffer;
  readonly growth: Growth;
  readonly positions: Positions;
  readonly #routes: Routes;
  readonly #loop = new Loop((at) => this.#work(at));
  readonly #polls = new Map<string, Poll>();
  readonly #locating = new PartitionMap<number>(); // by generation
  // Position to go on from without a look at the group's committed offsets.
  readonly #reset = new PartitionMap<{ place: Place; generation: number }>();
  // Partition that is polled alone, after a poll of several that failed for good.
  readonly #alone = new PartitionMap<true>();
  readonly #aheadSince = new PartitionMap<number>();
  // Partitions that are not polled because a stream brings them.
  readonly #streams = new PartitionMap<CatchUp>();
  #refreshing = false;
  #searches = 0; // for leaders, since all had one
  #searchAt = 0;
  #refreshedAt = now();
  #recreations = 0; // that were looked at

  constructor(
    readonly config: ConsumerConfig,
    readonly cluster: Cluster,
  ) {
    this.#routes = new Routes(config, cluster);
    const topicId = (topic: string) => cluster.leaders.topicId(topic);
    this.buffer = new FetchBuffer(config.maxPartitionFetchBytes, () => this.wake(), topicId);
    this.growth = new Growth(cluster.leaders, this.buffer, config.groupId !== null);
    this.positions = new Positions(config, cluster, this.#routes, this.growth);
  }

  wake(): void {
    this.#loop.wake();
  }

  stop(): void {
    this.#loop.stop();
    for (const poll of this.#polls.values()) poll.abort.abort();
    for (const stream of this.#streams.values()) stream.cancel();
  }

  // --- groups and coordinators ---------------------------------------------------------

  /** Starts polls where there is something to ask, and returns when to look again. */
  #work(at: number): number {
    const { metadataMaxAgeMs } = this.config;
    if (at - this.#refreshedAt > metadataMaxAgeMs) {
      this.#refreshedAt = at;
      this.#refresh([...this.cluster.leaders.topics.keys()]);
    }
    let next = this.#refreshedAt + metadataMaxAgeMs + 1;
    this.#checkTopics();
    this.#locateMissing();
    if (!this.#refreshing) this.#refresh(this.#routes.takeOutdated());
    for (const stream of this.#streams.values()) stream.work(at);
    const byPlace = new Map<string, { address: string; partitions: Wanted[] }>();
    const lost = new Set<string>();
    for (const w of this.buffer.wanted()) {
      if (this.#isStreamed(w)) continue;
      const readyAt = this.#routes.readyAt(w.tp);
      const address = this.#routes.address(w.tp);
      if (readyAt > at) next = Math.min(next, readyAt);
      else if (address === "") lost.add(w.tp.topic);
      else {
        const place = `${address} ${this.#alone.has(w.tp) ? keyOf(w.tp) : w.group}`;
        const known = byPlace.get(place) ?? { address, partitions: [] };
        known.partitions.push(w);
        byPlace.set(place, known);
      }
    }
    for (const [place, { address, partitions }] of byPlace) this.#poll(place, address, partitions);
    if (lost.size === 0) this.#searches = 0;
    else if (at >= this.#searchAt) {
      this.#searches++;
      this.#searchAt = at + this.cluster.backoff.delay(this.#searches);
      // The node that is asked may be cut off, and know of no leader.
      if (this.#searches % MAX_LEADER_FAILURES === 0) this.cluster.preferAnother();
      this.#refresh([...lost]);
    }
    if (lost.size > 0) next = Math.min(next, this.#searchAt);
    for (const poll of this.#polls.values()) this.#askAboutLate(poll, at);
    const busy = this.#polls.size > 0 || this.#streams.size > 0;
    return busy ? Math.min(next, at + TICK_EVERY) : next;
  }

  /** Whether a topic was deleted and created again: its offsets mean nothing there, all is news. */
  #checkTopics(): void {
    const { leaders } = this.cluster;
    if (this.#recreations === leaders.recreations) return;
    this.#recreations = leaders.recreations;
    const recreated = this.buffer.recreated();
    for (const { topic } of this.buffer.assignment) this.growth.recreated(topic);
    for (const tp of recreated) {
      if (!leaders.isGone(tp)) this.#beginAnew(tp);
      else this.buffer.fail(tp, this.buffer.generation(tp), noPartition(tp));
    }
  }

  /** Where the group stands in the new topic, or at its start. */
  #beginAnew(tp: TopicPartition): void {
    this.#aheadSince.delete(tp);
    this.growth.isNews(tp);
    this.buffer.seek(tp, UNKNOWN_POSITION);
  }

  #poll(place: string, address: string, partitions: Wanted[]): void {
    const running = this.#polls.get(place);
    if (running !== undefined) {
      const asked = new Map(running.partitions.map((w) => [keyOf(w.tp), w.generation]));
      if (partitions.every((w) => asked.get(keyOf(w.tp)) === w.generation)) return;
      // A partition has room again, or was sought elsewhere: do not let it wait for the poll that
      // is on its way.
      this.#polls.delete(place);
      running.abort.abort();
    }
    const maxWaitMs = Math.min(this.config.fetchMaxWaitMs, MOST_WAIT);
    const lateAt = now() + maxWaitMs + LATE_BY;
    const poll: Poll = { address, partitions, abort: new AbortController(), lateAt };
    this.#polls.set(place, poll);
    const { fetchMinBytes, fetchMaxBytes, maxPartitionFetchBytes, anyReplica } = this.config;
    const request = {
      minBytes: fetchMinBytes,
      maxBytes: fetchMaxBytes,
      maxWaitMs,
      anyReplica,
      near: this.config.rack !== null,
      partitions: partitions.map(({ tp, offset }) => ({
        topic: tp.topic,
        partition: tp.partition,
        offset,
        maxBytes: maxPartitionFetchBytes,
      })),
    };
    this.cluster.spawn(async () => {
      let outcome: FetchResponse | OncelogError;
      try {
        const { method } = LogService;
        const limit = this.config.requestTimeoutMs;
        const { signal } = poll.abort;
        outcome = await this.cluster.callAt(address, limit, method.fetch, request, signal);
      } catch (e) {
        outcome = asError(e);
      }
      if (this.#polls.get(place) === poll) {
        this.#polls.delete(place);
        this.#polled(poll, outcome);
      } // else it was given up
      this.wake();
    });
  }

  /**
   * A node that hangs keeps its connections, so a poll would time out first. If it says nothing
   * and another one leads by now, the poll is given up.
   */
  #askAboutLate(poll: Poll, at: number): void {
    if (at < poll.lateAt) return;
    poll.lateAt = Number.POSITIVE_INFINITY;
    this.cluster.avoid(poll.address);
    this.cluster.spawn(async () => {
      await this.cluster.tryRefresh([...new Set(poll.partitions.map((w) => w.tp.topic))]);
      poll.lateAt = now() + LATE_BY;
      const elsewhere = (w: Wanted) => this.#routes.isElsewhere(w.tp, poll.address);
      if (poll.partitions.some(elsewhere)) poll.abort.abort();
    });
  }

  #refresh(topics: string[]): void {
    if (this.#refreshing || topics.length === 0) return;
    this.#refreshing = true;
    this.cluster.spawn(async () => {
      const problem = await this.cluster.tryRefresh(topics);
      this.#refreshing = false;
      if (isOtherCluster(problem)) {
        for (const w of this.buffer.wanted()) {
          if (topics.includes(w.tp.topic)) this.buffer.fail(w.tp, w.generation, problem);
        }
      }
      this.growth.take();
      this.wake();
    });
  }

  // --- answers -----------------------------------------------------------------------

  #polled(poll: Poll, outcome: FetchResponse | OncelogError): void {
    const { address, partitions } = poll;
    let problem = outcome instanceof OncelogError ? outcome : undefined;
    const answers = outcome instanceof OncelogError ? [] : outcome.partitions;
    if (problem === undefined && answers.length !== partitions.length) {
      const text = `the node gave ${answers.length} answers to ${partitions.length} questions`;
      problem = new OncelogError("INTERNAL", text);
    }
    for (const [i, w] of partitions.entries()) {
      if (problem === undefined) this.#took(address, w, answers[i] as PartitionRecords);
      else if (problem.retriable) {
        this.#routes.failed(w.tp, address);
        if (isOtherCluster(problem)) this.buffer.fail(w.tp, w.generation, problem);
      }
      // One of them is the cause: each is polled alone then, until it is read.
      else if (partitions.length > 1) this.#alone.set(w.tp, true);
      else this.buffer.fail(w.tp, w.generation, problem);
    }
  }

  #took(address: string, w: Wanted, records: PartitionRecords): void {
    const added = this.buffer.add(w, records);
    if (added === "refused") this.#refused(w, records, address);
    else if (added === "behind") this.#routes.failed(w.tp, address);
    else if (added === "anew") {
      this.#beginAnew(w.tp);
      this.#lookAt(address, w.tp.topic); // it may have fewer partitions
    }
    if (added !== "ok") return;
    this.#routes.answered(w.tp, address);
    this.#alone.delete(w.tp);
    this.#aheadSince.delete(w.tp);
    if (this.#streams.size < MOST_STREAMS && worthIt(this.config, records)) {
      const rest = { ...w, offset: endOffset(records) };
      const { config, cluster, buffer } = this;
      const stream = new CatchUp(config, cluster, buffer, address, rest, (s, left, refused) =>
        this.#streamed(s, left, refused),
      );
      this.#streams.set(w.tp, stream);
    }
  }

  #isStreamed(w: Wanted): boolean {
    const stream = this.#streams.get(w.tp);
    if (stream !== undefined && stream.generation !== w.generation) {
      stream.cancel();
      this.#streams.delete(w.tp);
      return false;
    }
    return stream !== undefined;
  }

  #streamed(stream: CatchUp, rest: Wanted, refused: PartitionRecords | undefined): void {
    // Unless a seek has already put polls, or another one, in its place.
    if (this.#streams.get(rest.tp) === stream) {
      this.#streams.delete(rest.tp);
      if (refused !== undefined) this.#refused(rest, refused, stream.address);
    }
    this.wake();
  }

  #refused(w: Wanted, records: PartitionRecords, address: string): void {
    const { error } = records;
    switch (error) {
      case PartitionError.NOT_LEADER: {
        const { leaderId, leaderAddress } = records;
        this.#routes.leadsElsewhere(w.tp, address, leaderId, leaderAddress);
        break;
      }
      case PartitionError.NOT_READY:
        this.#routes.failed(w.tp, address);
        break;
      case PartitionError.UNKNOWN_TOPIC_OR_PARTITION:
        this.#routes.failed(w.tp, address);
        this.cluster.spawn(() => this.#confirmUnknown(w));
        break;
      case PartitionError.OFFSET_OUT_OF_RANGE:
        this.#outOfRange(w, records, address);
        break;
      default:
        if (this.#routes.elsewhere(w.tp, address, error)) this.#routes.failed(w.tp, address);
        else {
          const problem = corrupt(w.tp, w.offset, textOf(error, records.message));
          this.buffer.fail(w.tp, w.generation, problem);
        }
    }
  }

  /** A topic may vanish from one node's view for a moment; really gone is an error. */
  async #confirmUnknown(w: Wanted): Promise<void> {
    try {
      await this.cluster.requireTopic(w.tp.topic, UNKNOWN_TOPIC_GRACE);
      this.wake();
    } catch (e) {
      if (isUnknownTopic(e)) this.buffer.fail(w.tp, w.generation, asError(e));
      else if (!(e instanceof OncelogError)) throw e;
    }
  }

  #outOfRange(w: Wanted, records: PartitionRecords, address: string): void {
    const { logStartOffset, highWatermark } = records;
    const ahead = w.offset > highWatermark;
    const { anyReplica, rack } = this.config;
    if (ahead && (this.buffer.read(w.tp) || anyReplica || rack !== null)) {
      // These records were read once, so they exist: the node lags, wait for it.
      const since = this.#aheadSince.get(w.tp) ?? now();
      this.#aheadSince.set(w.tp, since);
      if (now() - since < AHEAD_GRACE) {
        this.#routes.failed(w.tp, address);
        this.#lookAt(address, w.tp.topic); // or it is another topic of that name
        return;
      }
    } else if (this.config.autoOffsetReset !== "none") {
      this.#seekWhenKnown(w.tp, this.config.autoOffsetReset);
      return;
    }
    const text = `offset ${w.offset} is out of range, the log has ${logStartOffset} to ${highWatermark}`;
    const details = { ...w.tp, offset: w.offset, logStartOffset, highWatermark };
    const problem = new OncelogError("OFFSET_OUT_OF_RANGE", `${keyOf(w.tp)}: ${text}`, details);
    this.buffer.fail(w.tp, w.generation, problem);
  }

  #lookAt(address: string, topic: string): void {
    this.cluster.spawn(async () => {
      try {
        await this.cluster.refreshAt(address, topic);
      } catch (e) {
        if (!(e instanceof OncelogError)) throw e; // else it is asked again
      }
      this.wake();
    });
  }

  // --- positions ---------------------------------------------------------------------

  /** Goes to an end of these. One that nobody leads holds up the others for a moment. */
  async seekAll(tps: readonly TopicPartition[], where: Place): Promise<void> {
    const generations = tps.map((tp) => this.#seekWhenKnown(tp, where));
    const until = now() + Math.min(this.config.requestTimeoutMs, ELECTION);
    const { buffer } = this;
    for (const [i, tp] of tps.entries()) {
      // A seek in the meantime wins.
      while (buffer.generation(tp) === generations[i] && buffer.position(tp) === UNKNOWN_POSITION) {
        if (!(await buffer.changed.next(until))) return;
      }
    }
  }

  #seekWhenKnown(tp: TopicPartition, where: Place): number {
    this.buffer.seek(tp, UNKNOWN_POSITION);
    const generation = this.buffer.generation(tp);
    this.#reset.set(tp, { place: where, generation });
    return generation;
  }

  /** Finds out where to start partitions without a position. */
  #locateMissing(): void {
    const missing: Wanted[] = [];
    const fresh: TopicPartition[] = [];
    const places = new PartitionMap<Place>();
    for (const w of this.buffer.withoutPosition()) {
      if (this.#locating.get(w.tp) === w.generation) continue;
      this.#locating.set(w.tp, w.generation);
      missing.push(w);
      // After a seek, or an offset that is out of range, the group's own would lead elsewhere.
      const reset = this.#reset.get(w.tp);
      if (reset?.generation === w.generation) places.set(w.tp, reset.place);
      else fresh.push(w.tp);
    }
    if (missing.length > 0) this.cluster.spawn(() => this.#locate(missing, fresh, places));
  }

  async #locate(
    missing: Wanted[],
    fresh: TopicPartition[],
    places: PartitionMap<Place>,
  ): Promise<void> {
    const generations = new PartitionMap<number>();
    for (const { tp, generation } of missing) generations.set(tp, generation);
    const located = (tp: TopicPartition) => {
      if (this.#locating.get(tp) === generations.get(tp)) this.#locating.delete(tp);
    };
    const search = new Search(
      (tp, offset) => {
        // At once: it does not wait for those that have no leader.
        located(tp);
        this.buffer.found(tp, generations.get(tp) ?? -1, offset);
        this.wake();
      },
      (tp) => this.buffer.generation(tp) === generations.get(tp),
    );
    let problem: OncelogError | undefined;
    try {
      await this.positions.start(fresh, places, search);
    } catch (e) {
      problem = asError(e);
    }
    if (problem?.kind === "FENCED_MEMBER") {
      // `position` hears of it, polls do not: the group will name the new owners. Until then
      // there is nothing to read.
      for (const tp of fresh) this.buffer.fail(tp, generations.get(tp) ?? -1, problem);
      await sleep(this.config.retryBackoffMaxMs, this.cluster.signal);
      problem = undefined;
    }
    this.#checkTopics(); // partitions that a topic no longer has may be read no longer
    for (const { tp, generation } of missing) {
      if (search.found.has(tp)) continue;
      located(tp);
      const own = problem ?? search.problems.get(tp);
      if (own !== undefined) this.buffer.fail(tp, generation, own);
    }
    this.wake();
  }
}
