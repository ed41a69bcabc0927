"""Placement of records: the lane of the partition that a record goes to.

Place in the flow: `Producer.send` asks here, unless the record goes to the same place as the one
before it. The user's partition comes first, then the user's partitioner, then the key's hash, then
the sticky partition for records without a key (`stickiness`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index

from oncelog._engine.net.leaders import TopicView
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.batches import PartitionQueue
from oncelog._engine.produce.partitioners import KeyPartitioner
from oncelog.errors import UnknownTopicOrPartitionError
from oncelog.settings import Partitioner
from oncelog.types import TopicPartition


class Placement:
    def __init__(
        self,
        accumulator: Accumulator,
        partitioner: Partitioner | None,
        ask_again: Callable[[str], None],
    ) -> None:
        """ask_again: asks later for a topic's metadata, because a partition is not known."""
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._ask_again = ask_again
        self._keys = KeyPartitioner()
        self._lanes: dict[str, list[PartitionQueue]] = {}  # of each topic, one for each partition

    def lane(
        self, view: TopicView, key: bytes | None, partition: int | None
    ) -> tuple[PartitionQueue, Sequence[PartitionQueue]]:
        """Return a record's lane, and further lanes if it has no key."""
        lanes = self._lanes.get(view.name)
        if lanes is None or len(lanes) != len(view.partitions):
            tps = [TopicPartition(view.name, number) for number in range(len(view.partitions))]
            lanes = self._lanes[view.name] = [self._accumulator.lane(tp) for tp in tps]
        if partition is None and self._partitioner is not None:
            partition = index(self._partitioner(view.name, key, len(lanes)))
        if partition is not None:
            if not 0 <= partition < len(lanes):
                self._ask_again(view.name)  # it may have got more
                raise UnknownTopicOrPartitionError(
                    f"topic {view.name!r} has the partitions 0 to {len(lanes) - 1}, "
                    f"not {partition}",
                    topic=view.name,
                )
            return lanes[partition], ()
        if key is not None:
            return lanes[self._keys.partition(key, len(lanes))], ()
        return self._accumulator.stickiness.lane(view.name, lanes), lanes
