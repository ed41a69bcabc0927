"""Commands `oncelog node list|add|remove|replace|drain|undrain`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click

from oncelog import Admin, NodeStatus
from oncelog.cli.names import node_ids
from oncelog.cli.options import INT32, with_admin, yes_option
from oncelog.cli.output import print_json, print_rows
from oncelog.cli.streams import confirm
from oncelog.views.nodes import state_of, waiting
from oncelog.views.tables import node_rows

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


_HOW = (
    click.option("--dry-run", is_flag=True, help="Show the effects; change nothing."),
    click.option("--wait", is_flag=True, help="Return when it is done."),
)
_MACHINE = (
    click.option("--machine", help="All nodes with this label, in place of ids."),
    click.option("--rack", help="The machine's rack, if several have its name."),
)


def _with(command: Any, *options: Any) -> Any:
    for option in reversed((*options, *_HOW)):
        command = option(command)
    return command


def on_new_nodes(command: Any) -> Any:
    """Call the command with `nodes`: the given ids."""
    ids = click.argument(
        "nodes", metavar="NODE_ID...", type=INT32, nargs=-1, shell_complete=node_ids, required=True
    )
    return _with(with_admin(command), ids)


def on_nodes(command: Any) -> Any:
    """Call the command with `nodes`: the given ids, or those of the machine's nodes."""

    @with_admin
    @functools.wraps(command)
    def run(
        admin: Admin, nodes: tuple[int, ...], machine: str | None, rack: str | None, **given: Any
    ) -> Any:
        return command(admin, nodes=_chosen(admin, nodes, machine, rack), **given)

    ids = click.argument(
        "nodes", metavar="[NODE_ID...]", type=INT32, nargs=-1, shell_complete=node_ids
    )
    return _with(run, ids, *_MACHINE)


def _chosen(
    admin: Admin, node_ids: tuple[int, ...], machine: str | None, rack: str | None
) -> tuple[int, ...]:
    """Return the ids, or those of the machine's nodes."""
    if bool(node_ids) == bool(machine) or (rack and not machine):
        raise click.UsageError("name nodes by their ids, or a machine by --machine [--rack]")
    return node_ids if machine is None else of_machine(admin.list_nodes(), machine, rack)


def of_machine(nodes: Iterable[NodeStatus], machine: str, rack: str | None) -> tuple[int, ...]:
    """Return the ids of the machine's nodes. Raises UsageError if that is no machine, or two."""
    found = [one for one in nodes if one.machine == machine and rack in (None, one.rack)]
    if not found:
        text = f"machine: no node has the label {machine!r}; see `oncelog node list`"
        raise click.UsageError(text)
    racks = sorted({one.rack for one in found})
    if len(racks) > 1:
        raise click.UsageError(f"machine: {machine!r} is in racks {', '.join(racks)}; set --rack")
    return tuple(one.node_id for one in found)


@node.command("list")
@with_admin
def list_nodes(admin: Admin, as_json: bool) -> None:
    """List nodes, by machine, and their pending changes."""
    nodes = sorted(admin.list_nodes(), key=lambda one: (one.rack, one.machine, one.node_id))
    if as_json:
        print_json([{**asdict(status), "state": state_of(status)} for status in nodes])
        return
    print_rows(node_rows(nodes))
    for line in waiting(nodes):
        click.echo(line)


@node.command()
@on_new_nodes
def add(admin: Admin, as_json: bool, nodes: tuple[int, ...], dry_run: bool, wait: bool) -> None:
    """Let new nodes join.

    Start each with an empty data directory and the setting `join`.
    """
    _change(admin, nodes, "add", admin.add_node, as_json, dry_run, wait, _is_settled)


@node.command()
@on_nodes
@click.option("--cancel", is_flag=True, help="Keep the node; moved replicas do not return.")
def remove(
    admin: Admin,
    as_json: bool,
    nodes: tuple[int, ...],
    dry_run: bool,
    wait: bool,
    cancel: bool,
) -> None:
    """Move a node's replicas away, then remove it."""
    if cancel:
        _change(admin, nodes, "keep", admin.cancel_node_removal, as_json, dry_run, wait)
    else:
        _change(admin, nodes, "remove", admin.remove_node, as_json, dry_run, wait, _is_gone)


@node.command()
@on_nodes
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
def replace(
    admin: Admin,
    as_json: bool,
    nodes: tuple[int, ...],
    dry_run: bool,
    wait: bool,
    yes: bool,
    accept_loss: bool,
    directory_id: int,
) -> None:
    """Replace a node's lost data directory.

    The node gives up the lost directory; start it with an empty one afterwards.
    """
    if directory_id and len(nodes) > 1:
        raise click.UsageError("--directory: is of one node; name that node alone")
    given: dict[str, Any] = {"accept_loss": accept_loss, "directory_id": directory_id}
    replacement: Callable[..., tuple[str, ...]] = functools.partial(admin.replace_node, **given)
    if not dry_run:
        effects = [] if yes else [one for n in nodes for one in replacement(n, dry_run=True)]
        asked = "Replace the node?" if len(nodes) == 1 else f"Replace nodes {_listed(nodes)}?"
        confirm("".join(f"would: {one}\n" for one in effects) + asked, yes)
    _change(admin, nodes, "replace", replacement, as_json, dry_run, wait)


@node.command()
@on_nodes
def drain(
    admin: Admin,
    as_json: bool,
    nodes: tuple[int, ...],
    dry_run: bool,
    wait: bool,
) -> None:
    """Drain a node before a restart.

    The node leads nothing until it is undrained.
    """
    _change(admin, nodes, "drain", admin.drain_node, as_json, dry_run, wait)


@node.command()
@on_nodes
def undrain(
    admin: Admin,
    as_json: bool,
    nodes: tuple[int, ...],
    dry_run: bool,
    wait: bool,
) -> None:
    """Let a node lead again."""
    _change(admin, nodes, "undrain", admin.undrain_node, as_json, dry_run, wait)


def _is_settled(status: NodeStatus | None) -> bool:
    return status is not None and status.settled


def _is_settled_or_gone(status: NodeStatus | None) -> bool:
    """Whether nothing is in progress. The end of a removal ends every other change, too."""
    return _is_gone(status) or _is_settled(status)


def _is_gone(status: NodeStatus | None) -> bool:
    return status is None


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))


def _change(
    admin: Admin,
    nodes: Sequence[int],
    action: str,
    change: Callable[..., tuple[str, ...]],
    as_json: bool,
    dry_run: bool,
    wait: bool,
    is_done: Callable[[NodeStatus | None], bool] = _is_settled_or_gone,
) -> None:
    made: list[dict[str, Any]] = []
    try:
        for node_id in nodes:
            effects = change(node_id, dry_run=dry_run)
            one = {"node_id": node_id, "action": action, "dry_run": dry_run, "effects": effects}
            made.append(one)
            for effect in () if as_json else effects:
                click.echo(f"would: {effect}" if dry_run else effect)
    finally:  # also what was changed before a node that is refused
        if as_json and made:
            print_json(made[0] if len(nodes) == 1 else made)
    said: dict[int, tuple[str, ...]] = {}
    while wait and not dry_run:
        status = {one.node_id: one for one in admin.list_nodes()}
        late = [node_id for node_id in nodes if not is_done(status.get(node_id))]
        if not late:
            return
        for node_id in late:
            reasons = status[node_id].waits_for if node_id in status else ()
            if reasons != said.get(node_id, ()):
                for reason in reasons:
                    click.echo(f"waits: {reason}", err=True)
            said[node_id] = reasons
        threading.Event().wait(LOOK_PERIOD)
