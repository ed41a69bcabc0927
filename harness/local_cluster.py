"""A cluster of real node processes on loopback, with a directory that describes it.

    ROOT/cluster.json        how each node is started
    ROOT/node1/              data directory
    ROOT/node1.log, .pid     output, and the process while it runs

With `proxied`, clients reach each node, and nodes reach each other, through one TCP proxy
(routes `client-2`, `1-3`, ...), where connections can be cut. With `disks`, each data
directory is a file system of its own, kept in ROOT/node1.disk, ..., whose power can be cut and
which can be filled. With `namespaces`, each node has a network namespace of its own, and
what one sends to another can be lost. Both need root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations, product
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from harness import disk, network
from harness.api import Api, Batch, Result, verdict
from harness.node_process import HarnessError, NodeProcess, NodeSpec
from harness.ports import LOOPBACK, above, free_ports
from harness.proxy import Proxy, RouteSpec
from oncelog.v1 import cluster_pb2, log_pb2

START_PATIENCE = 30.0  # seconds until a node serves
LEADER_PATIENCE = 20.0
ANSWER_PATIENCE = 1.0  # for one question to a node that may be paused
WATCH_SLICE = 0.5  # seconds between looks whether the awaited process still lives
LOOK_AGAIN = 0.02  # seconds; nodes have no call that waits for a leader
# Faults are injected many times a minute: what takes its time in production is quicker here.
QUICK: dict[str, str | int] = {
    "election_timeout_ms": 500,
    "heartbeat_ms": 50,
    "preferred_leader_delay_ms": 1000,
}
DESCRIPTION = "cluster.json"
NODE_PORT = 7000  # in a namespace of its own every port is free
METRICS_PORT = 7100


class LocalCluster:
    """`nodes` by id. As a context manager it is started and, at the end, killed."""

    def __init__(
        self,
        root: Path,
        nodes: int = 3,
        *,
        settings: Mapping[str, str | int] | None = None,
        proxied: bool = False,
        metrics: bool = False,
        disks: bool = False,
        namespaces: bool = False,
        detached: bool = False,
        ports: list[int] | None = None,
        cluster_id: str = "oncelog",
    ) -> None:
        """`ports`: one for each node, instead of any free ones.

        Raises HarnessError if this machine cannot have what is asked for.
        """
        self.root = root.resolve()
        if disks and disk.missing():
            raise HarnessError(disk.missing())
        if namespaces and network.missing():
            raise HarnessError(network.missing())
        self._settings = dict(QUICK if settings is None else settings)
        self._cluster_id, self._detached = cluster_id, detached
        ids = range(1, nodes + 1)
        self._with_disks = disks
        self.network = network.network_for(self.root, ids) if namespaces else None
        self._listen = self._addresses(ids, ports or [], NODE_PORT)
        self.metrics_addresses = self._addresses(ids, [], METRICS_PORT) if metrics else {}
        self.routes: list[RouteSpec] = []
        self._control_port = 0
        if proxied:
            (self._control_port,) = free_ports(1)
            self.routes = self._routes(ids)
        self._proxy_pid = 0
        self._make(ids)

    def _addresses(self, ids: Sequence[int], ports: list[int], usual: int) -> dict[int, str]:
        """Where the nodes listen: on loopback, or each in its namespace."""
        if self.network is not None:
            return {
                node: f"{self.network.address(node)}:{port}"
                for node, port in zip(ids, ports or [usual] * len(ids), strict=True)
            }
        chosen = ports or free_ports(len(ids))
        return {node: f"{LOOPBACK}:{port}" for node, port in zip(ids, chosen, strict=True)}

    def _routes(self, ids: Sequence[int]) -> list[RouteSpec]:
        pairs = [(a, b) for a in ids for b in ids if a != b]
        ours = self.network.ours if self.network is not None else LOOPBACK
        wanted = [(f"client-{node}", ours, node) for node in ids]
        for a, b in pairs:
            here = self.network.between(a, b) if self.network is not None else LOOPBACK
            wanted.append((f"{a}-{b}", here, b))
        routes = [
            RouteSpec(name, f"{here}:{port}", self._listen[node])
            for (name, here, node), port in zip(wanted, free_ports(len(wanted)), strict=True)
        ]
        # The nodes' streams of frames have ports of their own, and are cut together with the
        # calls between the same two.
        streams = [
            RouteSpec(route.name, above(route.listen), above(route.target))
            for route in routes
            if not route.name.startswith("client-")
        ]
        return [*streams, *routes]  # of two with a name, the last one's address is told

    def _make(self, ids: Iterable[int]) -> None:
        via = {route.name: route.listen for route in self.routes}
        self.addresses = {node: via.get(f"client-{node}", self._listen[node]) for node in ids}
        self.nodes: dict[int, NodeProcess] = {}
        for node in ids:
            peers = {peer: via.get(f"{node}-{peer}", self._listen[peer]) for peer in self._listen}
            spec = NodeSpec(
                node_id=node,
                listen=self._listen[node],
                advertise=self.addresses[node],
                nodes=peers,
                data_dir=self.root / f"node{node}",
                log_file=self.root / f"node{node}.log",
                cluster_id=self._cluster_id,
                metrics_listen=self.metrics_addresses.get(node, ""),
                settings=self._settings,
                within=() if self.network is None else tuple(self.network.command(node)),
            )
            self.nodes[node] = NodeProcess(spec, detached=self._detached)
        self.disks = {
            node: disk.Disk(self.root / f"node{node}.disk", process.spec.data_dir)
            for node, process in self.nodes.items()
            if self._with_disks
        }
        self.proxy = Proxy(self._control_port) if self.routes else None
        self._apis: dict[int, Api] = {}

    # -- a cluster that another command started ---------------------------------------------

    @staticmethod
    def remove(root: Path) -> None:
        """Ends and deletes whatever cluster lies in `root`, its disks and namespaces included."""
        if (root / DESCRIPTION).exists():
            LocalCluster.load(root).close()
        shutil.rmtree(root, ignore_errors=True)

    def save(self) -> None:
        """Writes the description that `load` reads."""
        self.root.mkdir(parents=True, exist_ok=True)
        text = {
            "cluster_id": self._cluster_id,
            "settings": self._settings,
            "listen": self._listen,
            "metrics": self.metrics_addresses,
            "disks": self._with_disks,
            "network": None if self.network is None else [self.network.name, self.network.base],
            "control_port": self._control_port,
            "proxy_pid": self._proxy_pid,
            "routes": [[route.name, route.listen, route.target] for route in self.routes],
        }
        (self.root / DESCRIPTION).write_text(json.dumps(text, indent=2) + "\n")

    @classmethod
    def load(cls, root: Path) -> Self:
        """The cluster that lies in `root`, its running nodes adopted. Raises HarnessError."""
        try:
            raw = json.loads((root / DESCRIPTION).read_text())
        except FileNotFoundError:
            raise HarnessError(f"there is no cluster in {root}: scripts/cluster start") from None
        self = cls.__new__(cls)
        self.root = root.resolve()
        self._settings, self._cluster_id = raw["settings"], raw["cluster_id"]
        self._detached = True
        self._listen = {int(node): address for node, address in raw["listen"].items()}
        self.metrics_addresses = {int(node): at for node, at in raw["metrics"].items()}
        self._with_disks = raw.get("disks", False)
        name, base = raw.get("network") or ("", "")
        self.network = network.Network(name, base, self._listen) if name else None
        self.routes = [RouteSpec(*route) for route in raw["routes"]]
        self._control_port, self._proxy_pid = raw["control_port"], raw["proxy_pid"]
        self._make(self._listen)
        for node in self.nodes.values():
            node.adopt()
        return self

    # -- life -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts all nodes that do not run, and waits until all serve.

        What an earlier run left of namespaces and mounted disks is removed first.
        """
        stopped = [node for node, process in self.nodes.items() if not process.running]
        if self.network is not None and stopped == list(self.nodes):
            self.network.open()
        for node in stopped:
            if node in self.disks:
                self.disks[node].open()
        if self.proxy is not None and not self._proxy_lives():
            self.root.mkdir(parents=True, exist_ok=True)
            log = self.root / "proxy.log"
            self._proxy_pid = self.proxy.start(self.routes, log, detached=self._detached)
        self.save()
        self.start_nodes(stopped)

    def start_nodes(self, nodes: Iterable[int], *, wait: bool = True) -> None:
        started = list(nodes)
        for node in started:
            self.nodes[node].start()
        if wait:
            self.wait_serving(started)
            self.wait_joined()

    def close(self) -> None:
        """Kills whatever runs, unmounts disks, removes namespaces. The files stay."""
        for api in self._apis.values():
            api.close()
        self._apis.clear()
        self.kill(node for node, process in self.nodes.items() if process.running)
        if self.proxy is not None:
            self.proxy.close()
            if self._proxy_lives():
                os.kill(self._proxy_pid, signal.SIGKILL)
        for one in self.disks.values():
            one.close()
        if self.network is not None:
            self.network.close()

    def _proxy_lives(self) -> bool:
        if not self._proxy_pid:
            return False
        try:
            words = Path(f"/proc/{self._proxy_pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"harness.proxy" in words

    # -- faults -----------------------------------------------------------------------------

    def kill(self, nodes: Iterable[int]) -> None:
        """SIGKILL to all of them, as close together as can be; then waits for their ends."""
        killed = [self.nodes[node] for node in nodes]
        for process in killed:
            process.signal(signal.SIGKILL)
        for process in killed:
            process.wait()

    def restart(self, node: int) -> None:
        """Kill -9 and start; waits until it serves."""
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
        """The power of these nodes is lost, all at once, and is there again; none is started.

        The disks first, as close together as can be: a node may notice and end by itself.
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
        """Inside, nodes of different sides do not reach each other; then waits for all to.

        A node of no side reaches all: a bridge. one_way: only what the first side sends to the
        others is lost.
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

    # -- what is so ---------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def running(self) -> list[int]:
        return [node for node, process in self.nodes.items() if process.running]

    def api(self, node: int) -> Api:
        """Raw gRPC to a node; the channel is kept for the next call."""
        if node not in self._apis:
            self._apis[node] = Api(self.addresses[node])
        return self._apis[node]

    def wait_serving(self, nodes: Iterable[int], timeout: float = START_PATIENCE) -> None:
        """Waits for the nodes' health service. Raises HarnessError if a process ends."""
        end = time.monotonic() + timeout
        for node in nodes:
            with Api(self._listen[node]) as api:
                while not api.serving(WATCH_SLICE):
                    self.nodes[node].pid  # noqa: B018  # raises if it does not run
                    if time.monotonic() > end:
                        raise HarnessError(f"node {node} does not serve\n{self.logs()}")

    def wait_joined(self) -> None:
        """Waits until all running nodes have heard from, and hold links to, each other."""
        running = self.running
        wanted = {node: self.addresses[node] for node in running}
        end = time.monotonic() + START_PATIENCE
        while True:
            late = [node for node in running if not wanted.items() <= self._alive(node).items()]
            if not late:
                return
            if time.monotonic() > end:
                raise HarnessError(f"nodes {late} do not see all of {wanted}\n{self.logs()}")
            time.sleep(LOOK_AGAIN)

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
        """The high watermark by whoever leads, waited for; a leader asked later may not be one."""
        return self._leader_and_mark(topic, partition)[1]

    def _leader_and_mark(
        self, topic: str, partition: int, not_in: Iterable[int] = ()
    ) -> tuple[int, int]:
        excluded = set(not_in)
        end = time.monotonic() + LEADER_PATIENCE
        while time.monotonic() < end:
            for node in set(self.running) - excluded:
                found = self.high_watermark(node, topic, partition)
                if found is not None:
                    return node, found
            time.sleep(LOOK_AGAIN)
        raise HarnessError(f"{topic}-{partition} has no leader\n{self.logs()}")

    def high_watermark(self, node: int, topic: str, partition: int) -> int | None:
        """The partition's, if the node leads it and is sure of that; else None."""
        query = log_pb2.OffsetQuery(topic=topic, partition=partition, latest=True)
        request = log_pb2.ListOffsetsRequest(queries=[query])
        try:
            answer = self.api(node).log.ListOffsets(request, timeout=ANSWER_PATIENCE)
        except grpc.RpcError:
            return None
        result = answer.results[0]
        return None if result.error else int(result.offset)

    def produce(self, batch: Batch, *, stream: bool = False) -> Result:
        """Sends the batch to its leader, again while the answer is NOT_LEADER or NOT_READY.

        stream: by ProduceStream, where no batch waits for its predecessor.
        """
        header = batch.header
        end = time.monotonic() + LEADER_PATIENCE
        while True:
            api = self.api(self.leader(header.topic, header.partition))
            (result,) = api.produce_stream(batch) if stream else api.produce(batch)
            if verdict(result) not in ("NOT_LEADER", "NOT_READY") or time.monotonic() > end:
                return result

    def wait_level(self, topic: str, nodes: Iterable[int] | None = None) -> None:
        """Waits until all running (or the given) replicas have all that their leaders have."""
        wanted = list(self.running if nodes is None else nodes)
        end = time.monotonic() + LEADER_PATIENCE
        led: list[int] = []
        seen: dict[int, list[int]] = {}
        while time.monotonic() < end:
            try:
                count = len(self.describe_topic(topic).partitions)
                led = [self.latest(topic, part) for part in range(count)]
                for node in wanted:
                    info = self.api(node).topic(topic)
                    seen[node] = [part.high_watermark for part in info.partitions]
            except grpc.RpcError:
                pass  # a node that is being started
            else:
                if all(marks == led for marks in seen.values()):
                    return
            time.sleep(LOOK_AGAIN)
        raise HarnessError(
            f"replicas of {topic} are not level: leaders {led}, replicas {seen}\n{self.logs()}"
        )

    def wait_caught_up(self, node: int, timeout: float = START_PATIENCE) -> None:
        """Waits until the node has what leaders have by now, of all that it keeps a replica of."""
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
                pass  # it is being started
            if late:
                time.sleep(LOOK_AGAIN)
        if late:
            raise HarnessError(f"node {node} has not caught up with {late}\n{self.logs()}")

    def describe_topic(self, topic: str) -> cluster_pb2.TopicInfo:
        """As the first running node sees it."""
        return self.api(self.running[0]).topic(topic)

    def logs(self, lines: int = 40) -> str:
        """The ends of all nodes' logs."""
        return "\n".join(process.log_tail(lines) for process in self.nodes.values())
