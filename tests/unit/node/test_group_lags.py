"""Lag of groups from the partitions' leaders: clamped, in seconds, and with all it leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.metrics.groups import TopicLag
from cluster.node.metrics.group_lags import GroupLags

HERE, OTHER = 1, 2
TOPIC = 9


class Stored:
    """A partition with one batch of a record for each offset, a second apart."""

    def __init__(self, start: int, end: int) -> None:
        self.log_start, self.next_offset = start, end
        self.index = self

    def recent(self, offset: int) -> list[Any]:
        return [SimpleNamespace(append_time_ms=1000 * (offset + 1))]


def partition(start: int, end: int, *, leads: bool = True) -> Any:
    return SimpleNamespace(
        machine=SimpleNamespace(stored=Stored(start, end)),
        log_start_offset=start,
        high_watermark=end,
        group=SimpleNamespace(is_leader=leads),
        closed=False,
    )


async def lag(partitions: list[Any], offsets: dict[int, int], leader: int = HERE) -> TopicLag:
    """The lag of a group with these offsets by partition; group ids are the partitions'."""
    topic = SimpleNamespace(
        topic_id=TOPIC, partitions=[SimpleNamespace(group_id=gid) for gid in range(len(partitions))]
    )
    metadata: Any = SimpleNamespace(
        topic=lambda name: topic if name == "t" else None, group_of=lambda name, index: index
    )
    committed: Any = {
        ("t", index): SimpleNamespace(offset=offset, topic_id=TOPIC)
        for index, offset in offsets.items()
    }
    committed["t", 7] = SimpleNamespace(offset=3, topic_id=TOPIC - 1)  # of a topic that is gone
    committed["gone", 0] = SimpleNamespace(offset=3, topic_id=1)
    leaders: Any = SimpleNamespace(leader_of=lambda gid: (leader, 1))
    peers: Any = SimpleNamespace(links={})
    lags = GroupLags(
        HERE, metadata, dict(enumerate(partitions)), leaders, peers, lambda: [("g", committed)]
    )
    await lags.look()
    assert lags.lags("other") == {}
    (found,) = lags.lags("g").values()
    return found


async def test_behind_level_below_the_start_and_beyond_the_end():
    assert await lag([partition(0, 10)], {0: 3}) == TopicLag(7, 6.0)
    assert await lag([partition(0, 10)], {0: 10}) == TopicLag(0, 0.0)
    assert await lag([partition(8, 10)], {0: 3}) == TopicLag(2, 1.0), "deleted records do not count"
    assert await lag([partition(0, 10)], {0: 12}) == TopicLag(0, 0.0)
    assert await lag([partition(0, 0)], {0: 0}) == TopicLag(0, 0.0)


async def test_records_are_summed_and_the_worst_seconds_count():
    parts = [partition(0, 10), partition(0, 100), partition(5, 5)]
    assert await lag(parts, {0: 3, 1: 98, 2: 5}) == TopicLag(9, 6.0)


async def test_nothing_is_left_out_silently():
    parts = [partition(0, 10), partition(0, 10), partition(0, 10, leads=False)]
    assert await lag(parts, {0: 3, 2: 3}) == TopicLag(7, 6.0, uncommitted=1, unknown=1)
    assert await lag(parts, {0: 3}, leader=OTHER) == TopicLag(uncommitted=2, unknown=1)
    assert await lag(parts, {0: 3}, leader=0) == TopicLag(uncommitted=2, unknown=1)
