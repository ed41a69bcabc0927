/** Finds the leaders of partitions anew that the sender cannot reach. */

import { Backoff, now } from "./clock.js";
import { type Cluster, MAX_LEADER_FAILURES } from "./cluster.js";
import type { OncelogError } from "./errors.js";
import { PartitionMap, type TopicPartition } from "./types.js";

/**
 * A batch without an answer for so long makes the client ask for the leader: a node that was frozen
 * or cut off does not say so.
 */
export const STALL_AFTER = 1000;

// An election may not be over by the first question: it is asked again soon at first, and then
// once a second, for a cluster may also just be slow.
const STALL_PAUSES = new Backoff(250, 1000);
const LEADER_PAUSES = new Backoff(20, 250);

export class LeaderWatch {
  #stale = new Set<string>();
  #refreshing = false;
  #refreshAt = 0;
  #rounds = 0;
  // Topics with stalled partitions: how often the leader was asked for, and when the next question
  // is due.
  #stalls = new Map<string, { asked: number; due: number }>();
  // Leaders that refused, with their terms: there is another one, or will be.
  readonly #suspected = new PartitionMap<{ address: string; term: bigint }>();
  #askedAt = now(); // without a reason
  /** Why the last question had no answer; undefined: it had one. */
  noMetadata: OncelogError | undefined;

  constructor(
    readonly cluster: Cluster,
    readonly wake: () => void,
    /** The partitions with something to send. */
    readonly busy: () => TopicPartition[],
    readonly connected: (address: string) => boolean,
  ) {}

  /** Has the topic's leaders asked for. */
  ask(topic: string): void {
    this.#stale.add(topic);
  }

  /** A node answered as a leader. */
  leads(tp: TopicPartition): void {
    this.#suspected.delete(tp);
  }

  /**
   * The supposed leader does not. Ask others, until one of them names another leader.
   *
   * It may be cut off, and then tells every caller that it led last. So does a node that is cut
   * off with it, or one that has not heard of the election yet.
   */
  suspect(tp: TopicPartition, refused: string): void {
    this.cluster.avoid(refused);
    this.cluster.leaders.suspect(tp);
    const known = this.cluster.leaders.leader(tp);
    if (known?.address === refused) {
      this.#suspected.set(tp, { address: refused, term: known.term });
    }
    this.#stale.add(tp.topic);
  }

  /** Asks for the leaders of stale topics, again and again; returns when to look again. */
  work(at: number): number {
    if (at - this.#askedAt > this.cluster.config.metadataMaxAgeMs) {
      this.#askedAt = at;
      for (const topic of this.cluster.leaders.topics.keys()) this.#stale.add(topic);
    }
    const next = this.#askedAt + this.cluster.config.metadataMaxAgeMs + 1;
    if (this.#stale.size === 0 || this.#refreshing) return next;
    if (this.#refreshAt > at) return this.#refreshAt;
    const topics = [...this.#stale];
    this.#stale.clear();
    this.#refreshing = true;
    this.cluster.spawn(async () => {
      this.noMetadata = await this.cluster.tryRefresh(topics);
      this.#refreshed(topics);
      this.wake();
    });
    return next;
  }

  #refreshed(topics: string[]): void {
    this.#refreshing = false;
    let lacking = false;
    for (const tp of this.busy()) {
      if (topics.includes(tp.topic) && !this.#reachable(tp)) {
        lacking = true;
        this.#stale.add(tp.topic);
      }
    }
    this.#rounds++;
    if (!lacking && this.#stale.size === 0) this.#rounds = 1;
    if (lacking && this.#rounds % MAX_LEADER_FAILURES === 0) this.cluster.preferAnother();
    this.#refreshAt = now() + LEADER_PAUSES.delay(this.#rounds);
  }

  #reachable(tp: TopicPartition): boolean {
    const known = this.cluster.leaders.leader(tp);
    if (known === undefined || !this.connected(known.address)) return false;
    const suspect = this.#suspected.get(tp);
    return suspect?.address !== known.address || suspect.term !== known.term;
  }

  /** By topic the nodes that do not answer. */
  stalled(stalled: Map<string, Set<string>>, at: number): void {
    const next = new Map<string, { asked: number; due: number }>();
    for (const [topic, addresses] of stalled) {
      let known = this.#stalls.get(topic) ?? { asked: 0, due: 0 };
      if (at >= known.due) {
        const asked = known.asked + 1;
        known = { asked, due: at + STALL_PAUSES.delay(asked) };
        for (const address of addresses) this.cluster.avoid(address);
        this.#stale.add(topic);
      }
      next.set(topic, known);
    }
    this.#stalls = next;
  }
}
