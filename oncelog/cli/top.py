"""Command `oncelog top`: topics, groups, nodes and producers, refreshed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

import click

from oncelog import Admin, GroupInfo, GroupLag
from oncelog.cli.options import match_option, with_admin
from oncelog.cli.output import print_json, print_rows
from oncelog.errors import MissingExtraError, NotAuthorizedError, OncelogError
from oncelog.views.live import Look, headline, tables
from oncelog.views.tables import matching

LAGS_S = 2.0  # for the lags of all groups; later ones are not shown
T = TypeVar("T")


@click.command()
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--plain", is_flag=True, help="Print tables; needs no terminal.")
@click.option(
    "-n", "times", type=click.IntRange(min=1), help="Looks with --plain; default: without end."
)
@match_option
@with_admin
def top(
    admin: Admin,
    as_json: bool,
    every: float,
    plain: bool,
    times: int | None,
    patterns: tuple[str, ...],
) -> None:
    """Watch topics, groups, nodes, producers.

    Shows the records that topics gain in a second, the lag of groups, moves of nodes, and producer
    names. Keys 1 to 4 choose a table, space pauses, q ends. --match is for names of topics, groups
    and producers.
    """

    def look() -> Look:
        return look_at(admin, patterns)

    if plain or as_json:
        _print(look, every, times, as_json)
        return
    if times is not None:
        raise click.UsageError("-n is for --plain")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("standard input or output is not a terminal; use --plain")
    if find_spec("textual") is None:
        raise MissingExtraError("oncelog top", "textual", "top")
    from oncelog.cli.top_screen import TopScreen

    TopScreen(look, every).run()


def look_at(admin: Admin, patterns: tuple[str, ...] = ()) -> Look:
    """Ask for all tables. Parts that the caller may not see are empty. Raises OncelogError."""
    refused: list[str] = []

    def seen(ask: Callable[[], list[T]]) -> list[T]:
        try:
            return ask()
        except NotAuthorizedError as error:
            refused.append(error.message)
            return []

    cluster = admin.describe_cluster()
    topics = matching(seen(admin.describe_topics), patterns, lambda one: one.name)
    groups = matching(seen(admin.list_groups), patterns, lambda one: one.group)
    return Look(
        time.monotonic(),
        cluster,
        topics,
        groups,
        _lags(admin, groups),
        seen(admin.list_nodes),
        matching(seen(admin.list_producer_names), patterns, lambda one: one.name),
        refused,
    )


def _lags(admin: Admin, groups: list[GroupInfo]) -> dict[str, GroupLag]:
    """Return the lags of groups; of those that are refused, fail, or are too late, none."""
    until = time.monotonic() + LAGS_S
    found: dict[str, GroupLag] = {}
    for one in sorted(groups, key=lambda group: -group.last_commit_ms):
        if time.monotonic() > until:
            break
        try:
            found[one.group] = admin.group_lag(one.group)
        except OncelogError:
            continue
    return found


def _print(look: Callable[[], Look], every: float, times: int | None, as_json: bool) -> None:
    before: Look | None = None
    while True:
        now = look()
        found = tables(now, before)
        if as_json:
            rows = {
                name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
                for name, table in found.items()
            }
            print_json({"health": headline(now), **rows})
        else:
            click.echo(headline(now))
            for table in found.values():
                click.echo()
                print_rows(table)
        times = times and times - 1
        if times == 0:
            return
        before = now
        threading.Event().wait(every)
        if not as_json:
            click.echo()
