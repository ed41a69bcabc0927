"""The batch payload: vectors, round trips, Arrow, compression, and damaged input."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.errors import InvalidBatchError, InvalidRequestError
from oncelog.types import Header, Record
from oncelog.wire import compression
from oncelog.wire.batch import (
    BATCH_OVERHEAD,
    HEADER_OVERHEAD,
    MAX_PAYLOAD_BYTES,
    RECORD_OVERHEAD,
    decode_payload,
    encode_payload,
)

VECTORS = Path(__file__).parent.parent.parent / "vectors"
NAMES = sorted(path.stem for path in VECTORS.glob("*.json"))


def read_hex(path: Path) -> bytes:
    return bytes.fromhex("".join(path.read_text().split()))


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def read_records(name: str) -> tuple[list[Record], int]:
    document = json.loads((VECTORS / f"{name}.json").read_text())
    records = [
        Record(
            unhex(r["value"]),
            unhex(r["key"]),
            tuple((key, unhex(value)) for key, value in r["headers"]),
            r["timestamp_us"],
        )
        for r in document["records"]
    ]
    return records, int(document["crc32c"], 16)


def encode(records: list[Record]) -> bytes:
    return encode_payload(
        [r.value for r in records],
        [r.timestamp_us for r in records],
        [r.key for r in records],
        [r.headers for r in records],
    )


# --- vectors -------------------------------------------------------------------------


def test_there_are_vectors():
    assert len(NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_vector_is_reproduced(name: str):
    records, crc = read_records(name)
    expected = read_hex(VECTORS / f"{name}.hex")
    assert encode(records) == expected
    assert compression.checksum(expected) == crc


@pytest.mark.parametrize("name", NAMES)
def test_vector_is_read(name: str):
    records, _ = read_records(name)
    decoded = decode_payload(read_hex(VECTORS / f"{name}.hex"), len(records))
    assert decoded.check().records() == records


@pytest.mark.parametrize("name", NAMES)
def test_vector_through_arrow_is_the_same(name: str):
    arrow = pytest.importorskip("oncelog.wire.arrow")
    records, _ = read_records(name)
    payload = read_hex(VECTORS / f"{name}.hex")
    batch = arrow.to_arrow(decode_payload(payload))
    rows = batch.column("value").to_pylist(), batch.column("key").to_pylist()
    assert list(zip(*rows, strict=True)) == [(r.value, r.key) for r in records]
    stamps = batch.column("timestamp").cast("int64").to_pylist()
    assert stamps == [r.timestamp_us for r in records]
    headers = [
        tuple((h["key"], h["value"]) for h in row or ())
        for row in batch.column("headers").to_pylist()
    ]
    assert headers == [r.headers for r in records]
    again, count, highest = arrow.encode_arrow(batch, 0)
    assert (again, count, highest) == (payload, len(records), max(stamps))


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [("zstd", compression.ZSTD), ("zstd-stream", compression.ZSTD), ("lz4", compression.LZ4)],
)
def test_compressed_vector_is_read(suffix: str, codec: int):
    plain = read_hex(VECTORS / "06-nine-records.hex")
    packed = read_hex(VECTORS / f"06-nine-records.{suffix}.hex")
    assert compression.decompress(codec, packed) == plain


# --- round trips ---------------------------------------------------------------------

blob = st.one_of(st.none(), st.binary(max_size=40))
header = st.tuples(st.text(max_size=8), blob)
headers = st.lists(header, max_size=3).map(tuple)
record = st.tuples(blob, blob, headers, st.integers(-(2**63), 2**63 - 1)).map(
    lambda columns: Record(*columns)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(record, min_size=1, max_size=40))
def test_round_trip(records: list[Record]):
    payload = encode(records)
    assert len(payload) % 8 == 0
    assert decode_payload(payload, len(records)).records() == records
    bound = BATCH_OVERHEAD + sum(
        RECORD_OVERHEAD
        + len(r.value or b"")
        + len(r.key or b"")
        + sum(HEADER_OVERHEAD + len(k.encode()) + len(v or b"") for k, v in r.headers)
        for r in records
    )
    assert len(payload) <= bound, "the accumulator's estimate must never be too low"


@settings(max_examples=100, deadline=None)
@given(st.lists(record, min_size=1, max_size=40), st.data())
def test_arrow_slices_round_trip(records: list[Record], data: st.DataObject):
    arrow = pytest.importorskip("oncelog.wire.arrow")
    start = data.draw(st.integers(0, len(records) - 1))
    stop = data.draw(st.integers(start + 1, len(records)))
    batch = arrow.to_arrow(decode_payload(encode(records)))
    payload, count, _ = arrow.encode_arrow(batch.slice(start, stop - start), 0)
    assert count == stop - start
    assert payload == encode(records[start:stop])


def test_places_and_skip():
    payload = encode([Record(b"%d" % i, timestamp_us=i) for i in range(5)])
    records = decode_payload(payload).records("t", 3, 100, skip=2)
    assert [(r.topic, r.partition, r.offset, r.value) for r in records] == [
        ("t", 3, 102, b"2"),
        ("t", 3, 103, b"3"),
        ("t", 3, 104, b"4"),
    ]
    arrow = pytest.importorskip("oncelog.wire.arrow")
    batch = arrow.to_arrow(decode_payload(payload), "t", 3, 100, skip=2)
    assert batch.column("offset").to_pylist() == [102, 103, 104]
    assert batch.schema == arrow.schema()


def test_arrow_is_read_without_a_copy():
    arrow = pytest.importorskip("oncelog.wire.arrow")
    payload = encode([Record(b"x" * 100, b"k", (), 1)] * 100)
    batch = arrow.to_arrow(decode_payload(payload))
    outer = arrow.import_pyarrow().py_buffer(payload)
    data = batch.column("value").buffers()[2]
    assert outer.address <= data.address < outer.address + outer.size


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"key": [b"k"]}, "value"),
        ({"value": [1]}, "value"),
        ({"value": [b"v"], "other": [1]}, "other"),
        ({"value": [b"v"], "timestamp": [5]}, "timestamp"),
        ({"value": [b"v"], "headers": ["x"]}, "headers"),
    ],
)
def test_wrong_arrow_columns_are_named(columns: dict, named: str):
    arrow = pytest.importorskip("oncelog.wire.arrow")
    batch = arrow.import_pyarrow().record_batch(columns)
    with pytest.raises(InvalidRequestError, match=named):
        arrow.encode_arrow(batch, 0)


def test_other_arrow_types_are_taken():
    arrow = pytest.importorskip("oncelog.wire.arrow")
    pa = arrow.import_pyarrow()
    for kind in (pa.string(), pa.large_binary(), pa.large_string(), pa.binary(1)):
        batch = pa.record_batch({"value": pa.array([b"a", b"b", None], pa.binary()).cast(kind)})
        payload, _, _ = arrow.encode_arrow(batch, 7)
        assert decode_payload(payload).values() == [b"a", b"b", None]
    stamped = pa.record_batch(
        {"value": [b"v", b"w"], "timestamp": pa.array([5, None], "timestamp[ms]")}
    )
    payload, _, highest = arrow.encode_arrow(stamped, 7)
    assert decode_payload(payload).timestamps_us() == [5000, 7]
    assert highest == 5000


# --- refused batches -----------------------------------------------------------------


def test_encoding_refuses():
    with pytest.raises(InvalidBatchError, match="at least one record"):
        encode_payload([], [])
    with pytest.raises(InvalidBatchError, match="1 timestamps_us for 2 values"):
        encode_payload([b"a", b"b"], [1])
    with pytest.raises(InvalidBatchError, match="int64"):
        encode_payload([b"a"], [2**63])
    with pytest.raises(InvalidBatchError, match="limit"):
        encode_payload([bytes(MAX_PAYLOAD_BYTES)], [1])


def damaged(change: dict[int, bytes], name: str = "07-headers") -> bytes:
    payload = bytearray(read_hex(VECTORS / f"{name}.hex"))
    for place, data in change.items():
        payload[place : place + len(data)] = data
    return bytes(payload)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "shorter than its preamble"),
        (bytes(31), "shorter than its preamble"),
        (damaged({0: b"OLB2"}), "begins with"),
        (damaged({4: b"\x20"}), "unknown flags"),
        (damaged({8: bytes(4)}), "no records"),
        (damaged({8: b"\xff\xff\xff\xff"}), "its preamble asks for"),
        (damaged({16: b"\xff\xff\xff\x7f"}), "its preamble asks for"),
        (damaged({4: b"\x00"}), "without the flag"),
        (damaged({})[:-8], "its preamble asks for"),
        (damaged({}) + bytes(8), "its preamble asks for"),
        (damaged({32: b"\x01"}, "04-keys"), "value offsets"),
        (damaged({36: b"\xff\xff\xff\xff"}, "04-keys"), "value offsets"),
        (damaged({36: b"\x05"}, "04-keys"), "value offsets"),
        (damaged({40: b"\x03"}, "04-keys"), "value offsets"),
    ],
)
def test_damage_is_named(payload: bytes, reason: str):
    with pytest.raises(InvalidBatchError, match=reason):
        decode_payload(payload).check()


def test_record_count_must_match_the_header():
    with pytest.raises(InvalidBatchError, match="holds 2 records, its header says 3"):
        decode_payload(read_hex(VECTORS / "04-keys.hex"), 3)


def test_header_keys_must_be_utf8():
    payload = encode_payload([b"v"], [0], None, [[("abc", b"")]])
    place = payload.index(b"abc")
    broken = payload[:place] + b"\xff" + payload[place + 1 :]
    with pytest.raises(InvalidBatchError, match="UTF-8"):
        decode_payload(broken).headers()
    arrow = pytest.importorskip("oncelog.wire.arrow")
    with pytest.raises(InvalidBatchError):
        arrow.to_arrow(decode_payload(broken))


def test_random_damage_is_refused_or_harmless():
    """Any change gives InvalidBatchError or records, never another exception."""
    arrow = pytest.importorskip("oncelog.wire.arrow")
    rng = random.Random(20)
    refused = 0
    for _ in range(3000):
        payload = bytearray(read_hex(VECTORS / f"{rng.choice(NAMES)}.hex"))
        for _ in range(rng.randint(1, 3)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        if rng.random() < 0.2:
            del payload[rng.randrange(len(payload)) :]
        try:
            decode_payload(bytes(payload)).check().records()
        except InvalidBatchError:
            refused += 1
        try:
            arrow.to_arrow(decode_payload(bytes(payload)))
        except InvalidBatchError:
            pass
    assert refused > 500


# --- compression ---------------------------------------------------------------------


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD, compression.LZ4])
def test_compression_round_trip(codec: int):
    payload = encode([Record(b"abc" * 100, timestamp_us=1)] * 50)
    packed = compression.compress(codec, payload)
    assert compression.decompress(codec, packed) == payload
    if codec:
        assert len(packed) < len(payload) / 10


@pytest.mark.parametrize("codec", [compression.ZSTD, compression.LZ4])
def test_a_bomb_does_not_go_off(codec: int):
    packed = compression.compress(codec, bytes(10_000_000))
    with pytest.raises(InvalidBatchError, match="limit"):
        compression.decompress(codec, packed, limit=1_000_000)


def test_a_bomb_without_content_size_does_not_go_off():
    zstandard = pytest.importorskip("zstandard")
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = packer.compress(bytes(10_000_000)) + packer.flush()
    with pytest.raises(InvalidBatchError, match="limit"):
        compression.decompress(compression.ZSTD, packed, limit=1_000_000)


@pytest.mark.parametrize("codec", [compression.ZSTD, compression.LZ4])
def test_damaged_frames_are_refused(codec: int):
    packed = compression.compress(codec, bytes(range(256)) * 8)
    for broken in (b"", b"nonsense", packed[: len(packed) // 2], packed + b"more"):
        with pytest.raises(InvalidBatchError):
            compression.decompress(codec, broken)


def test_unknown_codec_and_too_large():
    with pytest.raises(InvalidBatchError, match="unknown codec 9"):
        compression.decompress(9, b"")
    with pytest.raises(InvalidBatchError, match="limit 3"):
        compression.decompress(compression.NONE, b"four", limit=3)


def test_checksum_is_castagnoli():
    assert compression.checksum(b"123456789") == 0xE3069283


def test_headers_type_is_a_pair():
    sample: Header = ("k", None)
    assert struct.calcsize("<4s7I") == 32
    assert sample[0] == "k"
