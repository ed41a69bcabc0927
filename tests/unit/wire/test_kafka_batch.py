"""Record batches of Kafka's clients as columns: vectors of real clients, and damaged ones."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import InvalidBatchError
from oncelog.wire.batch import decode_payload
from oncelog.wire.compression import KAFKA_V2, decompress
from oncelog.wire.kafka_batch import _snappy_block, to_columns

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/kafka/batches.json").read_text())
BATCHES = VECTORS["batches"]
HEAD = 21
# attributes, last offset delta, times, producer, count
BODY = struct.Struct(">hiqqqhii")


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def payload_of(client: str, codec: str) -> bytes:
    [found] = [b for b in BATCHES if (b["client"].split()[0], b["codec"]) == (client, codec)]
    return bytes.fromhex(found["batch"])[HEAD:]


def body(records: bytes, count: int, codec: int = 0, base_time: int = 0) -> bytes:
    return BODY.pack(codec, count - 1, base_time, base_time, -1, -1, -1, count) + records


@pytest.mark.parametrize("batch", BATCHES, ids=lambda b: f"{b['client']} {b['codec']}")
def test_records_of_real_clients(batch: dict[str, Any]) -> None:
    payload = bytes.fromhex(batch["batch"])[HEAD:]
    columns = decode_payload(decompress(KAFKA_V2, payload), 5)
    expected = VECTORS["records"]
    assert columns.values() == [unhex(record["value"]) for record in expected]
    assert columns.keys() == [unhex(record["key"]) for record in expected]
    assert columns.timestamps_us() == [record["timestamp_ms"] * 1000 for record in expected]
    headers = [tuple((n, unhex(v)) for n, v in record["headers"]) for record in expected]
    assert columns.headers() == headers


def test_a_snappy_block_as_librdkafka_sends_it() -> None:
    block = VECTORS["snappy_block"]
    plain = bytes.fromhex(block["plain"])
    assert _snappy_block(bytes.fromhex(block["block"]), len(plain)) == plain
    with pytest.raises(InvalidBatchError, match="limit"):
        _snappy_block(bytes.fromhex(block["block"]), len(plain) - 1)


# length, attributes, time, number, key "k", no value, no header
RECORD = bytes([14, 0, 0, 0, 2, ord("k"), 1, 0])


def record(**at: int) -> bytes:
    """A record with some of its bytes replaced: at0=9 is the first."""
    data = bytearray(RECORD)
    for place, byte in at.items():
        data[int(place[2:])] = byte
    return bytes(data)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"\0" * 39, "39 bytes"),
        (body(RECORD, 2), "end too early"),
        (body(RECORD + b"\0", 1), "1 bytes follow"),
        (body(record(at0=12), 1), "not as long"),
        (body(record(at0=13), 1), "has -7 bytes"),
        (body(record(at0=16), 1), "has 8 bytes"),
        (body(record(at3=2), 1), "says it is number 1"),
        (body(record(at4=40), 1), "20 bytes in a record"),
        (body(record(at6=40), 1), "20 bytes in a record"),
        (body(record(at7=1), 1), "-1 headers"),
        (body(record(at7=8), 1), "4 headers"),
        (body(b"\xff" * 12, 1), "64 bits"),
        (body(RECORD, 1, 5), "compression type 5"),
        (body(RECORD, 1, base_time=1 << 62), "int64"),
        (body(bytes([22, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1, 0, 0]), 1), "not UTF-8"),
        (body(gzip.compress(RECORD)[:-9], 1, 1), "gzip records are not exactly"),
        (body(gzip.compress(RECORD) * 2, 1, 1), "gzip records are not exactly"),
        (body(b"junk", 1, 1), "gzip"),
        (body(b"\x08\x00", 1, 2), "snappy"),
        (body(b"\x08\x05\x01", 1, 2), "snappy"),
        (body(b"\x82SNAPPY\x00" + bytes(8) + b"\0\0\0\x09x", 1, 2), "a block of 9 bytes"),
        (body(b"\x82SNAPPY\x00" + bytes(8) + b"\0", 1, 2), "end too early"),
        (body(b"junk", 1, 3), "lz4"),
        (body(b"junk", 1, 4), "zstd"),
    ],
)
def test_a_damaged_batch_is_named(payload: bytes, text: str) -> None:
    with pytest.raises(InvalidBatchError, match=text):
        to_columns(payload)


def test_the_limit_of_unpacked_records() -> None:
    large = bytes(1000)
    packed = {1: gzip.compress(large), 4: zstandard.ZstdCompressor().compress(large)}
    for codec, data in packed.items():
        with pytest.raises(InvalidBatchError, match="limit 999"):
            to_columns(body(data, 1, codec), 999)


@given(
    client=st.sampled_from(["aiokafka", "kafka-python"]),
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    at=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_never_raises_another_error(
    client: str, codec: str, at: float, bit: int
) -> None:
    damaged = bytearray(payload_of(client, codec))
    damaged[int(at * len(damaged))] ^= 1 << bit
    try:
        columns = decode_payload(to_columns(bytes(damaged), 1 << 20))
        columns.check()
    except InvalidBatchError:
        pass
