"""Buffer of fetched batches per partition, with the position of each partition.

Place in the flow: the fetcher (engine's thread) fills it, the consumer (user's thread) empties it.
No IO. Fetched batches stay encoded until the user's thread takes them.

Invariants, checked here: a partition's records follow each other without a hole, offsets only
rise, an answer to a question from before a seek is dropped, and records come before an error or a
reset behind them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

from oncelog._engine.net import threads
from oncelog.errors import CorruptLogError, InvalidBatchError, OncelogError
from oncelog.types import Record, TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.batch import DecodedPayload, decode_payload
from oncelog.wire.compression import NONE, checksum, decompress
from oncelog.wire.fetched import FetchedBatch, FetchedRecords
from oncelog.wire.stored import StoredBatch, corrupt

Starts = dict[TopicPartition, int]


class Chunk:
    """One stored batch, decoded on first use."""

    __slots__ = (
        "_carried", "_decoded", "_meta", "_payload", "_places", "_records", "base_offset",
        "end_offset", "generation", "looping_thread", "next", "size", "topic_id", "tp",
    )  # fmt: skip

    def __init__(
        self, tp: TopicPartition, topic_id: int, fetched: FetchedBatch, generation: int, start: int
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self._meta = fetched.meta
        self._carried = fetched.meta.carried
        self._payload = fetched.payload
        self.size = len(fetched.payload)
        self.base_offset = fetched.meta.base_offset
        self.end_offset = self.base_offset + fetched.meta.header.record_count
        # The user's position in it. Only the user's thread moves it, without a lock.
        self.next = max(start, self.base_offset)
        self.generation = generation
        self.looping_thread = 0  # thread that iterates over it
        self._decoded: DecodedPayload | None = None
        self._records: list[Record] | None = None
        # Offset of each record, and the end.
        self._places: Sequence[int] = range(self.base_offset, self.end_offset + 1)

    def decoded(self, check_crc: bool) -> DecodedPayload:
        """Decode the payload. Raises CorruptLogError if it is not as sent."""
        if self._decoded is None:
            header, payload = self._meta.header, self._payload
            try:
                if check_crc and checksum(payload) != header.crc32c:
                    raise InvalidBatchError("checksum differs")
                plain = decompress(header.codec, payload)
                self._decoded = decode_payload(plain, header.record_count, self._carried)
            except InvalidBatchError as error:
                raise self._corrupt(error) from error
        return self._decoded

    def stored(self, check_crc: bool) -> StoredBatch:
        """Return the batch as stored. Raises CorruptLogError if the payload is not as sent."""
        header = self._meta.header
        if header.codec == NONE:
            self.decoded(check_crc)  # costs no more than the checksum
        elif check_crc and checksum(self._payload) != header.crc32c:
            raise self._corrupt(InvalidBatchError("checksum differs"))
        return StoredBatch(
            self.tp.topic,
            self.tp.partition,
            self.base_offset,
            header.record_count,
            header.codec,
            header.crc32c,
            header.max_timestamp_us,
            self._payload,
            self.next - self.base_offset,
            self.topic_id,
            self._meta.append_time_ms,
            header.producer_id,
            header.epoch,
            header.base_sequence,
            header.last_sequence,
            self._carried,
        )

    def records(self, check_crc: bool) -> list[Record]:
        if self._records is None:
            decoded = self.decoded(check_crc)
            try:
                self._records = decoded.records(self.tp.topic, self.tp.partition, self.base_offset)
            except InvalidBatchError as error:
                raise self._corrupt(error) from error
            if self._carried:
                self._places = [*(record.offset for record in self._records), self.end_offset]
        return self._records

    def unread(self, check_crc: bool) -> tuple[list[Record], Sequence[int]]:
        """Return the unread records, and the positions before and after them.

        Positions pass over blanks. Raises CorruptLogError.
        """
        records = self.records(check_crc)
        first = bisect_left(self._places, self.next)
        return records[first:], self._places[first:]

    def take(self, check_crc: bool, limit: int) -> tuple[list[Record], int]:
        """Return unread records, at most `limit`, and the position after them.

        Raises CorruptLogError.
        """
        records = self.records(check_crc)
        next_, places = self.next, self._places
        first = bisect_left(places, next_) if self._carried else next_ - self.base_offset
        some = records[first : first + limit]
        return some, places[first + len(some)]

    def arrow(self, check_crc: bool) -> Any:
        """Return its unread part as a pyarrow.RecordBatch. Raises CorruptLogError."""
        from oncelog.wire.arrow import to_arrow

        decoded = self.decoded(check_crc)
        try:
            skip = self.next - self.base_offset
            return to_arrow(decoded, self.tp.topic, self.tp.partition, self.base_offset, skip)
        except InvalidBatchError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: InvalidBatchError) -> CorruptLogError:
        return corrupt(self.tp, self.base_offset, error)


@dataclass(slots=True)
class Cursor:
    """Position of one partition."""

    tp: TopicPartition
    # Next offset for the user, at the start of the first chunk; None: not found yet.
    position: int | None = None
    fetch_offset: int = 0  # next offset to fetch
    generation: int = 0  # rises with each seek, and differs from that of earlier cursors
    chunks: deque[Chunk] = field(default_factory=deque)
    buffered: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    paused: bool = False
    # A fetch ahead at this offset was out of range; it is asked again when the chunks are taken.
    refused_at: int = -1
    topic_id: int = 0  # of the topic to which the position belongs; 0: not known yet
    # The position was reached by reading, so the records before it did exist.
    by_reading: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    tp: TopicPartition
    offset: int
    generation: int


class Added(Enum):
    OK = "ok"
    STALE = "stale"  # the user has seeked, or takes the records before an error first
    ERROR = "error"  # the answer is an error; nothing was added
    ANEW = "anew"  # the topic was deleted and recreated; nothing was added
    BEHIND = "behind"  # the node has not learned of that yet; nothing was added


class FetchBuffer:
    def __init__(self, partition_bytes: int, on_room: Callable[[TopicPartition], None]) -> None:
        self._partition_bytes = partition_bytes
        self._on_room = on_room
        self._lock = threads.shared_lock()
        self._condition = threads.SharedCondition(self._lock)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._turns: deque[TopicPartition] = deque()  # partitions with chunks, in turn
        # Raised, in turn, when the partition's chunks are taken; it is not fetched until then.
        self._errors: dict[TopicPartition, OncelogError] = {}
        self._closed = False
        self._generations = count(1)
        # Partition changes that the user's thread handles before it gets more records.
        self.interruptions: deque[Any] = deque()
        # Nothing is returned from this time (monotonic) on: the group may have removed this member.
        self._held_from = float("inf")
        # Progress of the user: calls for records, and whether a call is waiting.
        self.calls = 0
        self.is_waited_for = False
        # Called on any thread when a waiting reader should look again.
        self.listener: Callable[[], None] | None = None

    def _notify(self) -> None:
        self._condition.notify_all()
        if self.listener is not None:
            self.listener()

    # --- the user's thread -----------------------------------------------------------

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Read exactly these; kept partitions keep their position."""
        with self._lock:
            old = self._cursors
            self._cursors = {
                tp: old.get(tp) or Cursor(tp, generation=next(self._generations)) for tp in tps
            }
            self._turns = deque(tp for tp in self._turns if tp in self._cursors)
            self._errors = {tp: e for tp, e in self._errors.items() if tp in self._cursors}

    def assignment(self) -> list[TopicPartition]:
        return list(self._cursors)

    def cursors(self) -> list[Cursor]:
        return list(self._cursors.values())

    def cursor(self, tp: TopicPartition) -> Cursor | None:
        return self._cursors.get(tp)

    def is_at(self, tp: TopicPartition, generation: int) -> bool:
        """Tell whether the user still wants the offsets of that generation."""
        cursor = self._cursors.get(tp)
        return cursor is not None and cursor.generation == generation

    def seek(self, tp: TopicPartition, offset: int | None, since: int | None = None) -> int:
        """Go on at `offset` or, with None, at the start that the reset policy sets.

        A seek after the generation `since` wins. Returns the new generation; 0: nothing was done.
        """
        with self._lock:
            cursor = self._cursors.get(tp)
            if cursor is None:
                return 0  # the group has revoked it in the meantime
            if since is not None and cursor.generation != since:
                return 0
            generation = cursor.generation = next(self._generations)
            cursor.position = offset
            cursor.fetch_offset = offset or 0
            cursor.chunks.clear()
            cursor.buffered = 0
            self._errors.pop(tp, None)
            cursor.by_reading = False
            if tp in self._turns:
                self._turns.remove(tp)
        self._on_room(tp)
        return generation

    def found(self, tp: TopicPartition, generation: int, offset: int) -> None:
        """Set the start position; a seek in the meantime wins."""
        with self._lock:
            cursor = self._cursors.get(tp)
            if cursor is not None and cursor.generation == generation and cursor.position is None:
                cursor.position = cursor.fetch_offset = offset
                self._notify()

    def fail(self, tp: TopicPartition, generation: int, error: OncelogError) -> None:
        """Have the user's next call raise this, once."""
        with self._lock:
            cursor = self._cursors.get(tp)
            if cursor is not None and cursor.generation == generation:
                self._errors[tp] = error
                self._notify()

    def peek(self, timeout: float | None, *, errors_wait: bool = False) -> Chunk | None:
        """Return the oldest chunk of the partition in turn; waits for one.

        The chunk stays until `advance` finds its end passed. `errors_wait`: leave errors to the
        next call, because this one has records to return. Returns None for interruptions, too.
        """
        with self._lock:
            self.calls += 1
            self._drop_finished()
            waits = not self._has_news() and timeout != 0.0
        if waits:
            self.is_waited_for = True
            try:
                threads.wait(self._news_within, timeout, "read records")
            finally:
                self.is_waited_for = False
        with self._lock:
            if self.interruptions:
                return None
            if not errors_wait and (failed := self._failed()):
                raise self._taken_error(failed)
            if time.monotonic() >= self._held_from:
                return None
            for tp in self._turns:
                cursor = self._cursors[tp]
                if not cursor.paused:
                    return cursor.chunks[0]
            return None

    def _news_within(self, seconds: float) -> bool:
        with self._lock:
            return self._condition.wait_for(self._has_news, seconds)

    def wait_elsewhere(self, waits: bool) -> None:
        """Note that the user waits for records in another event loop."""
        self.is_waited_for = waits

    def _has_news(self) -> bool:
        return (
            self._closed
            or bool(self.interruptions)
            or self._failed() is not None
            or (
                any(not self._cursors[tp].paused for tp in self._turns)
                and time.monotonic() < self._held_from
            )
        )

    def wait_position(self, tp: TopicPartition, timeout: float) -> int | None:
        def known() -> bool:
            return self._cursors[tp].position is not None or tp in self._errors

        def known_within(seconds: float) -> bool:
            with self._lock:
                return self._condition.wait_for(known, seconds)

        threads.wait(known_within, timeout, "ask for a position")
        with self._lock:
            cursor = self._cursors[tp]
            if tp in self._errors and cursor.position is None:
                raise self._taken_error(tp)
            return _position(cursor)

    def _failed(self) -> TopicPartition | None:
        """Return the first partition with an error and no records before it."""
        return next((tp for tp in self._errors if not self._cursors[tp].chunks), None)

    def _taken_error(self, tp: TopicPartition) -> OncelogError:
        """Return the partition's error; it is read on. The lock is held."""
        error = self._errors.pop(tp)
        self._on_room(tp)
        return error

    def position(self, tp: TopicPartition) -> int | None:
        """Return the user's position; None: not known yet."""
        with self._lock:
            return _position(self._cursors[tp])

    def lags(self) -> dict[TopicPartition, int]:
        """Return the readable records behind the user's position, by the last answers."""
        with self._lock:
            return {
                tp: max(0, cursor.high_watermark - max(position, cursor.log_start_offset))
                for tp, cursor in self._cursors.items()
                if (position := _position(cursor)) is not None and cursor.high_watermark >= 0
            }

    def records_of(self, chunk: Chunk, check_crc: bool) -> Iterator[Record]:
        """Yield the unread records of a chunk, for a loop."""
        cursor, generation = self.cursor(chunk.tp), chunk.generation
        if cursor is None:
            return
        interruptions = self.interruptions
        chunk.looping_thread = threading.get_ident()
        try:
            records, places = chunk.unread(check_crc)
            chunk.next = places[0]
            for record, after in zip(records, places[1:], strict=True):
                if cursor.generation != generation or interruptions:
                    break  # a seek moved, or partitions change
                # Before the yield: a caller that leaves the loop has had the record.
                chunk.next = after
                yield record
        finally:
            chunk.looping_thread = 0
        self.advance(chunk)

    def move(self, chunk: Chunk, offset: int, starts: Starts) -> None:
        """Move the user on within `chunk`; `starts` keeps the first position of the read."""
        starts.setdefault(chunk.tp, chunk.next)
        chunk.next = offset
        self.advance(chunk)

    def advance(self, chunk: Chunk) -> None:
        """Note that the user has moved `chunk.next`."""
        if chunk.next >= chunk.end_offset:
            with self._lock:
                cursor = self._cursors.get(chunk.tp)
                if cursor is not None and cursor.chunks and cursor.chunks[0] is chunk:
                    self._drop_first(cursor)

    def _drop_finished(self) -> None:
        """Drop chunks that were read to the end: a loop left at the last record reports nothing."""
        for tp in list(self._turns):
            cursor = self._cursors[tp]
            if not cursor.chunks:
                self._turns.remove(tp)
            elif cursor.chunks[0].next >= cursor.chunks[0].end_offset:
                self._drop_first(cursor)

    def _drop_first(self, cursor: Cursor) -> None:
        """Drop in steps: a signal handler may raise between them, and the rest stays usable."""
        chunk, left = cursor.chunks[0], cursor.buffered - cursor.chunks[0].size
        frees = cursor.buffered >= self._partition_bytes > left
        if frees or cursor.fetch_offset == cursor.refused_at:
            self._on_room(cursor.tp)  # the engine looks when the lock is free
        cursor.position, cursor.by_reading, cursor.buffered = chunk.end_offset, True, left
        cursor.chunks.popleft()
        if cursor.chunks:
            self._turns.append(cursor.tp)
        self._turns.remove(cursor.tp)  # its former turn

    def pause(self, tp: TopicPartition, paused: bool) -> None:
        with self._lock:
            self._cursors[tp].paused = paused
            self._notify()
        self._on_room(tp)

    def paused(self) -> frozenset[TopicPartition]:
        with self._lock:
            return frozenset(tp for tp, cursor in self._cursors.items() if cursor.paused)

    def end_membership(self) -> None:
        """Forget the changes and the hold of a membership that has ended."""
        with self._lock:
            self.interruptions.clear()
            self._held_from = float("inf")
            self._notify()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._notify()

    # --- the engine's thread ---------------------------------------------------------

    def interrupt(self, change: Any) -> None:
        """Have the user's thread handle this change before it gets more records."""
        with self._lock:
            self.interruptions.append(change)
            self._notify()

    def hold_from(self, moment: float) -> None:
        """Return nothing from that time on (monotonic), unless it is put off."""
        with self._lock:
            self._held_from = moment
            self._notify()

    def progress(self) -> tuple[int, dict[TopicPartition, int | None]]:
        """Return a value that changes whenever the user gets records, or asks for some."""
        with self._lock:
            return self.calls, {tp: _position(one) for tp, one in self._cursors.items()}

    def without_position(self) -> list[tuple[TopicPartition, int]]:
        with self._lock:
            return [
                (c.tp, c.generation)
                for c in self._cursors.values()
                if c.position is None and c.tp not in self._errors
            ]

    def wanted(self) -> list[Wanted]:
        """Return partitions to fetch now: position known, room in the buffer."""
        with self._lock:
            return [
                Wanted(c.tp, c.fetch_offset, c.generation)
                for c in self._cursors.values()
                if c.position is not None
                and c.tp not in self._errors
                and not c.paused
                and c.buffered < self._partition_bytes
                and not (c.chunks and c.fetch_offset == c.refused_at)
            ]

    def room(self, wanted: Wanted) -> bool | None:
        """Tell whether to read on as wanted; None: not yet, there is no room."""
        with self._lock:
            cursor = self._cursors.get(wanted.tp)
            if cursor is None or cursor.generation != wanted.generation:
                return False
            if cursor.paused or wanted.tp in self._errors:
                return False
            return True if cursor.buffered < self._partition_bytes else None

    def add(self, wanted: Wanted, records: FetchedRecords) -> Added:
        """Take over one partition's answer."""
        answer = records.meta
        with self._lock:
            cursor = self._cursors.get(wanted.tp)
            if cursor is None or cursor.generation != wanted.generation:
                return Added.STALE
            if answer.topic_id and answer.topic_id != cursor.topic_id:  # ids only rise
                if answer.topic_id < cursor.topic_id:
                    return Added.BEHIND
                before, cursor.topic_id = cursor.topic_id, answer.topic_id
                if before:
                    return Added.ANEW
            if answer.error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE and cursor.chunks:
                cursor.refused_at = wanted.offset
                return Added.STALE
            if answer.error != log_pb2.PARTITION_ERROR_NONE:
                return Added.ERROR
            cursor.high_watermark = max(cursor.high_watermark, answer.high_watermark)
            cursor.log_start_offset = answer.log_start_offset
            if wanted.offset != cursor.fetch_offset:
                return Added.STALE  # another answer has already brought these
            for fetched in records.batches:
                chunk = Chunk(
                    wanted.tp, cursor.topic_id, fetched, cursor.generation, cursor.fetch_offset
                )
                if not self._follows(cursor, chunk):
                    break
                cursor.chunks.append(chunk)
                cursor.buffered += chunk.size
                cursor.fetch_offset = chunk.end_offset
            if cursor.chunks and wanted.tp not in self._turns:
                self._turns.append(wanted.tp)
                self._notify()
            return Added.OK

    def _follows(self, cursor: Cursor, chunk: Chunk) -> bool:
        at = cursor.fetch_offset
        # It may begin before the position: batches are sent whole, and may have been cut anew.
        if chunk.base_offset <= at < chunk.end_offset:
            return True
        self._errors[cursor.tp] = CorruptLogError(
            f"{cursor.tp}: after offset {at - 1} came a batch with offsets "
            f"{chunk.base_offset} to {chunk.end_offset - 1}",
            topic=cursor.tp.topic,
            partition=cursor.tp.partition,
            offset=at,
        )
        self._notify()
        return False


def _position(cursor: Cursor) -> int | None:
    return cursor.chunks[0].next if cursor.chunks else cursor.position
