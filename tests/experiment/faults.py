"""Killers of the client's connections and of the brokers, each at its own beat.

Place in the flow: `run` starts these threads with the first record and stops them after the last
acknowledgement. Connections are reset in the proxy between client and nodes; brokers are killed
with SIGKILL and started again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import grpc

from harness.api import Api
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from oncelog.v1 import log_pb2
from tests.experiment.plan import BROKER, CONNECTIONS, PARTITIONS, Kill

HOLD = 1.0  # seconds that acknowledgements are held back at most
LOOK_AGAIN = 0.01  # seconds; a node tells nobody that its high watermark rises
ANSWER_TIMEOUT = 0.5
LEADER_TIMEOUT = 60.0


class Beat(threading.Thread):
    """A thread that acts every `every` seconds until it is stopped.

    An error ends it, and sets `failed`, so that the run ends instead of going on without faults.
    """

    def __init__(self, name: str, every: float, started: float, failed: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._every, self._since, self._failed = every, started, failed
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self.kills: list[Kill] = []

    def act(self) -> None:
        raise NotImplementedError

    @property
    def now(self) -> float:
        """Seconds since the first record."""
        return time.monotonic() - self._since

    def run(self) -> None:
        due = self._every
        while not self._ending.wait(max(0.0, due - self.now)):
            try:
                self.act()
            except HarnessError as error:
                self._error = error
                self._failed.set()
                return
            # An action longer than a beat is not made up for by two at once.
            due = max(due + self._every, self.now)

    def stop(self) -> None:
        """Stops the beats; waits until its action is done."""
        self._ending.set()
        self.join()

    def check(self) -> None:
        """Raises the error that ended it, if there is one."""
        if self._error is not None:
            raise self._error


class Nodes:
    """A view of the nodes past the proxy, which resets and holds back the client's traffic."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._apis = {node: Api(it.spec.listen) for node, it in cluster.nodes.items()}

    def close(self) -> None:
        for api in self._apis.values():
            api.close()

    def stored(self) -> int:
        """Counts records that a majority has, of all partitions, as far as the nodes say now."""
        marks = [0] * PARTITIONS
        for api in self._apis.values():
            try:
                info = api.topic(self._topic, timeout=ANSWER_TIMEOUT)
            except grpc.RpcError:
                continue  # the one that is being killed
            for part in info.partitions:
                marks[part.partition] = max(marks[part.partition], part.high_watermark)
        return sum(marks)

    def leader(self, partition: int) -> int:
        """Waits until a running node leads the partition; returns it. Raises HarnessError."""
        query = log_pb2.OffsetQuery(topic=self._topic, partition=partition, latest=True)
        request = log_pb2.ListOffsetsRequest(queries=[query])
        end = time.monotonic() + LEADER_TIMEOUT
        while time.monotonic() < end:
            for node in self._cluster.running:
                try:
                    answer = self._apis[node].log.ListOffsets(request, timeout=ANSWER_TIMEOUT)
                except grpc.RpcError:
                    continue
                if not answer.results[0].error:
                    return node
            time.sleep(LOOK_AGAIN)
        raise HarnessError(f"{self._topic}-{partition} has no leader\n{self._cluster.logs()}")


class ConnectionKiller(Beat):
    """A beat that resets all connections between client and nodes."""

    def __init__(
        self,
        cluster: LocalCluster,
        nodes: Nodes,
        every: float,
        started: float,
        failed: threading.Event,
        *,
        lose_acknowledgements: bool,
    ) -> None:
        super().__init__("connection-killer", every, started, failed)
        assert cluster.proxy is not None, "start the cluster with proxied=True"
        self._proxy, self._nodes = cluster.proxy, nodes
        self._routes = [f"client-{node}" for node in cluster.nodes]
        self._lose = lose_acknowledgements

    def act(self) -> None:
        # A client that has not reconnected since the last time cannot while its nodes' answers are
        # held back.
        lose = self._lose and self._more_is_stored()
        if lose:
            for route in self._routes:
                self._proxy.ask("freeze", route, direction="down")
            # Records stored from here on are not acknowledged.
            self._more_is_stored()
        hit = sum(self._proxy.ask("reset", route)["open"] for route in self._routes)
        self.kills.append(Kill(self.now, CONNECTIONS, hit))
        if lose:
            for route in self._routes:
                self._proxy.ask("heal", route)

    def _more_is_stored(self) -> bool:
        """Waits until more is stored than now; returns False if nothing came."""
        before = self._nodes.stored()
        end = time.monotonic() + HOLD
        while time.monotonic() < end and not self._ending.wait(LOOK_AGAIN):
            if self._nodes.stored() > before:
                return True
        return False


class BrokerKiller(Beat):
    """A beat that kills a randomly drawn partition's leader, and restarts it when another leads."""

    def __init__(
        self,
        cluster: LocalCluster,
        nodes: Nodes,
        every: float,
        started: float,
        failed: threading.Event,
        rng: random.Random,
    ) -> None:
        super().__init__("broker-killer", every, started, failed)
        self._cluster, self._nodes, self._rng = cluster, nodes, rng

    def act(self) -> None:
        partition = self._rng.randrange(PARTITIONS)
        victim = self._nodes.leader(partition)
        self._cluster.kill([victim])
        self.kills.append(Kill(self.now, BROKER, victim))
        # Another one leads before it is back, as after a real crash.
        self._nodes.leader(partition)
        self._cluster.start_nodes([victim], wait=False)
        self._cluster.wait_serving([victim])


class Sampler(Beat):
    """A beat that notes how many records are acknowledged, for the plot."""

    def __init__(
        self, count: Callable[[], int], every: float, started: float, failed: threading.Event
    ) -> None:
        super().__init__("sampler", every, started, failed)
        self._count = count
        self.samples: list[tuple[float, int]] = [(0.0, 0)]

    def act(self) -> None:
        self.samples.append((self.now, self._count()))
