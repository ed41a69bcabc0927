"""What readers get: batches of the replicas here, or why there are none.

LogService (Fetch, Subscribe, ListOffsets) --> Reader --> Partition.read, offset_at
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from cluster.entries import payload_of, unpack_batch
from cluster.partition.replica import OffsetOutOfRangeError, Partition, ReadBatch
from cluster.services.fetch_wire import Section
from oncelog.v1 import batch_pb2 as bpb
from oncelog.v1 import log_pb2 as pb
from storage.errors import StorageError

UNKNOWN_TOPIC = "unknown topic or partition"
_Into = pb.PartitionRecords | pb.OffsetResult  # the answer for one partition


class ReadContext(Protocol):
    """What the node gives."""

    def find(self, topic: str, partition: int) -> tuple[Partition | None, int]: ...
    def address_of(self, node_id: int) -> str: ...


@dataclass(slots=True)
class Collected:
    """What one look at the partitions gave. size: bytes. failed: one has an error."""

    sections: list[Section] = field(default_factory=list)
    size: int = 0
    failed: bool = False


class Reader:
    """Reads the partitions of one node."""

    def __init__(self, node: ReadContext) -> None:
        self._node = node

    def replicas(self, fetches: Iterable[pb.PartitionFetch | bpb.BatchHeader]) -> list[Partition]:
        """Those of the named partitions that are here."""
        found = []
        for fetch in fetches:
            try:
                partition, _ = self._node.find(fetch.topic, fetch.partition)
            except KeyError:
                continue
            if partition is not None:
                found.append(partition)
        return found

    def collect(
        self, fetches: Iterable[pb.PartitionFetch], budget: int, any_replica: bool
    ) -> Collected:
        """Batches from each partition, `budget` bytes together, at least one if there is one."""
        found = Collected()
        for fetch in fetches:
            section = Section(pb.PartitionRecords(topic=fetch.topic, partition=fetch.partition))
            found.sections.append(section)
            partition = self.readable(fetch.topic, fetch.partition, any_replica, section.records)
            if partition is None:
                found.failed = True
                continue
            section.records.log_start_offset = partition.log_start_offset
            section.records.high_watermark = partition.high_watermark
            room = budget - found.size
            if fetch.max_bytes > 0:
                room = min(room, fetch.max_bytes)
            if room > 0:
                self._read(partition, fetch.offset, room, any_replica, section, found)
        return found

    def _read(
        self,
        partition: Partition,
        offset: int,
        room: int,
        any_replica: bool,
        section: Section,
        found: Collected,
    ) -> None:
        try:
            batches = partition.read(offset, room)
        except OffsetOutOfRangeError as error:
            section.records.error = pb.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
            section.records.message = str(error)
            found.failed = True
        except StorageError as error:
            self._unreadable(partition, error, any_replica, section.records)
            found.failed = True
        else:
            for batch in batches:
                found.size += len(batch.data)
                section.batches.append((_stored(partition, batch), payload_of(batch.data)))

    def readable(self, topic: str, index: int, any_replica: bool, into: _Into) -> Partition | None:
        """The replica that may answer, else None and the reason in `into`."""
        try:
            partition, leader = self._node.find(topic, index)
        except KeyError:
            into.error = pb.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION
            into.message = f"{UNKNOWN_TOPIC}: {topic}-{index}"
            return None
        group = partition.group if partition is not None else None
        if group is not None and group.failed is not None and any_replica:
            into.error = pb.PARTITION_ERROR_STORAGE
            into.message = f"this replica has stopped: {group.failed}"
            return None
        leads = group is not None and group.is_leader and leader == group.config.node_id
        if group is not None and (any_replica or (leads and group.is_ready)):
            return partition
        if leads:
            into.error = pb.PARTITION_ERROR_NOT_READY
            return None
        into.error = pb.PARTITION_ERROR_NOT_LEADER
        into.leader_id = leader
        into.leader_address = self._node.address_of(leader) if leader else ""
        return None

    def _unreadable(
        self, partition: Partition, error: StorageError, any_replica: bool, into: _Into
    ) -> None:
        """What a reader is told of a read that storage refused: often that another leads now."""
        partition.unreadable(error)
        if self.readable(partition.topic, partition.index, any_replica, into) is not None:
            into.error = pb.PARTITION_ERROR_STORAGE
            into.message = str(error)

    async def list_offsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        """A search by time may read a row for each batch: others go on in between."""
        response = pb.ListOffsetsResponse()
        for query in request.queries:
            result = response.results.add(topic=query.topic, partition=query.partition, offset=-1)
            partition = self.readable(query.topic, query.partition, request.any_replica, result)
            if partition is None:
                continue
            match query.WhichOneof("position"):
                case "timestamp_us":
                    try:
                        for found in partition.offset_at(query.timestamp_us):
                            if found is None:
                                await asyncio.sleep(0)
                            else:
                                result.offset = found
                    except StorageError as error:
                        self._unreadable(partition, error, request.any_replica, result)
                case "latest":
                    result.offset = partition.high_watermark
                case _:
                    result.offset = partition.log_start_offset
        return response


def _stored(partition: Partition, batch: ReadBatch) -> bpb.StoredBatch:
    """All of it but the payload."""
    entry = unpack_batch(batch.data)
    return bpb.StoredBatch(
        header=bpb.BatchHeader(
            topic=partition.topic,
            partition=partition.index,
            producer_id=entry.producer_id,
            epoch=entry.epoch,
            base_sequence=entry.first,
            record_count=entry.record_count,
            last_sequence=entry.last,
            prev_sequence=entry.prev,
            expected_offset=entry.expected_offset,
            transaction_id=entry.transaction_id,
            codec=entry.codec,  # type: ignore[arg-type]
            crc32c=entry.crc,
            max_timestamp_us=entry.max_timestamp_us,
        ),
        base_offset=batch.base_offset,
        append_time_ms=entry.stamp_ms,
    )
