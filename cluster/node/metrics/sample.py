"""Snapshot of a node's partitions for the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.metrics.partitions import PartitionSample
from cluster.metrics.transactions import TransactionSample
from cluster.partition.replica import Partition
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.types import TransactionState
from oncelog.v1.log_pb2 import Verdict

_DUPLICATE = int(Verdict.VERDICT_DUPLICATE)
UNDER_REPLICATED_LAG = 64  # entries; a follower further behind does not count as a replica


def sample(partitions: Iterable[Partition], up: Iterable[int]) -> Iterator[PartitionSample]:
    """Copy each replica's numbers. up: nodes that can be reached."""
    reachable = set(up)
    for partition in list(partitions):
        group, stored = partition.group, partition.machine.stored
        lag = group.follower_lag()
        batches, records, size = stored.led
        applied = group.applied_index
        runs = list(partition.machine.runs.open()) if len(partition.machine.runs) else ()
        oldest = min((run.first_index for run in runs), default=applied) if runs else applied
        yield PartitionSample(
            topic=partition.topic,
            partition=partition.index,
            leads=group.is_leader,
            failed=group.failed is not None,
            under_replicated=bool(lag)
            and any(
                peer not in reachable or behind > UNDER_REPLICATED_LAG
                for peer, behind in lag.items()
            ),
            term=group.term,
            commit_index=group.commit_index,
            applied_index=applied,
            entries_behind=group.entries_behind,
            log_start_offset=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            stored_bytes=stored.stored_bytes,
            producers=len(partition.last_seen),
            producers_throttled=partition.counters.producers_throttled,
            batches_rebuilt=partition.counters.rebuilt,
            staged_bytes=sum(run.size for run in runs),
            staged_groups=len(partition.group_offsets.staged),
            pinned_entries=applied - oldest,
            duplicates=partition.counters.verdicts.get(_DUPLICATE, 0),
            batches=batches,
            records=records,
            bytes=size,
            verdicts=partition.counters.verdicts,
            follower_lag=lag,
        )


def transactions(coordinator: Coordinator, now_ms: int, orphaned: int = 0) -> TransactionSample:
    """Sample the transactions. now_ms: the wall clock's; an age is only for people.

    orphaned: see `orphaned_runs`.
    """
    rows = list(coordinator.unfinished())
    opened = [row.begun_ms for row in rows if row.state is TransactionState.OPEN]
    oldest_ms = max(0, now_ms - min(opened, default=now_ms))
    return TransactionSample(
        len(opened),
        len(rows) - len(opened),
        oldest_ms / 1000,
        coordinator.remembered,
        dict(coordinator.aborts),
        orphaned,
    )
