"""Snapshot of this node's groups for the metrics page.

    GroupMembers (members, rebalances), OffsetsTable (offsets) --> GroupSample

Lags come from the node's last look at the partitions' leaders (cluster/node/metrics/group_lags.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cluster.metrics.groups import GroupSample, TopicLag
from cluster.partition.group_state import GroupState
from cluster.services.groups.running_groups import AnyGroup, GroupMembers

MAX_SHOWN = 200  # groups of one partition of __offsets


Lags = Callable[[str], Mapping[str, TopicLag]]


def group_samples(lags: Lags, members: GroupMembers, now_ms: int) -> Iterator[GroupSample]:
    """Yield samples by name in each partition of `__offsets`, at most MAX_SHOWN; any thread."""
    for replica, running in members.led():
        table = replica.group_offsets
        assert table is not None
        known = dict(table.groups("", MAX_SHOWN))
        for name in sorted(known.keys() | running.keys())[:MAX_SHOWN]:
            yield _sample(lags, name, known.get(name), running.get(name), now_ms)


def _sample(
    lags: Lags,
    name: str,
    offsets: GroupState | None,
    running: AnyGroup | None,
    now_ms: int,
) -> GroupSample:
    return GroupSample(
        name,
        members=0 if running is None else running.size,
        rebalances=0 if running is None else running.rebalances,
        idle=0.0 if running is None else running.idle,
        since_commit=max(0, now_ms - offsets.last_commit_ms) / 1000 if offsets else -1.0,
        lag=lags(name),
    )


def shown(members: GroupMembers) -> Iterator[tuple[str, GroupState]]:
    """Yield the groups with offsets that `group_samples` shows."""
    for replica, _ in members.led():
        yield from replica.group_offsets.groups("", MAX_SHOWN)


def groups_left_out(members: GroupMembers) -> int:
    """Count the groups here that the page does not show."""
    return sum(max(0, replica.group_offsets.count - MAX_SHOWN) for replica, _ in members.led())
