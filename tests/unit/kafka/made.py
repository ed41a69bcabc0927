"""Random messages of Kafka's calls: each field of a version gets a value of its type."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from cluster.kafka.codec import Source, decode, encode
from cluster.kafka.messages import CALLS, Call

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def kinds() -> list[tuple[Call, type[Any], int]]:
    """Each message with each offered version of its call."""
    return [
        (call, kind, version)
        for call in CALLS.values()
        for kind in (call.request, call.response)
        if kind is not None
        for version in range(call.oldest, call.newest + 1)
    ]


def fields_of(kind: type[Any], version: int) -> list[dataclasses.Field[Any]]:
    return [
        field
        for field in dataclasses.fields(kind)
        if field.metadata["wire"].since <= version <= field.metadata["wire"].until
    ]


def message(kind: type[Any], version: int, random: Random) -> Any:
    made = kind(**{
        field.name: _value(field.metadata["wire"], version, random)
        for field in fields_of(kind, version)
    })  # fmt: skip
    for name in {field.name for field in fields_of(kind, version)}:
        if name.endswith("error_code"):
            setattr(made, name, random.choice((-1, 0, 3, 89)))  # kio refuses unknown ones
        if name == "transaction_start_time_ms":
            made.transaction_start_time_ms = abs(made.transaction_start_time_ms)  # and no time
    return made


def _value(form: Any, version: int, random: Random) -> Any:
    if 0 <= form.nullable <= version and random.random() < 0.2:
        return None
    return _one(form.kind, version, random)


def _one(kind: Any, version: int, random: Random) -> Any:
    if isinstance(kind, list):
        return [_one(kind[0], version, random) for _ in range(random.choice((0, 1, 2)))]
    if kind == "bool":
        return random.random() < 0.5
    if kind == "string":
        return random.choice(("", "a", "topic-1", "ü" * 100, "x" * 300))
    if kind == "bytes":
        return random.choice((b"", b"\0a", bytes(range(256))))
    if kind in _BITS:
        most = 2 ** (min(_BITS[kind], 32) - 1) - 1
        return random.choice((0, 1, -1, most, random.randint(0, most)))
    return message(kind, version, random)


def encoded(sent: Any, call: Call, version: int) -> bytes:
    out = bytearray()
    encode(sent, out, version, flexible=version >= call.flexible)
    return bytes(out)


def decoded(kind: type[Any], data: bytes, call: Call, version: int) -> Any:
    source = Source(memoryview(data))
    found = decode(kind, source, version, flexible=version >= call.flexible)
    assert not source.left
    return found
