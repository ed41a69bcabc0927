"""Commands `oncelog node list|add|remove|replace|drain|undrain`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from oncelog import Admin, NodeStatus
from oncelog.cli.options import INT32, with_admin, yes_option
from oncelog.cli.output import copied, print_json, print_table
from oncelog.cli.streams import confirm

LOOK_PERIOD = 0.5  # seconds between looks, with --wait


class _Directory(click.ParamType[int]):
    """Id of a data directory, as nodes print it: 16 hexadecimal digits."""

    name = "id"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        if len(value) != DIGITS or not set(value.lower()) <= set("0123456789abcdef"):
            self.fail(f"{value!r} must have {DIGITS} hexadecimal digits", param, ctx)
        return int(value, 16)


DIGITS = 16
DIRECTORY = _Directory()


@click.group()
def node() -> None:
    """Add, remove, replace and drain nodes."""


def change_options(command: Any) -> Any:
    for option in reversed(
        (
            click.argument("node_id", type=INT32),
            click.option("--dry-run", is_flag=True, help="Show the effects; change nothing."),
            click.option("--wait", is_flag=True, help="Return when it is done."),
        )
    ):
        command = option(command)
    return command


@node.command("list")
@with_admin
def list_nodes(admin: Admin, as_json: bool) -> None:
    """List nodes and their pending changes."""
    nodes = admin.list_nodes()
    if as_json:
        print_json([{**asdict(status), "state": state_of(status)} for status in nodes])
        return
    labels = [name for name in ("rack", "machine") if any(getattr(one, name) for one in nodes)]
    counts = ("replicas", "leads", "coming", "going", "copied")
    print_table(
        ("node", "address", *labels, "alive", "state", *counts),
        [
            (
                one.node_id,
                one.address or None,
                *(getattr(one, name) or None for name in labels),
                one.alive,
                state_of(one),
                one.replicas,
                one.leaderships,
                one.coming,
                one.going,
                copied(one.copied_bytes, one.coming_bytes),
            )
            for one in nodes
        ],
    )
    for one in nodes:
        for reason in one.waits_for:
            click.echo(f"node {one.node_id} waits: {reason}")


@node.command()
@change_options
@with_admin
def add(admin: Admin, as_json: bool, node_id: int, dry_run: bool, wait: bool) -> None:
    """Let a new node join.

    Start it with an empty data directory and the setting `join`.
    """
    _change(admin, node_id, "add", admin.add_node, as_json, dry_run, wait)


@node.command()
@change_options
@click.option("--cancel", is_flag=True, help="Keep the node; moved replicas do not return.")
@with_admin
def remove(
    admin: Admin, as_json: bool, node_id: int, dry_run: bool, wait: bool, cancel: bool
) -> None:
    """Move a node's replicas away, then remove it."""
    if cancel:
        _change(admin, node_id, "keep", admin.cancel_node_removal, as_json, dry_run, wait)
    else:
        _change(admin, node_id, "remove", admin.remove_node, as_json, dry_run, wait, _is_gone)


@node.command()
@change_options
@yes_option
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Accept the loss of partitions, or that the asked node decides alone.",
)
@click.option(
    "--directory",
    "directory_id",
    type=DIRECTORY,
    default=0,
    help="Id of the lost data directory, if the other of two nodes decides alone.",
)
@with_admin
def replace(
    admin: Admin,
    as_json: bool,
    node_id: int,
    dry_run: bool,
    wait: bool,
    yes: bool,
    accept_loss: bool,
    directory_id: int,
) -> None:
    """Replace a node's lost data directory.

    The node gives up the lost directory; start it with an empty one afterwards.
    """
    given: dict[str, Any] = {"accept_loss": accept_loss, "directory_id": directory_id}
    replacement = functools.partial(admin.replace_node, **given)
    if not dry_run:
        effects = () if yes else admin.replace_node(node_id, dry_run=True, **given)
        confirm("".join(f"would: {one}\n" for one in effects) + "Replace the node?", yes)
    _change(admin, node_id, "replace", replacement, as_json, dry_run, wait)


@node.command()
@change_options
@with_admin
def drain(admin: Admin, as_json: bool, node_id: int, dry_run: bool, wait: bool) -> None:
    """Drain a node before a restart.

    The node leads nothing until it is undrained.
    """
    _change(admin, node_id, "drain", admin.drain_node, as_json, dry_run, wait)


@node.command()
@change_options
@with_admin
def undrain(admin: Admin, as_json: bool, node_id: int, dry_run: bool, wait: bool) -> None:
    """Let a node lead again."""
    _change(admin, node_id, "undrain", admin.undrain_node, as_json, dry_run, wait)


def _is_settled(status: NodeStatus | None) -> bool:
    return status is not None and status.settled


def _is_gone(status: NodeStatus | None) -> bool:
    return status is None


def _change(
    admin: Admin,
    node_id: int,
    action: str,
    change: Callable[..., tuple[str, ...]],
    as_json: bool,
    dry_run: bool,
    wait: bool,
    is_done: Callable[[NodeStatus | None], bool] = _is_settled,
) -> None:
    effects = change(node_id, dry_run=dry_run)
    if as_json:
        print_json({"node_id": node_id, "action": action, "dry_run": dry_run, "effects": effects})
    else:
        for effect in effects:
            click.echo(f"would: {effect}" if dry_run else effect)
    said: tuple[str, ...] = ()
    while wait and not dry_run:
        status = next((one for one in admin.list_nodes() if one.node_id == node_id), None)
        if is_done(status):
            return
        reasons = () if status is None else status.waits_for
        if reasons != said:
            for reason in reasons:
                click.echo(f"waits: {reason}", err=True)
        said = reasons
        threading.Event().wait(LOOK_PERIOD)


def state_of(status: NodeStatus) -> str:
    marks = {
        "expected": status.expected,
        "joining": status.joining,
        "leaving": status.leaving,
        "drained": status.drained,
    }
    return ", ".join(name for name, there in marks.items() if there) or "member"
