"""A stored batch is known again by its row in the index, and nothing else is taken for it."""

from __future__ import annotations

import crc32c
import pytest

from cluster.entries import HEADER_BYTES, BatchEntry, pack_batch, unpack_batch
from cluster.partition.batch_index import is_intact, place_of
from storage.offset_index import IndexEntry

PAYLOAD = bytes(range(200))
ENTRY = BatchEntry(0, 3, 7, 1, crc32c.crc32c(PAYLOAD), 4, 6, 3, -1, 0, 1_000, 2_000, 3_000, 0)
STORED = pack_batch(ENTRY, PAYLOAD)


@pytest.fixture
def place() -> IndexEntry:
    return place_of(9, 50, unpack_batch(STORED), STORED)


def test_the_batch_itself(place: IndexEntry) -> None:
    assert is_intact(place, STORED)
    assert (place.raft_index, place.base_offset, place.last_offset) == (9, 50, 52)


def test_every_flipped_bit(place: IndexEntry) -> None:
    for position in range(len(STORED)):
        for bit in range(8):
            damaged = bytearray(STORED)
            damaged[position] ^= 1 << bit
            assert not is_intact(place, bytes(damaged)), (position, bit)


def test_what_is_cut_off_or_too_long(place: IndexEntry) -> None:
    for data in (b"", STORED[: HEADER_BYTES - 1], STORED[:-1], STORED + b"\0"):
        assert not is_intact(place, data)


def test_another_whole_batch(place: IndexEntry) -> None:
    """The producer's next one: as long, and right in itself."""
    other = pack_batch(ENTRY._replace(first=7, last=9, prev=6), PAYLOAD)
    assert is_intact(place_of(10, 53, unpack_batch(other), other), other)
    assert not is_intact(place, other)
