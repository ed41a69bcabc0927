"""Output of results: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(value: Any) -> None:
    narrow = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=narrow) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with numbers to the right. A pipe gets the whole width, so nothing is cut."""
    # Imported late: JSON, facts and help do without.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    data = [[_cell(value) for value in row] for row in rows]
    for index, name in enumerate(columns):
        numeric = bool(data) and all(_is_number(row[index]) for row in data)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in data:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=10_000)
    console.print(table)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        sys.stdout.write(f"{name:<{width}}  {_cell(value)}\n")


def text(data: bytes | None) -> str | None:
    """Return bytes as text, with escapes for everything but UTF-8."""
    return None if data is None else data.decode("utf-8", errors="backslashreplace")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _is_number(cell: str) -> bool:
    return cell.lstrip("-").isdigit() or cell == "-"
