"""Times of a batch's records: the first at or after a time, and the highest.

    fetch ----a batch that the index names--> first_at, latest_of, for ListOffsets
    produce --a batch without its highest---> highest

All unpack the batch, so they run in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from cluster.kafka.records import KafkaBatch
from oncelog.errors import InvalidBatchError, MissingExtraError
from oncelog.v1.batch_pb2 import StoredBatch
from oncelog.wire.batch import decode_payload
from oncelog.wire.compression import KAFKA_V2, decompress

UNREADABLE = (InvalidBatchError, MissingExtraError)


class At(NamedTuple):
    """A record's offset and time (ms since the Unix epoch); -1, -1: there is none."""

    offset: int
    time_ms: int


NOWHERE = At(-1, -1)


def first_at(stored: StoredBatch, payload: bytes | memoryview, time_ms: int, start: int) -> At:
    """Return the first record from offset `start` on with that time or a later one.

    stored: the batch without its payload. Raises one of UNREADABLE.
    """
    for at in _records(stored, payload):
        if at.time_ms >= time_ms and at.offset >= start:
            return at
    return NOWHERE


def latest_of(stored: StoredBatch, payload: bytes | memoryview) -> At:
    """Return the first record with the batch's highest time. Raises one of UNREADABLE."""
    return max(_records(stored, payload), key=attrgetter("time_ms"), default=NOWHERE)


def _records(stored: StoredBatch, payload: bytes | memoryview) -> Iterator[At]:
    plain = decompress(stored.header.codec, payload)
    columns = decode_payload(plain, carried=stored.carried)
    times = columns.timestamps_us()
    for number in columns.live():
        yield At(stored.base_offset + number, times[number] // 1000)


def highest(batch: KafkaBatch) -> int:
    """Return the highest time of a batch whose head has none, in ms.

    A batch that no reader could unpack keeps the time of its first record.
    """
    try:
        times = decode_payload(decompress(KAFKA_V2, batch.payload)).timestamps_us()
    except UNREADABLE:
        return batch.base_timestamp
    return max(batch.base_timestamp, max(times) // 1000)
