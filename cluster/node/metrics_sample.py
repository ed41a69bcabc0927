"""What a node's partitions look like at one moment, for the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.metrics import PartitionSample
from cluster.partition.replica import Partition

UNDER_REPLICATED_LAG = 64  # entries; a follower further behind does not count as a replica


def sample(partitions: Iterable[Partition], up: Iterable[int]) -> Iterator[PartitionSample]:
    """Copies each replica's numbers. up: nodes that can be reached."""
    reachable = set(up)
    for partition in list(partitions):
        group, stored = partition.group, partition.machine.stored
        lag = group.follower_lag()
        yield PartitionSample(
            topic=partition.topic,
            partition=partition.index,
            leads=group.is_leader,
            failed=group.failed is not None,
            under_replicated=any(
                peer not in reachable or behind > UNDER_REPLICATED_LAG
                for peer, behind in lag.items()
            ),
            term=group.term,
            commit_index=group.commit_index,
            applied_index=group.applied_index,
            log_start_offset=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            stored_bytes=stored.stored_bytes,
            producers=len(partition.last_seen),
            producers_throttled=partition.counters.producers_throttled,
            batches=stored.appended_batches,
            records=stored.appended_records,
            bytes=stored.appended_bytes,
            verdicts=dict(partition.counters.verdicts),
            follower_lag=lag,
        )
