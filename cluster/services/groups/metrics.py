"""Snapshot of this node's groups for the metrics page.

    GroupMembers (members, rebalances), OffsetsTable (offsets) --> GroupSample

A lag is shown only if this node has a replica of each partition that the group committed:
nodes do not ask each other for a page.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.metrics.groups import GroupSample
from cluster.partition.group_state import GroupState
from cluster.services.context import NodeContext
from cluster.services.groups.running_groups import GroupMembers, RunningGroup
from oncelog.lag import records_behind

MAX_SHOWN = 200  # groups of one partition of __offsets
MAX_OFFSETS = 5000  # of one group whose lag is counted: a page is asked for often


def group_samples(node: NodeContext, members: GroupMembers, now_ms: int) -> Iterator[GroupSample]:
    """Yield samples by name in each partition of `__offsets`, at most MAX_SHOWN; any thread."""
    for replica, running in members.led():
        table = replica.group_offsets
        assert table is not None
        known = dict(table.groups("", MAX_SHOWN))
        for name in sorted(known.keys() | running.keys())[:MAX_SHOWN]:
            yield _sample(node, name, known.get(name), running.get(name), now_ms)


def _sample(
    node: NodeContext,
    name: str,
    offsets: GroupState | None,
    running: RunningGroup | None,
    now_ms: int,
) -> GroupSample:
    views = [] if running is None else running.coordinator.members()
    return GroupSample(
        name,
        members=len(views),
        rebalances=0 if running is None else running.rebalances,
        idle=max((view.idle for view in views), default=0.0),
        since_commit=max(0, now_ms - offsets.last_commit_ms) / 1000 if offsets else -1.0,
        lag={} if offsets is None else _lag(node, offsets),
    )


def _lag(node: NodeContext, offsets: GroupState) -> dict[str, int]:
    """Map topics to records not committed as read; without topics that are not all here."""
    found: dict[str, int] = {}
    if len(offsets) > MAX_OFFSETS:
        return found
    absent: set[str] = set()
    for (topic, number), state in offsets.items():
        group_id = node.metadata.group_of(topic, number)
        replica = None if group_id is None else node.partition(group_id)
        if replica is None:
            absent.add(topic)
        else:
            start, end = replica.log_start_offset, replica.high_watermark
            found[topic] = found.get(topic, 0) + records_behind(state.offset, start, end)
    return {topic: lag for topic, lag in found.items() if topic not in absent}
