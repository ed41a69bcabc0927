"""Counts, shares and times as words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def grouped(number: int) -> str:
    """Return a number with a comma between thousands."""
    return f"{number:,}"


def copied(there: int, whole: int) -> str | None:
    """Format the copied share of the bytes; None: nothing is being copied."""
    return f"{there} of {whole} bytes" if whole else None


@overload
def seconds(ms: int) -> str: ...
@overload
def seconds(ms: int | None) -> str | None: ...
def seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f} s"


def when(timestamp_ms: int) -> str:
    """Return an ISO time, or "-" if there is none."""
    if timestamp_ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
