"""Columnar batches for Kafka's readers: as a Kafka client would have built them, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from cluster.kafka import convert
from cluster.kafka.convert import to_kafka
from cluster.kafka.records import KafkaBatch, read_batch
from oncelog.errors import InvalidBatchError
from oncelog.types import Header, Record
from oncelog.v1.batch_pb2 import BatchHeader, StoredBatch
from oncelog.wire.batch import decode_payload, encode_payload
from oncelog.wire.compression import LZ4, NONE, ZSTD, compress
from oncelog.wire.kafka_batch import to_columns

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/kafka/batches.json").read_text())
BASE = 1000
Row = tuple[bytes | None, bytes | None, int, list[Header]]


def encoded(rows: Sequence[Row]) -> bytes:
    values, keys, times, headers = zip(*rows, strict=True)
    return encode_payload(values, times, keys, headers)


def converted(rows: Sequence[Row], codec: int = NONE, start: int = 0) -> bytes:
    payload = compress(codec, encoded(rows))
    header = BatchHeader(record_count=len(rows), codec=codec)  # type: ignore[arg-type]
    return to_kafka(StoredBatch(header=header, base_offset=BASE), payload, start)


def batches(data: bytes) -> list[tuple[int, KafkaBatch]]:
    """The batches of an answer to a fetch, with their offsets."""
    found = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        found.append((int.from_bytes(data[:8], "big"), read_batch(memoryview(data[:size]))))
        data = data[size:]
    return found


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_a_batch_equals_that_of_a_kafka_client() -> None:
    rows: list[Row] = [
        (
            unhex(record["value"]),
            unhex(record["key"]),
            record["timestamp_ms"] * 1000 + 999,
            [(name, unhex(value)) for name, value in record["headers"]],
        )
        for record in VECTORS["records"]
    ]
    theirs = [bytes.fromhex(b["batch"]) for b in VECTORS["batches"] if b["codec"] == "none"]
    for codec in (NONE, ZSTD, LZ4):
        ((offset, ours),) = batches(converted(rows, codec))
        assert offset == BASE
        # kafka-python's comes without a producer, too.
        assert ours.payload == theirs[1][21:]


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=80),
        # Kafka's records have a time in ms; it can be before 1970.
        st.integers(-(10**15), 10**18),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


@given(rows=ROWS, limit=st.integers(1, 400), start=st.integers(BASE - 2, BASE + 41))
def test_what_a_reader_gets_are_the_records(rows: list[Row], limit: int, start: int) -> None:
    before = convert.SLICE_BYTES
    convert.SLICE_BYTES = limit  # type: ignore[misc]
    try:
        data = converted(rows, start=start)
    finally:
        convert.SLICE_BYTES = before  # type: ignore[misc]
    found: list[Record] = []
    for offset, batch in _checked(data):
        columns = decode_payload(to_columns(batch.payload), batch.record_count)
        assert batch.max_timestamp * 1000 == max(columns.timestamps_us())
        found += columns.records(base_offset=offset)
    if found:
        assert found[-1].offset == BASE + len(rows) - 1
    else:
        assert start >= BASE + len(rows)
    if start < BASE + len(rows):
        assert found[0].offset <= max(BASE, start)
    for record in found:
        value, key, time, headers = rows[record.offset - BASE]
        assert (record.value, record.key, list(record.headers)) == (value, key, headers)
        assert record.timestamp_us == time // 1000 * 1000


def _checked(data: bytes) -> list[tuple[int, KafkaBatch]]:
    """Batches of an answer whose times may lie before 1970: no producer may send those."""
    found = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        payload, count = data[21:size], int.from_bytes(data[57:61], "big")
        times = (
            int.from_bytes(data[27:35], "big", signed=True),
            int.from_bytes(data[35:43], "big", signed=True),
        )
        batch = KafkaBatch(-1, -1, -1, count, 0, *times, 0, memoryview(payload))
        found.append((int.from_bytes(data[:8], "big"), batch))
        data = data[size:]
    return found


@given(rows=ROWS, kept=st.data(), limit=st.integers(1, 400))
def test_blanks_are_no_records_and_the_last_offset_stays(
    rows: list[Row], kept: st.DataObject, limit: int
) -> None:
    live = kept.draw(st.sets(st.integers(0, len(rows) - 1)))
    blanked: list[Row] = [row if n in live else (None, None, 0, []) for n, row in enumerate(rows)]
    stored = StoredBatch(header=BatchHeader(record_count=len(rows)), base_offset=BASE, carried=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "SLICE_BYTES", limit)
        batches = MemoryRecords(to_kafka(stored, encoded(blanked)))
    found, next_offset = dict[int, Row](), BASE
    while (batch := batches.next_batch()) is not None:
        assert batch.base_offset == next_offset
        next_offset = batch.base_offset + batch.last_offset_delta + 1
        for one in batch:
            found[one.offset] = (one.value, one.key, one.timestamp, list(one.headers))
    assert next_offset == BASE + len(rows), "readers go on behind the batch"
    assert found == {
        BASE + n: (value, key, time // 1000, headers)
        for n, (value, key, time, headers) in enumerate(blanked)
        if (value, key) != (None, None)
    }


def test_a_long_batch_goes_in_slices() -> None:
    rows: list[Row] = [(bytes(100_000), None, 0, [])] * 30
    found = batches(converted(rows))
    assert [offset for offset, _ in found] == [BASE, BASE + 11, BASE + 22]
    assert sum(batch.record_count for _, batch in found) == 30
    assert [offset for offset, _ in batches(converted(rows, start=BASE + 11))] == [
        BASE + 11,
        BASE + 22,
    ]


def test_a_damaged_payload_is_named() -> None:
    header = BatchHeader(record_count=2)
    with pytest.raises(InvalidBatchError, match="header says 2"):
        to_kafka(StoredBatch(header=header), encode_payload([b"v"], [0]))
