"""A roll as Kubernetes does it, while a producer writes: each leadership is handed over before.

    .venv/bin/python -m pytest -s tests/integration/node/test_statefulset_roll.py

prints the producer's longest silence, with restarts and without. The nodes are the pods of the
chart's StatefulSet: three begin the cluster, and the fourth joins through them. The pod with the
highest number goes first: SIGTERM, its end, a new process, and the next one once its readiness
probe succeeds.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import Future
from functools import partial
from itertools import pairwise

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, RecordMetadata
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.probes import READY, give_probes, probed
from tests.integration.waiting import eventually

TOPIC = "rolled"
PARTITIONS = 6
FOUNDERS = (1, 2, 3)
TIMEOUT = 60.0


class Load:
    """A producer that sends to all partitions, and when each record was acknowledged."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.sent: list[Future[RecordMetadata]] = []
        self._acked: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        self._cluster, self._stop = cluster, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._cluster.bootstrap, linger_ms=0) as producer:
            while not self._stop.wait(0.005):
                number = len(self.sent) % PARTITIONS
                found = producer.send(TOPIC, b"%d" % len(self.sent), partition=number)
                found.add_done_callback(partial(self._answered, number))
                self.sent.append(found)

    def _answered(self, number: int, found: Future[RecordMetadata]) -> None:
        self._acked[number].append(time.monotonic())

    def silence(self, begin: float, end: float) -> float:
        """The longest time in which a partition acknowledged nothing, in seconds."""
        longest = 0.0
        for times in self._acked.values():
            seen = [begin, *(at for at in times if begin <= at <= end)]
            gaps = [after - before for before, after in pairwise(seen)]
            longest = max([longest, *gaps])
        return longest

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def start_pods(cluster: LocalCluster, admin: Admin) -> None:
    """Starts all with the founders in `nodes`, also the node that is none, and adds that."""
    give_probes(cluster)
    founders = {node: cluster.nodes[1].spec.nodes[node] for node in FOUNDERS}
    for process in cluster.nodes.values():
        process.spec = dataclasses.replace(process.spec, nodes=founders)
    cluster.start_nodes(cluster.nodes, wait=False)
    cluster.wait_serving(FOUNDERS)
    fourth = cluster.nodes[4]
    eventually(lambda: "node 4 is not expected" in fourth.log_text(), "it waits, and says why")
    assert probed(cluster, 4, "/readyz")[0] == 503
    admin.add_node(4)


def all_ready(cluster: LocalCluster) -> bool:
    return all(probed(cluster, node, "/readyz") == READY for node in cluster.nodes)


def test_a_statefulset_rolls_under_load(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4, settings=STEADY, start=False)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        start_pods(cluster, admin)
        eventually(lambda: all_ready(cluster), "all are ready")
        cluster.wait_joined()
        admin.create_topic(TOPIC, PARTITIONS, 3)
        load = Load(cluster)
        try:
            eventually(lambda: len(load.sent) > 200 and load.sent[200].done(), "it writes")
            spans, quiet = {}, time.monotonic()
            for node in sorted(cluster.nodes, reverse=True):
                eventually(lambda: all_ready(cluster), "no other one is down")
                start = time.monotonic()
                assert cluster.nodes[node].terminate() == 0
                cluster.nodes[node].start()
                eventually(lambda: all_ready(cluster), "it is ready")
                spans[node] = start, time.monotonic()
        finally:
            load.stop()
    assert "hands over leaderships" in cluster.logs(1_000_000)
    found = [future.result(TIMEOUT) for future in load.sent]
    for number in range(PARTITIONS):
        offsets = [one.offset for one in found if one.partition == number]
        assert offsets == list(range(len(offsets))), "each record once, in order"
    print("\nsilence without a restart:", f"{1000 * load.silence(quiet - 2, quiet):.0f} ms")
    for node, span in spans.items():
        print(f"silence while node {node} was restarted: {1000 * load.silence(*span):.0f} ms")
    with Consumer(
        TOPIC, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        values = {record.value for _, record in zip(found, consumer, strict=False)}
    assert values == {b"%d" % row for row in range(len(found))}
