"""Arguments of `send`, checked and brought into the payload's form. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oncelog import errors
from oncelog.errors import InvalidBatchError
from oncelog.types import NOW_US, Header, OffsetCommit, Record, TopicPartition
from oncelog.wire.batch import encode_payload, read_layout

Bytes = bytes | bytearray | memoryview | str
_INT64 = struct.Struct("<q")
MAX_TIMESTAMP_MS = (2**63 - 1) // 1000

Headers = Mapping[str, Bytes | None] | Sequence[tuple[str, Bytes | None]]


def as_bytes(name: str, value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} must be bytes, str or None, got {type(value).__name__}")


def as_headers(headers: Headers) -> tuple[Header, ...]:
    pairs: Iterable[tuple[str, Bytes | None]] = (
        headers.items() if isinstance(headers, Mapping) else headers
    )
    result = []
    for key, value in pairs:
        if not isinstance(key, str):
            raise TypeError(f"a header's key must be str, got {type(key).__name__}")
        result.append((key, as_bytes(f"header {key!r}", value)))
    return tuple(result)


def as_int(name: str, value: Any, low: int, high: int) -> int:
    """Return an integer of any kind, for instance numpy's. Raises InvalidRequestError."""
    number = value if type(value) is int else as_index(name, value, f" from {low} to {high}")
    if not low <= number <= high:
        raise errors.InvalidRequestError(
            f"{name} must be an integer from {low} to {high}, got {value!r}",
            field=name,
            limit=f"{low}..{high}",
        )
    return number


def as_index(name: str, value: Any, limits: str = "") -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise errors.InvalidRequestError(
        f"{name} must be an integer{limits}, got {value!r} of type {type(value).__name__}",
        field=name,
    )


def as_partition(partition: tuple[str, int]) -> TopicPartition:
    """Return the partition as a pair. Raises InvalidRequestError if the number is no integer."""
    topic, number = partition
    return TopicPartition(topic, number if type(number) is int else as_index("partition", number))


def rising_sequences(sequences: Any, count: int) -> list[int]:
    """Return the sequences of a batch, or the first and the last of an Arrow array."""
    if hasattr(sequences, "type"):
        from oncelog.wire.arrow import rising_ends

        size = len(sequences)
        given, rising = rising_ends(sequences)
    else:
        given = [n if type(n) is int else as_index("sequence", n) for n in sequences]
        size = len(given)
        rising = all(a < b for a, b in itertools.pairwise(given))
    if size != count or not rising:
        raise errors.InvalidRequestError(
            f"sequences must be {count} rising numbers, one for each record", field="sequences"
        )
    return given


def encode_list(items: Iterable[Any], now_us: int) -> tuple[bytes, int, int]:
    """Encode a list for `send_batch`; return (payload, record count, highest timestamp)."""
    rows = items if isinstance(items, list) else list(items)
    if rows and not isinstance(rows[0], tuple):
        try:
            # Values only, the common case, are encoded without looking at each.
            payload = encode_payload(rows, _INT64.pack(now_us) * len(rows))
            read_layout(payload)  # checks that each item with a length has as many bytes
            return payload, len(rows), now_us
        except (TypeError, InvalidBatchError):
            pass  # some items are not plain values, or are invalid
    return _encode_each(rows, now_us)


def _encode_each(rows: Sequence[Any], now_us: int) -> tuple[bytes, int, int]:
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers: list[Sequence[Header]] = []
    stamps: list[int] = []
    for item in rows:
        if isinstance(item, Record):
            values.append(as_bytes("value", item.value))
            keys.append(as_bytes("key", item.key))
            headers.append(as_headers(item.headers) if item.headers else ())
            stamps.append(now_us if item.timestamp_us == NOW_US else item.timestamp_us)
            continue
        key, value = item if isinstance(item, tuple) else (None, item)
        values.append(as_bytes("value", value))
        keys.append(as_bytes("key", key))
        headers.append(())
        stamps.append(now_us)
    payload = encode_payload(values, stamps, keys, headers)
    return payload, len(values), max(stamps)


def as_commits(
    offsets: Mapping[tuple[str, int], int | OffsetCommit],
) -> dict[TopicPartition, OffsetCommit]:
    commits = {}
    for partition, offset in offsets.items():
        commit = offset if isinstance(offset, OffsetCommit) else OffsetCommit(offset)
        offset = as_int("offset", commit.offset, 0, 2**63 - 1)
        commits[as_partition(partition)] = dataclasses.replace(commit, offset=offset)
    return commits


def as_times_us(timestamps_ms: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
    return {as_partition(p): as_time_us(ms) for p, ms in timestamps_ms.items()}


def as_time_us(timestamp_ms: int) -> int:
    return as_int("timestamp_ms", timestamp_ms, -MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS) * 1000
