"""A rolling restart by SIGTERM while a producer writes: each leadership is handed over before.

    .venv/bin/python -m pytest -s tests/integration/node/test_rolling_restart.py

prints the producer's longest silence, with restarts and without.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from functools import partial
from itertools import pairwise

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, RecordMetadata
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

TOPIC = "rolled"
PARTITIONS = 6
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


def test_nodes_are_restarted_one_after_the_other_under_load(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(settings=STEADY)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS, 3)
        load = Load(cluster)
        try:
            eventually(lambda: len(load.sent) > 200 and load.sent[200].done(), "it writes")
            spans, quiet = [], time.monotonic()
            for node in cluster.nodes:
                start = time.monotonic()
                assert cluster.nodes[node].terminate() == 0
                cluster.start_nodes([node])
                eventually(lambda: admin.describe_cluster().healthy, "the node is back")
                spans.append((start, time.monotonic()))
                assert "hands over leaderships" in cluster.nodes[node].log_text()
        finally:
            load.stop()
    found = [future.result(TIMEOUT) for future in load.sent]
    for number in range(PARTITIONS):
        offsets = [one.offset for one in found if one.partition == number]
        assert offsets == list(range(len(offsets))), "each record once, in order"
    print("\nsilence without a restart:", f"{1000 * load.silence(quiet - 2, quiet):.0f} ms")
    for node, span in zip(cluster.nodes, spans, strict=True):
        print(f"silence while node {node} was restarted: {1000 * load.silence(*span):.0f} ms")
    with Consumer(
        TOPIC, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        values = {record.value for _, record in zip(found, consumer, strict=False)}
    assert values == {b"%d" % row for row in range(len(found))}
