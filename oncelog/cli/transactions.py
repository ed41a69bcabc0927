"""Commands `oncelog txn list|describe|abort`."""

from __future__ import annotations

from dataclasses import asdict

import click

from oncelog import Admin
from oncelog.cli.options import with_admin, yes_option
from oncelog.cli.output import print_facts, print_json, print_rows
from oncelog.cli.streams import confirm
from oncelog.config import MAX_INT64
from oncelog.views.tables import part_rows, transaction_facts, transaction_rows

AGE_MS = click.IntRange(0, MAX_INT64)
TRANSACTION_ID = click.IntRange(1, MAX_INT64)


@click.group()
def txn() -> None:
    """Show and abort transactions."""


@txn.command("list")
@click.option("--name", default="", help="Show only this producer name's.")
@click.option("--older-than-ms", type=AGE_MS, default=0, help="Show only older ones.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@with_admin
def list_transactions(
    admin: Admin, name: str, older_than_ms: int, limit: int, as_json: bool
) -> None:
    """List unfinished transactions, oldest first.

    A transaction is listed until it has ended in all its partitions.
    """
    found = admin.list_transactions(name, older_than_ms, limit)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    print_rows(transaction_rows(found))


@txn.command()
@click.argument("transaction_id", type=TRANSACTION_ID)
@with_admin
def describe(admin: Admin, transaction_id: int, as_json: bool) -> None:
    """Show a transaction and its staged records."""
    one = admin.describe_transaction(transaction_id)
    if as_json:
        print_json(asdict(one))
        return
    print_facts(transaction_facts(one))
    print_rows(part_rows(one))


@txn.command()
@click.argument("transaction_id", type=TRANSACTION_ID)
@yes_option
@with_admin
def abort(admin: Admin, transaction_id: int, yes: bool, as_json: bool) -> None:
    """Abort a transaction of any producer.

    None of its records become readable.
    """
    confirm(f"Discard the staged records of transaction {transaction_id}?", yes)
    admin.abort_transaction(transaction_id)
    if as_json:
        print_json({"transaction_id": transaction_id, "state": "ABORTED"})
    else:
        click.echo(f"aborted transaction {transaction_id}")
