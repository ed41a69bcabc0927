"""Open batch, with the columns that its payload will have, and the lane it waits in.

Place in the flow: `accumulator` and `Producer.send` put records in, `sealing` makes the payload of
them. Nothing here locks; the caller that adds records holds the accumulator's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from oncelog._engine.produce.futures import Delivery, RecordFuture
from oncelog._engine.produce.transaction import ProducerTransaction
from oncelog.errors import BatchTooLargeError, InvalidRequestError
from oncelog.types import Header, TopicPartition
from oncelog.wire.batch import BATCH_OVERHEAD

SHUT = -1  # the limit of a batch to which `Producer.send` must not add by itself


def check_condition(expected_offset: int, transaction: ProducerTransaction | None) -> None:
    """Check an expected offset. Raises InvalidRequestError."""
    if transaction is not None:
        raise InvalidRequestError(
            f"expected_offset={expected_offset}: records of a transaction have no offset "
            "before its commit",
            field="expected_offset",
        )


def check_fits(size: int, max_batch_bytes: int, buffer_memory: int) -> None:
    """Check a record's size. Raises BatchTooLargeError."""
    if size > max_batch_bytes:
        raise BatchTooLargeError(
            f"{size} bytes with overhead, the topic's max_batch_bytes is {max_batch_bytes}"
        )
    if size > buffer_memory:
        raise BatchTooLargeError(f"{size} bytes do not fit into buffer_memory={buffer_memory}")


class PartitionQueue:
    """Waiting batches of one partition."""

    __slots__ = ("closed", "counted", "last_given", "open", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.open: OpenBatch | None = None
        # Filled under the lock, emptied by the engine's thread alone.
        self.closed: deque[OpenBatch] = deque()
        # Numbering of records: by the producer, or by the application, up to `last_given`.
        self.counted = False
        self.last_given: int | None = None

    def check_sequences(self, base_sequence: int | None, last_sequence: int | None) -> None:
        """Note the numbering of the next records. Raises InvalidRequestError."""
        if base_sequence is None or last_sequence is None:
            if self.last_given is not None:
                raise InvalidRequestError(
                    f"sequence is missing: {self.tp} has application-controlled sequences",
                    field="sequence",
                )
            self.counted = True
            return
        if self.counted:
            raise InvalidRequestError(
                f"sequence={base_sequence}: {self.tp} already has sequences that the producer "
                "counts",
                field="sequence",
            )
        before = -1 if self.last_given is None else self.last_given
        if base_sequence <= before:
            raise InvalidRequestError(
                f"sequence={base_sequence} is not above the last one of {self.tp}, {before}",
                field="sequence",
                limit=f"> {before}",
            )
        self.last_given = last_sequence


class OpenBatch:
    """Records of one partition that will be one batch."""

    __slots__ = (
        "cap",
        "closed",
        "created",
        "delivery",
        "due",
        "expected_offset",
        "headers",
        "keys",
        "lane",
        "limit",
        "max_timestamp_us",
        "payload",
        "plain",
        "record_count",
        "reserved",
        "sequences",
        "size",
        "stored_as",
        "tick_at",
        "timestamps",
        "tp",
        "transaction",
        "values",
    )

    def __init__(
        self,
        lane: PartitionQueue,
        delivery: Delivery,
        created: float,
        reserved: int,
        cap: int,
        transaction: ProducerTransaction | None = None,
    ) -> None:
        self.lane = lane
        self.tp = lane.tp
        self.delivery = delivery
        self.created = created
        self.transaction = transaction
        self.values: list[bytes | None] = []
        self.plain = True  # a record is its value: there are no keys and no headers
        self.keys: list[bytes | None] | None = None
        self.headers: list[Sequence[Header]] | None = None
        self.timestamps = delivery.timestamps
        # From this time on (seconds since the Unix epoch) `tick` is due.
        self.tick_at = 0.0
        self.sequences: list[int] | None = None
        self.expected_offset = -1
        self.size = BATCH_OVERHEAD
        self.cap = cap  # never larger than this with more than one record
        self.reserved = reserved
        self.limit = min(reserved, cap)  # above it, ask again
        self.due = False
        self.closed = False
        # Set for a batch given as an encoded payload,
        self.payload: bytes | memoryview | None = None
        # and for one forwarded as stored: its codec and its checksum.
        self.stored_as: tuple[int, int] | None = None
        self.record_count = 0
        self.max_timestamp_us = 0

    @property
    def room(self) -> int:
        """The value of `limit` while nothing else is done with the batch."""
        return min(self.reserved, self.cap)

    def tick(self, now: float) -> bool:
        """Begin a new millisecond with the next record.

        False: a signal handler has sent in the meantime, and the batch has changed.
        """
        size, timestamp_us = self.size, int(now * 1e6)
        self.timestamps.add(len(self.values), timestamp_us)
        self.tick_at = (timestamp_us // 1000 + 1) / 1000
        return self.size == size and not self.closed

    def stamp(self, timestamp_us: int) -> None:
        """Give the next record its own timestamp."""
        self.timestamps.add(len(self.values), timestamp_us)
        self.tick_at = 0.0

    def add(
        self,
        future: RecordFuture,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        timestamp_us: int | None,
        now: float,
        sequence: int | None,
        size: int,
    ) -> None:
        """Put a record in; the caller sets `limit` again. `timestamp_us` None: `now`.

        `size`: of the record in the payload.
        """
        values = self.values
        self.limit = SHUT
        future._delivery = self.delivery
        future._index = len(values)
        if timestamp_us is not None:
            self.stamp(timestamp_us)
        elif now >= self.tick_at:
            self.tick(now)
        if key is not None or headers or not self.plain:
            self.add_columns(key, headers)
        if sequence is not None:
            if self.sequences is None:
                self.sequences = []
            self.sequences.append(sequence)
        self.size += size
        values.append(value)

    def fill(
        self,
        payload: bytes | memoryview,
        record_count: int,
        max_timestamp_us: int,
        sequences: list[int] | None,
        stored_as: tuple[int, int] | None,
    ) -> None:
        """Take an encoded payload; the batch holds nothing else."""
        self.payload = payload
        self.stored_as = stored_as
        self.size = len(payload)
        self.record_count = record_count
        self.stamp(max_timestamp_us)
        self.max_timestamp_us = max_timestamp_us
        self.sequences = sequences

    def add_columns(self, key: bytes | None, headers: Sequence[Header]) -> None:
        """Put the next record's key and headers in, before its value."""
        index = len(self.values)
        self.plain = False
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = [None] * index
            self.keys.append(key)
        if self.headers is not None:
            self.headers.append(headers)
        elif headers:
            self.headers = [()] * index
            self.headers.append(headers)

    def close(self) -> None:
        assert not self.closed, "a batch is closed once"
        if self.payload is None:
            self.record_count = len(self.values)
            self.max_timestamp_us = self.timestamps.highest
        self.delivery.record_count = self.record_count
        self.delivery.sequences = self.sequences
        self.closed = True

    def cut(self, count: int) -> None:
        """Drop everything beyond so many records, wherever the addition was interrupted."""
        for column in (self.values, self.keys, self.headers, self.sequences):
            if column is not None:
                del column[count:]
        self.timestamps.cut(count)
        self.tick_at = 0.0
        callbacks = self.delivery.callbacks
        if callbacks is not None:
            callbacks[:] = [one for one in callbacks if one[0] < count]
        self.expected_offset = -1
        self.limit = self.room
