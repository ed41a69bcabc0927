"""Commands `oncelog sink list|describe|reset`."""

from __future__ import annotations

from dataclasses import asdict

import click

from oncelog import Admin
from oncelog.cli.options import match_option, with_admin, yes_option
from oncelog.cli.output import print_facts, print_json, print_rows
from oncelog.cli.streams import confirm
from oncelog.errors import UnknownTransactionError
from oncelog.types import SinkInfo
from oncelog.views.tables import batch_of, matching, sink_facts, sink_rows


@click.group()
def sink() -> None:
    """Manage outputs of Spark queries and jobs."""


@sink.command("list")
@match_option
@with_admin
def list_sinks(admin: Admin, patterns: tuple[str, ...], as_json: bool) -> None:
    """List sinks."""
    sinks = matching(admin.list_sinks(), patterns, lambda one: one.sink)
    if as_json:
        print_json([asdict(one) for one in sinks])
        return
    print_rows(sink_rows(sinks))


@sink.command()
@click.argument("name")
@with_admin
def describe(admin: Admin, name: str, as_json: bool) -> None:
    """Show a sink's committed batches and writer."""
    found = _described(admin, name)
    if as_json:
        print_json(asdict(found))
        return
    print_facts(sink_facts(found))


@sink.command()
@click.argument("name")
@yes_option
@with_admin
def reset(admin: Admin, name: str, yes: bool, as_json: bool) -> None:
    """Let any query write the next batch.

    Stored records stay. If the next query writes them again, they are there twice.
    """
    found = _described(admin, name)
    last = batch_of(found.committed_batch)
    confirm(f"Forget that sink {name!r} has committed batch {last}?", yes)
    admin.reset_sink(name)
    if as_json:
        print_json({"reset": name})
    else:
        click.echo(f"sink {name} takes any batch next")


def _described(admin: Admin, name: str) -> SinkInfo:
    try:
        return admin.describe_sink(name)
    except UnknownTransactionError:
        raise click.ClickException(f"there is no sink {name!r}") from None
