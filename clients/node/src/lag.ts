/** How far groups are behind the ends of their partitions. */

import { FetchBuffer } from "./buffer.js";
import type { Cluster } from "./cluster.js";
import { consumerConfig } from "./config.js";
import { isRetriable, type OncelogError } from "./errors.js";
import type { GroupDescription } from "./groups.js";
import { Growth } from "./growth.js";
import { type Place, Positions, Search } from "./positions.js";
import { Routes } from "./routes.js";
import { type CommittedOffset, PartitionMap, type TopicPartition } from "./types.js";

/** How long a partition's leader may take to answer, with an election. */
const LAG_WAIT = 2000;

/** How far a group is in a partition. Unknown fields are undefined. */
export interface PartitionLag extends TopicPartition {
  /** Undefined for a partition that a member owns and has not committed. */
  readonly committed: CommittedOffset | undefined;
  readonly logStartOffset: bigint | undefined;
  readonly highWatermark: bigint | undefined;
  /** The number of readable records behind the committed offset. */
  readonly lag: bigint | undefined;
  /** Why no leader answered. */
  readonly error: OncelogError | undefined;
}

/** A group's lag in each partition that it has committed or that a member owns. */
export interface GroupLag {
  readonly group: GroupDescription;
  readonly partitions: readonly PartitionLag[];
  /** The sum of the known lags. */
  readonly lag: bigint;
}

export async function lagOf(group: GroupDescription, cluster: Cluster): Promise<GroupLag> {
  const committed = new PartitionMap<CommittedOffset | undefined>();
  for (const member of group.members) {
    for (const { topic, partition } of member.owned) committed.set({ topic, partition }, undefined);
  }
  for (const one of group.offsets) {
    committed.set({ topic: one.topic, partition: one.partition }, one);
  }
  const tps = committed
    .keys()
    .sort((a, b) => (a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1));
  if (tps.length === 0) return { group, partitions: [], lag: 0n };
  try {
    await cluster.refresh([...new Set(tps.map((tp) => tp.topic))]);
  } catch (e) {
    if (!isRetriable(e)) throw e; // else it is asked again below
  }
  const config = consumerConfig(cluster.config);
  const growth = new Growth(cluster.leaders, new FetchBuffer(0, () => {}), false);
  const positions = new Positions(config, cluster, new Routes(config, cluster), growth);
  const end = async (place: Place) => {
    const queries = new PartitionMap<Place>();
    for (const tp of tps) queries.set(tp, place);
    const search = new Search();
    await positions.search(queries, search, LAG_WAIT);
    return search;
  };
  const [starts, ends] = await Promise.all([end("earliest"), end("latest")]);
  const partitions = tps.map((tp) => {
    const known = committed.get(tp);
    const logStartOffset = starts.found.get(tp);
    const highWatermark = ends.found.get(tp);
    const error = starts.problems.get(tp) ?? ends.problems.get(tp);
    const lag = behind(known?.offset, logStartOffset, highWatermark);
    return { ...tp, committed: known, logStartOffset, highWatermark, lag, error };
  });
  return { group, partitions, lag: partitions.reduce((sum, one) => sum + (one.lag ?? 0n), 0n) };
}

/** Records below the log's start do not exist. */
function behind(offset?: bigint, start?: bigint, end?: bigint): bigint | undefined {
  if (offset === undefined || start === undefined || end === undefined) return undefined;
  const from = offset > start ? offset : start;
  return end > from ? end - from : 0n;
}
