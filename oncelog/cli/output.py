"""Output of results: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from oncelog.views.tables import Listing


def print_json(value: Any) -> None:
    narrow = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=narrow) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with numbers to the right. Nothing is cut: a terminal wraps long lines."""
    body = [[cell(value) for value in row] for row in rows]
    lines = list(zip(columns, *body, strict=True))  # one for each column
    right = [bool(body) and all(map(is_number, line[1:])) for line in lines]
    widths = [max(map(_width, line)) for line in lines]
    for number, row in enumerate([columns, *body]):
        cells = []
        for shown, width, to_right in zip(row, widths, right, strict=True):
            space = " " * (width - _width(shown))
            cells.append(space + shown if to_right else shown + space)
        click.secho("  ".join(cells).rstrip(), bold=None if number else True)


def print_rows(table: Listing) -> None:
    print_table(table.columns, table.rows)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        sys.stdout.write(f"{name:<{width}}  {cell(value)}\n")


def text(data: bytes | None) -> str | None:
    """Return bytes as text, with escapes for everything but UTF-8."""
    return None if data is None else data.decode("utf-8", errors="backslashreplace")


def cell(value: object) -> str:
    """Return a value as a line of a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if shown.isprintable():
        return shown
    # A name from a client must not move the cursor.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def _width(shown: str) -> int:
    """Return the columns of a terminal that the text takes."""
    if shown.isascii():
        return len(shown)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in shown)


def is_number(shown: str) -> bool:
    return shown.lstrip("-").isdigit() or shown == "-"
