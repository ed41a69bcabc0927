"""Choice of records: where `topic consume` begins and ends, and the records that it prints."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

import click

from oncelog import Consumer, Record, TopicPartition

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_OFFSET = re.compile(r"-?[0-9]+")


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


def parse_start(given: str) -> Start:
    """Parse --from. Raises click.UsageError."""
    if given in ("start", "end"):
        return Start(at_start=given == "start")
    if _OFFSET.fullmatch(given):
        return Start(offset=int(given))
    time_ms = _parse_time(given)
    if time_ms is None:
        raise click.UsageError(
            "--from must be start, end, an offset, -10 for the newest 10 of each partition, "
            f"2h for the last 2 hours, or a time in ISO 8601 with a time zone, got {given!r}"
        )
    return Start(time_ms=time_ms)


def time_of(option: str, given: str | None) -> int | None:
    """Return an option's time in milliseconds; None: it is not given. Raises click.UsageError."""
    if given is None:
        return None
    time_ms = _parse_time(given)
    if time_ms is None:
        raise click.UsageError(
            f"{option} must be a time in ISO 8601 with a time zone, or 2h, got {given!r}"
        )
    return time_ms


def _parse_time(given: str) -> int | None:
    """Return a time in milliseconds: 2h is that long ago; None: it is no time."""
    ago = _DURATION.fullmatch(given)
    if ago is not None:
        return time.time_ns() // 1_000_000 - int(ago.group(1)) * _UNITS_MS[ago.group(2)]
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return None
    return None if moment.tzinfo is None else round(moment.timestamp() * 1000)


def seek(consumer: Consumer, start: Start, ends: Mapping[TopicPartition, int]) -> None:
    """Move the consumer to `start` in the partitions with these ends.

    Raises click.ClickException for an offset beyond all ends.
    """
    begins = consumer.beginning_offsets(ends)
    if start.time_ms is not None:
        found = consumer.offsets_for_times(dict.fromkeys(ends, start.time_ms))
        wanted = {tp: at if at >= 0 else ends[tp] for tp, at in found.items()}
    else:
        assert start.offset is not None
        offset = start.offset
        if ends and all(offset > end for end in ends.values()):
            raise click.ClickException(
                f"offset {offset} is beyond the end of every partition, the highest is "
                f"{max(ends.values())}"
            )
        wanted = {tp: end + offset if offset < 0 else offset for tp, end in ends.items()}
    for tp, at in wanted.items():
        # A partition that is shorter, or that has lost its head, begins nearby.
        consumer.seek(tp, min(max(at, begins[tp]), ends[tp]))


def parse_header(given: str) -> tuple[str, bytes]:
    """Parse NAME=VALUE. Raises click.UsageError."""
    name, found, value = given.partition("=")
    if not name or not found:
        raise click.UsageError(f"a header is NAME=VALUE, got {given!r}")
    return name, os.fsencode(value)


def choice(
    key: str | None,
    headers: tuple[str, ...],
    pattern: str | None,
    since_ms: int | None,
    until_ms: int | None,
) -> Callable[[Record], bool]:
    """Return the test for records to print. Raises click.UsageError."""
    wanted_key = None if key is None else os.fsencode(key)
    wanted_headers = {parse_header(given) for given in headers}
    try:
        grep = None if pattern is None else re.compile(os.fsencode(pattern))
    except re.error as error:
        raise click.UsageError(f"--grep: {error}") from None

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


__all__ = ["Start", "choice", "parse_header", "parse_start", "seek", "time_of"]
