"""`oncelog group list|describe|seek|delete`."""

from __future__ import annotations

from typing import Any

import click

from oncelog import Admin, Consumer, TopicPartition
from oncelog.cli.options import PARTITION, with_admin
from oncelog.cli.output import print_facts, print_json, print_table, when


@click.group()
def group() -> None:
    """Groups and the offsets they have committed."""


@group.command("list")
@with_admin
def list_groups(admin: Admin, as_json: bool) -> None:
    """List groups."""
    groups = admin.list_groups()
    if as_json:
        print_json(
            [
                {"group": g.group, "offsets": g.offsets, "last_commit_ms": g.last_commit_ms}
                for g in groups
            ]
        )
        return
    print_table(
        ("group", "partitions", "last commit"),
        [(g.group, g.offsets, when(g.last_commit_ms)) for g in groups],
    )


@group.command()
@click.argument("name")
@with_admin
def describe(admin: Admin, name: str, as_json: bool) -> None:
    """Show a group's offsets and how far they lag behind."""
    found = admin.describe_group(name)
    if not found.exists:
        raise click.ClickException(f"there is no group {name!r}")
    ends = _ends(admin, list(found.offsets), "latest")
    rows: list[dict[str, Any]] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": at.offset,
            "high_watermark": ends[tp],
            "lag": max(0, ends[tp] - at.offset),
            "metadata": at.metadata,
            "producer_id": at.producer_id,
            "epoch": at.epoch,
            "sequence": at.sequence,
            "commit_ms": at.commit_ms,
        }
        for tp, at in sorted(found.offsets.items())
    ]
    if as_json:
        print_json(
            {
                "group": name,
                "coordinator_id": found.coordinator_id,
                "lag": sum(row["lag"] for row in rows),
                "offsets": rows,
            }
        )
        return
    print_facts(
        [
            ("group", name),
            ("coordinator", found.coordinator_id),
            ("last commit", when(found.last_commit_ms)),
            ("lag", sum(row["lag"] for row in rows)),
        ]
    )
    click.echo()
    print_table(
        ("topic", "partition", "offset", "high watermark", "lag", "committed", "metadata"),
        [
            (
                row["topic"],
                row["partition"],
                row["offset"],
                row["high_watermark"],
                row["lag"],
                when(row["commit_ms"]),
                row["metadata"] or None,
            )
            for row in rows
        ],
    )


@group.command()
@click.argument("name")
@click.argument("topic")
@click.option("--partition", "-p", "partitions", type=PARTITION, multiple=True)
@click.option("--to", "where", required=True, help="start, end, or an offset.")
@with_admin
def seek(
    admin: Admin, name: str, topic: str, partitions: tuple[int, ...], where: str, as_json: bool
) -> None:
    """Have group NAME go on elsewhere in TOPIC; all partitions, or those named."""
    if where not in ("start", "end") and not where.isdigit():
        raise click.UsageError(f"--to must be start, end or an offset, got {where!r}")
    count = admin.describe_topic(topic).partition_count
    for number in partitions:
        if number >= count:
            raise click.ClickException(
                f"topic {topic} has the partitions 0 to {count - 1}, not {number}"
            )
    tps = [TopicPartition(topic, p) for p in sorted(set(partitions)) or range(count)]
    starts, ends = _ends(admin, tps, "earliest"), _ends(admin, tps, "latest")
    offsets: dict[tuple[str, int], int] = {}
    for tp in tps:
        offset = {"start": starts[tp], "end": ends[tp]}.get(where)
        if offset is None:
            offset = int(where)
            if not starts[tp] <= offset <= ends[tp]:
                raise click.ClickException(
                    f"{tp} has the offsets {starts[tp]} to {ends[tp]}, not {offset}"
                )
        offsets[tp] = offset
    admin.commit_offsets(name, dict(offsets))
    if as_json:
        print_json(
            [
                {"topic": name_, "partition": number, "offset": offset}
                for (name_, number), offset in offsets.items()
            ]
        )
    else:
        places = ", ".join(f"{number} at {at}" for (_, number), at in offsets.items())
        click.echo(f"group {name} goes on in {topic}: partition {places}")


@group.command()
@click.argument("name")
@with_admin
def delete(admin: Admin, name: str, as_json: bool) -> None:
    """Forget a group and its offsets."""
    if not admin.delete_group(name):
        raise click.ClickException(f"there is no group {name!r}")
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted group {name}")


def _ends(admin: Admin, tps: list[TopicPartition], which: str) -> dict[TopicPartition, int]:
    if not tps:
        return {}
    config = admin.config
    with Consumer(
        bootstrap_servers=config.bootstrap_servers,
        request_timeout_ms=max(config.request_timeout_ms, 1000),
    ) as consumer:
        if which == "earliest":
            return consumer.beginning_offsets(tps)
        return consumer.end_offsets(tps)
