"""Parts of pages: tables, facts, notes and forms. Templates turn them into HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote, urlencode

from oncelog.views.tables import Listing

MAX_ROWS = 500


class Link(NamedTuple):
    """A cell that leads to another page."""

    text: str
    href: str


Cell = str | int | bool | None | Link


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns. more: rows that are left out. changes: links for each row."""

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str = "None."
    more: int = 0
    changes: Sequence[Sequence[Link]] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values."""

    kind: ClassVar[str] = "facts"
    title: str
    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences. level: problem, note, good or effects."""

    kind: ClassVar[str] = "notes"
    title: str
    lines: Sequence[str]
    level: str = "note"


@dataclass(frozen=True, slots=True)
class Field:
    """An input of a form; with options it is a list to choose from.

    fixed: it is shown only. none: the text of the empty option.
    """

    name: str
    label: str
    value: str = ""
    options: Sequence[str] = ()
    hint: str = ""
    fixed: bool = False
    none: str = "all"


@dataclass(frozen=True, slots=True)
class Filter:
    """A form that asks the same page with other values. hidden: values that are sent with them."""

    kind: ClassVar[str] = "filter"
    title: str
    action: str
    fields: Sequence[Field]
    button: str = "Show"
    hidden: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Links:
    """Links to pages with more."""

    kind: ClassVar[str] = "links"
    title: str
    links: Sequence[Link]


Part = Table | Facts | Notes | Filter | Links


@dataclass(frozen=True, slots=True)
class Page:
    """A page. command: the call of the command line that tells the same.

    refreshes: the page offers to renew itself. changes: links to changes, shown by a console that
    allows them. template: of pages with more than parts, which get `extra`.
    """

    title: str
    parts: Sequence[Part]
    command: str
    area: str = ""
    refreshes: bool = False
    changes: Sequence[Link] = ()
    template: str = "page.html"
    status: int = 200
    extra: Mapping[str, object] = field(default_factory=dict)


class Linked(NamedTuple):
    """A column whose values lead to pages. to: the address for a value."""

    column: str
    to: Callable[[Any], str]


def path(*segments: object, **query: object) -> str:
    """Return a local address; names of topics and groups are quoted."""
    where = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    known = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{where}?{urlencode(known)}" if known else where


def change(task: str, text: str, **values: object) -> Link:
    """Return the link to a change."""
    return Link(text, path("change", task, **values))


def cut(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], empty: str = "None."
) -> Table:
    """Return a table of at most MAX_ROWS rows."""
    return Table(title, columns, rows[:MAX_ROWS], empty, max(0, len(rows) - MAX_ROWS))


def listed(
    title: str, found: Listing, *links: Linked, empty: str = "None.",
    changes: Sequence[Sequence[Link]] = (),
) -> Table:  # fmt: skip
    """Return a list as a table; the values of some columns lead to pages."""
    at = {found.columns.index(one.column): one.to for one in links}
    rows = [
        [
            Link(str(value), at[n](value)) if n in at and value is not None else as_cell(value)
            for n, value in enumerate(row)
        ]
        for row in found.rows[:MAX_ROWS]
    ]
    more = max(0, len(found.rows) - MAX_ROWS)
    return Table(title, found.columns, rows, empty, more, changes)


def as_cell(value: object) -> Cell:
    if value is None or isinstance(value, str | int | bool | Link):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


__all__ = [
    "MAX_ROWS", "Cell", "Facts", "Field", "Filter", "Link", "Linked", "Links", "Notes", "Page",
    "Part", "Table", "as_cell", "change", "cut", "listed", "path",
]  # fmt: skip
