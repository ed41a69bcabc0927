"""Command `oncelog cluster balance`."""

from __future__ import annotations

import threading
from dataclasses import asdict

import click

from oncelog import Admin, Balance
from oncelog.cli.options import with_admin
from oncelog.cli.output import print_json, print_table
from oncelog.views.words import copied

LOOK_PERIOD = 0.5  # seconds between looks, with --wait


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the moves without starting them.")
@click.option("--status", is_flag=True, help="Show the progress of all moves.")
@click.option("--cancel", is_flag=True, help="Start no more moves; undo unfinished ones.")
@click.option("--wait", is_flag=True, help="Return when all moves are done.")
@with_admin
def balance(
    admin: Admin, as_json: bool, dry_run: bool, status: bool, cancel: bool, wait: bool
) -> None:
    """Spread replicas and leaders over the nodes.

    Balances by count, then by bytes. At most 50 partitions move at a time. It goes on by itself,
    also after the metadata leader changes.
    """
    if dry_run + status + cancel > 1 or (dry_run and wait):
        raise click.UsageError("--dry-run, --status and --cancel exclude each other")
    if dry_run:
        found = admin.plan_balance()
    elif status:
        found = admin.describe_balance()
    elif cancel:
        found = admin.cancel_balance()
    else:
        found = admin.start_balance()
    if wait:
        found = wait_settled(admin, found)
    if as_json:
        print_json({**asdict(found), "settled": found.settled})
        return
    if dry_run and not found.count:
        click.echo("nothing would move")
    elif dry_run:
        click.echo(f"would move {found.count} partitions, copy {found.bytes} bytes")
    else:
        click.echo(describe(found))
    show(found)


def wait_settled(admin: Admin, found: Balance) -> Balance:
    said = ""
    while not found.settled:
        line = describe(found)
        if line != said:
            click.echo(line, err=True)
        said = line
        threading.Event().wait(LOOK_PERIOD)
        found = admin.describe_balance()
    return found


def describe(found: Balance) -> str:
    if found.settled:
        return "nothing moves"
    more = "balancing" if found.balancing else "not balancing"
    return f"{more}: {found.count} partitions move, {found.copied} of {found.bytes} bytes copied"


def show(found: Balance) -> None:
    rows = [
        (
            f"{move.topic}-{move.partition}",
            move.replicas,
            move.target,
            copied(move.copied, move.bytes),
            move.waits_for or None,
        )
        for move in found.moves
    ]
    if rows:
        print_table(("partition", "replicas", "moves to", "copied", "waits for"), rows)
    for reason in found.waits_for:
        click.echo(reason)
