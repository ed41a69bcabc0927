"""Command `oncelog events`."""

from __future__ import annotations

from dataclasses import asdict

import click

from oncelog import Admin, EventFilter, NodeEvent
from oncelog.cli.names import group_names, topic_names
from oncelog.cli.options import with_admin
from oncelog.cli.output import print_json
from oncelog.config import MAX_INT64
from oncelog.views.events import KINDS, line_of

MAX_EVENTS = 10_000


@click.command()
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind.")
@click.option("--topic", shell_complete=topic_names, help="Only events of this topic.")
@click.option("--group", shell_complete=group_names, help="Only events of this group.")
@click.option("--producer-id", type=click.IntRange(1, MAX_INT64), default=None)
@click.option("-n", "limit", type=click.IntRange(1, MAX_EVENTS), default=100, show_default=True,
              help="The newest so many of each node.")  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Go on with the events that come.")
@with_admin
def events(
    admin: Admin,
    as_json: bool,
    kinds: tuple[str, ...],
    topic: str | None,
    group: str | None,
    producer_id: int | None,
    limit: int,
    follow: bool,
) -> int:
    """Show recent events of the nodes.

    Refused batches and duplicates, leaders, fences, lost memberships, moves, slow calls. Nodes keep
    their last 10,000 events in memory. Repeats are one event with a count.
    """
    if topic and group:
        raise click.UsageError("--topic and --group exclude each other")
    resource = "topic" if topic else "group" if group else ""
    wanted = EventFilter(
        kinds, resource, topic or group or "", producer_id or 0, since_ms=0, limit=limit
    )
    if follow:
        for event in admin.follow_events(wanted):
            _print(event, as_json)
        return 0
    found = admin.list_events(wanted)
    for event in found.events:
        _print(event, as_json)
    for node_id, problem in found.problems.items():
        click.echo(f"oncelog: node {node_id} did not tell its events: {problem}", err=True)
    return 1 if found.problems else 0


def _print(event: NodeEvent, as_json: bool) -> None:
    if as_json:
        print_json(asdict(event))
    else:
        click.echo(line_of(event))
