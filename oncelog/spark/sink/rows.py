"""Rows of Spark as batches of partitions: columns, places, and a digest of their content.

Place in the flow: Spark's worker -> `Rows.take` each Arrow batch -> pieces for the partitions ->
`writing` stages them. Columns as Spark's Kafka sink has them: value, key, headers, topic,
partition, timestamp.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from oncelog.errors import ConfigError, InvalidRequestError
from oncelog.types import TopicPartition
from oncelog.wire.arrow import is_texts, plain_texts

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RECORD_COLUMNS = ("key", "value", "timestamp", "headers")
TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}
_M = 0x5BD1E995
_NULL = 0x9E3779B97F4A7C15
_FOLD = 0xBF58476D1CE4E5B9
_MASK = 2**64 - 1
MAX_WORDS = 2**31
SHORT = 512  # bytes: up to here it is faster to take a word of all texts at a time


def check_columns(schema: StructType, topic: str) -> None:
    """Raises ConfigError that names the column."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in found.items():
        if name not in TYPES:
            raise ConfigError(f"column {name!r} is not one of {', '.join(TYPES)}", name)
        if kind not in TYPES[name]:
            raise ConfigError(
                f"column {name!r} is {kind}, it must be {' or '.join(TYPES[name])}", name
            )
    if "value" not in found:
        raise ConfigError("column 'value' is missing: it is the content of a record", "value")
    if not topic and "topic" not in found:
        raise ConfigError("topic: give the option, or a column of that name", "topic")


class Rows:
    """Rows of one task attempt. counts: how many partitions a topic has."""

    def __init__(self, topic: str, counts: Callable[[str], int]) -> None:
        self._topic = topic
        self._counts = counts
        self._turn = random.randrange(1 << 30)  # of records without key and partition
        self.records = 0
        self.digest = 0

    def digested(self, batch: Any) -> None:
        """Count rows, and add their content to the digest, in any order."""
        self.records += batch.num_rows
        self.digest = (self.digest + _digest(batch)) & _MASK

    def pieces(self, batch: Any) -> Iterator[tuple[TopicPartition, Any]]:
        """Yield each partition's rows, in order, as an Arrow batch of record columns."""
        for place, name in enumerate(batch.schema.names):
            if is_texts(batch.schema.field(name).type):
                batch = batch.set_column(place, name, plain_texts(batch.column(name)))
        names = [name for name in RECORD_COLUMNS if name in batch.schema.names]
        for topic, rows in self._by_topic(batch):
            count = self._counts(topic)
            self._turn += 1
            records = rows.select(names)
            numbers = self._partitions(rows, topic, count)
            if isinstance(numbers, int):
                yield TopicPartition(topic, numbers), records
                continue
            yield from _split(topic, records, numbers)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        if self._topic:  # the option stands above the column, as in Spark's Kafka sink
            yield self._topic, batch
            return
        import pyarrow.compute as pc

        column = batch.column("topic")
        for topic in pc.unique(column).to_pylist():
            if topic is None:
                raise InvalidRequestError("topic: a row has none", field="topic")
            yield topic, batch.filter(pc.equal(column, topic))

    def _partitions(self, rows: Any, topic: str, count: int) -> Any:
        """Return the partition of each row; one number if it is the same for all."""
        import numpy as np
        import pyarrow.compute as pc

        names = rows.schema.names
        numbers = np.full(rows.num_rows, -1, np.int64)
        if "partition" in names:
            given = rows.column("partition")
            numbers = pc.fill_null(given, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            known = given.is_valid().to_numpy(zero_copy_only=False)
            if ((numbers[known] < 0) | (numbers[known] >= count)).any():
                text = f"partition: {topic!r} has the partitions 0 to {count - 1}"
                raise InvalidRequestError(text, field="partition")
        sticky = self._turn % count
        if "key" not in names or rows.column("key").null_count == rows.num_rows:
            if (numbers < 0).all():
                return sticky
            numbers[numbers < 0] = sticky
            return numbers
        keys = rows.column("key")
        by_key = (murmur2_of(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)
        by_key = by_key.astype(np.int64)
        by_key[keys.is_null().to_numpy(zero_copy_only=False)] = sticky
        return np.where(numbers >= 0, numbers, by_key)


def murmur2_of(keys: Any) -> Any:
    """Compute `murmur2` of each key of an Arrow array, a word of all of them at a time."""
    import numpy as np

    starts, lengths, words = _texts(keys, "<u4")
    m, shift = np.uint32(_M), np.uint32(24)
    h = np.uint32(0x9747B28C) ^ lengths.astype(np.uint32)
    for rows, places in _words(starts, lengths // 4, 4):
        k = words[places] * m
        h[rows] = (h[rows] * m) ^ ((k ^ (k >> shift)) * m)
    rows = np.flatnonzero(lengths & 3)
    left = (lengths[rows] & 3).astype(np.uint32)
    last = words[starts[rows] + (lengths[rows] & ~3)] & ((np.uint32(1) << left * np.uint32(8)) - 1)
    h[rows] = (h[rows] ^ last) * m
    h = (h ^ (h >> np.uint32(13))) * m
    return h ^ (h >> np.uint32(15))


def _bounds(array: Any) -> tuple[Any, Any, Any]:
    """Return each text's start in an array, its length, and the bytes of all."""
    import numpy as np

    array = plain_texts(array)
    _, ends, data = array.buffers()
    places = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return places[:-1].astype(np.int64), np.diff(places).astype(np.int64), whole


def _texts(array: Any, word: str) -> tuple[Any, Any, Any]:
    """Return each text's start in an array, its length, and the word at each byte of all."""
    import numpy as np

    starts, lengths, whole = _bounds(array)
    first = int(starts.min(initial=len(whole)))
    last = int((starts + lengths).max(initial=first))
    size = np.dtype(word).itemsize
    # Bytes beyond a text are masked; the last one needs some behind it.
    whole = np.concatenate([whole[first:last], np.zeros(size, np.uint8)])
    words = np.ndarray((last - first + 1,), word, whole, strides=(1,))
    return starts - first, lengths, words


def _words(starts: Any, counts: Any, size: int) -> Iterator[tuple[Any, Any]]:
    """Yield for the first word of all texts, then the next: texts with it, and its place."""
    import numpy as np

    common = int(counts.min(initial=MAX_WORDS))
    for number in range(int(counts.max(initial=0))):
        rows = slice(None) if number < common else np.flatnonzero(counts > number)
        yield rows, starts[rows] + size * number


def _split(topic: str, records: Any, numbers: Any) -> Iterator[tuple[TopicPartition, Any]]:
    import numpy as np
    import pyarrow as pa

    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    taken = records.take(pa.array(order))
    for start, stop in pairwise(edges):
        yield TopicPartition(topic, int(ordered[start])), taken.slice(start, stop - start)


# -- the digest ---------------------------------------------------------------------------


def _digest(batch: Any) -> int:
    """Sum a number for each row, which depends on the row's content only."""
    import numpy as np

    total = np.zeros(batch.num_rows, np.uint64)
    for position, name in enumerate(TYPES, 1):
        if name in batch.schema.names:
            mixed = _mixed(_column(batch.column(name)) + np.uint64(position * _NULL & _MASK))
            total = _mixed(total ^ mixed)
    return int(total.sum(dtype=np.uint64))


def _column(array: Any) -> Any:
    """Return a number for each value."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if is_texts(kind):
        hashed = _hashed(array)
    elif pa.types.is_timestamp(kind):
        stamps = pc.fill_null(array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), 0)
        hashed = stamps.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64).copy()
    elif pa.types.is_integer(kind):
        numbers = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        hashed = numbers.astype(np.int64).view(np.uint64).copy()
    elif array.null_count == len(array):
        hashed = np.zeros(len(array), np.uint64)
    else:  # headers
        texts = (repr(value).encode() for value in array.to_pylist())
        hashed = np.fromiter((_checksum(text) for text in texts), np.uint64, len(array))
    if array.null_count:
        hashed[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashed


def _hashed(array: Any) -> Any:
    """Fold the words of texts up to SHORT, one after the other; take checksums of longer ones."""
    import numpy as np

    starts, lengths, whole = _bounds(array)
    short = lengths <= SHORT
    if short.all():
        return _folded(_aligned(whole), starts, lengths)
    total = lengths.astype(np.uint64)
    total[short] = _folded(_aligned(whole), starts[short], lengths[short])
    rows = np.flatnonzero(~short)
    data, ends = memoryview(whole), (starts + lengths)[rows].tolist()
    long = zip(starts[rows].tolist(), ends, strict=True)
    total[rows] += np.fromiter((_checksum(data[a:b]) for a, b in long), np.uint64, len(rows))
    return total


def _aligned(whole: Any) -> Any:
    """Return the bytes as words of eight, the last one filled up."""
    import numpy as np

    if whole.ctypes.data % 8 or len(whole) % 8:
        words = np.zeros((len(whole) + 7) // 8, np.uint64)
        words.view(np.uint8)[: len(whole)] = whole
        return words
    return whole.view("<u8")


def _folded(words: Any, starts: Any, lengths: Any) -> Any:
    """Return each text's number: `h = (h ^ word) * K; h ^= h >> 32` for its 8-byte words.

    The longest come first, so that the texts with an n-th word are together. A word of a text is
    cut out of two of `words`, which is faster than to read it in place.
    """
    import numpy as np

    order: Any = slice(None)
    if lengths.min(initial=SHORT) < lengths.max(initial=0):
        order = np.argsort(lengths.astype(np.uint16), kind="stable")[::-1]
    starts, lengths = starts[order], lengths[order]
    at, right = starts >> 3, ((starts & 7) << 3).astype(np.uint64)
    left = np.uint64(64) - right  # shifted by 64 nothing is left
    folded = lengths.astype(np.uint64) * np.uint64(_NULL)

    def fold(into: Any, word: Any) -> None:
        into ^= word
        into *= np.uint64(_FOLD)
        into ^= into >> np.uint64(32)

    low = words.take(at, mode="clip") if len(words) else words
    counts = lengths >> 3
    for count in (len(counts) - np.cumsum(np.bincount(counts)))[:-1].tolist():
        at[:count] += 1
        high = words.take(at[:count], mode="clip")
        fold(folded[:count], (low[:count] >> right[:count]) | (high << left[:count]))
        low = high
    rows = np.flatnonzero(lengths & 7)
    if len(rows):
        low, high = words.take(at[rows]), words.take(at[rows] + 1, mode="clip")
        ends = (np.uint64(1) << ((lengths[rows] & 7) << 3).astype(np.uint64)) - np.uint64(1)
        last = folded[rows]
        fold(last, (low >> right[rows] | high << left[rows]) & ends)
        folded[rows] = last
    found = np.empty_like(folded)
    found[order] = folded
    return found


def _checksum(data: bytes | memoryview) -> int:
    """Return two checksums with the length: one alone, of 32 bits, is too short for a batch."""
    return zlib.crc32(data) << 32 | crc32c(data) ^ len(data)


def _mixed(numbers: Any) -> Any:
    """Apply splitmix64: after it, sums of similar rows have nothing in common."""
    import numpy as np

    numbers = numbers + np.uint64(_NULL)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)
    return numbers
