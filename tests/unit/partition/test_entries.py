"""Entries of a partition's log: any damage is a CorruptEntryError."""

from __future__ import annotations

from collections.abc import Callable

import crc32c
import pytest

from cluster.entries import (
    HEADER_BYTES,
    KAFKA_BATCH,
    KAFKA_V2,
    BatchEntry,
    CarriedEntry,
    CorruptEntryError,
    KeyTombstone,
    LogStartEntry,
    OpenProducerEntry,
    ReleaseEntry,
    is_intact,
    pack_batch,
    pack_carried,
    pack_log_start,
    pack_open_producer,
    pack_release,
    payload_of,
    unpack_batch,
    unpack_carried,
    unpack_log_start,
    unpack_open_producer,
    unpack_release,
)
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.state import MetadataState
from tests.sim.disk import Batch

BATCH = BatchEntry(0, 2, 9, 1, 77, 10, 11, 9, -1, 0, 5, 6, 7, 8, 1)
KAFKA = BATCH._replace(codec=KAFKA_V2)
CARRIED = CarriedEntry(1, 2, 0, 50, 9, 700, 5, 6, 7, (KeyTombstone(50, 8), KeyTombstone(51, 9)))
PAYLOAD = b"kept"
# The header, field by field; the payload; two tombstones.
VECTOR = (
    "160101000200000004000000000000000200000048b067b432000000000000000900000000000000"
    "bc020000000000000500000000000000a2806c6a0000000006000000000000000700000000000000"
    "000000000000000000000000000000006b6570743200000000000000080000000000000033000000"
    "000000000900000000000000"
)
LOG_START = LogStartEntry(1, 2, 3, 4)
OPEN = OpenProducerEntry(1, 2, 3, 4, 5, 6, 7)
RELEASE = ReleaseEntry(1, 2, 3, 4, (5, 6, 7))

Unpack = Callable[[bytes], object]
KINDS: list[tuple[Unpack, bytes, object]] = [
    (unpack_batch, pack_batch(BATCH, b""), BATCH),
    (unpack_batch, pack_batch(KAFKA, b""), KAFKA),
    (unpack_carried, pack_carried(CARRIED, PAYLOAD), CARRIED),
    (unpack_log_start, pack_log_start(LOG_START), LOG_START),
    (unpack_open_producer, pack_open_producer(OPEN), OPEN),
    (unpack_release, pack_release(RELEASE), RELEASE),
]


@pytest.mark.parametrize(("unpack", "data", "entry"), KINDS)
def test_what_is_packed_is_unpacked(unpack: Unpack, data: bytes, entry: object) -> None:
    assert unpack(data) == entry


@pytest.mark.parametrize(("unpack", "data", "entry"), KINDS)
def test_damage_is_a_typed_error(unpack: Unpack, data: bytes, entry: object) -> None:
    with pytest.raises(CorruptEntryError, match="unknown type 127"):
        unpack(b"\x7f" + data[1:])
    with pytest.raises(CorruptEntryError, match="version 9"):
        unpack(data[:1] + b"\x09" + data[2:])
    for length in (0, 1, len(data) - 1):
        with pytest.raises(CorruptEntryError, match=f"entry of {length} bytes"):
            unpack(data[:length])


def test_an_entry_of_another_group_stops_the_metadata_replica() -> None:
    machine = MetadataMachine(MetadataState(), lambda index: None)
    with pytest.raises(CorruptEntryError, match="index 5, entry of type 16 in the metadata log"):
        machine.apply(5, 1, pack_batch(BATCH, b""), Batch())


def test_the_kind_of_a_batch_and_its_codec_agree() -> None:
    columnar, kafka = pack_batch(BATCH, b""), pack_batch(KAFKA, b"")
    assert (columnar[0], kafka[0]) == (0x10, KAFKA_BATCH)
    for mixed in (kafka[:1] + columnar[1:], columnar[:1] + kafka[1:]):
        with pytest.raises(CorruptEntryError, match="unknown type"):
            unpack_batch(mixed)


def test_a_carried_batch_is_read_as_one_without_a_producer() -> None:
    entry = CARRIED._replace(crc=crc32c.crc32c(PAYLOAD))
    data = pack_carried(entry, PAYLOAD)
    read = unpack_batch(data)
    assert (read.producer_id, read.record_count, read.codec, read.crc) == (0, 2, 1, entry.crc)
    assert read.stamp_ms == entry.append_time_ms
    assert bytes(payload_of(data)) == PAYLOAD


def test_each_damaged_bit_behind_a_carried_header_is_found() -> None:
    data = pack_carried(CARRIED._replace(crc=crc32c.crc32c(PAYLOAD)), PAYLOAD)
    assert is_intact(data)
    for position in range(HEADER_BYTES, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            assert not is_intact(bytes(damaged)), (position, bit)


def test_the_bytes_of_a_carried_batch_are_stored_for_ever() -> None:
    assert pack_carried(CARRIED._replace(crc=crc32c.crc32c(PAYLOAD)), PAYLOAD).hex() == VECTOR
