"""Reader of this node's replicas: batches for an answer, or the reason for none.

    LogService (Fetch, Subscribe, ListOffsets) --> Reader --> Partition.reading, offset_at

An answer holds a bounded number of batches and bytes, and is built in slices (`turns`). A
replica may stop or be deleted between two slices, so each looks again. Threads of their own
read from disk, which may be slow, so that the event loop does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from cluster.access.budget import Account
from cluster.access.memory import NO_MEMORY
from cluster.entries import CARRIED, payload_of, unpack_batch
from cluster.errors import NotLeaderError, NotReadyError
from cluster.partition.append_times import behind_ms
from cluster.partition.disk_reads import in_thread, without_waiting
from cluster.partition.reader import MissingRowError
from cluster.partition.replica import OffsetOutOfRangeError, Partition, Read, ReadBatch
from cluster.services.context import NodeContext
from cluster.services.fair_turns import SLICE_BATCHES, SLICE_BYTES, Turn
from cluster.services.log.deleted_blanks import stand_in
from cluster.services.log.fetch_encoding import FetchSection, encode
from cluster.services.outcomes import confirm
from cluster.services.partition_events import Listening
from cluster.services.routing import (
    has_stopped,
    leading,
    locate,
    near,
    replica_here,
    unreadable,
)
from oncelog.errors import (
    CorruptLogError,
    OncelogError,
    ThrottledError,
    UnknownTopicOrPartitionError,
)
from oncelog.v1 import batch_pb2 as bpb
from oncelog.v1 import log_pb2 as pb
from storage.errors import StorageError

T = TypeVar("T")
MAX_BATCHES = 1000  # in one answer
HELD_TWICE = 2  # an answer that is sent is held here and by gRPC
MIN_ANSWER_BYTES = 64 * 1024  # when memory is scarce
ANSWERS_IN_SPARE = 16  # an answer takes at most this fraction of the spare memory
LEVEL = 0.25  # seconds for an offset that a near replica lacks, of the wait that the request allows
_RECHECK = 60.0  # seconds until a subscription looks again without news
_REFUSALS = (OncelogError, NotLeaderError, NotReadyError, OffsetOutOfRangeError)
_Into = pb.PartitionRecords | pb.OffsetResult  # the answer for one partition


class AnsweringReplicas(Enum):
    """Replicas that may answer a read."""

    LEADER = "the leader alone"
    NEAR = "also a follower that keeps up"
    ANY = "any, however far it is behind"


def _replicas_for(request: pb.FetchRequest | pb.SubscribeRequest) -> AnsweringReplicas:
    if request.any_replica:
        return AnsweringReplicas.ANY
    return AnsweringReplicas.NEAR if request.near else AnsweringReplicas.LEADER


@dataclass(slots=True)
class Collected:
    """Result of one look at the partitions. size: bytes. failed: one has an error."""

    budget: int  # bytes
    sections: list[FetchSection] = field(default_factory=list)
    size: int = 0
    batches: int = 0
    records: int = 0
    failed: bool = False
    turn: Turn = field(default_factory=Turn)


class Reader:
    """Reads the partitions of one node."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def replicas(self, fetches: Iterable[pb.PartitionFetch]) -> list[Partition]:
        """Return the named partitions that this node has."""
        found = [locate(self._node, fetch.topic, fetch.partition) for fetch in fetches]
        return [one.replica for one in found if one is not None and one.replica is not None]

    async def fetch(self, request: pb.FetchRequest) -> bytes:
        """Return a serialized FetchResponse: see fetch_encoding.py."""
        return encode(await self.sections(request))

    async def sections(self, request: pb.FetchRequest) -> list[FetchSection]:
        """Return each partition's batches, once there are `min_bytes` or the wait is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait_ms / 1000
        account, asked = self._node.memory.of_call(), self._budget(request.max_bytes)
        answering = _replicas_for(request)
        with Listening(self.replicas(request.partitions)) as listening:
            if answering is AnsweringReplicas.NEAR:
                await self._level(request.partitions, listening, min(deadline, loop.time() + LEVEL))
            while True:
                seen = listening.count
                found = await self._affordable(request.partitions, asked, answering, account)
                enough = found.size >= request.min_bytes or found.batches >= MAX_BATCHES
                less = found.budget < asked and found.size > 0
                if found.failed or enough or less or loop.time() >= deadline:
                    return found.sections
                del found  # do not hold the batches while nothing reads them
                await listening.wait(seen, deadline)

    async def _level(
        self, fetches: Iterable[pb.PartitionFetch], listening: Listening, deadline: float
    ) -> None:
        """Wait a moment for offsets that near replicas lack.

        A reader that comes from the leader, or begins at its end, is one message of it ahead.
        """
        while True:
            seen = listening.count
            if not any(self._is_ahead(one) for one in fetches):
                return
            if not await listening.wait(seen, deadline):
                return

    def _is_ahead(self, fetch: pb.PartitionFetch) -> bool:
        located = locate(self._node, fetch.topic, fetch.partition)
        if located is None or located.replica is None or located.leads:
            return False
        replica = located.replica
        return not has_stopped(replica) and fetch.offset > replica.high_watermark

    async def next_message(
        self,
        wanted: list[pb.PartitionFetch],
        request: pb.SubscribeRequest,
        listening: Listening,
        account: Account,
    ) -> tuple[bytes, bool]:
        """Return a subscription's next message, and whether it is the last: it holds an error.

        The account holds it HELD_TWICE. Moves `wanted` on. Partitions that filled this message
        come last in the next one (as in KIP-74): otherwise the first of them, while it is behind,
        would starve all others.
        """
        asked = self._budget(request.max_bytes)
        while True:
            seen = listening.count
            found = await self._affordable(wanted, asked, _replicas_for(request), account)
            served: list[pb.PartitionFetch] = []
            waiting: list[pb.PartitionFetch] = []
            for fetch, section in zip(wanted, found.sections, strict=True):
                fetch.offset = section.next_offset(fetch.offset)
                (served if section.batches else waiting).append(fetch)
            wanted[:] = waiting + served
            if found.size or found.failed:
                news = [s for s in found.sections if s.batches or s.records.error]
                message = encode(news)
                account.take(HELD_TWICE * len(message))
                return message, found.failed
            await listening.wait(seen, asyncio.get_running_loop().time() + _RECHECK)

    def _budget(self, asked: int) -> int:
        limit = self._node.config.fetch_max_bytes
        return min(asked, limit) if asked > 0 else limit

    async def _affordable(
        self,
        fetches: Sequence[pb.PartitionFetch],
        asked: int,
        answering: AnsweringReplicas,
        account: Account,
    ) -> Collected:
        """Collect batches of `asked` bytes, or fewer if this node is short of memory.

        Raises ThrottledError if it has no memory for them.
        """
        memory = self._node.memory
        await account.room()
        budget = min(asked, max(MIN_ANSWER_BYTES, memory.spare // ANSWERS_IN_SPARE))
        account.take(budget)
        try:
            found = await self.collect(fetches, budget, answering)
        finally:
            account.release(budget)
        if found.size and memory.used + HELD_TWICE * found.size > memory.limit:
            raise ThrottledError(NO_MEMORY)
        self._node.metrics.bytes_read += found.size
        self._node.metrics.records_read += found.records
        return found

    # -- batches ------------------------------------------------------------------------

    async def collect(
        self, fetches: Sequence[pb.PartitionFetch], budget: int, answering: AnsweringReplicas
    ) -> Collected:
        """Collect batches from each partition, `budget` bytes in all, at least one if any exists.

        Each partition gets its share of MAX_BATCHES first; the rest goes to those with more.
        """
        found = Collected(budget)
        share = MAX_BATCHES // max(1, len(fetches))
        more: list[tuple[pb.PartitionFetch, FetchSection]] = []
        for fetch in fetches:
            topic = self._node.metadata.topic(fetch.topic)
            section = FetchSection(
                pb.PartitionRecords(
                    topic=fetch.topic,
                    partition=fetch.partition,
                    topic_id=0 if topic is None else topic.topic_id,
                )
            )
            found.sections.append(section)
            if await self._read(fetch, answering, section, found, share):
                more.append((fetch, section))
        for fetch, section in more:
            await self._read(fetch, answering, section, found, MAX_BATCHES)
        return found

    async def _read(
        self,
        fetch: pb.PartitionFetch,
        answering: AnsweringReplicas,
        section: FetchSection,
        found: Collected,
        most: int,
    ) -> bool:
        """Fill the section to `most` batches; returns whether there are more, and room for them.

        A read that fails midway leaves the error for the next read.
        """
        while True:
            limit = min(most - len(section.batches), MAX_BATCHES - found.batches, SLICE_BATCHES)
            of_partition = fetch.max_bytes if fetch.max_bytes > 0 else found.budget
            room = min(found.budget - found.size, of_partition - section.size)
            offset = section.next_offset(fetch.offset)
            try:
                partition = self._readable(fetch.topic, fetch.partition, answering)
                if not section.batches:
                    section.records.log_start_offset = partition.log_start_offset
                # Set with each slice: later appends may be part of this one.
                section.records.high_watermark = partition.high_watermark
                if room <= 0 or limit <= 0:
                    return room > 0
                if _passed_blanks(partition, offset, section, found):
                    continue
                reading = partition.reading(offset, min(room, SLICE_BYTES), limit)
                if (batches := await self._slice(partition, reading, answering)) is None:
                    continue
            except _REFUSALS as error:
                if section.batches:
                    return False
                told = await self._told(error, fetch, answering)
                if told is None:
                    continue
                self._explain(told, section.records)
                found.failed = True
                return False
            if section.batches and batches and batches[0].base_offset != offset:
                return False  # it was carried since the one before was read
            size = found.size
            for batch in batches:
                if section.batches and len(batch.data) > room:
                    return False
                room -= len(batch.data)
                stored = _stored(partition, batch)
                section.add(stored, payload_of(batch.data), len(batch.data))
                found.records += stored.header.record_count
                found.size += len(batch.data)
                found.batches += 1
            if found.turn.spend(found.size - size, 1 + len(batches)):
                await asyncio.sleep(0)
            if not batches or section.next_offset(offset) >= partition.high_watermark:
                return False

    async def _slice(
        self, partition: Partition, reading: Read, answering: AnsweringReplicas
    ) -> list[ReadBatch] | None:
        """Read a slice; None if retention was faster, so look again. Raises one of _REFUSALS."""
        try:
            return await without_waiting(reading)
        except (StorageError, OffsetOutOfRangeError) as error:
            if reading.is_outdated or partition.closed:
                return None
            if isinstance(error, OffsetOutOfRangeError):
                if answering is not AnsweringReplicas.ANY:
                    raise
                # Out of range is for the log's start and end only: a reader would begin elsewhere.
                text = f"this replica has yet to apply its log for offset {error.offset}"
                raise NotReadyError(text) from error
            raise self._damage(partition, error, answering) from error

    def _readable(self, topic: str, index: int, answering: AnsweringReplicas) -> Partition:
        """Return the replica that may answer. Raises one of _REFUSALS."""
        if answering is not AnsweringReplicas.ANY:
            find = near if answering is AnsweringReplicas.NEAR else leading
            return find(self._node, topic, index)
        replica = replica_here(self._node, topic, index)
        if has_stopped(replica):
            why = "deleted" if replica.closed else replica.group.failed
            text = f"this replica has stopped: {why}"
            raise CorruptLogError(text, topic=topic, partition=index)
        return replica

    def _damage(
        self, replica: Partition, error: StorageError, answering: AnsweringReplicas
    ) -> OncelogError | NotLeaderError | NotReadyError:
        """Return the error for a failed read: often another node leads now and can read it."""
        if answering is AnsweringReplicas.ANY:
            replica.unreadable(error)
            return CorruptLogError(str(error), topic=replica.topic, partition=replica.index)
        try:
            return unreadable(self._node, replica, error)
        except (OncelogError, NotLeaderError, NotReadyError) as moved:
            return moved

    async def _told(
        self, error: Exception, fetch: pb.PartitionFetch, answering: AnsweringReplicas
    ) -> Exception | None:
        """Return the error to answer; None: this node has the offset now.

        Only the leader judges an offset. A deposed one may lack it without knowing, and a reader
        that is refused begins elsewhere.
        """
        if answering is AnsweringReplicas.ANY or not isinstance(error, OffsetOutOfRangeError):
            return error
        try:
            partition = leading(self._node, fetch.topic, fetch.partition)
            if error.offset > error.end:
                await confirm(partition)
        except _REFUSALS as moved:
            return moved
        return None if error.end < error.offset <= partition.high_watermark else error

    def _explain(self, error: Exception, into: _Into) -> None:
        """Write a refusal into the answer for one partition."""
        into.message = str(error)
        match error:
            case UnknownTopicOrPartitionError():
                into.error = pb.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION
            case NotLeaderError():
                into.error = pb.PARTITION_ERROR_NOT_LEADER
                into.leader_id = error.leader_id
                into.leader_address = self._node.metadata.nodes.get(error.leader_id, "")
            case NotReadyError():
                into.error = pb.PARTITION_ERROR_NOT_READY
            case OffsetOutOfRangeError():
                into.error = pb.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
            case _:
                into.error = pb.PARTITION_ERROR_STORAGE

    # -- offsets ------------------------------------------------------------------------

    async def list_offsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        """Answer offset queries, yielding between them: a search may read a row per batch."""
        response = pb.ListOffsetsResponse()
        answering = AnsweringReplicas.ANY if request.any_replica else AnsweringReplicas.LEADER
        turn = Turn()
        for query in request.queries:
            result = response.results.add(topic=query.topic, partition=query.partition, offset=-1)
            try:
                await self._locate(query, answering, result)
            except _REFUSALS as error:
                self._explain(error, result)
            if turn.spend(0):
                await asyncio.sleep(0)
        return response

    async def _locate(
        self, query: pb.OffsetQuery, answering: AnsweringReplicas, result: pb.OffsetResult
    ) -> None:
        """Raises one of _REFUSALS."""
        partition = self._readable(query.topic, query.partition, answering)
        match query.WhichOneof("position"):
            case "timestamp_us":
                steps = partition.offset_at(query.timestamp_us)
                result.offset = await self._searched(partition, steps, answering)
            case "latest":
                result.offset = partition.high_watermark
            case "behind":
                result.offset = query.behind
                behind = await behind_ms(partition, query.behind)
                if behind is not None:
                    result.behind_ms = behind
            case _:
                result.offset = partition.log_start_offset
                result.blanks_below = partition.blanks_below_start

    async def offset_at(self, topic: str, index: int, timestamp_us: int, start: int) -> int:
        """Find as Partition.offset_at, in a partition led here. Raises one of _REFUSALS."""
        answering = AnsweringReplicas.LEADER
        partition = self._readable(topic, index, answering)
        return await self._searched(partition, partition.offset_at(timestamp_us, start), answering)

    async def latest(self, topic: str, index: int) -> list[tuple[int, int]]:
        """Find as Partition.latest, in a partition led here. Raises one of _REFUSALS."""
        answering = AnsweringReplicas.LEADER
        partition = self._readable(topic, index, answering)
        return await self._searched(partition, partition.latest(), answering)

    async def _searched(
        self, partition: Partition, steps: Iterator[T | None], answering: AnsweringReplicas
    ) -> T:
        """Take the steps of a search in threads; returns the last one's result."""
        try:
            found: T | None = None
            while found is None:
                found = await in_thread(next, steps)
            return found
        except MissingRowError as error:
            raise NotReadyError(str(error)) from error
        except StorageError as error:
            raise self._damage(partition, error, answering) from error


def _passed_blanks(
    partition: Partition, offset: int, section: FetchSection, found: Collected
) -> bool:
    """Add a batch in place of deleted blanks; returns whether the offset is one of those."""
    blanks = stand_in(partition, offset)
    if blanks is None:
        return False
    size = len(blanks[1])
    section.add(*blanks, size)
    found.size += size
    found.batches += 1
    return True


def _stored(partition: Partition, batch: ReadBatch) -> bpb.StoredBatch:
    """Return the batch's fields without the payload."""
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
        carried=batch.data[0] == CARRIED,
    )
