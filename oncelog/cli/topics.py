"""Commands `oncelog topic create|list|describe|alter|reassign|delete`."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import click

from oncelog import (
    Admin,
    CleanupPolicy,
    ExpectedOffsets,
    PartitionInfo,
    TopicConfig,
    TopicFormats,
    TopicInfo,
)
from oncelog.cli.lazy import LazyGroup
from oncelog.cli.names import node_ids, topic_names
from oncelog.cli.options import INT32, INT64, match_option, with_admin, yes_option
from oncelog.cli.output import print_facts, print_json, print_rows, print_table
from oncelog.cli.streams import confirm, progress, protected_profile
from oncelog.config import MAX_INT32
from oncelog.views.changes import KEYS_MOVE, effects_of_resize, effects_of_settings, move_rows
from oncelog.views.tables import headings, matching, topic_rows
from oncelog.views.topics import CHOICES, summary, topic_view
from oncelog.views.words import plural, when

LOOK_PERIOD = 0.5  # seconds between looks, with --wait


@click.group(cls=LazyGroup, lazy={"produce": "records:produce", "consume": "records:consume"})
def topic() -> None:
    """Manage topics, and read and write records."""


def config_options(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--retention-ms", type=INT64, help="Delete older records; -1: never."),
            click.option(
                "--retention-bytes", type=INT64, help="Bytes kept per partition; -1: no limit."
            ),
            click.option("--max-batch-bytes", type=INT32, help="Largest payload of a batch."),
            click.option(
                "--expected-offsets",
                type=click.Choice([choice.value for choice in ExpectedOffsets]),
                help="Check, ignore or require them.",
            ),
            click.option(
                "--formats",
                type=click.Choice([choice.value for choice in TopicFormats]),
                help="Formats of batches; later only to both.",
            ),
            click.option(
                "--cleanup-policy",
                type=click.Choice([choice.value for choice in CleanupPolicy]),
                help="Delete old records, or keep each key's newest.",
            ),
            click.option(
                "--min-compaction-lag-ms", type=INT64, help="Leave younger records as they are."
            ),
            click.option(
                "--max-compaction-lag-ms",
                type=INT64,
                help="Compact at the latest after this; -1: no limit.",
            ),
            click.option(
                "--delete-retention-ms",
                type=INT64,
                help="Keep records without a value after their first compaction.",
            ),
            click.option(
                "--min-cleanable-dirty-ratio",
                type=float,
                help="Share of new bytes, 0..1, that makes a compaction due.",
            ),
        )
    ):
        command = option(command)
    return command


def to_config(options: dict[str, Any]) -> TopicConfig:
    given: dict[str, Any] = {
        name: CHOICES[name](value) if name in CHOICES and value is not None else value
        for name, value in options.items()
    }
    return TopicConfig(**given)


@topic.command()
@click.argument("name")
@click.option("--partitions", "-p", type=INT32, default=0, help="Default: the cluster's.")
@click.option("--replicas", "-r", type=INT32, default=0, help="Default: the cluster's.")
@click.option("--compact", is_flag=True, help="Keep each key's newest record, for ever.")
@config_options
@click.option("--timeout-ms", type=click.IntRange(1, MAX_INT32), default=30_000, show_default=True)
@with_admin
def create(
    admin: Admin,
    name: str,
    partitions: int,
    replicas: int,
    compact: bool,
    timeout_ms: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a topic.

    Waits until each partition has a leader.
    """
    if compact:
        if options["cleanup_policy"] is not None:
            raise click.UsageError("--compact and --cleanup-policy are one setting: name one")
        options["cleanup_policy"] = CleanupPolicy.COMPACT
    config = to_config(options)
    with progress(lambda: f"waiting for a leader of each partition of {name}"):
        info = admin.create_topic(name, partitions, replicas, config, timeout_ms=timeout_ms)
    if as_json:
        print_json(asdict(topic_view(info)))
    else:
        click.echo(
            f"created topic {name}: {plural(info.partition_count, 'partition')}, "
            f"{plural(info.replica_count, 'replica')} each"
        )


@topic.command("list")
@match_option
@with_admin
def list_topics(admin: Admin, patterns: tuple[str, ...], as_json: bool) -> None:
    """List topics."""
    topics = matching(admin.describe_topics(), patterns, lambda info: info.name)
    if as_json:
        print_json([summary(info) for info in topics])
    else:
        print_rows(topic_rows(topics))


@topic.command()
@click.argument("name", shell_complete=topic_names)
@with_admin
def describe(admin: Admin, name: str, as_json: bool) -> None:
    """Show a topic's settings and partitions.

    Partitions have leaders, replicas and offsets.
    """
    view = topic_view(admin.describe_topic(name))
    if as_json:
        print_json(asdict(view))
        return
    print_facts([("topic", name), ("created", when(view.created_ms)), *view.config.items()])
    click.echo()
    print_table(headings(view.partitions), [list(row.values()) for row in view.partitions])
    for line in view.problems:
        click.echo(line)


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", "-p", type=INT32, help="New total number of partitions; only more.")
@click.option("--replicas", "-r", type=INT32, help="New number of replicas of each partition.")
@click.option("--dry-run", is_flag=True, help="Show the effects; change nothing.")
@click.option("--wait", is_flag=True, help="Return when all replicas are in place.")
@yes_option
@config_options
@with_admin
def alter(
    admin: Admin,
    name: str,
    partitions: int | None,
    replicas: int | None,
    dry_run: bool,
    wait: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Change a topic's settings.

    Options you omit keep their value. With --partitions and --replicas you change these numbers.
    Replicas move while the topic is written; to undo a change in progress, give the former number.
    """
    settings = any(value is not None for value in options.values())
    changes = settings + (partitions is not None) + (replicas is not None)
    if not changes:
        raise click.UsageError("name at least one setting to change, --partitions or --replicas")
    if changes > 1:
        raise click.UsageError("settings, --partitions and --replicas are changed one at a time")
    if settings:
        if wait:
            raise click.UsageError("--wait is for --partitions and --replicas")
        _alter_settings(admin, name, to_config(options), as_json, dry_run)
        return
    if partitions is not None and not dry_run:
        confirm(f"{KEYS_MOVE} Go on?", yes)
    found = admin.resize_topic(
        name, partitions=partitions or 0, replicas=replicas or 0, dry_run=dry_run
    )
    if wait and not dry_run:
        _wait_placed(admin, name)
    if as_json:
        moves = [asdict(move) for move in found.moves]
        print_json({"topic": name, "count": found.count, "dry_run": dry_run, "moves": moves})
        return
    click.echo(effects_of_resize(name, found, partitions, not dry_run))
    if found.moves:
        print_rows(move_rows(found.moves))
    if partitions is not None and dry_run:
        click.echo(KEYS_MOVE)


def _wait_placed(admin: Admin, name: str) -> None:
    said = ""
    while any(one.target for one in admin.describe_topic(name).partitions):
        moves = [move for move in admin.describe_balance().moves if move.topic == name]
        done, whole = sum(move.copied for move in moves), sum(move.bytes for move in moves)
        line = f"{len(moves)} partitions move, {done} of {whole} bytes copied"
        if moves and line != said:
            click.echo(line, err=True)
            said = line
        threading.Event().wait(LOOK_PERIOD)


def _alter_settings(
    admin: Admin, name: str, config: TopicConfig, as_json: bool, dry_run: bool
) -> None:
    if dry_run or protected_profile():
        effects = effects_of_settings(admin.describe_topic(name), config)
        if dry_run and as_json:
            print_json({"topic": name, "dry_run": True, **effects._asdict()})
        elif dry_run:
            click.echo("\n".join(f"would: {line}" for line in effects.lines) or "nothing to do")
        if dry_run:
            return
        if not effects.undoable:
            confirm(f"{name}: {'; '.join(effects.lines)}.", yes=True)
    info = admin.alter_topic(name, config)
    if as_json:
        print_json(asdict(topic_view(info)))
    else:
        click.echo(f"altered topic {name}")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.argument("partition", type=INT32)
@click.argument("nodes", type=INT32, nargs=-1, required=True, shell_complete=node_ids)
@click.option("--dry-run", is_flag=True, help="Show the effects; change nothing.")
@with_admin
def reassign(
    admin: Admin,
    name: str,
    partition: int,
    nodes: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move a partition to other nodes.

    The preferred leader comes first. `topic describe` shows the progress. To undo a move in
    progress, name the present nodes.
    """
    before = placed(admin.describe_topic(name), partition)
    if not dry_run:
        admin.reassign_partition(name, partition, nodes)
    if as_json:
        print_json({"from": before.replicas, "to": nodes, "dry_run": dry_run})
        return
    come, go = sorted({*nodes} - {*before.replicas}), sorted({*before.replicas} - {*nodes})
    verb = "would move" if dry_run else "moving"
    click.echo(f"{verb} {name}-{partition}: nodes that come {come}, that go {go}")


def placed(info: TopicInfo, partition: int) -> PartitionInfo:
    if not 0 <= partition < info.partition_count:
        raise click.UsageError(f"{info.name} has partitions 0..{info.partition_count - 1}")
    return info.partitions[partition]


@topic.command()
@click.argument("name", shell_complete=topic_names)
@yes_option
@with_admin
def delete(admin: Admin, name: str, yes: bool, as_json: bool) -> None:
    """Delete a topic and all its records."""
    confirm(f"Delete topic {name} and all its records?", yes)
    admin.delete_topic(name)
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted topic {name}")
