"""Files of tables: every payload comes back as it was, and damage is found."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from oncelog.errors import CorruptLogError
from oncelog.table import layout
from oncelog.table.layout import FileBuilder, checked_slices, rows_of
from oncelog.wire.arrow import encode_arrow
from oncelog.wire.batch import decode_payload, encode_payload
from oncelog.wire.compression import checksum
from oncelog.wire.stored import StoredBatch

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
ORIGIN: dict[str, str | int] = {"topic": "t", "topic_id": 5}


def batch_of(payload: bytes, count: int, first: int = 0, **fields: Any) -> StoredBatch:
    batch = StoredBatch("t", 0, first, count, 0, checksum(payload), 0, payload)
    return batch._replace(append_time_ms=1_700_000_000_000, **fields)


def payload_of(rows: object) -> bytes:
    return encode_arrow(rows.select(layout.PAYLOAD_COLUMNS), 0)[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", sorted(VECTORS.glob("[01]*[a-z].hex")), ids=lambda path: path.name)
def test_a_payload_comes_back_from_a_file(path: Path) -> None:
    if path.suffixes[:-1]:
        return  # the same payload, compressed
    payload = bytes.fromhex(path.read_text())
    count = len(decode_payload(payload))
    builder = FileBuilder(ORIGIN, 100)
    builder.add(rows_of(batch_of(payload, count, 100), 100), len(payload))
    built = builder.finish()
    (rows,) = checked_slices(built.data, "file")
    assert payload_of(rows) == payload
    assert rows["offset"].to_pylist() == list(range(100, 100 + count))


def test_batches_are_joined_and_cut_into_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "SLICE_BYTES", 2000)
    monkeypatch.setattr(layout, "GROUP_BYTES", 5000)
    rng = random.Random(1)
    builder, offset, sent = FileBuilder(ORIGIN, 0), 0, []
    for _ in range(40):
        values = [rng.randbytes(rng.choice([0, 10, 500])) for _ in range(rng.choice([1, 3, 20]))]
        payload = encode_payload(values, [offset * 10] * len(values), None)
        builder.add(rows_of(batch_of(payload, len(values), offset), offset), len(payload))
        offset += len(values)
        sent += values
    built = builder.finish()
    slices = list(checked_slices(built.data, "file"))
    assert [value for rows in slices for value in rows["value"].to_pylist()] == sent
    assert max(len(payload_of(rows)) for rows in slices if rows.num_rows > 1) < 4000
    assert (built.records, built.end) == (len(sent), offset)
    assert 10 < len(slices) < 40 * 20


def test_sequences_of_a_batch_with_gaps_are_unknown() -> None:
    payload = encode_payload([b"a", b"b"], [0, 0])
    known = batch_of(payload, 2, producer_id=7, epoch=1, base_sequence=40, last_sequence=41)
    assert rows_of(known, 1)["sequence"].to_pylist() == [41]
    gaps = known._replace(last_sequence=50)
    assert rows_of(gaps, 0)["sequence"].to_pylist() == [None, None]
    assert rows_of(known._replace(producer_id=0), 0)["sequence"].to_pylist() == [None, None]


def test_extreme_times_fit() -> None:
    payload = encode_payload([b"a", b"b"], [-(2**63), 2**63 - 1])
    builder = FileBuilder(ORIGIN, 0)
    builder.add(rows_of(batch_of(payload, 2), 0), len(payload))
    assert builder.finish().moments == (-(2**63), 2**63 - 1)


def test_damage_is_found() -> None:
    payload = encode_payload([b"value %d" % n for n in range(100)], [0] * 100)
    builder = FileBuilder(ORIGIN, 0)
    builder.add(rows_of(batch_of(payload, 100), 0), len(payload))
    whole = builder.finish().data.to_pybytes()
    for at in range(4, len(whole) - 8, 97):
        data = bytearray(whole)
        data[at] ^= 0x10
        try:
            (rows,) = checked_slices(bytes(data), "file")
        except CorruptLogError:
            continue
        assert payload_of(rows) == payload  # the byte is of a part that nobody reads
    with pytest.raises(CorruptLogError, match="file: no file of `oncelog table`"):
        list(checked_slices(whole[:-1], "file"))
