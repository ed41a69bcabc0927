"""Screen of `oncelog top`, made with Textual.

Place in the flow: `top` gives it a function that looks at the cluster. The function runs in a
thread, one look at a time; the tables show the newest answer, and the first line an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from oncelog.cli.output import cell, is_number
from oncelog.errors import OncelogError
from oncelog.views.live import Look, headline, tables
from oncelog.views.tables import Listing

TABLES = ("topics", "groups", "nodes", "producers")


class TopScreen(App[None]):
    """Tables of a cluster in tabs, refreshed each `every` seconds."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #health { height: auto; max-height: 4; padding: 0 1; text-style: bold; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar = [
        ("q", "quit", "Quit"),
        ("r", "look", "Refresh"),
        ("space", "pause", "Pause"),
        *((str(number), f"table('{name}')", name.title()) for number, name in enumerate(TABLES, 1)),
    ]

    def __init__(self, look: Callable[[], Look], every: float) -> None:
        super().__init__()
        self._ask = look
        self._every = every
        self._last: Look | None = None
        self._looking = False
        self._paused = False

    def compose(self) -> ComposeResult:
        yield Static("asking the cluster", id="health", markup=False)
        with TabbedContent():
            for name in TABLES:
                with TabPane(name.title(), id=name):
                    yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(self._every, self._tick)
        self.action_look()
        self.action_table(TABLES[0])

    def _tick(self) -> None:
        if not self._paused:
            self.action_look()

    def action_look(self) -> None:
        """Look once more, unless a look is in progress."""
        if not self._looking:
            self._looking = True
            self.run_worker(self._look, thread=True)

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.notify("paused" if self._paused else "goes on", timeout=2)

    def action_table(self, name: str) -> None:
        """Show a table, with the keys."""
        self.query_one(TabbedContent).active = name
        self._table(name).focus()

    def _table(self, name: str) -> DataTable[Text]:
        return self.query_one(f"#{name} DataTable", DataTable)

    def _look(self) -> None:
        """Runs in a thread."""
        try:
            found = self._ask()
        except OncelogError as error:
            self.call_from_thread(self._show_error, error)
        else:
            self.call_from_thread(self._show, found)

    def _show_error(self, error: OncelogError) -> None:
        self._looking = False
        self.query_one("#health", Static).update(f"no answer: {error.reason}: {error.message}")

    def _show(self, found: Look) -> None:
        self._looking = False
        self.query_one("#health", Static).update(headline(found))
        for name, rows in tables(found, self._last).items():
            self._fill(self._table(name), rows)
        self._last = found

    def _fill(self, table: DataTable[Text], rows: Listing) -> None:
        """Replace the rows; the cursor and the scroll position stay."""
        at, x, y = table.cursor_row, table.scroll_x, table.scroll_y
        table.clear(columns=True)
        shown = [[cell(value) for value in row] for row in rows.rows]
        right = [
            bool(shown) and all(is_number(row[index]) for row in shown)
            for index in range(len(rows.columns))
        ]
        table.add_columns(*(Text(column) for column in rows.columns))
        for row in shown:
            table.add_row(
                *(
                    Text(value, justify="right" if to_right else "left")
                    for value, to_right in zip(row, right, strict=True)
                )
            )
        table.move_cursor(row=at, scroll=False)
        table.scroll_to(x, y, animate=False)
