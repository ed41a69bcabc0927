"""The codec against two others, both ways, for each message at each offered version."""

from __future__ import annotations

import dataclasses
import importlib
import io
from random import Random
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kio.serial import entity_reader, entity_writer

from cluster.kafka.codec import MAX_ELEMENTS, CodecError, Source, decode, put_uvarint
from cluster.kafka.messages import (
    API_VERSIONS,
    CALLS,
    METADATA,
    Call,
    MetadataRequest,
    OffsetFetchRequest,
)
from tests.unit.kafka.made import decoded, encoded, fields_of, kinds, message

ROUNDS = 3
MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
# kafka-python gives these other names, and sets of bits instead of numbers.
OTHERWISE_THERE = (
    "topic_authorized_operations",
    "cluster_authorized_operations",
    "authorized_operations",
)
# It tries version 0 for any answer to ApiVersions.
COMPARED = [case for case in kinds() if case[1] is not API_VERSIONS.response]


def _id(case: tuple[Call, type[Any], int]) -> str:
    return f"{case[1].__name__}-{case[2]}"


def _messages(kind: type[Any], version: int) -> list[Any]:
    random = Random(f"{kind.__name__}{version}")
    return [message(kind, version, random) for _ in range(ROUNDS)]


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


@pytest.mark.parametrize("case", kinds(), ids=_id)
def test_kio_reads_and_writes_the_same_bytes(case: tuple[Call, type[Any], int]) -> None:
    call, kind, version = case
    name, _, side = _id(case).partition("-")[0].rpartition("Re")
    try:
        module = importlib.import_module(f"kio.schema.{snake(name)}.v{version}.re{side}")
    except ModuleNotFoundError:
        assert version < 3, "kio leaves out old versions only"
        return
    theirs = getattr(module, kind.__name__)
    for sent in _messages(kind, version):
        data = encoded(sent, call, version)
        found, _ = entity_reader(theirs)(data, 0)
        written = io.BytesIO()
        entity_writer(theirs)(written, found)
        assert written.getvalue() == data
        assert decoded(kind, written.getvalue(), call, version) == sent


@pytest.mark.parametrize("case", COMPARED, ids=_id)
def test_kafka_python_reads_the_same_fields(case: tuple[Call, type[Any], int]) -> None:
    call, kind, version = case
    theirs = next(getattr(m, kind.__name__) for m in MODULES if hasattr(m, kind.__name__))
    for sent in _messages(kind, version):
        data = encoded(sent, call, version)
        found = theirs.decode(data, version=version)
        found._header = None  # its decoder forgets it, and its encoder asks for it
        _same(sent, found, version)
        assert decoded(kind, bytes(found.encode(version=version)), call, version) == sent


def _same(sent: Any, found: Any, version: int) -> None:
    for field in fields_of(type(sent), version):
        if field.name in OTHERWISE_THERE:
            continue
        ours, theirs = getattr(sent, field.name), getattr(found, field.name)
        if isinstance(ours, list) and ours and dataclasses.is_dataclass(ours[0]):
            for one, other in zip(ours, theirs, strict=True):
                _same(one, other, version)
        else:
            assert theirs == ours, field.name


def test_unknown_tagged_fields_are_skipped() -> None:
    """librdkafka's request for all topics ends in one, by accident: field 0, of no bytes."""
    plain = encoded(MetadataRequest(topics=None), METADATA, 9)
    tagged = bytearray(plain[:-1])
    for number in (2, 0, 0, 77, 3):
        put_uvarint(number, tagged)
    tagged += b"abc"
    source = Source(memoryview(tagged))
    assert decode(MetadataRequest, source, 9, flexible=True) == MetadataRequest(topics=None)
    assert not source.left


@pytest.mark.parametrize("data", [b"", b"\xff" * 6, b"\x05\x00\x00", b"\x02\x09abc", b"\x02\x00"])
def test_damaged_bytes_are_a_codec_error(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(MetadataRequest, Source(memoryview(data)), 9, flexible=True)


def test_an_array_cannot_be_longer_than_its_bytes_nor_than_the_limit() -> None:
    """So no request makes more objects than its bytes pay for."""
    claimed = bytearray()
    put_uvarint(MAX_ELEMENTS, claimed)
    with pytest.raises(CodecError, match="an array of"):
        decode(MetadataRequest, Source(memoryview(bytes(claimed) + bytes(100))), 9, flexible=True)
    many = bytearray(b"\x01")
    put_uvarint(2, many)
    many += b"\x02g"
    put_uvarint(2, many)
    many += b"\x01"
    put_uvarint(MAX_ELEMENTS + 1, many)
    many += bytes(4 * MAX_ELEMENTS + 8)
    with pytest.raises(CodecError, match=f"an array of {MAX_ELEMENTS}"):
        decode(OffsetFetchRequest, Source(memoryview(many[1:])), 8, flexible=True)


def test_tagged_fields_have_the_same_limit() -> None:
    """A request of the largest size has room for millions, and the event loop skips them."""
    for more in (0, 1):
        many = bytearray()
        put_uvarint(MAX_ELEMENTS + more, many)
        source = Source(memoryview(bytes(many) + bytes(2 * (MAX_ELEMENTS + more))))
        if more:
            with pytest.raises(CodecError, match="tagged fields"):
                source.skip_tagged(flexible=True)
        else:
            source.skip_tagged(flexible=True)
            assert not source.left


def test_every_offered_version_was_looked_at() -> None:
    assert {call.key for call, _, _ in kinds()} == CALLS.keys() - {0}
