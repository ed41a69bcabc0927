"""Times of a batch's records: the first at or after a time, and the highest.

    fetch ----the batch that the index names--> first_at, for ListOffsets
    produce --a batch without its highest-----> highest

Both unpack the batch, so they run in a thread.
"""

from __future__ import annotations

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
    plain = decompress(stored.header.codec, payload)
    columns = decode_payload(plain, carried=stored.carried)
    times = columns.timestamps_us()
    for number in columns.live():
        offset, time_us = stored.base_offset + number, times[number]
        if time_us // 1000 >= time_ms and offset >= start:
            return At(offset, time_us // 1000)
    return NOWHERE


def highest(batch: KafkaBatch) -> int:
    """Return the highest time of a batch whose head has none, in ms.

    A batch that no reader could unpack keeps the time of its first record.
    """
    try:
        times = decode_payload(decompress(KAFKA_V2, batch.payload)).timestamps_us()
    except UNREADABLE:
        return batch.base_timestamp
    return max(batch.base_timestamp, max(times) // 1000)
