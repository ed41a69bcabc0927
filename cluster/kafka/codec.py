"""Codec of Kafka's messages: reads and writes the classes of `messages` at any offered version.

    bytes --Source, decode--> a class of `messages` --calls--> another one --encode--> bytes

A class lists its fields in the order of the wire, each with the versions that have it. For each
version the codec makes a plan once: fixed fields that follow each other are one `struct`. Flexible
versions (KIP-482) have compact lengths and tagged fields; these are skipped and never written.
Produce and Fetch have their own readers and writers (`produce_wire`, `fetch_wire`).

A request comes from anybody: `decode` raises CodecError, and makes at most MAX_ELEMENTS objects.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

MAX_ELEMENTS = 50_000  # of all arrays of a request; a cluster has at most 20,000 partitions
_MAX_UVARINT_BITS = 35
_FIXED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?"}
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
T = TypeVar("T")


class CodecError(Exception):
    """Bytes that are no such message. The connection cannot go on."""


class Wire(NamedTuple):
    """A field's form. kind: as in Kafka's schemas, or a class, or a list of one of these."""

    kind: str | type | list[Any]
    since: int
    until: int
    nullable: int  # the first version that may leave it out; -1: none


def wire(
    kind: str | type | list[Any],
    since: int = 0,
    until: int = 99,
    *,
    nullable: int = -1,
    default: Any = None,
) -> Any:
    """Return a dataclass field with its form on the wire."""
    form = {"wire": Wire(kind, since, until, nullable)}
    if default is None and isinstance(kind, list):
        return dataclasses.field(default_factory=list, metadata=form)
    return dataclasses.field(default=default, metadata=form)


class Source:
    """Bytes of one request, read from the front. Raises CodecError at their end."""

    __slots__ = ("_data", "_elements", "_end", "at")

    def __init__(self, data: memoryview, at: int = 0) -> None:
        self._data = data
        self.at = at
        self._end = len(data)
        self._elements = 0

    @property
    def left(self) -> int:
        return self._end - self.at

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        at = self.at
        self.at = at + layout.size
        if self.at > self._end:
            raise CodecError(f"a field of {layout.size} bytes at {at}, but {self._end} came")
        return layout.unpack_from(self._data, at)

    def take(self, size: int) -> memoryview:
        """Return the next bytes, without a copy."""
        at = self.at
        if not 0 <= size <= self._end - at:
            raise CodecError(f"a field of {size} bytes at {at}, but {self._end} came")
        self.at = at + size
        return self._data[at : self.at]

    def uvarint(self) -> int:
        at = self.at
        if at < self._end and (first := self._data[at]) < 0x80:
            self.at = at + 1
            return first
        return self._long_uvarint()

    def _long_uvarint(self) -> int:
        value = shift = 0
        data, at = self._data, self.at
        while shift < _MAX_UVARINT_BITS:
            if at >= self._end:
                raise CodecError(f"a varint at {self.at} has no end")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7
        raise CodecError(f"a varint at {self.at} is longer than 5 bytes")

    def length(self, layout: struct.Struct, *, flexible: bool) -> int:
        """Return the length of a string, of bytes or of an array; -1: null."""
        if flexible:
            return self.uvarint() - 1
        length = int(self.fixed(layout)[0])
        if length < -1:
            raise CodecError(f"a length of {length} before {self.at}")
        return length

    def text(self, *, flexible: bool, nullable: bool = False) -> str | None:
        length = self.length(_INT16, flexible=flexible)
        if length < 0:
            _check_null(nullable, self.at)
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise CodecError(f"a string before {self.at}: {error}") from None

    def data(self, *, flexible: bool, nullable: bool = False) -> bytes | None:
        length = self.length(_INT32, flexible=flexible)
        if length < 0:
            _check_null(nullable, self.at)
            return None
        return bytes(self.take(length))

    def count(self, least: int, *, flexible: bool) -> int:
        """Return an array's length; -1: null. least: bytes of an element."""
        count = self.length(_INT32, flexible=flexible)
        if count > 0:
            self._elements += count
            if count * max(1, least) > self.left or self._elements > MAX_ELEMENTS:
                raise CodecError(f"an array of {count} before {self.at}: {self.left} bytes follow")
        return count

    def skip_tagged(self, *, flexible: bool) -> None:
        """Skip the tagged fields at the end of a structure."""
        if flexible:
            count = self.uvarint()
            self._elements += count
            if self._elements > MAX_ELEMENTS:
                raise CodecError(f"{count} tagged fields before {self.at}")
            for _ in range(count):
                self.uvarint()
                self.take(self.uvarint())


_Read = Callable[[Source, dict[str, Any]], None]
_Write = Callable[[Any, bytearray], None]
_ReadValue = Callable[[Source], Any]
_WriteValue = Callable[[Any, bytearray], None]


class _Plan(NamedTuple):
    """Steps for one class at one version. least: bytes that it takes at least."""

    reads: tuple[_Read, ...]
    writes: tuple[_Write, ...]
    least: int


def decode(kind: type[T], source: Source, version: int, *, flexible: bool) -> T:
    """Read a message or structure. Raises CodecError."""
    values: dict[str, Any] = {}
    for read in _plan(kind, version, flexible).reads:
        read(source, values)
    source.skip_tagged(flexible=flexible)
    return kind(**values)


def encode(message: Any, out: bytearray, version: int, *, flexible: bool) -> None:
    """Write a message or structure behind `out`."""
    for write in _plan(type(message), version, flexible).writes:
        write(message, out)
    if flexible:
        out.append(0)


def put_uvarint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_text(text: str | None, out: bytearray, *, flexible: bool) -> None:
    data = None if text is None else text.encode()
    put_length(-1 if data is None else len(data), _INT16, out, flexible=flexible)
    if data:
        out += data


def put_data(data: bytes | None, out: bytearray, *, flexible: bool) -> None:
    put_count(-1 if data is None else len(data), out, flexible=flexible)
    if data:
        out += data


def put_count(count: int, out: bytearray, *, flexible: bool) -> None:
    """Write the length of bytes or of an array; -1: null."""
    put_length(count, _INT32, out, flexible=flexible)


def put_length(length: int, layout: struct.Struct, out: bytearray, *, flexible: bool) -> None:
    if flexible:
        put_uvarint(length + 1, out)
    else:
        out += layout.pack(length)


# -- plans ---------------------------------------------------------------------------------

_PLANS: dict[tuple[type[Any], int, bool], _Plan] = {}


def _plan(kind: type[Any], version: int, flexible: bool) -> _Plan:
    key = kind, version, flexible  # two calls share some structures
    plan = _PLANS.get(key)
    if plan is None:
        plan = _PLANS[key] = _make_plan(kind, version, flexible)
    return plan


def _make_plan(kind: type[Any], version: int, flexible: bool) -> _Plan:
    reads, writes, least = list[_Read](), list[_Write](), int(flexible)
    run: list[tuple[str, str]] = []  # fixed fields that follow each other

    def end_run() -> None:
        nonlocal least
        if run:
            names = [name for name, _ in run]
            layout = struct.Struct(">" + "".join(code for _, code in run))
            reads.append(_read_run(names, layout))
            writes.append(_write_run(names, layout))
            least += layout.size
            run.clear()

    for field in dataclasses.fields(kind):
        form: Wire = field.metadata["wire"]
        if not form.since <= version <= form.until:
            continue
        if isinstance(form.kind, str) and form.kind in _FIXED:
            run.append((field.name, _FIXED[form.kind]))
            continue
        end_run()
        nullable = 0 <= form.nullable <= version
        read, write, size = _value(form.kind, version, flexible, nullable)
        reads.append(_read_one(field.name, read))
        writes.append(_write_one(field.name, write))
        least += size
    end_run()
    return _Plan(tuple(reads), tuple(writes), least)


def _read_run(names: list[str], layout: struct.Struct) -> _Read:
    def read(source: Source, values: dict[str, Any]) -> None:
        values.update(zip(names, source.fixed(layout), strict=True))

    return read


def _write_run(names: list[str], layout: struct.Struct) -> _Write:
    get, pack = attrgetter(*names), layout.pack
    if len(names) == 1:

        def write_single(message: Any, out: bytearray) -> None:
            out += pack(get(message))

        return write_single

    def write(message: Any, out: bytearray) -> None:
        out += pack(*get(message))

    return write


def _read_one(name: str, read_value: _ReadValue) -> _Read:
    def read(source: Source, values: dict[str, Any]) -> None:
        values[name] = read_value(source)

    return read


def _write_one(name: str, write_value: _WriteValue) -> _Write:
    get = attrgetter(name)

    def write(message: Any, out: bytearray) -> None:
        write_value(get(message), out)

    return write


def _value(
    kind: str | type | list[Any], version: int, flexible: bool, nullable: bool
) -> tuple[_ReadValue, _WriteValue, int]:
    """Return reader, writer and least size of a value that is no fixed field."""
    size = 1 if flexible else 2
    if kind == "string":
        return (
            lambda source: source.text(flexible=flexible, nullable=nullable),
            lambda value, out: put_text(value, out, flexible=flexible),
            size,
        )
    if kind == "bytes":
        return (
            lambda source: source.data(flexible=flexible, nullable=nullable),
            lambda value, out: put_data(value, out, flexible=flexible),
            1 if flexible else 4,
        )
    if isinstance(kind, list):
        return _array(kind[0], version, flexible, nullable)
    assert isinstance(kind, type), f"{kind} has no plan"
    return (
        lambda source: decode(kind, source, version, flexible=flexible),
        lambda value, out: encode(value, out, version, flexible=flexible),
        _plan(kind, version, flexible).least,
    )


def _array(
    kind: str | type, version: int, flexible: bool, nullable: bool
) -> tuple[_ReadValue, _WriteValue, int]:
    size = 1 if flexible else 4
    if isinstance(kind, str) and kind in _FIXED:
        code = _FIXED[kind]
        width = struct.calcsize(">" + code)

        def read_fixed(source: Source) -> list[Any] | None:
            count = source.count(width, flexible=flexible)
            if count < 0:
                _check_null(nullable, source.at)
                return None
            return list(struct.unpack(f">{count}{code}", source.take(count * width)))

        def write_fixed(values: list[Any] | None, out: bytearray) -> None:
            put_count(-1 if values is None else len(values), out, flexible=flexible)
            if values:
                out += struct.pack(f">{len(values)}{code}", *values)

        return read_fixed, write_fixed, size
    read_element, write_element, least = _value(kind, version, flexible, False)

    def read(source: Source) -> list[Any] | None:
        count = source.count(least, flexible=flexible)
        if count < 0:
            _check_null(nullable, source.at)
            return None
        return [read_element(source) for _ in range(count)]

    def write(values: list[Any] | None, out: bytearray) -> None:
        put_count(-1 if values is None else len(values), out, flexible=flexible)
        for value in values or ():
            write_element(value, out)

    return read, write, size


def _check_null(nullable: bool, at: int) -> None:
    if not nullable:
        raise CodecError(f"a field before {at} is null, and may not be")
