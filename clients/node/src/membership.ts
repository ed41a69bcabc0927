/**
 * A consumer's part in its group: its partitions, and those it has to give back. No IO.
 *
 *     stream --assignment, fenced--> Membership --Step--> onLost, onRevoked, onAssigned
 *     onRevoked is done --released--> owned --> stream
 *
 * An ownership has a number. The same partition under another number is another ownership: records
 * read and not committed under the first may belong to another member, so it is lost first.
 */

import { PartitionMap, type TopicPartition } from "./types.js";

/** Consequences of an assignment, in the order in which they are to be done. */
export interface Step {
  /** Gone already: drop positions, abort transactions, commit nothing. */
  readonly lost: readonly TopicPartition[];
  /** Finish the records that were read, commit, then call `released`. */
  readonly revoked: readonly TopicPartition[];
  /** Read from the committed offset on; with the number for commits. */
  readonly assigned: PartitionMap<bigint>;
}

export class Membership {
  /** Of the newest hello; rises. */
  connection = 0n;
  /** Of the newest assignment; 0: none yet, or fenced since. */
  epoch = 0n;
  readonly owned = new PartitionMap<bigint>();
  #revoking = new PartitionMap<true>();
  #commits = 0n;

  /**
   * A new connection begins; returns its number. Owned partitions stay owned: the hello that
   * follows says so, and the same partitions are asked back again.
   */
  connect(): bigint {
    this.#revoking.clear();
    return ++this.connection;
  }

  isAskedBack(tp: TopicPartition): boolean {
    return this.#revoking.has(tp);
  }

  /** The number of a commit. */
  nextCommit(): bigint {
    return ++this.#commits;
  }

  /** The newest assignment. One of an older connection changes nothing. */
  assignment(
    connection: bigint,
    epoch: bigint,
    partitions: PartitionMap<bigint>,
    revoke: readonly TopicPartition[],
  ): Step {
    const assigned = new PartitionMap<bigint>();
    if (connection !== this.connection) return { lost: [], revoked: [], assigned };
    this.epoch = epoch;
    const asked = new PartitionMap<true>();
    for (const tp of revoke) asked.set(tp, true);
    const lost = [...this.owned]
      .filter(([tp, n]) => (partitions.has(tp) ? partitions.get(tp) !== n : !asked.has(tp)))
      .map(([tp]) => tp);
    for (const tp of lost) this.owned.delete(tp);
    for (const [tp, number] of partitions) if (!this.owned.has(tp)) assigned.set(tp, number);
    for (const [tp, number] of assigned) this.owned.set(tp, number);
    const before = this.#revoking;
    this.#revoking = new PartitionMap();
    for (const tp of asked.keys()) if (this.owned.has(tp)) this.#revoking.set(tp, true);
    const revoked = this.#revoking.keys().filter((tp) => !before.has(tp));
    return { lost, revoked, assigned };
  }

  /**
   * The work on these is finished and committed; partitions still held are to be named. False if a
   * new connection has begun since they were asked back: its hello said that they are held, so they
   * are, until they are asked back there.
   */
  released(connection: bigint, tps: readonly TopicPartition[]): boolean {
    if (connection !== this.connection) return false;
    for (const tp of tps) if (this.#revoking.delete(tp)) this.owned.delete(tp);
    return true;
  }

  /** The coordinator has ended the membership; returns the partitions lost by that. */
  fenced(): TopicPartition[] {
    const lost = this.owned.keys();
    this.owned.clear();
    this.#revoking.clear();
    this.epoch = 0n;
    return lost;
  }
}
