"""Fetch, ListOffsets, OffsetForLeaderEpoch: records and positions for readers.

    session --> Fetching --the services' requests--> Reader --Sections--> parts of the answer
                    '-- batches of the columnar format --> convert

A Kafka batch goes out as it is stored, behind the head that its offset gives. No fetch sessions are
kept (session id 0), so each request names all its partitions; `idle_polls` knows repeated ones.

The leader epoch of a request is made of the Raft term: an older one is FENCED, a newer one is of a
leader that this node has not heard of. Batches carry none, as no client here ever needs to look for
a truncated log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from cluster.entries import KAFKA_V2
from cluster.kafka.brokers import Brokers
from cluster.kafka.codec import put_count, put_text
from cluster.kafka.convert import to_kafka
from cluster.kafka.errors import EXPECTED, Error, of_error, of_unreadable
from cluster.kafka.frames import Parts
from cluster.kafka.messages import (
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Call,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from cluster.kafka.needs import Rights
from cluster.kafka.records import head as batch_head
from cluster.kafka.times import NOWHERE, UNREADABLE, At, first_at, latest_of
from cluster.kafka.versions import Head
from cluster.metadata.topics import is_internal
from cluster.partition.disk_reads import in_thread
from cluster.partition.replica import Partition
from cluster.services.context import NodeContext
from cluster.services.log.fetch import AnsweringReplicas, Reader
from cluster.services.log.fetch_encoding import FetchSection
from cluster.services.routing import leading, locate
from cluster.services.slices import in_slices
from oncelog.v1 import log_pb2 as pb
from oncelog.v1.batch_pb2 import StoredBatch

MAX_WAIT_MS = 60_000
MAX_TIME_MS = (2**63 - 1) // 1000  # in microseconds it is an int64; no record is as late
LATEST, EARLIEST, NEWEST = -1, -2, -3  # as timestamps; NEWEST: the record with the highest one
NEWEST_FROM = 7  # version of ListOffsets
NO_SESSION = 0
_ERRORS = {
    pb.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION: Error.UNKNOWN_TOPIC_OR_PARTITION,
    pb.PARTITION_ERROR_NOT_LEADER: Error.NOT_LEADER_OR_FOLLOWER,
    pb.PARTITION_ERROR_NOT_READY: Error.NOT_LEADER_OR_FOLLOWER,
    pb.PARTITION_ERROR_OFFSET_OUT_OF_RANGE: Error.OFFSET_OUT_OF_RANGE,
    pb.PARTITION_ERROR_STORAGE: Error.KAFKA_STORAGE_ERROR,
}
_ANSWER = struct.Struct(">ihi")
THROTTLE = struct.Struct(">i")  # begins an answer in every version
_PARTITION = struct.Struct(">ihqq")
_LOG_START = struct.Struct(">q")
_REPLICA = struct.Struct(">i")


class _UnreadError(Exception):
    """A batch cannot be read here now."""

    def __init__(self, number: Error) -> None:
        super().__init__(number.name)
        self.number = number


class _Part(NamedTuple):
    """One partition's part of an answer."""

    partition: int
    error: int
    high_watermark: int = -1
    log_start: int = -1
    batches: Parts = ()


class Fetched(NamedTuple):
    """Finished answer. idle: the partitions, if none has records for the client, nor an error."""

    parts: Parts
    idle: Sequence[Partition] = ()


@dataclass(slots=True)
class _Room:
    """Bytes that an answer may still take. Converted batches may be far larger than stored ones.

    The first batch of an answer goes in any case (KIP-74).
    """

    left: int
    is_empty: bool = True

    def spend(self, size: int) -> None:
        self.left -= size
        self.is_empty = False

    @property
    def is_full(self) -> bool:
        return self.left <= 0 and not self.is_empty


async def _part(section: FetchSection, offset: int, room: _Room) -> _Part:
    """Return a partition's part: its batches from the client's offset on, while there is room."""
    records = section.records
    error = _ERRORS.get(records.error, Error.UNKNOWN_SERVER_ERROR) if records.error else 0
    if error:
        return _Part(records.partition, error)
    parts = list[bytes | bytearray | memoryview]()
    for stored, payload in section.batches:
        if room.is_full:
            break  # the next request begins with this batch, as behind an unreadable one
        if stored.header.codec == KAFKA_V2 and not stored.carried:
            crc = stored.header.crc32c
            parts += (batch_head(stored.base_offset, len(payload), crc), payload)
            room.spend(len(payload))
            continue
        try:
            converted = await in_thread(to_kafka, stored, payload, offset)
        except UNREADABLE as fault:
            if parts:
                break
            return _Part(records.partition, of_unreadable(fault))
        parts.append(converted)
        room.spend(len(converted))
    return _Part(records.partition, 0, records.high_watermark, records.log_start_offset, parts)


class Fetching:
    """Reads for one node."""

    def __init__(self, node: NodeContext, brokers: Brokers) -> None:
        self._node = node
        self._brokers = brokers
        self._reader = Reader(node)

    # -- Fetch --------------------------------------------------------------------------

    async def fetch(self, rights: Rights, head: Head, request: FetchRequest) -> Fetched:
        refused: dict[tuple[str, int], Error] = {}
        wanted = list[pb.PartitionFetch]()
        every = ((topic.topic, one) for topic in request.topics for one in topic.partitions)
        async for name, one in in_slices(every):
            error = self._refusal(rights, FETCH, name, one)
            if error:
                refused[name, one.partition] = error
                continue
            wanted.append(
                pb.PartitionFetch(
                    topic=name,
                    partition=one.partition,
                    offset=one.fetch_offset,
                    max_bytes=max(1, one.partition_max_bytes),
                )
            )
        wait_ms = 0 if refused else min(max(0, request.max_wait_ms), MAX_WAIT_MS)
        is_short = False
        try:
            sections = await self._reader.sections(
                pb.FetchRequest(
                    partitions=wanted,
                    max_wait_ms=wait_ms,
                    min_bytes=max(0, request.min_bytes),
                    max_bytes=max(1, request.max_bytes),
                )
            )
        except EXPECTED:  # this node has no memory for an answer: the client asks again
            found = await self._reader.collect(wanted, 0, AnsweringReplicas.LEADER)
            sections, is_short = found.sections, True
        parts = {(one.records.topic, one.records.partition): one for one in sections}
        topics = list[tuple[str, list[_Part]]]()
        room = _Room(min(max(1, request.max_bytes), self._node.config.fetch_max_bytes))
        for topic in request.topics:
            listed = list[_Part]()
            for one in topic.partitions:
                key = topic.topic, one.partition
                error = refused.get(key, Error.NONE)
                if error:
                    listed.append(_Part(one.partition, error))
                else:
                    listed.append(await _part(parts[key], one.fetch_offset, room))
            topics.append((topic.topic, listed))
        return Fetched(_encoded(head, topics), () if is_short else self._idle(topics))

    def _idle(self, topics: Iterable[tuple[str, list[_Part]]]) -> Sequence[Partition]:
        """Return the partitions, if an answer has nothing, and nothing has come since its look."""
        found = list[Partition]()
        for topic, listed in topics:
            for part in listed:
                if part.error or part.batches:
                    return ()
                located = locate(self._node, topic, part.partition)
                if located is None or located.replica is None or not located.leads:
                    return ()
                replica = located.replica
                if (replica.high_watermark, replica.log_start_offset) != part[2:4]:
                    return ()
                found.append(replica)
        return found

    def _refusal(
        self, rights: Rights, call: Call, topic: str, one: FetchPartition | ListOffsetsPartition
    ) -> Error:
        """Return why a partition may not be read here; NONE: the reader looks further."""
        hidden = rights.refusal(call, topic)
        if hidden is not None:
            return of_error(hidden)
        index = one.partition if isinstance(one, FetchPartition) else one.partition_index
        group_id = self._node.metadata.group_of(topic, index)
        if group_id is None or is_internal(topic):
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        return self._epoch_fault(group_id, one.current_leader_epoch)

    def _epoch_fault(self, group_id: int, epoch: int) -> Error:
        """Compare a client's leader epoch (-1: none) with this node's."""
        known = self._brokers.epoch_of(group_id)
        if epoch < 0 or epoch == known:
            return Error.NONE
        return Error.FENCED_LEADER_EPOCH if epoch < known else Error.UNKNOWN_LEADER_EPOCH

    # -- ListOffsets --------------------------------------------------------------------

    async def list_offsets(
        self, rights: Rights, head: Head, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        answer = ListOffsetsResponse()
        lowest = NEWEST if head.version >= NEWEST_FROM else EARLIEST
        for topic in request.topics:
            listed = list[ListOffsetsPartitionResponse]()
            async for one in in_slices(topic.partitions):
                listed.append(await self._listed(rights, topic.name, one, lowest))
            answer.topics.append(ListOffsetsTopicResponse(topic.name, listed))
        return answer

    async def _listed(
        self, rights: Rights, topic: str, one: ListOffsetsPartition, lowest: int
    ) -> ListOffsetsPartitionResponse:
        index, time_ms = one.partition_index, one.timestamp
        error = self._refusal(rights, LIST_OFFSETS, topic, one)
        if not error and time_ms < lowest:
            error = Error.UNSUPPORTED_VERSION
        offset = found_ms = -1
        if not error:
            try:
                if time_ms in (LATEST, EARLIEST):
                    replica = leading(self._node, topic, index)
                    latest = time_ms == LATEST
                    offset = replica.high_watermark if latest else replica.log_start_offset
                elif time_ms == NEWEST:
                    offset, found_ms = await self._newest(topic, index)
                else:
                    offset, found_ms = await self._record_at(topic, index, time_ms)
            except UNREADABLE as fault:
                error = of_unreadable(fault)
            except _UnreadError as fault:
                error = fault.number
            except EXPECTED as fault:
                error = of_error(fault)
        group_id = self._node.metadata.group_of(topic, index)
        epoch = -1
        if group_id is not None and offset >= 0:
            epoch = self._brokers.epoch_of(group_id)
        return ListOffsetsPartitionResponse(
            index, error, timestamp=found_ms, offset=offset, leader_epoch=epoch
        )

    async def _record_at(self, topic: str, index: int, time_ms: int) -> At:
        """Find the first record at or after a time. Raises EXPECTED, UNREADABLE, _UnreadError.

        The head of a producer's batch may claim a later time than its records have.
        """
        time_us, start = min(time_ms, MAX_TIME_MS) * 1000, 0
        while (offset := await self._reader.offset_at(topic, index, time_us, start)) >= 0:
            stored, payload = await self._batch_at(topic, index, offset)
            found = await in_thread(first_at, stored, payload, time_ms, offset)
            if found != NOWHERE:
                return found
            start = stored.base_offset + stored.header.record_count
        return NOWHERE

    async def _newest(self, topic: str, index: int) -> At:
        """Find the first record with the highest time. Raises as `_record_at` does.

        It looks into some batches of the highest claims, should those be too high.
        """
        newest = NOWHERE
        for offset, claimed_us in await self._reader.latest(topic, index):
            if newest != NOWHERE and newest.time_ms >= claimed_us // 1000:
                break
            batch = await self._batch_at(topic, index, offset)
            newest = max(newest, await in_thread(latest_of, *batch), key=attrgetter("time_ms"))
        return newest

    async def _batch_at(
        self, topic: str, index: int, offset: int
    ) -> tuple[StoredBatch, memoryview]:
        """Read the batch that holds the offset. Raises EXPECTED, _UnreadError."""
        wanted = pb.PartitionFetch(topic=topic, partition=index, offset=offset, max_bytes=1)
        (section,) = await self._reader.sections(pb.FetchRequest(partitions=[wanted], max_bytes=1))
        if section.records.error or not section.batches:
            raise _UnreadError(_ERRORS.get(section.records.error, Error.UNKNOWN_SERVER_ERROR))
        return section.batches[0]

    # -- OffsetForLeaderEpoch -----------------------------------------------------------

    async def end_of_epoch(
        self, rights: Rights, head: Head, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Answer that every epoch ends at the high watermark: no reader saw a record that went."""
        answer = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic.topic)
            hidden = rights.refusal(OFFSET_FOR_LEADER_EPOCH, topic.topic)
            async for one in in_slices(topic.partitions):
                end = EpochEndOffset(partition=one.partition)
                try:
                    if hidden is not None:
                        raise hidden
                    replica = leading(self._node, topic.topic, one.partition)
                    group = replica.group.config.group
                    end.error_code = self._epoch_fault(group, one.current_leader_epoch)
                    if not end.error_code:
                        end.leader_epoch, end.end_offset = one.leader_epoch, replica.high_watermark
                except EXPECTED as fault:
                    end.error_code = of_error(fault)
                result.partitions.append(end)
            answer.topics.append(result)
        return answer


def _encoded(head: Head, topics: Iterable[tuple[str, list[_Part]]]) -> Parts:
    """Return a Fetch answer's parts; the batches are not copied."""
    version, flexible = head.version, head.flexible
    out, parts = head.begin_answer(), list[bytes | bytearray | memoryview]()
    out += _ANSWER.pack(0, Error.NONE, NO_SESSION) if version >= 7 else THROTTLE.pack(0)
    listed = list(topics)
    put_count(len(listed), out, flexible=flexible)
    for topic, partitions in listed:
        put_text(topic, out, flexible=flexible)
        put_count(len(partitions), out, flexible=flexible)
        for part in partitions:
            end = part.high_watermark
            out += _PARTITION.pack(part.partition, part.error, end, end)  # nothing readable is open
            if version >= 5:
                out += _LOG_START.pack(part.log_start)
            put_count(0, out, flexible=flexible)  # no transaction was aborted among the records
            if version >= 11:
                out += _REPLICA.pack(-1)  # the leader serves
            put_count(sum(map(len, part.batches)), out, flexible=flexible)
            if part.batches:
                parts += (out, *part.batches)
                out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return [*parts, out] if out else parts
