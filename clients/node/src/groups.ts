/** Finds the node that keeps a group's offsets, and asks it. */

import type {
  DescMessage,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { Attempts } from "./attempts.js";
import { now, sleep } from "./clock.js";
import type { Cluster } from "./cluster.js";
import { asError, isRetriable, kindOf, OncelogError } from "./errors.js";
import { ClusterService } from "./gen/oncelog/v1/cluster_pb.js";
import * as pb from "./gen/oncelog/v1/group_pb.js";
import type { ProducerTransaction } from "./staging.js";
import {
  type CommittedOffset,
  keyOf,
  type OffsetCommit,
  type PartitionMap,
  type TopicPartition,
} from "./types.js";

const LIST_PAGE = 1000;
/** A node that hangs must not hold up a question that another one answers. */
export const GROUP_ATTEMPT = 2000;
const { commitOffsets, stageOffsets, fetchOffsets, describeGroup, deleteGroup, listGroups } =
  pb.GroupService.method;

/** The member's part of a commit, or of a look at the offset to go on from. */
export interface CommitTerms {
  readonly memberId: string;
  readonly number: bigint;
  readonly ownerships: PartitionMap<bigint>;
}

/** A group, and for how many partitions it has committed offsets. */
export interface GroupInfo {
  readonly group: string;
  readonly offsets: number;
  readonly lastCommitMs: bigint;
}

/** A partition that a member owns, with the number of the ownership. */
export interface OwnedPartition extends TopicPartition {
  readonly ownership: bigint;
}

/** A consumer that shares its group's partitions. */
export interface GroupMemberInfo {
  readonly memberId: string;
  /** "": none. */
  readonly instanceId: string;
  readonly clientHost: string;
  readonly owned: readonly OwnedPartition[];
  /** Of these, the partitions it was asked to give back. */
  readonly revoking: readonly TopicPartition[];
  /** Since it came back for records. */
  readonly idleMs: bigint;
  readonly connected: boolean;
}

/** A group's committed offsets, and its members. */
export interface GroupDescription {
  readonly group: string;
  readonly exists: boolean;
  readonly lastCommitMs: bigint;
  readonly coordinatorId: number;
  readonly offsets: readonly CommittedOffset[];
  readonly members: readonly GroupMemberInfo[];
  /** Of the newest assignment. */
  readonly epoch: bigint;
  readonly assignor: string;
}

export class Groups {
  readonly #coordinators = new Map<string, string>();

  constructor(readonly cluster: Cluster) {}

  /** Asks the group's coordinator, wherever it is now. */
  async #call<I extends DescMessage, O extends DescMessage>(
    group: string,
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    attempts = new Attempts(),
  ): Promise<MessageShape<O>> {
    const deadline = now() + this.cluster.config.requestTimeoutMs;
    for (let failures = 1; ; failures++) {
      const address = this.coordinator(group);
      let problem: OncelogError;
      try {
        const limit = Math.min(deadline - now(), GROUP_ATTEMPT);
        const answer = await this.cluster.callAt(address, limit, method, request);
        this.answered(group, address);
        return answer;
      } catch (e) {
        if (!(e instanceof OncelogError) || !e.retriable) throw attempts.finalAnswer(e);
        problem = e;
      }
      attempts.failed(problem);
      const pause = this.failed(group, address, problem, failures);
      if (now() + pause >= deadline) throw attempts.error();
      await sleep(pause, this.cluster.signal);
    }
  }

  /** The node to ask: the one that is known to keep the group, or one after the other. */
  coordinator(group: string): string {
    return this.#coordinators.get(group) ?? this.cluster.addresses()[0] ?? "";
  }

  answered(group: string, address: string): void {
    this.#coordinators.set(group, address);
  }

  /** It is another node, perhaps; for how long to wait until one is to be asked again. */
  failed(group: string, address: string, error: OncelogError, failures: number): number {
    const hint = error.details.leaderAddress ?? "";
    if (hint !== "" && hint !== address) {
      this.#coordinators.set(group, hint);
      // A hint needs no pause the first time; then somebody must be wrong.
      return failures === 1 ? 0 : this.cluster.backoff.delay(failures);
    }
    this.#coordinators.delete(group);
    this.cluster.avoid(address);
    return this.cluster.backoff.delay(failures);
  }

  /** Stores offsets; `terms` are of a member. */
  async commit(
    group: string,
    offsets: readonly OffsetCommit[],
    terms?: CommitTerms,
  ): Promise<void> {
    const answer = await this.#call(group, commitOffsets, {
      group,
      memberId: terms?.memberId ?? "",
      commitNumber: terms?.number ?? 0n,
      offsets: commits(offsets, terms),
    });
    for (const result of answer.results) if (result.error !== "") throw refusedCommit(result);
  }

  /** Stores offsets with a transaction, all or none; a repeat has the same number. */
  async stage(
    transaction: ProducerTransaction,
    group: string,
    offsets: readonly OffsetCommit[],
    number: bigint,
    terms: CommitTerms | undefined,
  ): Promise<void> {
    const { error, message } = await this.#call(group, stageOffsets, {
      transactionId: transaction.id,
      producerId: transaction.producerId,
      epoch: transaction.epoch,
      group,
      memberId: terms?.memberId ?? "",
      number,
      offsets: commits(offsets, terms),
    });
    if (error === "") return;
    // Of a conflict: another transaction has to end first.
    const kind = error === "TRANSACTION_CONFLICT" ? "NOT_READY" : (kindOf(error) ?? "INTERNAL");
    throw new OncelogError(kind, `group ${group}: offsets not staged: ${message || error}`);
  }

  /**
   * Committed offsets of these partitions. `terms` are of a member. A caller that only `looks` ends
   * no transaction that has staged offsets there.
   */
  async committed(
    group: string,
    partitions: readonly TopicPartition[],
    terms?: CommitTerms,
    looks = false,
  ): Promise<CommittedOffset[]> {
    const answer = await this.#call(group, fetchOffsets, {
      group,
      ignoreTransactions: looks,
      memberId: terms?.memberId ?? "",
      ownerships: terms === undefined ? [] : partitions.map((tp) => terms.ownerships.get(tp) ?? 0n),
      partitions: partitions.map(({ topic, partition }) => ({ topic, partition })),
    });
    return known(answer.offsets);
  }

  async describe(group: string): Promise<GroupDescription> {
    const answer = await this.#call(group, describeGroup, { group });
    const { exists, lastCommitMs, coordinatorId, epoch, assignor } = answer;
    const offsets = known(answer.offsets);
    const members = answer.members.map(describedMember);
    return { group, exists, lastCommitMs, coordinatorId, offsets, members, epoch, assignor };
  }

  async delete(group: string): Promise<boolean> {
    const attempts = new Attempts();
    const { existed } = await this.#call(group, deleteGroup, { group }, attempts);
    // A lost answer to an earlier attempt may mean that we deleted it.
    return existed || attempts.inDoubt;
  }

  /** All groups, by name: each node tells those that it leads. */
  async all(): Promise<GroupInfo[]> {
    const deadline = now() + this.cluster.config.requestTimeoutMs;
    const attempts = new Attempts();
    for (let failures = 1; ; failures++) {
      const found = new Map<string, GroupInfo>();
      const covered = new Set<number>();
      let count = 0;
      const info = await this.cluster.call(ClusterService.method.describeCluster, {});
      for (const node of info.nodes) {
        if (node.alive && node.address !== "") {
          count = Math.max(count, await this.#listNode(node.address, found, covered, attempts));
        }
      }
      if (covered.size >= count) {
        return [...found.values()].sort((a, b) => (a.group < b.group ? -1 : 1));
      }
      const pause = this.cluster.backoff.delay(failures);
      if (now() + pause >= deadline) {
        const text = `${count - covered.size} partitions of __offsets have no leader that answers`;
        if (attempts.telling === undefined) throw new OncelogError("NOT_READY", text);
        throw attempts.late(text);
      }
      await sleep(pause, this.cluster.signal);
    }
  }

  /** The number of all partitions; 0: the node does not say. */
  async #listNode(
    address: string,
    found: Map<string, GroupInfo>,
    covered: Set<number>,
    attempts: Attempts,
  ): Promise<number> {
    let afterGroup = "";
    while (true) {
      let answer: pb.ListGroupsResponse;
      try {
        const request = { afterGroup, limit: LIST_PAGE };
        answer = await this.cluster.callAt(address, 2000, listGroups, request);
      } catch (e) {
        if (!isRetriable(e)) throw e;
        attempts.failed(asError(e));
        return 0;
      }
      for (const { group, offsets, lastCommitMs } of answer.groups) {
        afterGroup = group;
        found.set(group, { group, offsets, lastCommitMs });
      }
      if (answer.groups.length < LIST_PAGE) {
        for (const partition of answer.partitions) covered.add(partition);
        return answer.partitionCount;
      }
    }
  }
}

function commits(offsets: readonly OffsetCommit[], terms: CommitTerms | undefined) {
  return offsets.map((one) => ({ ...one, ownership: terms?.ownerships.get(one) ?? 0n }));
}

function describedMember(m: pb.GroupMember): GroupMemberInfo {
  const { memberId, instanceId, clientHost, idleMs, connected } = m;
  const owned = m.owned.map(({ topic, partition, ownership }) => ({ topic, partition, ownership }));
  const revoking = m.revoking.map(({ topic, partition }) => ({ topic, partition }));
  return { memberId, instanceId, clientHost, owned, revoking, idleMs, connected };
}

function refusedCommit(result: pb.OffsetCommitResult): OncelogError {
  const { topic, partition, currentEpoch, lastSequence } = result;
  return new OncelogError(
    kindOf(result.error) ?? "INTERNAL",
    `${keyOf(result)}: offset not committed: ${result.message || result.error}`,
    { topic, partition, currentEpoch, lastSequence },
  );
}

function known(offsets: pb.CommittedOffset[]): CommittedOffset[] {
  return offsets
    .filter((o) => o.offset >= 0n)
    .map((o) => ({
      topic: o.topic,
      partition: o.partition,
      offset: o.offset,
      metadata: o.metadata,
      producerId: o.producerId,
      epoch: o.epoch,
      sequence: o.sequence,
      commitMs: o.commitMs,
    }));
}
