"""Records as text: JSON that `topic produce --input json` takes back, and formats like '%k %v'."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from oncelog import Record
from oncelog.cli.output import text

_CODES: dict[str, Callable[[Record], object]] = {
    "k": lambda record: text(record.key) or "",
    "v": lambda record: text(record.value) or "",
    "o": lambda record: record.offset,
    "p": lambda record: record.partition,
    "t": lambda record: record.topic,
    "T": lambda record: record.timestamp,
    "h": lambda record: ",".join(f"{name}={text(value) or ''}" for name, value in record.headers),
    "%": lambda record: "%",
}
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
_FIELDS = {"topic", "partition", "offset", "timestamp_us", "key", "value", "headers"}


class RecordToSend(NamedTuple):
    """A record to send. timestamp_ms None: the time of the call."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


def formatter(form: str) -> Callable[[Record], str]:
    """Return the writer of a format. Raises click.UsageError."""
    parts: list[str | Callable[[Record], object]] = []
    for part in re.split(r"(%.|\\[nt\\])", form, flags=re.DOTALL):
        if part.startswith("%"):
            code = _CODES.get(part[1:])
            if code is None:
                known = " ".join(f"%{name}" for name in _CODES)
                raise click.UsageError(f"-f: {part} is not one of {known}")
            parts.append(code)
        elif part:
            parts.append(_ESCAPES.get(part, part))
    return lambda record: "".join(
        part if isinstance(part, str) else str(part(record)) for part in parts
    )


def json_object(record: Record) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_us": record.timestamp_us,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }


def json_bytes(data: bytes | None) -> object:
    """Return text for UTF-8, else {"base64": ...}, so that nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def read_json(line: bytes) -> RecordToSend:
    """Return the record of a line of `topic consume --format json`; its place is ignored.

    Raises click.ClickException.
    """
    try:
        given = json.loads(line)
    except ValueError as error:
        raise click.ClickException(f"not JSON: {error}") from None
    if not isinstance(given, dict) or not given.keys() <= _FIELDS or "value" not in given:
        fields = ", ".join(sorted(_FIELDS))
        raise click.ClickException(f"must be an object with value, and at most {fields}")
    stamp, headers = given.get("timestamp_us"), given.get("headers") or []
    if stamp is not None and (type(stamp) is not int or stamp < 0):
        raise click.ClickException(f"timestamp_us: {stamp!r} is not a whole number")
    try:
        named = tuple((str(name), _bytes_of("headers", value)) for name, value in headers)
    except (TypeError, ValueError):
        raise click.ClickException("headers: must be a list of [name, value]") from None
    return RecordToSend(
        _bytes_of("value", given["value"]),
        _bytes_of("key", given.get("key")),
        named,
        None if stamp is None else stamp // 1000,
    )


def _bytes_of(field: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise click.ClickException(f"{field}: not base64: {error}") from None
    raise click.ClickException(f'{field}: must be text, null or {{"base64": ...}}')
