"""A producer's record batch: sound ones, and the error number of each fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.kafka import records
from cluster.kafka.records import InvalidKafkaBatch, head, read_batch
from tests.unit.kafka.kafka_bytes import batch

VECTORS = Path(__file__).parents[2] / "vectors/kafka/batches.json"
BATCHES = [bytes.fromhex(one["batch"]) for one in json.loads(VECTORS.read_text())["batches"]]
MAX_MS = ((1 << 63) - 1) // 1000


def test_a_batch_is_a_view_with_the_numbers_of_its_head() -> None:
    data = batch(3, pid=1 << 62, epoch=4, sequence=(1 << 31) - 1, base_time=-1, max_time=MAX_MS)
    found = read_batch(memoryview(data))
    assert found[:7] == (1 << 62, 4, (1 << 31) - 1, 3, 0, -1, MAX_MS)
    assert found.payload == data[21:] and found.payload.obj is data
    assert (found.codec, found.is_transactional) == (0, False)
    staged = read_batch(memoryview(batch(pid=5, epoch=0, sequence=0, attributes=0x14)))
    assert (staged.codec, staged.is_transactional) == (4, True)


@pytest.mark.parametrize("data", BATCHES)
def test_batches_of_real_clients_are_sound_and_come_back(data: bytes) -> None:
    found = read_batch(memoryview(data))
    again = head(0, len(found.payload), found.crc) + bytes(found.payload)
    # The leader epoch, which no checksum covers, is the broker's.
    assert (again[:12], again[12:16], again[16:]) == (data[:12], b"\xff" * 4, data[16:])
    assert head(9, len(found.payload), found.crc)[:8] == (9).to_bytes(8, "big")


FAULTS = [
    ("too short", batch()[:60], 2, "60 bytes"),
    ("empty", b"", 2, "0 bytes"),
    ("magic 1", batch(magic=1), 87, "magic: 1"),
    ("magic 0, as short as it may be", bytes(34), 87, "magic: 0"),
    ("length", batch(length=9), 2, "length: 9"),
    ("negative length", batch(length=-1), 2, "length: -1"),
    ("longer than it is", batch(length=500), 2, "length: 500"),
    ("two batches", batch() + batch(), 87, "69 bytes follow"),
    ("crc", batch(crc=5), 2, "crc: "),
    ("codec", batch(attributes=5), 76, "type 5"),
    ("LogAppendTime", batch(attributes=8), 32, "CreateTime"),
    ("control", batch(attributes=0x30, pid=5, epoch=0, sequence=0), 87, "only brokers"),
    ("delete horizon", batch(attributes=0x40), 87, "only brokers"),
    ("no record", batch(0), 87, "record count: 0"),
    ("negative count", batch(-3, records=b""), 87, "record count: -3"),
    ("last delta", batch(3, last_delta=3), 87, "last offset delta is 3"),
    ("more records than bytes", batch(3, records=bytes(20)), 87, "room for 2"),
    ("too many packed", batch(1 << 24, records=b"x", attributes=1), 87, "room for 9586980"),
    ("base time", batch(base_time=-2), 32, "base timestamp: -2"),
    ("highest time", batch(max_time=MAX_MS + 1), 32, "highest timestamp"),
    ("sequence without id", batch(attributes=0x10), 87, "part of a transaction"),
    ("id 0", batch(pid=0, epoch=0, sequence=0), 87, "(0, 0, 0)"),
    ("negative id", batch(pid=-2, epoch=0, sequence=0), 87, "(-2, 0, 0)"),
    ("negative epoch", batch(pid=5, epoch=-1, sequence=0), 87, "(5, -1, 0)"),
    ("negative sequence", batch(pid=5, epoch=0, sequence=-1), 87, "(5, 0, -1)"),
]


@pytest.mark.parametrize(("data", "code", "text"), [f[1:] for f in FAULTS],
                         ids=[f[0] for f in FAULTS])  # fmt: skip
def test_a_fault_has_its_number(data: bytes, code: int, text: str) -> None:
    with pytest.raises(InvalidKafkaBatch) as raised:
        read_batch(memoryview(data))
    assert (raised.value.code, text in str(raised.value)) == (code, True), raised.value


def test_a_batch_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch(2)
    monkeypatch.setattr(records, "MAX_PAYLOAD_BYTES", len(data))
    read_batch(memoryview(data))
    monkeypatch.setattr(records, "MAX_PAYLOAD_BYTES", len(data) - 1)
    with pytest.raises(InvalidKafkaBatch) as raised:
        read_batch(memoryview(data))
    assert raised.value.code == 10


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    with pytest.raises(InvalidKafkaBatch):
        read_batch(memoryview(data))


@given(at=st.integers(0, 68), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at: int, bit: int) -> None:
    """But in the offset and the leader epoch, which are the broker's."""
    data = bytearray(batch())
    data[at] ^= 1 << bit
    if at < 8 or 12 <= at < 16:
        read_batch(memoryview(data))
    else:
        with pytest.raises(InvalidKafkaBatch):
            read_batch(memoryview(data))
