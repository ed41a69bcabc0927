"""Commands `oncelog acl add|remove|list|check|token`: permissions and static tokens."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from oncelog import Admin, PermissionRule
from oncelog.cli.options import with_admin
from oncelog.cli.output import print_json, print_rows
from oncelog.views.tables import rule_rows

KINDS = ("topic", "group", "producer", "sink", "cluster")
# Cost of checking a token, and of guessing one with a stolen hash (RFC 7914).
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1


@click.group()
def acl() -> None:
    """Manage permissions of principals.

    Operations without a rule are denied; rules that deny override rules that allow.
    """


def _rule(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options that make a rule."""
    for option in (
        click.argument("name", default=""),
        click.argument("kind", type=click.Choice(KINDS)),
        click.argument("operations", metavar="OPERATION,..."),
        click.argument("principal"),
        click.option("--prefix", is_flag=True, help="NAME is a prefix."),
        click.option("--deny", is_flag=True, help="Deny instead of allow."),
    ):
        command = option(command)
    return command


def _made(
    principal: str, operations: str, kind: str, name: str, prefix: bool, deny: bool
) -> PermissionRule:
    listed = tuple(filter(None, (one.strip() for one in operations.split(","))))
    return PermissionRule(principal, listed, kind, name, prefix, deny)


@acl.command()
@_rule
@with_admin
def add(admin: Admin, as_json: bool, **given: Any) -> None:
    """Add a rule.

    For example: add spiffe://example.org/billing read,describe topic orders

    \b
    PRINCIPAL  a certificate's URI, dns:NAME, jwt:SUB, token:NAME, or * for all authenticated
    OPERATION  read, write, create, alter, delete, describe, fence, abort, or *
    NAME       * for all of the kind; none for the cluster
    """
    added = admin.alter_permissions(add=[_made(**given)]).added
    if as_json:
        print_json({"added": added})
    else:
        click.echo("added" if added else "it was there")


@acl.command()
@_rule
@with_admin
def remove(admin: Admin, as_json: bool, **given: Any) -> None:
    """Remove a rule. Give the arguments that added it."""
    removed = admin.alter_permissions(remove=[_made(**given)]).removed
    if as_json:
        print_json({"removed": removed})
    else:
        click.echo("removed" if removed else "there is no such rule")


@acl.command("list")
@click.option("--principal", default="", help="Show only the rules of this principal.")
@with_admin
def list_rules(admin: Admin, principal: str, as_json: bool) -> None:
    """List rules.

    Shows, too, whether the answering node enforces them.
    """
    found = admin.list_permissions(principal)
    if as_json:
        print_json(asdict(found))
        return
    print_rows(rule_rows(found.rules))
    click.echo(f"enforced: {'yes' if found.enforced else 'no'}; you are {found.caller or 'nobody'}")


@acl.command()
@click.argument("operation")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", default="")
@click.option("--principal", default="", help="Ask for this principal instead of yourself.")
@with_admin
def check(admin: Admin, operation: str, kind: str, name: str, principal: str, as_json: bool) -> int:
    """Check a permission. Exits with 0 if the rules allow it."""
    allowed = admin.check_permission(operation, kind, name, principal)
    if as_json:
        print_json({"allowed": allowed})
    else:
        click.echo("allowed" if allowed else "denied")
    return 0 if allowed else 1


@acl.command()
@click.argument("name")
def token(name: str) -> None:
    """Create a static token.

    The first line is the secret; the second line goes into tokens_file.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
        raise click.UsageError("NAME must have 1..100 letters, digits, _ or -")
    secret, salt = secrets.token_urlsafe(32), secrets.token_bytes(16)
    digest = hashlib.scrypt(
        secret.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, dklen=32
    )
    click.echo(f"oncelog.{name}.{secret}")
    click.echo(f"{name} scrypt:{SCRYPT_N}:{SCRYPT_R}:{SCRYPT_P}:{salt.hex()}:{digest.hex()}")
