"""What a node's partitions look like at one moment, for the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.metrics import PartitionSample
from cluster.partition.replica import Partition

IN_STEP_ENTRIES = 64  # a follower this little behind counts as in step


def sample(partitions: Iterable[Partition], up: Iterable[int]) -> Iterator[PartitionSample]:
    """Copies each replica's numbers. up: nodes that can be reached."""
    reachable = set(up)
    for partition in list(partitions):
        group = partition.group
        if group is None:
            continue
        lag = group.follower_lag()
        yield PartitionSample(
            topic=partition.topic,
            partition=partition.index,
            leads=group.is_leader,
            failed=group.failed is not None,
            under_replicated=any(
                peer not in reachable or behind > IN_STEP_ENTRIES for peer, behind in lag.items()
            ),
            term=group.term,
            commit_index=group.commit_index,
            applied_index=group.applied_index,
            log_start_offset=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            stored_bytes=partition.stored_bytes,
            producers=len(partition.last_seen),
            producers_throttled=partition.producers_throttled,
            batches=partition.batches,
            records=partition.records,
            bytes=partition.bytes,
            verdicts=dict(partition.verdicts),
            follower_lag=lag,
        )
