"""Commands `oncelog table`: topics as Delta or Iceberg tables."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from oncelog.cli.names import topic_names
from oncelog.cli.options import common
from oncelog.cli.output import print_json, print_table
from oncelog.cli.streams import progress
from oncelog.table.formats import FORMATS
from oncelog.table.run import LIMITS, Archiver, Commit, TableSettings
from oncelog.table.verify import verify as compare
from oncelog.views.words import plural

_DEFAULTS = TableSettings()
Command = TypeVar("Command", bound=Callable[..., Any])


def _setting(name: str, text: str) -> Callable[[Command], Command]:
    low, high = LIMITS[name]
    return click.option(
        f"--{name.replace('_', '-')}",
        type=click.IntRange(low, high),
        default=getattr(_DEFAULTS, name),
        show_default=True,
        help=text,
    )


_to = click.option("--to", required=True, help="Path or URL (s3://, gs://, az://) of the tables.")
_name = click.option("--name", help="Name of the one topic's table; default: the topic's.")
_format = click.option(
    "--table-format",
    "table_format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="Format of the tables.",
)
_catalog = click.option(
    "--catalog", help="Iceberg catalog of pyiceberg's configuration; default: a file in --to."
)


@click.group()
def table() -> None:
    """Write topics into Delta or Iceberg tables, each record once."""


@table.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=topic_names)
@_to
@_name
@_format
@_catalog
@click.option("--group", help="Consumer group of all instances; default: made of --to.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the present end.")
@_setting("roll_bytes", "Close a file at this size.")
@_setting("roll_ms", "Close a file this long after its first record.")
@_setting("commit_ms", "Time between commits of the closed files.")
@_setting("merge_below", "Merge neighbouring files of Delta below this size; 0: never.")
@_setting("memory_bytes", "Close files early to stay below this.")
@common
def run(
    topics: tuple[str, ...],
    to: str,
    name: str | None,
    table_format: str,
    catalog: str | None,
    group: str | None,
    exit_at_end: bool,
    bootstrap: tuple[str, ...],
    as_json: bool,
    **settings: int,
) -> None:
    """Write TOPICS into Delta or Iceberg tables, and follow them.

    Each topic has a table below --to, with its name ("." becomes "_"). A commit adds the records of
    all partitions and the offsets to go on from. You may start the command several times, to share
    the partitions out, and stop it in any way. Keys of object stores come from the environment.
    """
    report = _Commits(as_json)
    archiver = Archiver(
        topics,
        to,
        bootstrap_servers=bootstrap,
        name=name,
        table_format=table_format,
        catalog=catalog,
        group_id=group,
        settings=TableSettings(**settings),
        on_commit=report.committed,
    )
    before = {
        number: signal.signal(number, lambda *_: archiver.stop())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        archiver.run(exit_at_end=exit_at_end)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if as_json:
        print_json(report.totals)


@table.command()
@click.argument("topic", shell_complete=topic_names)
@_to
@_name
@_format
@_catalog
@common
def verify(topic: str, bootstrap: tuple[str, ...], as_json: bool, **place: Any) -> None:
    """Compare the table of TOPIC with the topic.

    Reads all records of the table, and compares those that the topic still has. Exits 1 if one
    differs, is missing, or is there twice.
    """
    with progress(lambda: f"comparing the table of {topic} with the topic"):
        findings = compare(topic, bootstrap_servers=bootstrap, **place)
    if as_json:
        print_json([asdict(one) for one in findings])
    else:
        columns = ("topic id", "partition", "from", "to", "records", "compared", "fault")
        print_table(
            columns,
            [
                (one.topic_id, one.partition, one.begin, one.end, one.records, one.compared, fault)
                for one in findings
                for fault in one.faults or ["-"]
            ],
        )
    if any(one.faults for one in findings):
        raise click.ClickException(f"{topic}: the table differs from the topic")


class _Commits:
    """Prints each commit to standard error, and sums them up."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.totals = dict.fromkeys(("commits", "records", "files", "payload_bytes", "merged"), 0)

    def committed(self, commit: Commit) -> None:
        totals = self.totals
        totals["commits"] += 1
        totals["merged"] += commit.merged
        if not commit.merged:
            totals["records"] += commit.records
            totals["files"] += commit.files
            totals["payload_bytes"] += commit.payload_bytes
        if self._as_json:
            print_json(asdict(commit))
            return
        place = f"{commit.topic}: version {commit.version}"
        if commit.merged:
            click.echo(f"{place}: {plural(commit.merged, 'file')} became one", err=True)
            return
        rows, size = plural(commit.records, "record"), commit.file_bytes
        click.echo(f"{place}: {rows} in {plural(commit.files, 'file')}, {size} bytes", err=True)
