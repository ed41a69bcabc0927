/** Finds the node that keeps a group's offsets, and asks it. */

import type {
  DescMessage,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { now, sleep } from "./clock.js";
import type { Cluster } from "./cluster.js";
import { isRetriable, kindOf, OncelogError } from "./errors.js";
import { ClusterService } from "./gen/oncelog/v1/cluster_pb.js";
import * as pb from "./gen/oncelog/v1/group_pb.js";
import { type CommittedOffset, keyOf, type OffsetCommit, type TopicPartition } from "./types.js";

const LIST_PAGE = 1000;
const { commitOffsets, fetchOffsets, describeGroup, deleteGroup, listGroups } =
  pb.GroupService.method;

/** A group, and for how many partitions it has committed offsets. */
export interface GroupInfo {
  readonly group: string;
  readonly offsets: number;
  readonly lastCommitMs: bigint;
}

/** A group's committed offsets. */
export interface GroupDescription {
  readonly group: string;
  readonly exists: boolean;
  readonly lastCommitMs: bigint;
  readonly coordinatorId: number;
  readonly offsets: readonly CommittedOffset[];
}

export class Groups {
  readonly #coordinators = new Map<string, string>();

  constructor(readonly cluster: Cluster) {}

  /** Asks the group's coordinator, wherever it is now. */
  async #call<I extends DescMessage, O extends DescMessage>(
    group: string,
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    const deadline = now() + this.cluster.config.requestTimeoutMs;
    let turn = 0;
    for (let failures = 1; ; failures++) {
      const known = this.cluster.addresses();
      const address = this.#coordinators.get(group) ?? known[turn % known.length] ?? "";
      let problem: OncelogError;
      try {
        const limit = Math.min(deadline - now(), 2000);
        const answer = await this.cluster.callAt(address, limit, method, request);
        this.#coordinators.set(group, address);
        return answer;
      } catch (e) {
        if (!(e instanceof OncelogError) || !e.retriable) throw e;
        problem = e;
      }
      const hint = problem.details.leaderAddress ?? "";
      let pause = this.cluster.backoff.delay(failures);
      if (hint !== "" && hint !== address) {
        this.#coordinators.set(group, hint);
        // A hint needs no pause the first time; then somebody must be wrong.
        if (failures === 1) pause = 0;
      } else {
        this.#coordinators.delete(group);
        turn++;
      }
      if (now() + pause >= deadline) throw problem;
      await sleep(pause, this.cluster.signal);
    }
  }

  async commit(group: string, offsets: readonly OffsetCommit[]): Promise<void> {
    const answer = await this.#call(group, commitOffsets, {
      group,
      offsets: offsets.map((one) => ({ ...one })),
    });
    for (const result of answer.results) if (result.error !== "") throw refusedCommit(result);
  }

  /** What is committed of these partitions, or of all. */
  async committed(
    group: string,
    partitions: readonly TopicPartition[],
  ): Promise<CommittedOffset[]> {
    const answer = await this.#call(group, fetchOffsets, {
      group,
      partitions: partitions.map(({ topic, partition }) => ({ topic, partition })),
    });
    return known(answer.offsets);
  }

  async describe(group: string): Promise<GroupDescription> {
    const answer = await this.#call(group, describeGroup, { group });
    const { exists, lastCommitMs, coordinatorId } = answer;
    return { group, exists, lastCommitMs, coordinatorId, offsets: known(answer.offsets) };
  }

  async delete(group: string): Promise<boolean> {
    return (await this.#call(group, deleteGroup, { group })).existed;
  }

  /** All groups, by name: each node tells those that it leads. */
  async all(): Promise<GroupInfo[]> {
    const deadline = now() + this.cluster.config.requestTimeoutMs;
    for (let failures = 1; ; failures++) {
      const found = new Map<string, GroupInfo>();
      const covered = new Set<number>();
      let count = 0;
      const info = await this.cluster.call(ClusterService.method.describeCluster, {});
      for (const node of info.nodes) {
        if (node.alive && node.address !== "") {
          count = Math.max(count, await this.#listNode(node.address, found, covered));
        }
      }
      if (covered.size >= count) {
        return [...found.values()].sort((a, b) => (a.group < b.group ? -1 : 1));
      }
      const pause = this.cluster.backoff.delay(failures);
      if (now() + pause >= deadline) {
        const text = `${count - covered.size} partitions of __offsets have no leader`;
        throw new OncelogError("NOT_READY", text);
      }
      await sleep(pause, this.cluster.signal);
    }
  }

  /** The number of all partitions; 0: the node does not say. */
  async #listNode(
    address: string,
    found: Map<string, GroupInfo>,
    covered: Set<number>,
  ): Promise<number> {
    let afterGroup = "";
    while (true) {
      let answer: pb.ListGroupsResponse;
      try {
        const request = { afterGroup, limit: LIST_PAGE };
        answer = await this.cluster.callAt(address, 2000, listGroups, request);
      } catch (e) {
        if (isRetriable(e)) return 0;
        throw e;
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
