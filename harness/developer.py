"""Commands of scripts/cluster: start, stop and look at a cluster that outlives the command.

The nodes lie in data/cluster (or --dir). scripts/chaos and the `oncelog` command find them
there, or at the addresses that `start` prints.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.arguments import number
from harness.layout import DESCRIPTION
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT, HarnessError

DIRECTORY = ROOT / "data" / "cluster"
FIRST_PORT = 7001
MAX_NODES = 9


def start(options: argparse.Namespace, console: Console) -> int:
    """Starts stopped nodes; an existing cluster keeps its nodes, ports and records."""
    directory: Path = options.dir
    if (directory / DESCRIPTION).exists():
        cluster = LocalCluster.load(directory)
        if len(cluster.running) == len(cluster.nodes):
            raise HarnessError(f"the cluster in {directory} runs already: {cluster.bootstrap}")
    else:
        nodes: int = options.nodes
        first: int = options.first_port
        ports = list(range(first, first + nodes)) if first else None
        cluster = LocalCluster(
            directory,
            nodes,
            settings={},
            proxied=options.proxied,
            disks=options.disks,
            namespaces=options.namespaces,
            metrics=True,
            secured=options.secured,
            detached=True,
            ports=ports,
            processes=options.processes,
        )
    try:
        cluster.start()
    except HarnessError:
        cluster.close()
        raise
    return status(options, console)


def stop(options: argparse.Namespace, console: Console) -> int:
    """Sends SIGTERM to all nodes; --remove also deletes their data."""
    cluster = LocalCluster.load(options.dir)
    for machine, process in cluster.machines.items():
        if process.running:
            process.terminate()
            nodes = ", ".join(map(str, cluster.nodes_of(machine)))
            console.print(f"node {nodes} stopped", highlight=False)
    cluster.close()
    if options.remove:
        shutil.rmtree(cluster.root)
    return 0


def status(options: argparse.Namespace, console: Console) -> int:
    """Shows a table of the nodes; exit code 1 unless all of them run."""
    cluster = LocalCluster.load(options.dir)
    table = Table()
    for name in ("node", "pid", "clients", "metrics", "log"):
        table.add_column(name)
    for node, process in cluster.nodes.items():
        running = process.running
        table.add_row(
            str(node),
            str(process.pid) if running else "[red]not running[/]",
            cluster.addresses[node],
            cluster.metrics_addresses.get(node, ""),
            str(_short(process.spec.log_file)),
        )
    console.print(table)
    console.print(f"export ONCELOG_BOOTSTRAP={cluster.bootstrap}", highlight=False)
    for name, value in cluster.environment.items():
        console.print(f"export {name}={value}", highlight=False)
    return 0 if len(cluster.running) == len(cluster.nodes) else 1


def _short(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description="A cluster of local processes, for developers."
    )
    commands = parser.add_subparsers(required=True, metavar="start|stop|status")
    for name, action in (("start", start), ("stop", stop), ("status", status)):
        command = commands.add_parser(name, help=(action.__doc__ or "").split("\n")[0])
        command.set_defaults(action=action)
        command.add_argument(
            "--dir", type=Path, default=DIRECTORY, help="where it lies (default data/cluster)"
        )
        if name == "start":
            command.add_argument(
                "--nodes", type=number(int, 1, MAX_NODES), default=3, help="how many (default 3)"
            )
            command.add_argument(
                "--processes",
                type=number(int, 1, MAX_NODES),
                default=1,
                help="of each, which is a machine then: nodes 1, 101, ... (default 1)",
            )
            command.add_argument(
                "--first-port",
                type=number(int, 0, 65535 - MAX_NODES),
                default=FIRST_PORT,
                help=f"node 1 listens here, 2, ... follow; 0: any (default {FIRST_PORT})",
            )
            command.add_argument(
                "--disks",
                action="store_true",
                help="give each a file system of its own, for power-cut and disk-full (root)",
            )
            command.add_argument(
                "--namespaces",
                action="store_true",
                help="give each a network namespace of its own, for partition (root)",
            )
            command.add_argument(
                "--proxied",
                action="store_true",
                help="put a TCP proxy between all of them, so that chaos can cut connections",
            )
            command.add_argument(
                "--secured", action="store_true", help="TLS on all ports, with certificates in DIR"
            )
        if name == "stop":
            command.add_argument("--remove", action="store_true", help="also delete the data")
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    try:
        done: int = options.action(options, console)
        return done
    except HarnessError as error:
        console.print(f"cluster: {error}", style="red", highlight=False, markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
