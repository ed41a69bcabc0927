"""The sink's work on rows, without Spark: partitions, order, the digest, options."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from crc32c import crc32c

from oncelog._engine.produce.partitioners import murmur2
from oncelog.errors import ConfigError, InvalidRequestError
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.rows import SHORT, Rows, _hashed, murmur2_of
from oncelog.wire.arrow import encode_arrow

pa = pytest.importorskip("pyarrow")
SERVERS = {"bootstrap.servers": "localhost:7001"}


def frame(count: int = 200, seed: int = 1) -> Any:
    rng = random.Random(seed)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "value": pa.array(
                [
                    None if rng.random() < 0.1 else rng.randbytes(rng.randint(0, 9))
                    for _ in range(count)
                ]
            ),
            "key": pa.array(
                [None if rng.random() < 0.3 else f"k{rng.randint(0, 50)}" for _ in range(count)]
            ),
            "partition": pa.array(
                [rng.choice((None, None, 0, 4)) for _ in range(count)], pa.int32()
            ),
            "topic": pa.array([rng.choice(("a", "b")) for _ in range(count)]),
            "timestamp": pa.array(range(count), pa.timestamp("us", tz="UTC")),
            "headers": pa.array(
                [rng.choice((None, [{"key": "h", "value": b"1"}])) for _ in range(count)], headers
            ),
        }
    )


GAMMA = 0x9E3779B97F4A7C15


def digest(*batches: Any) -> int:
    rows = Rows("t", lambda topic: 5)
    for batch in batches:
        rows.digested(batch)
    return rows.digest


def test_a_digest_knows_rows_and_not_their_order_or_tasks() -> None:
    whole = frame()
    order = list(range(200))
    random.Random(3).shuffle(order)
    shuffled = whole.take(pa.array(order))
    assert digest(whole) == digest(shuffled) == digest(shuffled.slice(0, 33), shuffled.slice(33))
    assert digest(whole.slice(50, 20)) == digest(whole.take(pa.array(range(50, 70))))


@pytest.mark.parametrize("name", ["value", "key", "partition", "topic", "timestamp", "headers"])
def test_a_digest_sees_a_change_in_each_column(name: str) -> None:
    whole = frame()
    column = whole.column(name)
    same = [n for n in range(1, 200) if column[n].as_py() != column[0].as_py()]
    changed = column.take(pa.array([same[0], *range(1, 200)]))
    at = whole.schema.get_field_index(name)
    assert digest(whole) != digest(whole.set_column(at, name, changed))


@pytest.mark.parametrize(
    "kind",
    [pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.binary(5)],
    ids=str,
)
def test_rows_are_the_same_in_whatever_layout_texts_come(kind: Any) -> None:
    """Spark's useLargeVarTypes, or a frame of the user's, brings offsets of 64 bits."""
    keys = [f"key{n:02}" if n % 7 else None for n in range(60)]
    plain = pa.record_batch({"value": pa.array(keys), "key": pa.array(keys)})
    texts = plain.column("key").cast(pa.binary()).cast(kind)
    other = pa.record_batch({"value": texts, "key": texts})
    assert digest(other) == digest(plain)
    assert digest(other.slice(7, 20)) == digest(plain.slice(7, 20))
    there = [n for n, key in enumerate(keys) if key is not None]
    assert (murmur2_of(texts)[there] == murmur2_of(plain.column("key"))[there]).all()
    stored = [sorted(encoded(batch)) for batch in (plain, other)]
    assert stored[0] == stored[1]


def encoded(batch: Any) -> list[tuple[int, bytes]]:
    rows = Rows("t", lambda topic: 5)
    rows._turn = 0
    return [(tp.partition, encode_arrow(piece, 1)[0]) for tp, piece in rows.pieces(batch)]


def test_headers_are_the_same_in_whatever_layout_they_come() -> None:
    headers = frame().select(["headers", "value"])
    pairs = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    for kind in (pa.list_(pairs), pa.large_list(pairs)):
        other = headers.set_column(0, "headers", headers.column("headers").cast(kind))
        assert digest(other) == digest(headers)
        assert encode_arrow(other, 1) == encode_arrow(headers, 1)


def test_null_and_empty_and_moved_bytes_are_other_rows() -> None:
    def one(key: Any, value: Any) -> int:
        arrays = {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
        return digest(pa.record_batch(arrays))

    pairs = [(None, b""), (b"", None), (b"", b""), (b"a", b"bc"), (b"ab", b"c"), (b"bc", b"a")]
    assert len({one(*pair) for pair in pairs}) == len(pairs)


def test_each_byte_of_a_text_counts_and_none_beside_it() -> None:
    rng = random.Random(7)
    for length in [*range(40), 255, 256, 257, 511, 512, 513, 600]:
        text = bytearray(rng.randbytes(length))
        alone = pa.array([bytes(text)], pa.binary())
        between = pa.array([b"before", bytes(text), b"behind"], pa.binary())[1:2]
        assert hashed(alone) == hashed(between) == hashed(pa.array([bytes(text)] * 3))[:1]
        found = {hashed(alone)[0]}
        for place in range(length):
            text[place] ^= 1 << rng.randrange(8)
            found.add(hashed(pa.array([bytes(text)]))[0])
        found |= {hashed(pa.array([bytes(text) + b"\0"]))[0]}
        assert len(found) == length + 2


def hashed(array: Any) -> list[int]:
    return [int(number) for number in _hashed(array)]


@pytest.mark.parametrize("lengths", [(0, 60), (16, 16), (13, 13), (0, 0), (500, 600)])
def test_a_text_is_hashed_as_one_by_one(lengths: tuple[int, int]) -> None:
    rng = random.Random(8)
    texts = [rng.randbytes(rng.randint(*lengths)) for _ in range(300)]
    wanted = []
    for text in texts:
        if len(text) > SHORT:
            wanted.append(len(text) + (zlib.crc32(text) << 32 | crc32c(text) ^ len(text)))
            continue
        number = len(text) * GAMMA % 2**64
        for at in range(0, len(text), 8):
            number ^= int.from_bytes(text[at : at + 8], "little")
            number = number * 0xBF58476D1CE4E5B9 % 2**64
            number ^= number >> 32
        wanted.append(number)
    assert hashed(pa.array(texts, pa.binary())) == wanted
    for before in (b"", b"before"):  # bytes of records need not be aligned to 8
        assert hashed(pa.array([before, *texts, b"1"], pa.binary())[1:-1]) == wanted


def test_rows_go_where_they_belong_in_their_order() -> None:
    whole = frame()
    found: dict[tuple[str, int], list[int]] = {}
    for tp, piece in Rows("", lambda topic: 5).pieces(whole):
        stamps = piece.column("timestamp").cast(pa.int64()).to_pylist()
        found.setdefault((tp.topic, tp.partition), []).extend(stamps)
    assert all(rows == sorted(rows) for rows in found.values())
    assert sorted(n for rows in found.values() for n in rows) == list(range(200))
    place = {n: where for where, rows in found.items() for n in rows}
    for n, row in enumerate(whole.to_pylist()):
        topic, partition = place[n]
        assert topic == row["topic"]
        if row["partition"] is not None:
            assert partition == row["partition"]
        elif row["key"] is not None:
            assert partition == (murmur2(row["key"].encode()) & 0x7FFFFFFF) % 5


def test_keys_are_hashed_as_one_by_one() -> None:
    rng = random.Random(5)
    keys = [rng.randbytes(rng.randint(0, 40)) for _ in range(500)]
    array = pa.array([b"before", *keys], pa.binary())[1:]
    assert murmur2_of(array).tolist() == [murmur2(key) for key in keys]


def test_rows_without_a_key_stay_together_and_take_turns() -> None:
    rows = Rows("t", lambda topic: 3)
    batch = pa.record_batch({"value": pa.array([b"x"] * 10)})
    places = [[tp.partition for tp, _ in rows.pieces(batch)] for _ in range(6)]
    assert all(len(one) == 1 for one in places)
    assert sorted(one[0] for one in places) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("column", "value"), [("partition", 5), ("partition", -1), ("topic", None)]
)
def test_what_is_nowhere_is_refused(column: str, value: Any) -> None:
    arrays = {
        "value": pa.array([b"x"]),
        "topic": pa.array(["t"], pa.string()),
        "partition": pa.array([0], pa.int32()),
    }
    arrays[column] = pa.array([value], arrays[column].type)
    with pytest.raises(InvalidRequestError, match=column):
        list(Rows("", lambda topic: 5).pieces(pa.record_batch(arrays)))


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({}, "stream", "sinkId is missing"),
        ({"sinkId": "x", "batchId": "3"}, "stream", "batchId is for batch jobs"),
        ({"sinkId": "x"}, "batch", "come together"),
        ({"batchId": "3"}, "batch", "come together"),
        ({"sinkReset": "1-2"}, "batch", "sinkReset is for streaming"),
        ({"sinkId": " "}, "stream", "sinkId must have 1 to 255"),
        ({"sinkId": "x", "batchId": "-1"}, "batch", "batchId must be an integer"),
        ({"compression": "gzip"}, "batch", "compression must be one of"),
        ({"transactionTimeoutMs": "5"}, "batch", "transactionTimeoutMs must be"),
        ({"sinkIdd": "x"}, "batch", "did you mean sinkId"),
        ({"kafka.acks": "all"}, "batch", "no meaning here"),
    ],
)
def test_wrong_options_name_themselves(given: dict[str, str], kind: str, text: str) -> None:
    def parsed() -> None:
        options = SinkOptions.parse(SERVERS | given)
        options.for_stream() if kind == "stream" else options.for_batch()

    with pytest.raises(ConfigError, match=text):
        parsed()


def test_sparks_own_options_are_not_ours() -> None:
    given = {"checkpointLocation": "/x", "path": "/y", "SINKID": "s", "topic": "t"}
    assert SinkOptions.parse(SERVERS | given).sink_id == "s"
