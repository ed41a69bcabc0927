"""Commands `oncelog certs init|node|client`: certificates for installations without a PKI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from oncelog.certificates import MAX_DAYS, make_authorities, make_client, make_node
from oncelog.cli.streams import check_text
from oncelog.config import MAX_INT32

Command = Callable[..., Any]
_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("certs"),
    show_default=True,
    help="Directory of the authorities.",
)


def _days(default: int) -> Callable[[Command], Command]:
    return click.option(
        "--days",
        type=click.IntRange(1, MAX_DAYS),
        default=default,
        show_default=True,
        help="Validity in days.",
    )


@click.group()
def certs() -> None:
    """Create certificates for nodes and clients.

    Existing certificates are replaced, authorities are not.
    """


@certs.command()
@_DIRECTORY
@_days(3650)
def init(directory: Path, days: int) -> None:
    """Create the two authorities.

    One is for clients, one for the nodes among themselves.
    """
    _print(make_authorities(directory, days))


@certs.command()
@click.argument("node_ids", type=click.IntRange(1, MAX_INT32), nargs=-1, required=True)
@click.option("--host", "hosts", multiple=True, required=True,
              help="Name or address at which clients reach the node; may be repeated.")  # fmt: skip
@click.option("--cluster-id", default="oncelog", show_default=True, help="As in its settings.")
@_DIRECTORY
@_days(365)
def node(
    node_ids: tuple[int, ...],
    hosts: tuple[str, ...],
    cluster_id: str,
    directory: Path,
    days: int,
) -> None:
    """Create the certificates of a node, or of all nodes of a machine.

    They are the files of its settings tls_* and peer_*.
    """
    check_text({"host": hosts, "cluster_id": cluster_id})
    _print(make_node(directory, node_ids[0], cluster_id, hosts, days, node_ids[1:]))


@certs.command()
@click.argument("name")
@_DIRECTORY
@_days(365)
def client(name: str, directory: Path, days: int) -> None:
    """Create the certificate of a client.

    NAME is a URI, or a name in lower case.
    """
    check_text({"name": name})
    principal, made = make_client(directory, name, days)
    _print(made)
    click.echo(f"principal {principal}")


def _print(paths: Sequence[Path]) -> None:
    for path in paths:
        click.echo(path)
