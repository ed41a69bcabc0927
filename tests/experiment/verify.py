"""Verifier: reads the topic back and counts records that are there twice, lost or out of order.

Place in the flow: after a run, when the faults are over. Column by column with numpy over the
memory that the consumer hands out, and one byte per integer: nothing is done per record in Python.
It knows the values and the offsets, and nothing of how a broker works.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncelog import Consumer, TopicPartition
from tests.experiment.plan import Found

VALUE_BYTES = 8
SILENCE_MS = 30_000  # a reader that gets nothing for so long will get no more

Integers = NDArray[np.int64]


class VerifyError(Exception):
    """The topic could not be read to its end."""


class Tally:
    """Counts over the records of one topic, given in offset order per partition."""

    def __init__(self, records: int) -> None:
        """records: the integers 0..records-1 were sent, once each."""
        self.found = Found()
        self._seen: NDArray[np.bool_] = np.zeros(records, np.bool_)
        self._highest: dict[int, int] = {}
        self._next: dict[int, int] = {}

    def add(self, partition: int, base_offset: int, integers: Integers) -> None:
        """Adds records from `base_offset` on. An integer below 0 stands for any other value."""
        found = self.found
        found.stored += len(integers)
        found.holes += base_offset != self._next.get(partition, 0)
        self._next[partition] = base_offset + len(integers)
        known = integers[(integers >= 0) & (integers < len(self._seen))]
        found.unknown += len(integers) - len(known)
        first = known[self._first_copies(known)]
        found.duplicates += len(known) - len(first)
        if not len(first):
            return
        # The highest one before each, in this partition.
        before = np.empty_like(first)
        before[0] = self._highest.get(partition, -1)
        before[1:] = first[:-1]
        np.maximum.accumulate(before, out=before)
        found.disordered += int(np.count_nonzero(first < before))
        self._highest[partition] = max(int(before[-1]), int(first[-1]))
        self._seen[first] = True

    def _first_copies(self, known: Integers) -> NDArray[np.bool_]:
        """Marks each integer that was not there before, earlier in this call included."""
        new = ~self._seen[known]
        if not np.all(known[1:] > known[:-1]):
            _, first_places = np.unique(known, return_index=True)
            earliest = np.zeros(len(known), np.bool_)
            earliest[first_places] = True
            new &= earliest
        return new

    def close(self, acknowledged: bytearray) -> Found:
        """Compares with a byte for each integer, 1 if it was acknowledged."""
        acks = np.frombuffer(acknowledged, np.bool_)
        assert len(acks) == len(self._seen), "one byte for each integer"
        self.found.lost = int(np.count_nonzero(acks & ~self._seen))
        self.found.unconfirmed = int(np.count_nonzero(self._seen & ~acks))
        return self.found


def integers_of(column: Any) -> Integers:
    """Reads the integers of a pyarrow binary array; -1 for values that are not 8 bytes long."""
    count = len(column)
    _, offsets_buffer, values = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, 4 * column.offset)
    if column.null_count or np.any(np.diff(offsets) != VALUE_BYTES):
        texts = column.to_pylist()
        return np.array([_integer(text) for text in texts], np.int64)
    return np.frombuffer(values, ">i8", count, int(offsets[0])).astype(np.int64)


def _integer(value: bytes | None) -> int:
    if value is None or len(value) != VALUE_BYTES:
        return -1
    return int.from_bytes(value, "big", signed=True)


def verify(bootstrap: str, topic: str, partitions: int, acknowledged: bytearray) -> Found:
    """Reads all partitions from start to end. Raises VerifyError, OncelogError."""
    tally = Tally(len(acknowledged))
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        left = {tp.partition: end for tp, end in consumer.end_offsets(wanted).items() if end}
        consumer.assign(wanted)
        for batch in consumer.batches(timeout_ms=SILENCE_MS) if left else ():
            partition, offset = batch.column("partition")[0].as_py(), batch.column("offset")[0]
            tally.add(partition, offset.as_py(), integers_of(batch.column("value")))
            if offset.as_py() + batch.num_rows >= left.get(partition, 0):
                left.pop(partition, None)
            if not left:
                break
    if left:
        raise VerifyError(f"{topic}: nothing more came, with ends {left} not reached")
    return tally.close(acknowledged)
