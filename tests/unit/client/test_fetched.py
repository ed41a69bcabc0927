"""The fetch response: the parser by hand agrees with protobuf."""

from __future__ import annotations

import random

import pytest

from oncelog.v1 import batch_pb2, log_pb2
from oncelog.wire.fetched import DecodeError, FetchedRecords, read_fetch_response


def answer(rng: random.Random) -> log_pb2.FetchResponse:
    """With all fields, in all sizes, of none to some partitions and batches."""
    response = log_pb2.FetchResponse()
    for number in range(rng.randrange(4)):
        records = response.partitions.add(
            topic="t" * rng.choice([1, 130]),
            partition=number,
            error=rng.choice(log_pb2.PartitionError.values()),
            message=rng.choice(["", "why"]),
            leader_id=rng.choice([0, 3]),
            log_start_offset=rng.choice([0, 2**40]),
            high_watermark=rng.choice([0, 1, 2**62, -1]),
        )
        for _ in range(rng.randrange(4)):
            header = batch_pb2.BatchHeader(
                topic="t", record_count=rng.randrange(1000), crc32c=rng.getrandbits(32)
            )
            if rng.random() < 0.5:
                header.prev_sequence = -1
            records.batches.add(
                header=header,
                payload=rng.randbytes(rng.choice([0, 1, 127, 128, 20_000])),
                base_offset=rng.choice([0, 5, 2**50]),
                append_time_ms=rng.choice([0, 2**41]),
            )
    return response


def put_together(parts: list[FetchedRecords]) -> log_pb2.FetchResponse:
    response = log_pb2.FetchResponse()
    for records in parts:
        whole = response.partitions.add()
        whole.CopyFrom(records.meta)
        for fetched in records.batches:
            batch = whole.batches.add()
            batch.CopyFrom(fetched.meta)
            batch.payload = bytes(fetched.payload)
    return response


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_or_changed(seed: int) -> None:
    response = answer(random.Random(seed))
    assert put_together(read_fetch_response(response.SerializeToString())) == response


def test_fields_that_this_client_does_not_know_are_kept() -> None:
    unknown = b"\xf8\x07\x81\x80\x04" + b"\xfd\x07abcd" + b"\xf9\x07abcdefgh" + b"\xfa\x07\x03xyz"
    stored = batch_pb2.StoredBatch(payload=b"p" * 200, base_offset=9).SerializeToString()
    batch = b"\x4a" + bytes(
        [0x80 | (len(stored) + len(unknown)) & 0x7F, len(stored + unknown) >> 7]
    )
    records = b"\x0a\x01t" + unknown + batch + unknown + stored
    data = unknown + b"\x0a" + bytes([0x80 | len(records) & 0x7F, len(records) >> 7]) + records
    (found,) = read_fetch_response(data)
    assert put_together([found]) == log_pb2.FetchResponse(
        partitions=log_pb2.FetchResponse.FromString(data).partitions
    )
    assert (found.meta.topic, found.end_offset) == ("t", 9)
    assert bytes(found.batches[0].payload) == b"p" * 200


def test_large_payloads_stay_where_they_are_and_small_ones_hold_nothing_else() -> None:
    response = log_pb2.FetchResponse()
    records = response.partitions.add()
    for size in (100_000, 100):
        records.batches.add(payload=bytes(size))
    data = response.SerializeToString()
    large, small = read_fetch_response(data)[0].batches
    assert large.payload.obj is data
    assert small.payload.obj == bytes(100)


@pytest.mark.parametrize("seed", range(10))
def test_what_ends_too_early_is_an_error(seed: int) -> None:
    rng = random.Random(seed)
    response = answer(rng)
    response.partitions.add(topic="t").batches.add(payload=b"x" * 300)
    data = response.SerializeToString()
    last = len(response.partitions[-1].SerializeToString())
    for _ in range(20):
        with pytest.raises(DecodeError):
            read_fetch_response(data[: len(data) - rng.randrange(1, last)])


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\x05\x4f", b"\x80" * 11, b"\x0a\x02\x4a\x05"])
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_fetch_response(data)
