"""Partitions added to topics that are read by subscription, outside of a group.

    Cluster.refresh, each metadata_max_age_ms --> NewPartitions --more cursors--> fetch_buffer
    fetcher --begins_at_start--> NewPartitions

Members of a group get new partitions from its coordinator.

With auto_offset_reset="latest" a consumer reads records from now on. A partition younger than "now"
is read from its start, or the records between its creation and its discovery would be lost. For a
group "now" is its beginning, which is not recorded. So any partition that was not created with its
topic counts as younger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from oncelog import errors
from oncelog._engine.consume.fetch_buffer import FetchBuffer
from oncelog._engine.net import threads
from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition

log = logging.getLogger("oncelog.consumer")


class NewPartitions:
    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        buffer: FetchBuffer,
        wake: Callable[[], None],
    ) -> None:
        self._in_group = config.group_id is not None
        self._age_s = config.metadata_max_age_ms / 1000
        self._cluster = cluster
        self._buffer = buffer
        self._wake = wake
        self._lock = threads.shared_lock()  # keeps counts and assignment consistent
        self._counts: Mapping[str, int] = {}  # of the topics that are followed
        self._came: set[TopicPartition] = set()

    def assign(self, tps: Iterable[TopicPartition], follow: Iterable[str] = ()) -> None:
        """Read exactly these, and new partitions of the topics in `follow`; on any thread."""
        topics = self._cluster.leaders.topics
        with self._lock:
            self._counts = {name: len(topics[name].partitions) for name in follow}
            self._buffer.assign(tps)
        self._wake()

    def made_anew(self, tp: TopicPartition) -> None:
        """Read it from its start, unless the group has committed an offset of the new topic."""
        self._came.add(tp)

    def drop(self, tp: TopicPartition) -> bool:
        """Drop a partition missing in its recreated topic; False: it was not subscribed."""
        with self._lock:
            if tp.topic not in self._counts:
                return False
            self._counts = {**self._counts, tp.topic: min(self._counts[tp.topic], tp.partition)}
            self._buffer.assign(one for one in self._buffer.assignment() if one != tp)
        return True

    def begins_at_start(self, tp: TopicPartition) -> bool:
        """Tell whether to read from the start without a position, despite "latest"."""
        leader = self._cluster.leaders.leader(tp)
        return tp in self._came or (self._in_group and leader is not None and leader.added)

    async def look(self) -> None:
        """Look for new partitions during the consumer's life; on the engine's loop."""
        while True:
            await asyncio.sleep(self._age_s)
            if not self._counts:
                continue
            try:
                await self._cluster.refresh(self._counts)
            except errors.OncelogError as error:
                log.debug("no metadata: %s", error)
            else:
                self._take()

    def _take(self) -> None:
        topics = self._cluster.leaders.topics
        with self._lock:
            now = {
                name: max(count, len(topics[name].partitions))
                for name, count in self._counts.items()
            }
            new = [
                TopicPartition(name, number)
                for name, count in self._counts.items()
                for number in range(count, now[name])
            ]
            if new:
                log.info("new partitions: %s", ", ".join(map(str, new)))
                self._counts = now
                self._came.update(new)
                self._buffer.assign([*self._buffer.assignment(), *new])
                self._wake()
