"""scripts/chaos: single faults for a running cluster, and whole runs.

A cluster is that of `scripts/cluster` (--dir) or, with --compose, that of docker-compose.yml.
`run` makes a cluster of its own unless --dir names a running one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console

from harness import network
from harness.api import as_call
from harness.arguments import number
from harness.developer import DIRECTORY
from harness.local_cluster import QUICK, LocalCluster
from harness.node_process import ROOT, HarnessError
from tests.chaos import failover, groups, linearizability, report, sick, transactions
from tests.chaos.compose import NODES, Compose
from tests.chaos.faults import (
    FAULTS,
    Fault,
    demand_readable,
    describe_split,
    lacking,
    listed,
    roll,
)
from tests.chaos.run import run
from tests.chaos.workload import Load

RUN_DIRECTORY = ROOT / "data" / "chaos"
ALL = "all"
SHOWN = 5  # faults of a run
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
        cluster.kill_machines(m for m, process in cluster.machines.items() if process.running)
        time.sleep(max(0.0, options.down))
        cluster.start_nodes(cluster.nodes)
    console.print("killed all nodes; all serve again")
    return 0


def kill_machine(options: argparse.Namespace, console: Console) -> int:
    """SIGKILL to all processes of a machine; they are started again after --down seconds."""
    cluster = _local(options)
    if options.machine not in cluster.machines:
        known = ", ".join(map(str, cluster.machines))
        raise HarnessError(f"machine {options.machine}: there are {known}")
    cluster.kill_machines([options.machine])
    time.sleep(max(0.0, options.down))
    nodes = cluster.nodes_of(options.machine)
    cluster.start_nodes(nodes)
    console.print(f"killed {listed(nodes)}: serving again", highlight=False)
    return 0


def pause(options: argparse.Namespace, console: Console) -> int:
    """SIGSTOP to a node for --seconds."""
    cluster: Compose | LocalCluster
    if options.compose:
        cluster = Compose(options.project)
    else:
        cluster = _local(options)
        _known(cluster, options.node)
    try:
        # In here: a signal may come as soon as the fault is there.
        cluster.pause(options.node)
        time.sleep(options.seconds)
    finally:
        cluster.resume(options.node)
    console.print(f"paused node {options.node} for {options.seconds} s")
    return 0


def power_cut(options: argparse.Namespace, console: Console) -> int:
    """Cuts the power of nodes' disks: the unsynced data is lost, and the nodes end."""
    cluster = _local(options)
    _known(cluster, *options.nodes)
    if not cluster.disks:
        raise HarnessError("no node has a disk of its own here: scripts/cluster start --disks")
    cluster.cut_power(options.nodes)
    console.print(f"cut the power of {listed(options.nodes)}", highlight=False)
    if options.down < 0:
        return 0
    time.sleep(options.down)
    cluster.start_nodes(options.nodes)
    console.print(f"{listed(options.nodes)}: serving again", highlight=False)
    return 0


def disk_full(options: argparse.Namespace, console: Console) -> int:
    """Fills a node's disk for --seconds; then waits until it has caught up by itself."""
    cluster = _local(options)
    _known(cluster, options.node)
    if not cluster.disks:
        raise HarnessError("no node has a disk of its own here: scripts/cluster start --disks")
    cluster.nodes[options.node].check_alive()
    with cluster.disks[options.node].full():
        console.print(f"the disk of node {options.node} is full", highlight=False)
        time.sleep(options.seconds)
        demand_readable(cluster, options.node)
        console.print("it is still readable", highlight=False)
    cluster.wait_caught_up(options.node)
    console.print(f"there is space again, and node {options.node} has all that the others have")
    return 0


def partition(options: argparse.Namespace, console: Console) -> int:
    """Nodes of different SIDES do not reach each other for --seconds; clients reach all.

    With --compose one node is taken off its network, so clients do not reach it either.
    """
    sides: list[list[int]] = options.sides
    what = describe_split(*sides, one_way=options.one_way)
    if options.compose:
        alone = [side for side in sides if len(side) == 1]
        if options.one_way or len(sides) != 2 or not alone or sum(map(len, sides)) != len(NODES):
            raise HarnessError("--compose can only split one node from all others, both ways")
        options.node, options.clients = alone[0][0], False
        return cut(options, console)
    cluster = _local(options)
    _known(cluster, *(node for side in sides for node in side))
    if cluster.network is None:
        raise HarnessError("the nodes share a network here: scripts/cluster start --namespaces")
    with cluster.split(*sides, one_way=options.one_way):
        console.print(what, highlight=False)
        time.sleep(options.seconds)
    console.print("all nodes reach each other again")
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


def _known(cluster: LocalCluster, *nodes: int) -> None:
    for node in nodes:
        if node not in cluster.nodes:
            raise HarnessError(f"node {node}: there are {', '.join(map(str, cluster.nodes))}")


def run_all(options: argparse.Namespace, console: Console) -> int:
    """Runs a workload under faults by a seed, then every check; exit code 1 if one fails."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    own = options.dir is None
    given = None if own else LocalCluster.load(options.dir)
    names, left_out = possible(options.faults, given, options.nodes, options.processes)
    if options.kills and not any(FAULTS[name].kills_nodes for name in names):
        raise HarnessError(f"--kills: none of {', '.join(names) or 'nothing'} kills a node")
    cluster = given or _cluster_for(
        [FAULTS[name] for name in names],
        secured=options.secured,
        nodes=options.nodes,
        processes=options.processes,
    )
    load = Load(f"chaos-{seed}-{int(time.time())}", options.partitions, rate=options.rate)
    console.print(f"seed {seed}, {options.minutes} minutes of {', '.join(names)}", highlight=False)
    for name, why in left_out.items():
        console.print(f"left out: {name}: {why}", style="yellow", highlight=False, markup=False)
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
            left_out=left_out,
            kills=options.kills,
            replicas=options.replicas,
            recorders=options.events,
        )
    finally:
        if own:
            cluster.close()
    page, data = report.write(result, options.out)
    report.show(result, console)
    console.print(f"report: {page} and {data}", highlight=False)
    return 0 if result.good else 1


def run_groups(options: argparse.Namespace, console: Console) -> int:
    """Harms members of a consumer group and its coordinators; has a checker of its own."""
    console.print(f"seed {options.seed}, {options.minutes} minutes", highlight=False)
    with tempfile.TemporaryDirectory() as root:
        wrong = groups.chaos(options.minutes * 60, options.seed, Path(root))
    for text in wrong or ["nothing is wrong"]:
        console.print(text, highlight=False, markup=False)
    return 1 if wrong else 0


def run_transactions(options: argparse.Namespace, console: Console) -> int:
    """List-append over transactions under faults by a seed, and its own checker."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    names, left_out = possible(options.faults, None)
    console.print(f"seed {seed}, {options.minutes} minutes of {', '.join(names)}", highlight=False)
    for name, why in left_out.items():
        console.print(f"left out: {name}: {why}", style="yellow", highlight=False, markup=False)
    load = transactions.Load("appends", options.partitions, unprotected=options.unprotected)
    with _cluster_for([FAULTS[name] for name in names], secured=False) as cluster:
        result = transactions.run(
            cluster,
            seconds=options.minutes * 60,
            faults=names,
            seed=seed,
            load=load,
            say=lambda text: console.print(text, highlight=False),
        )
    for line in transactions.lines(result):
        console.print(line, highlight=False, markup=False)
    return 0 if result.good else 1


def run_linearizability(options: argparse.Namespace, console: Console) -> int:
    """Conditional appends and the key-value store of examples/, judged by Porcupine (needs Go)."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    names, left_out = possible(options.faults, None)
    console.print(f"seed {seed}, {options.minutes} minutes of {', '.join(names)}", highlight=False)
    for name, why in left_out.items():
        console.print(f"left out: {name}: {why}", style="yellow", highlight=False, markup=False)
    with _cluster_for([FAULTS[name] for name in names], secured=False) as cluster:
        result = linearizability.run(
            cluster,
            seconds=options.minutes * 60,
            faults=names,
            seed=seed,
            say=lambda text: console.print(text, highlight=False),
            out=options.out,
        )
    console.print(result.said, highlight=False, markup=False)
    broken = [one for one in result.checks if not one.holds]
    for one in broken:
        console.print(f"BROKEN {one.claim}: {one.examples}", highlight=False, markup=False)
    console.print(
        f"our checker: {len(result.checks) - len(broken)} checks hold, {len(broken)} do not"
    )
    return 0 if result.good else 1


def run_kafka(options: argparse.Namespace, console: Console) -> int:
    """Kills leaders under Kafka's producers; counts lost, repeated and displaced records.

    Then the same under their transactions: none may be torn.
    """
    from tests.chaos import kafka_producers, kafka_transactions
    from tests.chaos.java_producers import HAS_JAVA, JavaLoad, JavaSession

    loads = [kafka_producers.LibrdkafkaLoad, *([JavaLoad] if HAS_JAVA else ())]
    sessions = [kafka_transactions.LibrdkafkaSession, *([JavaSession] if HAS_JAVA else ())]
    if not HAS_JAVA:
        console.print("left out: Java's producers: they need a JDK and Maven", style="yellow")

    folder = RUN_DIRECTORY / "kafka"
    LocalCluster.remove(folder)
    with LocalCluster(folder, settings=QUICK, kafka=True) as cluster:
        protected = not options.unprotected
        found = kafka_producers.run(cluster, "load", options.kills, loads, once=protected)
        for client, one in found.items():
            console.print(client, one, highlight=False)
        transactions = kafka_transactions.run(
            cluster, sessions, "transactions", options.kills, whole=protected
        )
        shown = replace(transactions, faults=transactions.faults[:SHOWN])
        console.print(shown, f"{len(transactions.faults)} faults", highlight=False)
    wrong = any(one.lost or one.twice or one.disordered for one in found.values())
    return 1 if wrong or transactions.faults else 0


def measure_failover(options: argparse.Namespace, console: Console) -> int:
    """Kills leaders and cuts nodes off, and measures the disruption of each."""
    folder = RUN_DIRECTORY / "cluster"
    LocalCluster.remove(folder)
    namespaces = not network.missing()
    if not namespaces:
        why = f"{network.missing()}: connections are reset instead of packets lost"
        console.print(why, style="yellow", highlight=False, markup=False)
    cluster = LocalCluster(
        folder, settings=failover.SETTINGS, proxied=not namespaces, namespaces=namespaces
    )
    with cluster:
        figures = failover.measure(
            cluster,
            kills=options.kills,
            rejoins=options.rejoins,
            say=lambda text: console.print(text, highlight=False),
        )
    for table in failover.tables(figures):
        console.print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures.to_json(), indent=2) + "\n")
    console.print(f"figures: {options.out}", highlight=False)
    return 0


def possible(
    names: list[str], cluster: LocalCluster | None, nodes: int = 3, processes: int = 1
) -> tuple[list[str], dict[str, str]]:
    """Returns the faults to inject, and the unavailable ones of "all" with the reason.

    Raises HarnessError for a fault that was asked for by its name and is unavailable.
    """
    chosen = list(FAULTS) if names == [ALL] else names
    where = (cluster, nodes, processes)
    left_out = {name: why for name in chosen if (why := lacking(FAULTS[name], *where))}
    crowded = any(FAULTS[name].needs_namespaces for name in chosen if name not in left_out)
    for name in chosen if crowded else ():
        if FAULTS[name].needs_room:
            left_out[name] = "a node more has no place among namespaces: run it by itself"
    if left_out and names != [ALL]:
        raise HarnessError("; ".join(f"{name}: {why}" for name, why in left_out.items()))
    return [name for name in chosen if name not in left_out], left_out


def _cluster_for(
    kinds: list[type[Fault]], *, secured: bool, nodes: int = 3, processes: int = 1
) -> LocalCluster:
    """Starts a new cluster that supports the faults, in place of the last run's.

    secured: all clients of this process, and of those that it starts, speak TLS.
    """
    folder = RUN_DIRECTORY / "cluster"
    LocalCluster.remove(folder)
    cluster = LocalCluster(
        folder,
        nodes,
        settings={},
        secured=secured,
        processes=processes,
        proxied=any(kind.needs_proxy for kind in kinds),
        disks=any(kind.needs_disks for kind in kinds),
        namespaces=any(kind.needs_namespaces for kind in kinds),
    )
    if any(kind.needs_sickness for kind in kinds):
        sick.prepare(cluster)
    os.environ.update(cluster.environment)
    return cluster


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = [] if names == ["none"] else names
    for name in names:
        if name not in FAULTS and names != [ALL]:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(FAULTS)}, all, none")
    return names


def _sides(text: str) -> list[list[int]]:
    try:
        sides = [[int(node) for node in side.split(",")] for side in text.split("/")]
    except ValueError:
        sides = []
    nodes = [node for side in sides for node in side]
    if len(sides) < 2 or len(set(nodes)) != len(nodes):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 1/2,3, each node once at most")
    return sides


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
    one = command("kill-machine", kill_machine, compose=False)
    one.add_argument("machine", type=int, help="its first node")
    one.add_argument("--down", type=float, default=1.0, help="seconds")
    one = command("pause", pause)
    one.add_argument("node", type=int)
    one.add_argument("--seconds", type=float, default=3.0)
    one = command("cut", cut)
    one.add_argument("node", type=int)
    one.add_argument("--seconds", type=float, default=3.0)
    one.add_argument("--clients", action="store_true", help="from clients instead of peers")
    one = command("partition", partition)
    text = "such as 1/2,3; a node of no side reaches all: with 1/3 node 2 is a bridge"
    one.add_argument("sides", type=_sides, metavar="SIDES", help=text)
    one.add_argument("--one-way", action="store_true", help="lose only what the first side sends")
    one.add_argument("--seconds", type=float, default=5.0)
    one = command("power-cut", power_cut, compose=False)
    one.add_argument("nodes", type=int, nargs="+", metavar="NODE")
    one.add_argument("--down", type=float, default=1.0, help="seconds; -1: they stay down")
    one = command("disk-full", disk_full, compose=False)
    one.add_argument("node", type=int)
    one.add_argument("--seconds", type=float, default=5.0)
    command("rolling-restart", rolling_restart)
    _add_other_runs(commands)
    _add_run(command("run", run_all, compose=False))
    return parser


def _add_other_runs(commands: Any) -> None:
    """Adds runs with loads and checkers of their own. commands: subparsers."""
    one = commands.add_parser("failover", help=(measure_failover.__doc__ or ""))
    one.set_defaults(action=measure_failover)
    one.add_argument("--kills", type=number(int, 1), default=20, help="of leaders (default 20)")
    one.add_argument("--rejoins", type=number(int, 1), default=3,
                     help="of a follower and of a leader each (default 3)")  # fmt: skip
    one.add_argument("--out", type=Path, default=RUN_DIRECTORY / "failover.json")
    one = commands.add_parser("kafka", help=(run_kafka.__doc__ or ""))
    one.set_defaults(action=run_kafka)
    one.add_argument("--kills", type=number(int, 1), default=6, help="of leaders (default 6)")
    one.add_argument("--unprotected", action="store_true",
                     help="no idempotence, no transactions: the checks must break")  # fmt: skip
    one = commands.add_parser("groups", help=(run_groups.__doc__ or ""))
    one.set_defaults(action=run_groups)
    one.add_argument("--minutes", type=float, default=1.0)
    one.add_argument("--seed", type=int, default=1)
    one = commands.add_parser("transactions", help=(run_transactions.__doc__ or ""))
    one.set_defaults(action=run_transactions)
    one.add_argument("--minutes", type=float, default=1.0)
    one.add_argument("--faults", type=_names, default=[ALL], metavar="LIST", help="as of run")
    one.add_argument("--seed", type=int, help="default: a random one, which is printed")
    one.add_argument("--partitions", type=number(int, 2), default=4)
    one.add_argument("--unprotected", action="store_true",
                     help="the same load without transactions: the checks must break")  # fmt: skip
    one = commands.add_parser("linearizability", help=(run_linearizability.__doc__ or ""))
    one.set_defaults(action=run_linearizability)
    one.add_argument("--minutes", type=float, default=1.0)
    one.add_argument("--faults", type=_names, default=[ALL], metavar="LIST", help="as of run")
    one.add_argument("--seed", type=int, help="default: a random one, which is printed")
    one.add_argument("--out", type=Path, default=RUN_DIRECTORY / "linearizability",
                     help="where the history goes, and its picture if it is wrong")  # fmt: skip


def _add_run(one: argparse.ArgumentParser) -> None:
    one.add_argument("--minutes", type=float, default=1.0)
    one.add_argument("--faults", type=_names, default=[ALL], metavar="LIST",
                     help="of " + ", ".join(FAULTS) + "; none; all: what can be had")  # fmt: skip
    one.add_argument("--seed", type=int, help="default: a random one, which is printed")
    one.add_argument("--partitions", type=number(int, 2), default=4,
                     help="the last one is for conditional appends (default 4)")  # fmt: skip
    one.add_argument("--nodes", type=number(int, 1, 9), default=3,
                     help="if the run starts them (default 3)")  # fmt: skip
    one.add_argument("--processes", type=number(int, 1, 9), default=1,
                     help="of each node, which is a machine then (default 1)")  # fmt: skip
    one.add_argument("--replicas", type=number(int, 1, 9), default=0,
                     help="of each partition (default: one on each node or machine)")  # fmt: skip
    one.add_argument("--kills", type=number(int, 0), default=0,
                     help="go on until so many nodes were killed (default 0)")  # fmt: skip
    one.add_argument("--secured", action="store_true", help="TLS on all ports")
    one.add_argument("--events", action="store_true",
                     help="each duplicate and fence must be an event of a node")  # fmt: skip
    one.add_argument("--rate", type=int, default=400, help="records/s of each of three workers")
    one.add_argument("--out", type=Path, default=RUN_DIRECTORY, help="where the report goes")


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)  # an exception, so that the fault in progress is healed


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
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
