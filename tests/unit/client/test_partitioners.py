"""Kafka's murmur2, against values that Kafka's own tests hold."""

from __future__ import annotations

import random

import pytest

from oncelog._engine.produce.partitioners import KeyPartitioner, murmur2

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_murmur2(key: bytes, expected: int):
    assert murmur2(key) == expected & 0xFFFFFFFF


def plain_murmur2(data: bytes) -> int:
    """The algorithm byte by byte."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    at = 0
    while len(data) - at >= 4:
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * m & mask
        k ^= k >> 24
        k = k * m & mask
        h = h * m & mask
        h ^= k
        at += 4
    rest = len(data) - at
    if rest >= 3:
        h ^= data[at + 2] << 16
    if rest >= 2:
        h ^= data[at + 1] << 8
    if rest >= 1:
        h ^= data[at]
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ h >> 15


def test_all_lengths():
    rng = random.Random(4)
    for length in range(70):
        data = rng.randbytes(length)
        assert murmur2(data) == plain_murmur2(data)


def test_partitions_are_kafkas_and_do_not_depend_on_the_cache():
    keys = [b"key-%d" % i for i in range(1000)]
    partitioner = KeyPartitioner()
    first = [partitioner.partition(key, 7) for key in keys]
    assert first == [partitioner.partition(key, 7) for key in keys]
    assert first == [(plain_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]
    assert set(first) == set(range(7))


def test_the_cache_is_bounded():
    partitioner = KeyPartitioner()
    for i in range(70_000):
        partitioner.partition(b"%d" % i, 3)
    assert len(partitioner._hashes) <= 65_536
