"""Commands `oncelog producer lease|list|describe|fence|resolve`."""

from __future__ import annotations

from dataclasses import asdict

import click

from oncelog import Admin, Resolution
from oncelog.cli.names import topic_names
from oncelog.cli.options import PARTITION, match_option, with_admin
from oncelog.cli.output import print_facts, print_json, print_rows, print_table
from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.views.tables import matching, producer_rows
from oncelog.views.words import when


@click.group()
def producer() -> None:
    """Manage producer ids and names."""


@producer.command()
@click.option("--name", help="Raise this name's epoch, which fences the producer that has it.")
@with_admin
def lease(admin: Admin, name: str | None, as_json: bool) -> None:
    """Lease a producer id."""
    leased = admin.lease_producer(name)
    if as_json:
        print_json(asdict(leased) | {"lease_token": leased.lease_token.hex()})
        return
    print_facts(
        [
            ("producer id", leased.producer_id),
            ("epoch", leased.epoch),
            ("expires", when(leased.expire_ms)),
            ("lifetime ms", leased.lifetime_ms),
            ("lease token", leased.lease_token.hex()),
        ]
    )


@producer.command("list")
@match_option
@with_admin
def list_names(admin: Admin, patterns: tuple[str, ...], as_json: bool) -> None:
    """List producer names."""
    names = matching(admin.list_producer_names(), patterns, lambda one: one.name)
    if as_json:
        print_json([asdict(name) for name in names])
    else:
        print_rows(producer_rows(names))


@producer.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("partition", type=PARTITION)
@click.option("--producer-id", type=click.IntRange(1, MAX_INT64), help="Show only this producer.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@with_admin
def describe(
    admin: Admin, topic: str, partition: int, producer_id: int | None, limit: int, as_json: bool
) -> None:
    """Show producers known to a partition.

    This is their last-seen state.
    """
    states = admin.describe_producers(topic, partition, producer_id or 0, limit)
    if producer_id is not None and not states:
        raise click.ClickException(f"{topic}-{partition} does not know producer {producer_id}")
    if as_json:
        print_json([asdict(state) for state in states])
        return
    print_table(
        ("producer id", "epoch", "last sequence", "last append", "recent batches"),
        [
            (
                s.producer_id,
                s.epoch,
                s.last_sequence,
                when(s.last_append_ms),
                " ".join(
                    f"{r.first_sequence}..{r.last_sequence}@{r.base_offset}" for r in s.recent
                ),
            )
            for s in states
        ],
    )


@producer.command()
@click.argument("name")
@with_admin
def fence(admin: Admin, name: str, as_json: bool) -> None:
    """Raise a name's epoch without taking it over."""
    fenced = admin.fence_producer(name)
    if as_json:
        print_json({"name": name, **asdict(fenced)})
    else:
        click.echo(f"fenced {name}: producer id {fenced.producer_id}, epoch {fenced.epoch}")


@producer.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("partition", type=PARTITION)
@click.argument("producer_id", type=click.IntRange(1, MAX_INT64))
@click.argument("sequence", type=click.IntRange(0, MAX_INT64))
@click.option("--epoch", type=click.IntRange(0, MAX_INT32), help="Ask only for this epoch.")
@with_admin
def resolve(
    admin: Admin,
    topic: str,
    partition: int,
    producer_id: int,
    sequence: int,
    epoch: int | None,
    as_json: bool,
) -> int:
    """Find out whether a sequence was stored.

    Shows its place, and the epoch that stored it: the newest one that did, if you name none.

    The exit code is 0 only if it was stored.
    """
    found = admin.resolve_sequence(topic, partition, producer_id, epoch, sequence)
    if as_json:
        print_json(asdict(found))
    else:
        print_facts(
            [
                ("resolution", found.resolution),
                ("offset", found.offset if found.offset >= 0 else None),
                ("epoch", found.epoch),
                ("last sequence", found.last_sequence),
                ("current epoch", found.current_epoch),
            ]
        )
    return 0 if found.resolution is Resolution.COMMITTED else 1
