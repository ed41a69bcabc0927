"""Consumers with a rack read from the replica in it, and go on elsewhere when its node is gone."""

from __future__ import annotations

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, Record
from oncelog.cli.app import run
from tests.integration.conftest import MakeCluster
from tests.integration.ops.pages import figures_of, page_of
from tests.integration.waiting import TIMEOUT, eventually

RACKS = {1: "a", 2: "b", 3: "c"}
TOPIC = "t"
RECORDS = 50


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    cluster = make_cluster(3, start=False, metrics=True)
    for node, rack in RACKS.items():
        cluster.change_spec(node, settings={**cluster.nodes[node].spec.settings, "rack": rack})
    cluster.start()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, 1, 3)
    for address in cluster.addresses.values():
        with Admin(bootstrap_servers=address) as admin:  # each node must know all labels
            eventually(
                lambda admin=admin: {one.node_id: one.rack for one in admin.list_nodes()} == RACKS,  # type: ignore[misc]
                "all labels are registered",
            )
    return cluster


def test_bytes_come_from_the_near_replica_and_its_death_loses_nothing(
    cluster: LocalCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = cluster.leader(TOPIC, 0)
    near, far = (node for node in RACKS if node != leader)

    def read_at(node: int) -> float:
        return figures_of(page_of(cluster, node))["oncelog_read_bytes_total"]

    with (
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap,
            rack=RACKS[near],
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        read: list[Record] = []

        def more() -> None:
            """Writes records, and reads until all have come."""
            for number in range(len(read), len(read) + RECORDS):
                producer.send(TOPIC, b"%d" % number, partition=0).result(TIMEOUT)
            wanted = len(read) + RECORDS
            while len(read) < wanted:
                found = consumer.getmany(timeout_ms=int(1000 * TIMEOUT))
                assert found, f"{len(read)} records, and nothing more for so long"
                read.extend(record for records in found.values() for record in records)

        more()
        before = read_at(near)
        assert before > 0
        monkeypatch.setenv("ONCELOG_BOOTSTRAP", ",".join(cluster.addresses.values()))
        with pytest.raises(SystemExit):
            run(["topic", "consume", TOPIC, "--rack", RACKS[near], "--from", "start", "-e"])
        assert capsys.readouterr().out.split() == [str(n) for n in range(RECORDS)]
        assert read_at(near) > before
        assert read_at(leader) == read_at(far) == 0
        cluster.kill([near])
        more()
        assert read_at(leader) > 0
        cluster.start_nodes([near])
        cluster.kill([leader])
        more()
    assert [record.offset for record in read] == list(range(3 * RECORDS))
    assert [record.value for record in read] == [b"%d" % n for n in range(3 * RECORDS)]
