"""Which partition records without a key go to: one with a leader for a while, then any such.

Place in the flow: `placement` asks where a record goes, `accumulator` shows which batch took it
and when that is closed. Under a high load a batch fills, and the next one goes elsewhere. Where
each record waits for the one before it, a partition for each would spread the records of a
process over all nodes, a message for each few; so the next one goes where the last one was
stored, until that partition has got its share (ADR 81, Kafka's KIP-794). Partitions without a
leader that can be reached get nothing while others have one (ADR 88).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from oncelog._engine.produce.batches import Lane, OpenBatch
from oncelog._engine.produce.futures import Delivery
from oncelog.types import TopicPartition

STAY_BYTES = 16 * 1024  # that a partition gets before small batches go to another one


class Stickiness:
    """Changed under the accumulator's lock; `lane` may be asked without it.

    is_available: whether a partition has a leader that can be reached; it only looks.
    """

    def __init__(self, is_available: Callable[[TopicPartition], bool]) -> None:
        self._is_available = is_available
        # Of the open batches, the one of each topic that keyless records go to.
        self.batches: dict[str, OpenBatch] = {}
        # Of each topic, the last one that was closed, and the bytes that its partition got.
        self._last: dict[str, tuple[Lane, Delivery, int]] = {}

    def opened(self, batch: OpenBatch) -> None:
        """A record without a key is put into it."""
        if self._is_available(batch.tp):
            self.batches[batch.tp.topic] = batch

    def leave_unavailable(self) -> None:
        """What waits for a leader must not attract more."""
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

    def lane(self, topic: str, lanes: Sequence[Lane]) -> Lane:
        """For the next record without a key; `lanes`: of the topic's partitions."""
        batch = self.batches.get(topic)
        if batch is not None:
            return batch.lane
        last = self._last.get(topic)
        if last is not None:
            lane, delivery, _ = last
            # What is under way there, or failed, is no reason to send more there.
            stored = delivery.done and delivery.error is None and lane.tp.partition < len(lanes)
            if stored and self._is_available(lane.tp):
                return lane
        return self.any_lane(lanes)

    def any_lane(self, lanes: Sequence[Lane]) -> Lane:
        lane = random.choice(lanes)
        if self._is_available(lane.tp):
            return lane  # as nearly always: no list is made for it
        return random.choice([one for one in lanes if self._is_available(one.tp)] or lanes)

    def clear(self) -> None:
        self.batches.clear()
        self._last.clear()


__all__ = ["STAY_BYTES", "Stickiness"]
