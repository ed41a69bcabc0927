"""Start and choice of records as arguments of commands; `oncelog.views.record_choice` decides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from oncelog import InvalidRequestError
from oncelog.views.record_choice import parse_time


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn InvalidRequestError into click.UsageError."""
    try:
        yield
    except InvalidRequestError as error:
        raise click.UsageError(error.message) from None


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def time_of(option: str, given: str | None) -> int | None:
    """Return an option's time in milliseconds; None: it is not given. Raises click.UsageError."""
    if given is None:
        return None
    time_ms = parse_time(given, now_ms())
    if time_ms is None:
        raise click.UsageError(
            f"{option} must be a time in ISO 8601 with a time zone, or 2h, got {given!r}"
        )
    return time_ms
