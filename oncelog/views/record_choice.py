"""Choice of records: where reading begins, and the records that are shown. Pure, except `seek`.

Place in the flow: `topic consume` and the console parse their arguments here, seek to `places`, and
show the records that `choice` takes. Groups move to `exact_places`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from oncelog.errors import InvalidRequestError
from oncelog.types import Record, TopicPartition

if TYPE_CHECKING:
    from oncelog.consumer import Consumer

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_OFFSET = re.compile(r"-?[0-9]{1,19}")


class Start(NamedTuple):
    """Where reading begins. offset: negative, counts from the end. time_ms: the first since then.

    Neither: at the start or the end of the log.
    """

    at_start: bool = False
    offset: int | None = None
    time_ms: int | None = None

    @property
    def seeks(self) -> bool:
        return self.offset is not None or self.time_ms is not None


def parse_start(given: str, now_ms: int, name: str = "--from") -> Start:
    """Parse a start. name: of the argument, for errors. Raises InvalidRequestError."""
    if given in ("start", "end"):
        return Start(at_start=given == "start")
    if _OFFSET.fullmatch(given):
        return Start(offset=int(given))
    time_ms = parse_time(given, now_ms)
    if time_ms is None:
        raise InvalidRequestError(
            f"{name} must be start, end, an offset, -10 for the newest 10 of each partition, "
            f"2h for the last 2 hours, or a time in ISO 8601 with a time zone, got {given!r}",
            field=name.lstrip("-"),
        )
    return Start(time_ms=time_ms)


def parse_time(given: str, now_ms: int) -> int | None:
    """Return a time in milliseconds: 2h is that long ago; None: it is no time."""
    ago = _DURATION.fullmatch(given)
    if ago is not None:
        return now_ms - int(ago.group(1)) * _UNITS_MS[ago.group(2)]
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return None
    return None if moment.tzinfo is None else round(moment.timestamp() * 1000)


def places(
    start: Start,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    since: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offset that each partition begins at.

    since: the first offset at or after the start's time, -1 for none; empty without a time. Raises
    InvalidRequestError for an offset beyond all ends.
    """
    if not start.seeks:
        return dict(begins if start.at_start else ends)
    if start.offset is None:
        wanted = {tp: at if at >= 0 else ends[tp] for tp, at in since.items()}
    else:
        offset = start.offset
        if ends and all(offset > end for end in ends.values()):
            raise InvalidRequestError(
                f"offset {offset} is beyond the end of every partition, the highest is "
                f"{max(ends.values())}",
                field="from",
            )
        wanted = {tp: end + offset if offset < 0 else offset for tp, end in ends.items()}
    # A partition that is shorter, or that has lost its head, begins nearby.
    return {tp: min(max(at, begins[tp]), ends[tp]) for tp, at in wanted.items()}


def exact_places(
    start: Start,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    since: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the places, with an offset as it is. Raises InvalidRequestError if it is not there."""
    if start.offset is None or start.offset < 0:
        return places(start, begins, ends, since)
    return in_range(dict.fromkeys(ends, start.offset), begins, ends)


def in_range(
    wanted: dict[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets. Raises InvalidRequestError for one that its partition does not have."""
    for tp, at in wanted.items():
        if not begins[tp] <= at <= ends[tp]:
            text = f"to: {tp} has the offsets {begins[tp]} to {ends[tp]}, not {at}"
            raise InvalidRequestError(text, field="to")
    return wanted


def seek(
    consumer: Consumer, start: Start, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Move a consumer to a start, in the partitions with these ends.

    Returns the offsets. Raises InvalidRequestError for an offset beyond all ends.
    """
    since: Mapping[TopicPartition, int] = {}
    if start.time_ms is not None:
        since = consumer.offsets_for_times(dict.fromkeys(ends, start.time_ms))
    found = places(start, consumer.beginning_offsets(ends), ends, since)
    for tp, at in found.items():
        consumer.seek(tp, at)
    return found


def parse_header(given: str) -> tuple[str, bytes]:
    """Parse NAME=VALUE. Raises InvalidRequestError."""
    name, found, value = given.partition("=")
    if not name or not found:
        raise InvalidRequestError(f"a header is NAME=VALUE, got {given!r}", field="header")
    return name, os.fsencode(value)


def choice(
    key: str | None,
    headers: tuple[str, ...],
    pattern: str | None,
    since_ms: int | None,
    until_ms: int | None,
) -> Callable[[Record], bool]:
    """Return the test for records to show. Raises InvalidRequestError."""
    wanted_key = None if key is None else os.fsencode(key)
    wanted_headers = {parse_header(given) for given in headers}
    try:
        grep = None if pattern is None else re.compile(os.fsencode(pattern))
    except re.error as error:
        raise InvalidRequestError(f"--grep: {error}", field="grep") from None

    def matches(value: bytes | None) -> bool:
        return grep is None or (value is not None and grep.search(value) is not None)

    def wanted(record: Record) -> bool:
        return (
            (wanted_key is None or record.key == wanted_key)
            and wanted_headers <= set(record.headers)
            and matches(record.value)
            and (since_ms is None or record.timestamp >= since_ms)
            and (until_ms is None or record.timestamp < until_ms)
        )

    return wanted
