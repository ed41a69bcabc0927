"""Cluster of real node processes on loopback, with a directory that describes it.

    ROOT/cluster.json        each node's start settings (layout.py)
    ROOT/node1/              data directory
    ROOT/node1.log, .pid     output, and the process while it runs

With `processes`, each of the nodes is a machine with so many: a process in `machines` with several
in `nodes`. Otherwise the two are the same.

With `proxied`, clients reach each node, and nodes reach each other, through one TCP proxy
(routes `client-2`, `1-3`, ...) that can cut connections. With `disks`, each data directory is a
file system of its own, kept in ROOT/node1.disk, ..., with power cuts and a way to fill it. With
`namespaces`, each node has a network namespace of its own, and messages from one node to another
can be lost. Both need root.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any, Self

import grpc

from harness import disk
from harness.api import Api, Batch, Result, verdict
from harness.layout import DESCRIPTION, Layout
from harness.lease_tokens import Tokens
from harness.machine_process import MachineProcess
from harness.node_process import HarnessError, NodeProcess
from harness.ports import LOOPBACK, PROCESS_STEP, free_ports
from harness.proxy import Proxy
from oncelog.v1 import cluster_pb2, log_pb2

START_TIMEOUT = 60.0  # seconds until a node serves
LEADER_TIMEOUT = 60.0
ANSWER_TIMEOUT = 1.0  # for one request to a node that may be paused
WATCH_SLICE = 0.5  # seconds between checks that the awaited process still lives
LOOK_AGAIN = 0.02  # seconds; nodes have no call that waits for a leader
# Faults are injected many times a minute: timers are shorter than in production.
QUICK: dict[str, str | int] = {
    "election_timeout_ms": 500,
    "heartbeat_ms": 50,
    "preferred_leader_delay_ms": 1000,
}


class LocalCluster:
    """Nodes by id in `nodes`. The context manager starts the cluster and, at the end, kills it."""

    def __init__(
        self,
        root: Path,
        nodes: int = 3,
        *,
        settings: Mapping[str, str | int] | None = None,
        proxied: bool = False,
        metrics: bool = False,
        kafka: bool = False,
        disks: bool = False,
        namespaces: bool = False,
        detached: bool = False,
        ports: list[int] | None = None,
        cluster_id: str = "oncelog",
        layout: Layout | None = None,
        secured: bool = False,
        processes: int = 1,
    ) -> None:
        """Plans a new cluster, or takes over `layout`. Raises HarnessError if that is impossible.

        ports: one for each node, instead of any free ports.
        secured: TLS on all ports; clients take `client_files` as settings.
        layout: that of an existing cluster; the other arguments are then unused.
        """
        self._layout = layout or Layout.plan(
            root.resolve(),
            nodes,
            QUICK if settings is None else settings,
            cluster_id=cluster_id,
            proxied=proxied,
            metrics=metrics,
            kafka=kafka,
            disks=disks,
            namespaces=namespaces,
            ports=ports,
            secured=secured,
            processes=processes,
        )
        self.root = self._layout.root
        self.network = self._layout.network
        self.metrics_addresses = self._layout.metrics
        self.kafka_addresses = {n: self._layout.kafka_address(n) for n in self._layout.kafka}
        ids = self._layout.listen
        self.addresses = {node: self._layout.client_address(node) for node in ids}
        self.machines: dict[int, NodeProcess] = {}
        self.nodes: dict[int, NodeProcess] = {}
        if self.processes == 1:
            self.nodes = {n: NodeProcess(self._layout.spec(n), detached=detached) for n in ids}
            self.machines = self.nodes
        else:
            machines = {m: MachineProcess(self._layout.spec(m)) for m in self._layout.machines}
            self.machines |= machines
            self.nodes = {n: machines[n % PROCESS_STEP].of_node(n) for n in ids}
        self.disks: dict[int, disk.Disk] = {}
        if self._layout.disks:
            self.disks = {
                n: disk.Disk(self.root / f"node{n}.disk", self.root / f"node{n}") for n in ids
            }
        self.proxy: Proxy | None = None
        if self._layout.control_port:
            port, log = self._layout.control_port, self.root / "proxy.log"
            self.proxy = Proxy(port, self._layout.routes, log, detached=detached)
        self.tokens = Tokens()
        self.tokens.each = secured
        self._apis: dict[int, Api] = {}

    # -- a cluster that another command started ---------------------------------------------

    @staticmethod
    def remove(root: Path) -> None:
        """Ends and deletes the cluster in `root`, with its disks and namespaces."""
        if (root / DESCRIPTION).exists():
            LocalCluster.load(root).close()
        shutil.rmtree(root, ignore_errors=True)

    @classmethod
    def load(cls, root: Path) -> Self:
        """Takes over the cluster in `root` with its running processes. Raises HarnessError."""
        self = cls(root, layout=Layout.load(root.resolve()), detached=True)
        for process in (*self.machines.values(), *self.nodes.values()):
            process.attach()
        if self.proxy is not None:
            self.proxy.attach()
        return self

    # -- life -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts all stopped nodes, and waits until all serve.

        Namespaces and mounted disks of an earlier run are removed first.
        """
        stopped = [node for node, process in self.nodes.items() if not process.running]
        if self.network is not None and stopped == list(self.nodes):
            self.network.open()
        for node in stopped:
            if node in self.disks:
                self.disks[node].open()
        self._layout.save()
        self._layout.make_certificates()
        if self.proxy is not None and not self.proxy.running:
            self.proxy.start()
        self.start_nodes(stopped)

    def start_nodes(self, nodes: Iterable[int], *, wait: bool = True) -> None:
        started = list(nodes)
        for node in started:
            self.nodes[node].start()
        if wait:
            self.wait_serving(started)
            self.wait_joined()
            self._wait_labelled()

    def change_spec(self, node: int, **changes: Any) -> NodeProcess:
        """Changes the spec of a stopped node, for its next start."""
        assert not self.nodes[node].running
        self.nodes[node] = NodeProcess(replace(self.nodes[node].spec, **changes))
        return self.nodes[node]

    def close(self) -> None:
        """Kills running nodes, unmounts disks, removes namespaces. The files stay."""
        for api in self._apis.values():
            api.close()
        self._apis.clear()
        _kill(process for process in self.machines.values() if process.running)
        if self.proxy is not None:
            self.proxy.close()
        for one in self.disks.values():
            one.close()
        if self.network is not None:
            self.network.close()

    @contextmanager
    def spare(self) -> Iterator[int]:
        """Runs one more node, unknown to the cluster, for the body; then removes it.

        It learns its cluster from the others (setting `join`), and has no routes and no disk.
        """
        assert self.may_grow
        node = max(self.nodes) + 1
        (port,) = free_ports(1)
        address = f"{LOOPBACK}:{port}"
        first = self._layout.spec(min(self.nodes))
        spec = replace(
            first,
            node_id=node,
            listen=address,
            advertise=address,
            nodes={node: address},
            data_dir=self.root / f"node{node}",
            log_file=self.root / f"node{node}.log",
            metrics_listen="",
            settings={**first.settings, "join": ",".join(self._layout.listen.values())},
        )
        shutil.rmtree(spec.data_dir, ignore_errors=True)
        self.nodes[node], self.addresses[node] = NodeProcess(spec), address
        try:
            self.nodes[node].start()
            yield node
        finally:
            process = self.nodes.pop(node)
            del self.addresses[node]
            if node in self._apis:
                self._apis.pop(node).close()
            if process.running:
                process.kill()
            shutil.rmtree(spec.data_dir, ignore_errors=True)

    # -- faults -----------------------------------------------------------------------------

    def kill(self, nodes: Iterable[int]) -> None:
        """Sends SIGKILL to all, as close together as possible; then waits for their ends.

        A supervisor starts its own again.
        """
        _kill(self.nodes[node] for node in nodes)

    def kill_machines(self, machines: Iterable[int]) -> None:
        """Does the same to all processes of these machines, with their supervisors."""
        _kill(self.machines[machine] for machine in machines)

    def restart(self, node: int) -> None:
        """Kills a node with SIGKILL and starts it; waits until it serves."""
        self.kill([node])
        self.start_nodes([node])

    def pause(self, node: int) -> None:
        self.nodes[node].signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self.nodes[node].signal(signal.SIGCONT)

    def isolate(self, node: int, op: str = "cut") -> None:
        """Cuts (or heals) a proxied node's connections with the other nodes, both ways."""
        assert self.proxy is not None, "start the cluster with proxied=True"
        for peer in self.nodes:
            if peer != node:
                self.proxy.ask(op, f"{node}-{peer}")
                self.proxy.ask(op, f"{peer}-{node}")

    def cut_power(self, nodes: Iterable[int]) -> None:
        """Cuts the power of these nodes at the same time and restores it; starts no node.

        Disks lose power first, as close together as possible: a node may notice and end by itself.
        """
        down = list(nodes)
        cutters = [self.disks[node].cutter() for node in down]
        for cut in cutters:
            cut()
        for node in down:
            process = self.nodes[node]
            if process.running:
                process.signal(signal.SIGKILL)
            process.wait()
        for node in down:
            self.disks[node].restore()

    @contextmanager
    def split(self, *sides: Iterable[int], one_way: bool = False) -> Iterator[None]:
        """Separates nodes of different sides for the body; then waits until all connect.

        A node of no side reaches all: a bridge. one_way: only messages from the first side to the
        others are lost.
        """
        assert self.network is not None, "start the cluster with namespaces=True"
        groups = [list(side) for side in sides]
        lost = [
            pair
            for one, two in permutations(groups, 2)
            if not one_way or one is groups[0]
            for pair in product(one, two)
        ]
        try:
            for sender, receiver in lost:
                self.network.lose(sender, receiver)
            yield
        finally:
            self.network.heal()
        self.wait_joined()

    # -- state --------------------------------------------------------------------------------

    @property
    def processes(self) -> int:
        """Number of processes of each machine."""
        return self._layout.processes

    def machine_of(self, node: int) -> int:
        return node % PROCESS_STEP

    def nodes_of(self, machine: int) -> list[int]:
        return self._layout.nodes_of(machine)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def may_grow(self) -> bool:
        """Whether a node outside the layout can join."""
        return self.network is None and not self._layout.secured and self.processes == 1

    @property
    def client_files(self) -> dict[str, Any]:
        """TLS settings of a client; empty without TLS."""
        return self._layout.client_files()

    @property
    def environment(self) -> dict[str, str]:
        """Environment that gives every client access."""
        return {f"ONCELOG_CLIENT_{name.upper()}": p for name, p in self.client_files.items()}

    @property
    def running(self) -> list[int]:
        return [node for node, process in self.nodes.items() if process.running]

    def api(self, node: int) -> Api:
        """Raw gRPC to a node; the channel is kept for the next call."""
        if node not in self._apis:
            self._apis[node] = Api(self.addresses[node], self.tokens, self.client_files)
        return self._apis[node]

    @property
    def _start_timeout(self) -> float:
        return START_TIMEOUT * self.processes  # they start beside each other

    def wait_serving(self, nodes: Iterable[int], timeout: float | None = None) -> None:
        """Waits for the nodes' health service. Raises HarnessError if a process ends."""
        end = time.monotonic() + (self._start_timeout if timeout is None else timeout)
        for node in nodes:
            with Api(self._layout.listen[node], files=self.client_files) as api:
                while not api.serving(WATCH_SLICE):
                    self.nodes[node].check_alive()
                    if time.monotonic() > end:
                        raise HarnessError(f"node {node} does not serve\n{self.logs()}")

    def wait_joined(self) -> None:
        """Waits until all running nodes have heard from, and hold links to, each other."""
        running = self.running
        wanted = {node: self.addresses[node] for node in running}
        end = time.monotonic() + self._start_timeout
        while True:
            late = [node for node in running if not wanted.items() <= self._alive(node).items()]
            if not late:
                return
            if time.monotonic() > end:
                raise HarnessError(f"nodes {late} do not see all of {wanted}\n{self.logs()}")
            time.sleep(LOOK_AGAIN)

    def _wait_labelled(self) -> None:
        """Waits until the metadata knows the machine of all nodes: placement needs it."""
        end = time.monotonic() + self._start_timeout
        while self.processes > 1 and (late := self.nodes.keys() - self._labelled()):
            if time.monotonic() > end:
                raise HarnessError(f"the machine of nodes {late} is unknown\n{self.logs()}")
            time.sleep(LOOK_AGAIN)

    def _labelled(self) -> set[int]:
        request = cluster_pb2.ListNodesRequest()
        try:
            answer = self.api(self.running[0]).cluster.ListNodes(request, timeout=ANSWER_TIMEOUT)
        except grpc.RpcError:
            return set()
        return {info.node_id for info in answer.nodes if info.machine}

    def _alive(self, node: int) -> dict[int, str]:
        try:
            nodes = self.api(node).describe().nodes
        except grpc.RpcError:
            return {}
        return {info.node_id: info.address for info in nodes if info.alive}

    def leader(self, topic: str, partition: int, *, not_in: Iterable[int] = ()) -> int:
        """Waits until a running node leads the partition and may answer; that node's id."""
        return self._leader_and_mark(topic, partition, not_in)[0]

    def latest(self, topic: str, partition: int) -> int:
        """High watermark, asked of the leader in a loop, since leadership may move."""
        return self._leader_and_mark(topic, partition)[1]

    def _leader_and_mark(
        self, topic: str, partition: int, not_in: Iterable[int] = ()
    ) -> tuple[int, int]:
        excluded = set(not_in)
        end = time.monotonic() + LEADER_TIMEOUT
        while time.monotonic() < end:
            for node in set(self.running) - excluded:
                found = self.high_watermark(node, topic, partition)
                if found is not None:
                    return node, found
            time.sleep(LOOK_AGAIN)
        raise HarnessError(f"{topic}-{partition} has no leader\n{self.logs()}")

    def high_watermark(self, node: int, topic: str, partition: int) -> int | None:
        """Partition's high watermark if the node leads it and is sure of that; else None."""
        query = log_pb2.OffsetQuery(topic=topic, partition=partition, latest=True)
        request = log_pb2.ListOffsetsRequest(queries=[query])
        try:
            answer = self.api(node).log.ListOffsets(request, timeout=ANSWER_TIMEOUT)
        except grpc.RpcError:
            return None
        result = answer.results[0]
        return None if result.error else int(result.offset)

    def produce(self, batch: Batch, *, stream: bool = False) -> Result:
        """Sends the batch to its leader, again while the answer is NOT_LEADER or NOT_READY.

        stream: by ProduceStream, where no batch waits for its predecessor.
        """
        return self._answers(batch, stream=stream)[-1]

    def store(self, batch: Batch) -> None:
        """Stores a new batch. Raises HarnessError if it is not stored, or was before.

        A leader that steps down answers NOT_LEADER for a batch that may be in the log by the time
        it is sent again.
        """
        *before, last = map(verdict, self._answers(batch))
        if last != "APPENDED" and not (last == "DUPLICATE" and "NOT_LEADER" in before):
            raise HarnessError(f"a new batch is {last}, after {before}")

    def _answers(self, batch: Batch, *, stream: bool = False) -> list[Result]:
        """Answers to each attempt; the last one is final, or the time is over."""
        header, results = batch.header, list[Result]()
        end = time.monotonic() + LEADER_TIMEOUT
        while True:
            api = self.api(self.leader(header.topic, header.partition))
            results += api.produce_stream(batch) if stream else api.produce(batch)
            if verdict(results[-1]) not in ("NOT_LEADER", "NOT_READY") or time.monotonic() > end:
                return results

    def wait_level(
        self, topic: str, nodes: Iterable[int] | None = None, timeout: float = LEADER_TIMEOUT
    ) -> None:
        """Waits until all replicas on running (or the given) nodes are level with their leaders."""
        wanted = list(self.running if nodes is None else nodes)
        end = time.monotonic() + timeout
        led: list[int] = []
        seen: dict[int, list[int]] = {}
        while time.monotonic() < end:
            try:
                described = self.describe_topic(topic).partitions
                led = [self.latest(topic, part.partition) for part in described]
                for node in wanted:
                    info = self.api(node).topic(topic)
                    seen[node] = [part.high_watermark for part in info.partitions]
            except grpc.RpcError:
                pass  # the node is starting
            else:
                held = [(node, part.partition) for part in described for node in part.replicas]
                asked = [(seen[node], at) for node, at in held if node in seen]
                if all(marks[at : at + 1] == led[at : at + 1] for marks, at in asked):
                    return
            time.sleep(LOOK_AGAIN)
        raise HarnessError(
            f"replicas of {topic} are not level: leaders {led}, replicas {seen}\n{self.logs()}"
        )

    def wait_caught_up(self, node: int, timeout: float = START_TIMEOUT) -> None:
        """Waits until all replicas of the node reach their leaders' high watermarks of now."""
        end = time.monotonic() + timeout
        asked = next((other for other in self.running if other != node), node)
        topics = self.api(asked).topics()
        wanted = {
            (topic.name, part.partition): self.latest(topic.name, part.partition)
            for topic in topics
            for part in topic.partitions
            if node in part.replicas
        }
        late = dict(wanted)
        while late and time.monotonic() < end:
            try:
                for topic in self.api(node).topics():
                    for part in topic.partitions:
                        place = (topic.name, part.partition)
                        if part.high_watermark >= late.get(place, 0):
                            late.pop(place, None)
            except grpc.RpcError:
                pass  # the node is starting
            if late:
                time.sleep(LOOK_AGAIN)
        if late:
            raise HarnessError(f"node {node} has not caught up with {late}\n{self.logs()}")

    def describe_topic(self, topic: str) -> cluster_pb2.TopicInfo:
        """Description of the topic by the first running node."""
        return self.api(self.running[0]).topic(topic)

    def logs(self, lines: int = 40) -> str:
        """The ends of all nodes' logs."""
        return "\n".join(process.log_tail(lines) for process in self.machines.values())


def _kill(processes: Iterable[NodeProcess]) -> None:
    killed = list(processes)
    for process in killed:
        process.signal(signal.SIGKILL)
    for process in killed:
        process.wait()
