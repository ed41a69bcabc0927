"""scripts/chaos: single faults for a running cluster, and whole runs.

A cluster is that of `scripts/cluster` (--dir) or, with --compose, that of docker-compose.yml.
`run` makes a cluster of its own unless --dir names a running one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from rich.console import Console

from tests.chaos import report
from tests.chaos.compose import Compose
from tests.chaos.faults import FAULTS, roll
from tests.chaos.run import Result, run
from tests.chaos.workload import Load
from tests.harness.api import as_call
from tests.harness.developer import DIRECTORY
from tests.harness.local_cluster import LocalCluster
from tests.harness.node_process import ROOT, HarnessError

RUN_DIRECTORY = ROOT / "data" / "chaos"
Command = Callable[[argparse.Namespace, Console], int]


def _local(options: argparse.Namespace) -> LocalCluster:
    return LocalCluster.load(options.dir or DIRECTORY)


def kill_leader(options: argparse.Namespace, console: Console) -> int:
    """SIGKILL to the leader of a partition; it is started again after --down seconds."""
    where: Compose | LocalCluster
    if options.compose:
        where = Compose(options.project)
    else:
        where = _local(options)
        if not where.running:
            raise HarnessError(f"no node of the cluster in {where.root} runs")
        count = len(where.describe_topic(options.topic).partitions)
        if not 0 <= options.partition < count:
            raise HarnessError(f"{options.topic} has the partitions 0..{count - 1}")
    node = where.leader(options.topic, options.partition)
    where.kill([node])
    console.print(f"killed node {node}, the leader of {options.topic}-{options.partition}")
    if options.down < 0:
        return 0
    time.sleep(options.down)
    where.start_nodes([node])
    new = where.leader(options.topic, options.partition)
    console.print(f"node {node} serves again, node {new} leads")
    return 0


def kill_all(options: argparse.Namespace, console: Console) -> int:
    """SIGKILL to all nodes at once; they are started again after --down seconds."""
    if options.compose:
        compose = Compose(options.project)
        compose.kill([1, 2, 3])
        time.sleep(max(0.0, options.down))
        compose.start_nodes([1, 2, 3])
    else:
        cluster = _local(options)
        cluster.kill(cluster.running)
        time.sleep(max(0.0, options.down))
        cluster.start_nodes(cluster.nodes)
    console.print("killed all nodes; all serve again")
    return 0


def pause(options: argparse.Namespace, console: Console) -> int:
    """SIGSTOP to a node for --seconds."""
    if options.compose:
        compose = Compose(options.project)
        compose.pause(options.node)
        time.sleep(options.seconds)
        compose.resume(options.node)
    else:
        cluster = _local(options)
        _known(cluster, options.node)
        cluster.pause(options.node)
        try:
            time.sleep(options.seconds)
        finally:
            cluster.resume(options.node)
    console.print(f"paused node {options.node} for {options.seconds} s")
    return 0


def cut(options: argparse.Namespace, console: Console) -> int:
    """Cuts a node's TCP connections with its peers, or with clients, for --seconds.

    With --compose it is taken off its network: neither peers nor clients reach it.
    """
    if options.compose:
        if options.clients:
            raise HarnessError("--clients is not for --compose, where a cut is from everybody")
        compose = Compose(options.project)
        with compose.cut_off(options.node):
            time.sleep(options.seconds)
        compose.wait_serving([options.node])
        console.print(f"cut node {options.node} off its network for {options.seconds} s")
        return 0
    cluster = _local(options)
    _known(cluster, options.node)
    if cluster.proxy is None:
        raise HarnessError("no proxy runs here: scripts/cluster start --proxied")

    def do(op: str) -> None:
        assert cluster.proxy is not None
        if options.clients:
            cluster.proxy.ask(op, f"client-{options.node}")
        else:
            cluster.isolate(options.node, op)

    do("cut")
    try:
        time.sleep(options.seconds)
    finally:
        do("heal")
    whom = "clients" if options.clients else "peers"
    console.print(f"cut node {options.node} off from its {whom} for {options.seconds} s")
    return 0


def rolling_restart(options: argparse.Namespace, console: Console) -> int:
    """SIGTERM and start, one node after the other."""
    if options.compose:
        compose = Compose(options.project)
        codes: list[int | None] = []
        for node in (1, 2, 3):
            codes.append(compose.stop(node))
            compose.start_nodes([node])
    else:
        codes = roll(_local(options))
    console.print(f"restarted all nodes; exit codes {codes}")
    # A node that another command started tells this one no exit code.
    return 0 if all(code in (0, None) for code in codes) else 1


def _known(cluster: LocalCluster, node: int) -> None:
    if node not in cluster.nodes:
        raise HarnessError(f"node {node}: there are {', '.join(map(str, cluster.nodes))}")


def run_all(options: argparse.Namespace, console: Console) -> int:
    """A workload under faults by a seed, then every check; exit code 1 if one does not hold."""
    names = options.faults
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    proxied = any(FAULTS[name].needs_proxy for name in names)
    own = options.dir is None
    if own:
        shutil.rmtree(RUN_DIRECTORY / "cluster", ignore_errors=True)
        cluster = LocalCluster(RUN_DIRECTORY / "cluster", settings={}, proxied=proxied)
    else:
        cluster = LocalCluster.load(options.dir)
        if proxied and cluster.proxy is None:
            raise HarnessError("no proxy runs here: scripts/cluster start --proxied")
    load = Load(f"chaos-{seed}-{int(time.time())}", options.partitions, rate=options.rate)
    console.print(f"seed {seed}, {options.minutes} minutes of {', '.join(names)}", highlight=False)
    try:
        if own:
            cluster.start()
        result = run(
            cluster,
            seconds=options.minutes * 60,
            faults=names,
            seed=seed,
            load=load,
            say=lambda text: console.print(text, highlight=False),
        )
    finally:
        if own:
            cluster.close()
    page, data = report.write(result, options.out)
    _show(result, console)
    console.print(f"report: {page} and {data}", highlight=False)
    return 0 if result.good else 1


def _show(result: Result, console: Console) -> None:
    counts = result.history.counts()
    console.print(
        f"{len(result.events)} faults; {counts['yes']:,} writes acknowledged, "
        f"{counts['no']:,} refused, {counts['unknown']:,} unknown; "
        f"{len(result.history.reads):,} reads",
        highlight=False,
    )
    for one in result.checks:
        answer = report.ANSWERS[one.holds]
        colour = {"yes": "green", "no": "bold red", "unknown": "yellow"}[answer]
        console.print(f"  {one.name:26} [{colour}]{answer}[/] {one.found or ''}", highlight=False)
        for text in one.examples[:3]:
            console.print(f"      {text}", highlight=False, markup=False)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = list(FAULTS) if names == ["all"] else [] if names == ["none"] else names
    for name in names:
        if name not in FAULTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(FAULTS)}, all, none")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description="Faults, and their checks.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, action: Command, *, compose: bool = True) -> argparse.ArgumentParser:
        text = (action.__doc__ or "").split("\n")[0]
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(action=action)
        made.add_argument("--dir", type=Path, help="the cluster's directory")
        if compose:
            made.add_argument("--compose", action="store_true", help="the one of docker compose")
            made.add_argument("--project", default="", help="its project name")
        return made

    one = command("kill-leader", kill_leader)
    one.add_argument("topic")
    one.add_argument("partition", type=int)
    one.add_argument("--down", type=float, default=1.0, help="seconds; -1: it stays down")
    command("kill-all", kill_all).add_argument("--down", type=float, default=1.0, help="seconds")
    one = command("pause", pause)
    one.add_argument("node", type=int)
    one.add_argument("--seconds", type=float, default=3.0)
    one = command("cut", cut)
    one.add_argument("node", type=int)
    one.add_argument("--seconds", type=float, default=3.0)
    one.add_argument("--clients", action="store_true", help="from clients instead of peers")
    command("rolling-restart", rolling_restart)
    one = command("run", run_all, compose=False)
    one.add_argument("--minutes", type=float, default=1.0)
    one.add_argument("--faults", type=_names, default=list(FAULTS), metavar="LIST",
                     help="of " + ", ".join(FAULTS) + "; all, none")  # fmt: skip
    one.add_argument("--seed", type=int, help="default: a random one, which is printed")
    one.add_argument("--partitions", type=int, default=3)
    one.add_argument("--rate", type=int, default=400, help="records/s of each of three workers")
    one.add_argument("--out", type=Path, default=RUN_DIRECTORY, help="where the report goes")
    return parser


def main() -> int:
    options = _parser().parse_args()
    console = Console(soft_wrap=True)
    try:
        done: int = options.action(options, console)
        return done
    except grpc.RpcError as error:
        console.print(
            f"chaos: {as_call(error).details()}", style="red", highlight=False, markup=False
        )
        return 1
    except HarnessError as error:
        console.print(f"chaos: {error}", style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
