"""Faults for a local cluster. Each is injected, lasts a while, and is healed.

Every fault leaves the cluster as before: all nodes running, all connections open.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import closing

from harness import disk, network
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from tests.chaos import sick
from tests.chaos.node_changes import NodeChanges, empty

Wait = Callable[[float], None]


class Fault(ABC):
    """One kind of fault, ready to be injected again and again.

    topic, partitions: those whose leaders are targets. `wait` passes the time, in seconds.
    """

    name = ""
    least_nodes = 1  # one of two cannot be replaced
    kills_nodes = False  # it counts them in `kills`
    shows_recovery = False  # nodes end at once and nothing else: its silence is their recovery
    needs_proxy = needs_disks = needs_namespaces = needs_sickness = False
    needs_room = False  # for a node that the layout does not know
    needs_machines = False  # with several processes each
    knows_machines = False  # others expect that only the harness starts a node
    shortest, longest = 0.3, 3.0  # seconds that it lasts

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int) -> None:
        self.cluster, self.topic, self.partitions = cluster, topic, partitions
        self.kills = 0  # of nodes, until now

    @abstractmethod
    def inject(self, rng: random.Random, wait: Wait) -> str:
        """Injects the fault, waits, heals; returns a description in a few words."""

    def _pause(self, rng: random.Random, wait: Wait) -> float:
        seconds = round(rng.uniform(self.shortest, self.longest), 1)
        wait(seconds)
        return seconds

    def _leader(self, rng: random.Random) -> tuple[int, int]:
        partition = rng.randrange(self.partitions)
        return self.cluster.leader(self.topic, partition), partition


class KillLeader(Fault):
    name = "kill-leader"
    kills_nodes = shows_recovery = knows_machines = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        self.cluster.kill([node])
        self.kills += 1
        seconds = self._pause(rng, wait)
        self.cluster.start_nodes([node])
        return f"killed node {node}, leader of {self.topic}-{partition}, for {seconds} s"


class KillSome(Fault):
    """A leader, then others, as many as a majority can be without; each is back at its own time."""

    name = "kill-some"
    kills_nodes = shows_recovery = True
    least_nodes = 5

    def inject(self, rng: random.Random, wait: Wait) -> str:
        leader, partition = self._leader(rng)
        others = [node for node in self.cluster.nodes if node != leader]
        most = (len(self.cluster.nodes) - 1) // 2
        down = [leader, *rng.sample(others, rng.randint(1, most - 1))]
        for node in down:
            self.cluster.kill([node])
            self.kills += 1
            self._pause(rng, wait)
        rng.shuffle(down)
        for node in down:
            self.cluster.start_nodes([node], wait=False)
            self._pause(rng, wait)
        self.cluster.wait_serving(down)
        self.cluster.wait_joined()
        return f"killed {listed(sorted(down))}; node {leader} led {self.topic}-{partition}"


class KillMachine(Fault):
    """All processes of a leader's machine, and their supervisor."""

    name = "kill-machine"
    kills_nodes = shows_recovery = needs_machines = knows_machines = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        leader, partition = self._leader(rng)
        machine = self.cluster.machine_of(leader)
        nodes = self.cluster.nodes_of(machine)
        self.cluster.kill_machines([machine])
        self.kills += len(nodes)
        seconds = self._pause(rng, wait)
        self.cluster.start_nodes(nodes)
        led = f"node {leader} led {self.topic}-{partition}"
        return f"killed machine {machine} ({listed(nodes)}) for {seconds} s; {led}"


class KillAll(Fault):
    name = "kill-all"
    kills_nodes = shows_recovery = knows_machines = True
    longest = 1.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        self.cluster.kill_machines(self.cluster.machines)
        self.kills += len(self.cluster.nodes)
        seconds = self._pause(rng, wait)
        self.cluster.start_nodes(self.cluster.nodes)
        return f"killed all nodes at once, for {seconds} s"


class Pause(Fault):
    name = "pause"
    knows_machines = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        try:
            self.cluster.pause(node)
            seconds = self._pause(rng, wait)
        finally:
            self.cluster.resume(node)
        return f"paused node {node}, leader of {self.topic}-{partition}, for {seconds} s"


class Cut(Fault):
    """A node is cut off from its peers; clients still reach it."""

    name = "cut"
    needs_proxy = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        try:
            self.cluster.isolate(node)
            seconds = self._pause(rng, wait)
        finally:
            self.cluster.isolate(node, "heal")
        return f"cut node {node}, leader of {self.topic}-{partition}, from its peers, {seconds} s"


class Reset(Fault):
    """Resets of all TCP connections of clients, several times."""

    name = "reset"
    needs_proxy = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        assert self.cluster.proxy is not None
        times = rng.randint(1, 5)
        for _ in range(times):
            for node in self.cluster.nodes:
                self.cluster.proxy.ask("reset", f"client-{node}")
            wait(rng.uniform(0.05, 0.5))
        return f"reset all connections of clients {times} times"


class Freeze(Fault):
    """A leader's answers to its clients hang; then the connection breaks."""

    name = "freeze"
    needs_proxy = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        assert self.cluster.proxy is not None
        node, partition = self._leader(rng)
        route = f"client-{node}"
        try:
            self.cluster.proxy.ask("freeze", route, direction="down")
            seconds = self._pause(rng, wait)
        finally:
            self.cluster.proxy.ask("reset", route)
            self.cluster.proxy.ask("heal", route)
        return f"froze the answers of node {node}, leader of {self.topic}-{partition}, {seconds} s"


class Partition(Fault):
    """A network split: some messages are lost, between sides, one way, or with a bridge."""

    name = "partition"
    needs_namespaces = True
    # Long enough for another leader, and for the old one to notice.
    shortest, longest = 2.0, 6.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        others = [other for other in self.cluster.nodes if other != node]
        rng.shuffle(others)
        alone = [node, *others[: rng.randrange(len(others))]]
        rest = [other for other in others if other not in alone]
        shape = rng.choice(("split", "mute", "deaf", "bridge") if len(others) > 1 else ("split",))
        match shape:
            case "split":
                sides, one_way = (alone, rest), False
            case "mute":
                sides, one_way = ([node], others), True
            case "deaf":
                sides, one_way = (others, [node]), True
            case _:
                sides, one_way = ([node, *others[2:]], others[1:2]), False
        with self.cluster.split(*sides, one_way=one_way):
            seconds = self._pause(rng, wait)
        what = describe_split(*sides, one_way=one_way)
        return f"{what}, {seconds} s; node {node} led {self.topic}-{partition}"


class PowerCut(Fault):
    """The power of some nodes, or of all, is lost, with all unsynced data."""

    name = "power-cut"
    kills_nodes = shows_recovery = True
    needs_disks = True
    longest = 1.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        nodes = list(self.cluster.nodes)
        down = sorted(rng.sample(nodes, rng.randint(1, len(nodes))))
        self.cluster.cut_power(down)
        self.kills += len(down)
        seconds = self._pause(rng, wait)
        self.cluster.start_nodes(down)
        return f"cut the power of {listed(down)}, for {seconds} s"


class DiskFull(Fault):
    """A node's disk is full: it stays readable, and goes on by itself when there is space."""

    name = "disk-full"
    needs_disks = True
    shortest, longest = 1.0, 5.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        leader, partition = self._leader(rng)
        node = rng.choice((leader, rng.choice(list(self.cluster.nodes))))
        with self.cluster.disks[node].full():
            seconds = self._pause(rng, wait)
            demand_readable(self.cluster, node)
        self.cluster.wait_caught_up(node)
        led = f"; node {leader} led {self.topic}-{partition}"
        return f"filled the disk of node {node}, for {seconds} s{led}"


class Clock(Fault):
    """A node's wall clock is wrong, by a minute or by years: it does not lead until it is right."""

    name = "clock"
    needs_sickness = True
    shortest, longest = 1.0, 6.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        leader, partition = self._leader(rng)
        node = rng.choice((leader, rng.choice(list(self.cluster.nodes))))
        ahead = rng.choice((-1, 1)) * round(10 ** rng.uniform(1.8, 7.5))
        machine = sick.machine(self.cluster, node)
        machine.set_clock(1000 * ahead)
        try:
            seconds = self._pause(rng, wait)
        finally:
            machine.heal()
        led = f"; node {leader} led {self.topic}-{partition}"
        return f"the clock of node {node} was {ahead} s ahead, for {seconds} s{led}"


class SlowDisk(Fault):
    """Each sync of a node takes longer, up to some election timeouts."""

    name = "slow-disk"
    needs_sickness = True
    shortest, longest = 1.0, 6.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        delay = round(10 ** rng.uniform(1.3, 3.3))
        machine = sick.machine(self.cluster, node)
        machine.slow_syncs(delay)
        try:
            seconds = self._pause(rng, wait)
        finally:
            machine.heal()
        led = f"leader of {self.topic}-{partition}"
        return f"each sync of node {node}, {led}, took {delay} ms longer, for {seconds} s"


class FailedSync(Fault):
    """A sync fails with EIO, and its data is gone: the node has to end."""

    name = "eio"
    shows_recovery = True
    needs_sickness = True
    shortest, longest = 0.1, 1.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        machine, process = sick.machine(self.cluster, node), self.cluster.nodes[node]
        machine.fail_syncs(1)
        try:
            process.wait()
        finally:
            machine.heal()
        lost = machine.take_lost_pages()
        self._pause(rng, wait)
        self.cluster.start_nodes([node])
        led = f"leader of {self.topic}-{partition}"
        return f"a sync of node {node}, {led}, failed: it ended, and {lost} bytes are gone"


class RollingRestart(Fault):
    name = "rolling-restart"
    knows_machines = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        codes = roll(self.cluster)
        return f"restarted all nodes with SIGTERM, exit codes {codes}"


class ReplaceDisk(Fault):
    """A node's disk is replaced, one at a time, and only while no other one is being filled."""

    name = "replace-disk"
    kills_nodes = True
    least_nodes = 3

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        others = [other for other in self.cluster.nodes if other != node]
        with closing(NodeChanges(self.cluster, rng, wait, asked=others)) as changes:
            changes.settle(self.cluster.nodes)
            self.cluster.kill([node])
            self.kills += 1
            empty(self.cluster.nodes[node].spec.data_dir)
            seconds = self._pause(rng, wait)
            changes.replace(node)
            self.cluster.start_nodes([node])
            changes.settle([node])
        led = f"leader of {self.topic}-{partition}"
        return f"replaced the disk of node {node}, {led}, after {seconds} s without it"


class AddNode(Fault):
    """A node joins and takes partitions; then it goes. Nodes are killed meanwhile."""

    name = "add-node"
    kills_nodes = True
    least_nodes, needs_room = 3, True
    most_kills = 6

    def inject(self, rng: random.Random, wait: Wait) -> str:
        kills, stay = rng.randint(0, self.most_kills), list(self.cluster.nodes)
        with closing(
            NodeChanges(self.cluster, rng, wait, asked=stay, kills=kills)
        ) as changes, self.cluster.spare() as node:  # fmt: skip
            changes.add(node)
            changes.settle([node])
            changes.move_to(self.topic, node)
            changes.remove(node)
            changes.settle(stay)
        self.kills += len(changes.killed)
        self.cluster.wait_joined()
        return f"added node {node} and removed it again; killed meanwhile: {changes.killed}"


class RemoveNode(Fault):
    """A node goes, and another has come for it; then it comes back with an empty directory."""

    name = "remove-node"
    kills_nodes = True
    least_nodes, needs_room = 3, True
    most_kills = 6

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        kills, stay = rng.randint(0, self.most_kills), [n for n in self.cluster.nodes if n != node]
        with closing(
            NodeChanges(self.cluster, rng, wait, asked=stay, kills=kills)
        ) as changes, self.cluster.spare() as other:  # fmt: skip
            changes.add(other)
            changes.settle([other])
            changes.remove(node)
            changes.settle([*stay, other])
            empty(self.cluster.nodes[node].spec.data_dir)
            changes.add(node)
            self.cluster.nodes[node].start()
            changes.settle([node])
            changes.remove(other)
            changes.settle(self.cluster.nodes.keys() - {other})
        self.kills += len(changes.killed)
        self.cluster.wait_joined()
        led = f"leader of {self.topic}-{partition}"
        return f"removed node {node}, {led}, and had it back; killed meanwhile: {changes.killed}"


def listed(nodes: Iterable[int]) -> str:
    """Lists nodes in words."""
    names = [str(node) for node in nodes]
    return f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"


def describe_split(*sides: Iterable[int], one_way: bool) -> str:
    """Describes a split in words."""
    named = [listed(side) for side in sides]
    if one_way:
        return f"lost what {named[0]} sent to {' and '.join(named[1:])}"
    return f"split {' from '.join(named)}"


def demand_readable(cluster: LocalCluster, node: int) -> None:
    """Reads the first batches that the node keeps. Raises HarnessError if it cannot."""
    cluster.nodes[node].check_alive()
    for topic in cluster.api(node).topics():
        for part in topic.partitions:
            if node not in part.replicas:
                continue
            found = cluster.api(node).fetch(
                topic.name, part.partition, part.log_start_offset, any_replica=True
            )
            if found.error:
                raise HarnessError(f"node {node} cannot read {topic.name}: {found.message}")


def lacking(
    kind: type[Fault], cluster: LocalCluster | None = None, nodes: int = 3, processes: int = 1
) -> str:
    """Names the reason why the fault is unavailable; empty if it is available.

    In a cluster, or else on this machine with so many nodes, or machines, that it starts.
    """
    processes = processes if cluster is None else cluster.processes
    if kind.needs_machines and processes == 1:
        return "needs --processes 2"
    if not kind.knows_machines and processes > 1:
        return "needs --processes 1"
    if cluster is None and nodes < kind.least_nodes:
        return f"needs --nodes {kind.least_nodes}"
    if cluster is None:
        reasons = (
            disk.missing() if kind.needs_disks else "",
            sick.missing() if kind.needs_sickness else "",
            network.missing() if kind.needs_namespaces else "",
        )
        return next(filter(None, reasons), "")
    needed = (
        (kind.needs_proxy and cluster.proxy is None, "proxied"),
        (kind.needs_disks and not cluster.disks, "disks"),
        (kind.needs_namespaces and cluster.network is None, "namespaces"),
        (kind.needs_namespaces and len(cluster.nodes) == 1, "nodes 3"),
    )
    if kind.needs_sickness and not sick.is_prepared(cluster):
        return "needs a cluster of the run's own, without --dir"
    if len(cluster.nodes) < kind.least_nodes:
        return f"needs {kind.least_nodes} nodes"
    if kind.needs_room and not cluster.may_grow:
        return "needs a cluster without --namespaces or TLS"
    missing = [f"--{option}" for absent, option in needed if absent]
    return f"needs scripts/cluster start {' '.join(missing)}" if missing else ""


def roll(cluster: LocalCluster) -> list[int | None]:
    """Restarts one machine after the other (SIGTERM and start); returns their exit codes."""
    codes = []
    for machine, process in cluster.machines.items():
        codes.append(process.terminate())
        cluster.start_nodes(cluster.nodes_of(machine))
    return codes


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        KillLeader,
        KillSome,
        KillMachine,
        KillAll,
        Pause,
        Cut,
        Reset,
        Freeze,
        Partition,
        PowerCut,
        DiskFull,
        Clock,
        SlowDisk,
        FailedSync,
        RollingRestart,
        ReplaceDisk,
        AddNode,
        RemoveNode,
    )
}
