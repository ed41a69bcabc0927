"""Last-seen map as bytes: the producers in a partition's snapshot.

    magic, version, record size, clock, expiry watermark, number of producers and
    of retired ids | retired ids | producer ids | times | records | crc32

Numbers are little-endian, ids rise, and nothing depends on the history of the map: equal maps are
equal bytes on every replica.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from operator import lt
from typing import NamedTuple

from cluster.dedup.record import ALL_FLAGS, FLAGS_AT, PINNED, RECENT, RECORD_BYTES
from cluster.dedup.verdict import WINDOW

_MAGIC = b"OLLS"
_VERSION = 1
_HEAD = struct.Struct("<4sHHqqQQ")
_CRC = struct.Struct("<I")


class DedupState(NamedTuple):
    """Unpacked state. Times in ms; `records` holds one record per producer id."""

    clock: int
    expired_below: int
    retired: array[int]
    pids: array[int]
    times: array[int]
    records: memoryview


def packed_bytes(rows: int, retired_rows: int) -> int:
    """Returns the length of a map with so many producers and retired ids."""
    return _HEAD.size + _CRC.size + 8 * retired_rows + (16 + RECORD_BYTES) * rows


def packed(
    clock: int,
    expired_below: int,
    retired: array[int],
    columns: list[tuple[array[int], array[int], bytearray]],
) -> Iterator[bytes | bytearray]:
    """Packs the map in parts. Columns are (ids, times, records) of consecutive runs of producers.

    The map must stay as it is until the last part is taken.
    """
    crc = 0
    for part in _parts(clock, expired_below, retired, columns):
        crc = zlib.crc32(part, crc)
        yield part
    yield _CRC.pack(crc)


def _parts(
    clock: int,
    expired_below: int,
    retired: array[int],
    columns: list[tuple[array[int], array[int], bytearray]],
) -> Iterator[bytes | bytearray]:
    rows = sum(len(pids) for pids, _, _ in columns)
    yield _HEAD.pack(_MAGIC, _VERSION, RECORD_BYTES, clock, expired_below, rows, len(retired))
    yield _to_bytes(retired)
    for pids, _, _ in columns:
        yield _to_bytes(pids)
    for _, times, _ in columns:
        yield _to_bytes(times)
    for _, _, records in columns:
        yield records


def unpack_state(data: bytes) -> DedupState:
    """Unpacks a map. Raises ValueError if the bytes are damaged or of another version."""
    if len(data) < packed_bytes(0, 0):
        raise _damaged(f"{len(data)} bytes, at least {packed_bytes(0, 0)} are expected")
    magic, version, record_bytes, clock, expired_below, rows, retired_rows = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise _damaged("it does not begin with its mark")
    if version != _VERSION or record_bytes != RECORD_BYTES:
        raise ValueError(
            f"last-seen map: version {version} with records of {record_bytes} bytes;"
            f" this program reads version {_VERSION} with {RECORD_BYTES}"
        )
    expected = packed_bytes(rows, retired_rows)
    if len(data) != expected:
        raise _damaged(f"{len(data)} bytes, its header says {expected}")
    view = memoryview(data)
    if _CRC.unpack_from(data, len(data) - _CRC.size)[0] != zlib.crc32(view[: -_CRC.size]):
        raise _damaged("its checksum differs")
    at = _HEAD.size
    columns = []
    for count in (retired_rows, rows, rows):
        columns.append(_from_bytes(view[at : at + 8 * count]))
        at += 8 * count
    retired, pids, times = columns
    state = DedupState(clock, expired_below, retired, pids, times, view[at : -_CRC.size])
    _validate(state)
    return state


def _validate(state: DedupState) -> None:
    """Checks the rules that a checksum does not cover; by column, for up to a million rows."""
    clock, expired_below, retired, pids, times, records = state
    if clock < 0 or expired_below < 0:
        raise _damaged("a number in its header is negative")
    for name, ids in (("retired", retired), ("producer", pids)):
        if ids and not (ids[0] > 0 and all(map(lt, ids, ids[1:]))):
            raise _damaged(f"{name} ids are not positive and rising")
    if retired and (retired[0] < expired_below or not set(retired).isdisjoint(pids)):
        raise _damaged("a retired id is known or below the watermark")
    if times and not (min(times) >= 0 and max(times) <= clock):
        raise _damaged("a producer's time is not in 0..clock")
    flags = bytes(records[FLAGS_AT::RECORD_BYTES])
    for seen in set(flags):
        if seen & ~ALL_FLAGS or seen & RECENT > WINDOW:
            raise _damaged(f"flags {seen:#x} of a producer are unknown")
    below = flags[: bisect_left(pids, expired_below)]
    if not all(seen & PINNED for seen in set(below)):
        raise _damaged("a producer below the watermark is not pinned")


def _damaged(how: str) -> ValueError:
    return ValueError(f"last-seen map: damaged, {how}")


def _to_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_bytes(data: memoryview) -> array[int]:
    numbers = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
