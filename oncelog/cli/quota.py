"""Commands `oncelog quota set|remove|list`: each principal's limits at a node."""

from __future__ import annotations

from dataclasses import asdict

import click

from oncelog import Admin, Quota
from oncelog.cli.options import with_admin
from oncelog.cli.output import print_json, print_rows
from oncelog.config import MAX_INT64
from oncelog.views.tables import quota_rows


@click.group()
def quota() -> None:
    """Limit the use of nodes by principals.

    Over a rate limit, calls are delayed; over a count limit, they are rejected. Each node applies
    quotas by itself.
    """


@quota.command("set")
@click.argument("principal")
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@with_admin
def set_quotas(admin: Admin, principal: str, values: tuple[str, ...], as_json: bool) -> None:
    """Set limits of a principal.

    For example: set dns:billing in_bytes_per_s=10000000 streams=20

    \b
    PRINCIPAL  as for `oncelog acl`; * for all without a value of their own
    NAME       in_bytes_per_s, out_bytes_per_s, requests_per_s, producer_ids_per_s,
               producer_ids (in a partition), open_transactions, staged_bytes,
               streams, connections
    VALUE      0 for no limit, even if * has one
    """
    found = [_quota(principal, text) for text in values]
    admin.alter_quotas(found)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        click.echo("set")


def _quota(principal: str, text: str) -> Quota:
    name, _, value = text.partition("=")
    if not value.isascii() or not value.isdigit() or int(value) > MAX_INT64:
        raise click.UsageError(f"{text!r} must be NAME=VALUE, and VALUE 0..{MAX_INT64}")
    return Quota(principal, name, int(value))


@quota.command()
@click.argument("principal")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@with_admin
def remove(admin: Admin, principal: str, names: tuple[str, ...], as_json: bool) -> None:
    """Remove limits of a principal.

    Removes all, or those you name; the limits of * apply instead.
    """
    admin.alter_quotas(remove=[(principal, name) for name in names or ("",)])
    if as_json:
        print_json({"principal": principal, "removed": list(names)})
    else:
        click.echo("removed")


@quota.command("list")
@click.option("--principal", default="", help="Show only this principal's limits.")
@with_admin
def list_quotas(admin: Admin, principal: str, as_json: bool) -> None:
    """List all limits."""
    found = admin.list_quotas(principal)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    print_rows(quota_rows(found))
