"""Commands `oncelog group list|describe|seek|delete`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from oncelog import Admin, Consumer, TopicPartition
from oncelog.cli.names import group_names, topic_names
from oncelog.cli.options import PARTITION, match_option, with_admin, yes_option
from oncelog.cli.output import print_facts, print_json, print_rows, print_table
from oncelog.cli.record_choice import now_ms, usage_errors
from oncelog.cli.streams import confirm
from oncelog.views.groups import group_view
from oncelog.views.record_choice import Start, exact_places, parse_start
from oncelog.views.tables import group_rows, headings, matching
from oncelog.views.words import seconds, when


@click.group()
def group() -> None:
    """Manage groups and their committed offsets."""


@group.command("list")
@match_option
@with_admin
def list_groups(admin: Admin, patterns: tuple[str, ...], as_json: bool) -> None:
    """List groups."""
    groups = matching(admin.list_groups(), patterns, lambda one: one.group)
    if as_json:
        print_json(
            [
                {
                    "group": g.group,
                    "offsets": g.offsets,
                    "last_commit_ms": g.last_commit_ms,
                    "members": g.members,
                    "protocol": g.protocol,
                }
                for g in groups
            ]
        )
    else:
        print_rows(group_rows(groups))


@group.command()
@click.argument("name", shell_complete=group_names)
@with_admin
def describe(admin: Admin, name: str, as_json: bool) -> None:
    """Show a group's members, offsets and lag."""
    progress = admin.group_lag(name)
    found = progress.group
    if not found.exists:
        raise click.ClickException(f"there is no group {name!r}")
    view = group_view(progress)
    for line in view.warnings:
        click.echo(line, err=True)
    if as_json:
        print_json(asdict(view))
        return
    facts: list[tuple[str, object]] = [
        ("group", name),
        ("coordinator", view.coordinator_id),
        ("last commit", when(view.last_commit_ms)),
        ("lag", view.lag),
        ("behind", seconds(view.lag_ms)),
    ]
    if view.members:
        facts += [
            ("protocol", view.protocol),
            ("epoch", view.epoch),
            ("assignor", view.assignor),
        ]
    print_facts(facts)
    if view.members:
        click.echo()
        print_table(headings(view.members), [list(one.values()) for one in view.members])
    click.echo()
    columns = (
        "topic", "partition", "offset", "high watermark", "lag", "behind", "owner", "ownership",
        "committed", "metadata",
    )  # fmt: skip
    print_table(columns, [_cells(row) for row in view.offsets])


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["topic"],
        row["partition"],
        row["offset"],
        row["high_watermark"],
        row["lag"],
        seconds(row["lag_ms"]),
        row["owner"] or None,
        row["ownership"] or None,
        when(row["commit_ms"]),
        row["metadata"] or None,
    )


@group.command()
@click.argument("name", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option("--partition", "-p", "partitions", type=PARTITION, multiple=True)
@click.option(
    "--to",
    "where",
    required=True,
    help="start (earliest), end (latest), an offset, -10: before the end, 2h ago, or a time.",
)
@click.option("--dry-run", is_flag=True, help="Show the new offsets; change nothing.")
@with_admin
def seek(
    admin: Admin,
    name: str,
    topic: str,
    partitions: tuple[int, ...],
    where: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the committed offsets of group NAME.

    Moves all partitions of TOPIC, or those you name. A time is in ISO 8601, "2026-11-23T08:00Z" or
    with an offset from UTC. The group must have no members: stop its consumers first.
    """
    given = {"earliest": "start", "latest": "end"}.get(where, where)
    with usage_errors():
        start = parse_start(given, now_ms(), "--to")
    count = admin.describe_topic(topic).partition_count
    for number in partitions:
        if number >= count:
            raise click.ClickException(
                f"topic {topic} has the partitions 0 to {count - 1}, not {number}"
            )
    tps = [TopicPartition(topic, p) for p in sorted(set(partitions)) or range(count)]
    wanted = _wanted(admin, tps, start)
    before = admin.describe_group(name).offsets
    if not dry_run:
        admin.commit_offsets(name, {(tp.topic, tp.partition): at for tp, at in wanted.items()})
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": before[tp].offset if tp in before else None,
            "offset": at,
        }
        for tp, at in wanted.items()
    ]
    if as_json:
        print_json(rows)
        return
    verb = "would go on" if dry_run else "goes on"
    click.echo(f"group {name} {verb} in {topic}:")
    print_table(("partition", "before", "offset"), [list(row.values())[1:] for row in rows])


def _wanted(admin: Admin, tps: list[TopicPartition], start: Start) -> dict[TopicPartition, int]:
    """Return the offsets to seek. Raises InvalidRequestError for an offset out of range."""
    config, since = admin.config, dict[TopicPartition, int]()
    with Consumer(
        bootstrap_servers=config.bootstrap_servers,
        request_timeout_ms=max(config.request_timeout_ms, 1000),
    ) as consumer:
        begins, ends = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
        if start.time_ms is not None:
            since = dict(consumer.offsets_for_times(dict.fromkeys(tps, start.time_ms)))
    return exact_places(start, begins, ends, since)


@group.command()
@click.argument("name", shell_complete=group_names)
@yes_option
@with_admin
def delete(admin: Admin, name: str, yes: bool, as_json: bool) -> None:
    """Delete a group and its offsets."""
    confirm(f"Delete group {name} and its offsets?", yes)
    if not admin.delete_group(name):
        raise click.ClickException(f"there is no group {name!r}")
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted group {name}")
