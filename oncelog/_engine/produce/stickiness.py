"""Sticky partition for records without a key: one with a leader for a while, then another.

Place in the flow: `placement` asks for a record's partition, `accumulator` reports the batch that
took it and the batch's end. Under a high load a batch fills, and the next one goes elsewhere. If
each record waits for the one before it, a partition for each would spread the records of a process
over all nodes, a message for each few. So the next one follows the last stored one, until that
partition has got its share (ADR 81, Kafka's KIP-794). Partitions without a reachable leader get
nothing while others have one (ADR 88).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from oncelog._engine.produce.batches import OpenBatch, PartitionQueue
from oncelog._engine.produce.futures import Delivery
from oncelog.types import TopicPartition

STAY_BYTES = 16 * 1024  # for a partition before small batches go to another one


class Stickiness:
    """Changed under the accumulator's lock; `lane` may be called without it.

    is_available: whether a partition has a leader that can be reached; it only looks.
    """

    def __init__(self, is_available: Callable[[TopicPartition], bool]) -> None:
        self._is_available = is_available
        # Each topic's open batch for keyless records.
        self.batches: dict[str, OpenBatch] = {}
        # Each topic's last closed batch, and the bytes that its partition got.
        self._last: dict[str, tuple[PartitionQueue, Delivery, int]] = {}

    def opened(self, batch: OpenBatch) -> None:
        """Note a batch that takes a record without a key."""
        if self._is_available(batch.tp):
            self.batches[batch.tp.topic] = batch

    def leave_unavailable(self) -> None:
        """Leave partitions that wait for a leader: they must not attract more."""
        stuck = [topic for topic, one in self.batches.items() if not self._is_available(one.tp)]
        for topic in stuck:
            del self.batches[topic]

    def closed(self, batch: OpenBatch) -> None:
        lane, topic = batch.lane, batch.lane.tp.topic
        if self.batches.get(topic) is not batch:
            return
        del self.batches[topic]
        before = self._last.pop(topic, None)
        size = batch.size
        if before is not None and before[0] is lane:
            size += before[2]
        if size < STAY_BYTES:
            self._last[topic] = (lane, batch.delivery, size)

    def lane(self, topic: str, lanes: Sequence[PartitionQueue]) -> PartitionQueue:
        """Return the lane for the next record without a key; `lanes`: of the topic's partitions."""
        batch = self.batches.get(topic)
        if batch is not None:
            return batch.lane
        last = self._last.get(topic)
        if last is not None:
            lane, delivery, _ = last
            # Records in flight there, or failed, are no reason to send more there.
            stored = delivery.done and delivery.error is None and lane.tp.partition < len(lanes)
            if stored and self._is_available(lane.tp):
                return lane
        return self.any_lane(lanes)

    def any_lane(self, lanes: Sequence[PartitionQueue]) -> PartitionQueue:
        lane = random.choice(lanes)
        if self._is_available(lane.tp):
            return lane  # the usual case: no list is made for it
        return random.choice([one for one in lanes if self._is_available(one.tp)] or lanes)

    def clear(self) -> None:
        self.batches.clear()
        self._last.clear()
