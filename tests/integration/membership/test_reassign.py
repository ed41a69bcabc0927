"""A partition moves to other nodes while clients write: nothing lost, nothing twice."""

from __future__ import annotations

from itertools import islice

import pytest

from harness.api import Api
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog import Admin, Consumer, Producer
from oncelog.cli.app import run
from oncelog.errors import InvalidRequestError
from tests.integration.background import Background
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

MOVES = ((4, 5, 1), (5, 2, 3))


class Writer(Background):
    """Sends records in sequence, each once; all must be acknowledged."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        super().__init__()
        self.acknowledged = 0
        self._cluster, self._topic = cluster, topic

    def goes_on(self) -> None:
        before = self.acknowledged
        eventually(lambda: self.acknowledged > before + 50, "records are acknowledged", 60)

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._cluster.bootstrap, linger_ms=0) as producer:
            while not self._stop.is_set():
                value = b"%d" % self.acknowledged
                producer.send(self._topic, value, partition=0).result(timeout=60)
                self.acknowledged += 1


def held(admin: Admin, topic: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    partition = admin.describe_topic(topic).partitions[0]
    return partition.replicas, partition.target


def move(admin: Admin, topic: str, target: tuple[int, ...]) -> None:
    admin.reassign_partition(topic, 0, target)
    eventually(lambda: held(admin, topic) == (target, ()), f"held by {target}", 60)


def test_a_partition_moves_while_it_is_written(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(5)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
        with Writer(cluster, topic) as writer:
            writer.goes_on()
            for target in MOVES:
                move(admin, topic, target)
                writer.goes_on()
        cluster.kill(cluster.nodes)
        cluster.start_nodes(cluster.nodes)
        eventually(lambda: held(admin, topic) == (MOVES[-1], ()), "held as before")
        with Consumer(
            topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            values = [record.value for record in islice(consumer, writer.acknowledged)]
    assert values == [b"%d" % number for number in range(writer.acknowledged)]
    apis = {node: Api(cluster.addresses[node], cluster.tokens) for node in MOVES[-1]}
    eventually(lambda: not compare(apis, topic, [0]), "the replicas are equal")


def test_a_target_is_checked_and_taken_back(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(4)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
        before, _ = held(admin, topic)
        (spare,) = {1, 2, 3, 4} - {*before}
        with pytest.raises(InvalidRequestError, match="replicas: names node 9"):
            admin.reassign_partition(topic, 0, [1, 9])
        cluster.kill([spare])
        admin.reassign_partition(topic, 0, [*before[:2], spare])
        eventually(lambda: spare in held(admin, topic)[0], "a learner is added")
        assert held(admin, topic)[1] == (*before[:2], spare), "it waits for the learner"
        admin.reassign_partition(topic, 0, before)
        eventually(lambda: held(admin, topic) == (before, ()), "it is taken back")
    command = ["topic", "reassign", topic, "0", *map(str, before[::-1])]
    with pytest.raises(SystemExit) as ended:
        run([*command, "--bootstrap", cluster.bootstrap])
    assert ended.value.code == 0
