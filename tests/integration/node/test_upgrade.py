"""Two releases side by side: node by node forward under load, back, forward, finalized."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from cluster.dedup.verdict import KAFKA_IDS
from cluster.entries import KAFKA_V2, BatchEntry, pack_batch
from harness import previous_release
from harness.audit import Ledger, audit_all
from harness.local_cluster import QUICK, LocalCluster
from harness.node_process import ROOT, NodeProcess
from oncelog import Admin, Producer, RecordMetadata
from oncelog.cli.app import run
from oncelog.errors import NotSupportedError
from oncelog.v1 import cluster_pb2, cluster_pb2_grpc
from tests.integration.background import Background
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

TIMEOUT = 60.0
PARTITIONS = 3
# States are compared often, those of the metadata as well.
SETTINGS = {**QUICK, "checkpoint_entries": 20}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the release before this one."""
    try:
        return previous_release.extract(tmp_path_factory.mktemp("previous"))
    except previous_release.NoHistoryError as error:
        pytest.fail(str(error), pytrace=False)


class Load(Background):
    """One producer that sends within the `with` block, and the answer for each row."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        super().__init__()
        self._producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=1, batch_size=4096)
        self._topic = topic
        self._futures: list[Any] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            row = len(self._futures)
            self._futures.append(
                self._producer.send(self._topic, b"%d" % row, partition=row % PARTITIONS)
            )
            if row % 20 == 19:
                self._stop.wait(0.01)

    def more(self) -> None:
        """Returns once records that were sent after now are acknowledged."""
        target = len(self._futures) + 100
        eventually(lambda: len(self._futures) > target, "records are sent", TIMEOUT)
        self._futures[target].result(TIMEOUT)

    def ledger(self) -> Ledger:
        """After the block: all that was sent is acknowledged."""
        ledger = Ledger.of(len(self._futures))
        for row, future in enumerate(self._futures):
            told: RecordMetadata = future.result(TIMEOUT)
            ledger.acknowledge(row, told.partition, told.offset)
        self._producer.close()
        return ledger


def runs(cluster: LocalCluster, node: int, tree: Path, **settings: int) -> NodeProcess:
    """The node, not started, with the release in that tree, and further settings."""
    given = {**cluster.nodes[node].spec.settings, **settings}
    return cluster.change_spec(node, tree=tree, settings=given)


def roll(cluster: LocalCluster, node: int, tree: Path) -> None:
    """Upgrades a node as an operator does: stops, replaces, starts it, and waits for it."""
    assert cluster.nodes[node].terminate() == 0
    runs(cluster, node, tree)
    cluster.start_nodes([node])
    cluster.wait_caught_up(node)


def facts(cluster: LocalCluster, node: int) -> Any:
    with Admin(bootstrap_servers=cluster.addresses[node]) as admin:
        return admin.describe_cluster().upgrade


def finalize(cluster: LocalCluster, node: int) -> Any:
    with Admin(bootstrap_servers=cluster.addresses[node]) as admin:
        return admin.finalize_upgrade()


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    """Exit code and output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exited:
        run(list(words))
    return exited.value.code, capsys.readouterr().out


def version_on_disk(cluster: LocalCluster, node: int) -> int:
    path = cluster.nodes[node].spec.data_dir / "identity.json"
    return int(json.loads(path.read_text()).get("cluster_version", 1))


def takes_kafka(cluster: LocalCluster, node: int, name: str) -> None:
    """Creates a topic with Kafka's format."""
    config = cluster_pb2.TopicConfig(formats=cluster_pb2.TOPIC_FORMATS_KAFKA)
    asked = cluster_pb2.CreateTopicRequest(name=name, partitions=1, replicas=3, config=config)
    with grpc.insecure_channel(cluster.addresses[node]) as channel:
        cluster_pb2_grpc.ClusterServiceStub(channel).CreateTopic(asked, timeout=TIMEOUT)


def commands(cluster: LocalCluster, node: int, step: str) -> None:
    """Metadata changes: they must mean the same to both releases."""
    with Admin(bootstrap_servers=cluster.addresses[node]) as admin:
        admin.create_topic(f"step-{step}", 1, 3)
        admin.lease_producer(f"name-{step}")


def test_forward_back_forward_and_finalized_under_load(
    make_cluster: MakeCluster, topic: str, previous: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster(settings=SETTINGS, start=False)
    for node in cluster.nodes:
        runs(cluster, node, previous)
    cluster.start()
    cluster.api(1).create_topic(topic, PARTITIONS, 3)
    with Load(cluster, topic) as sending:
        sending.more()
        roll(cluster, 1, ROOT)
        sending.more()
        seen = facts(cluster, 1)
        assert (seen.cluster_version, seen.target_version, seen.pending) == (1, 3, True)
        assert [line.partition(":")[0] for line in seen.hindered_by] == ["node 2", "node 3"]
        with pytest.raises(NotSupportedError, match="node 2: a release from before"):
            finalize(cluster, 1)
        there = ("--bootstrap", cluster.addresses[1])
        code, shown = cli(capsys, "cluster", "upgrade", "--dry-run", *there)
        assert code == 1 and "hindered by node 3: a release from before" in shown
        code, shown = cli(capsys, "cluster", "health", *there)
        assert code == 0 and "from version 1 to 3 with cluster_settings" in shown
        commands(cluster, 2, "one")
        with pytest.raises(grpc.RpcError, match="needs the feature 'kafka'"):
            takes_kafka(cluster, 1, "early")

        roll(cluster, 2, ROOT)
        commands(cluster, 1, "two")
        # Back, before anything was finalized.
        roll(cluster, 1, previous)
        sending.more()
        commands(cluster, 1, "back")
        assert version_on_disk(cluster, 2) == 1

        roll(cluster, 1, ROOT)
        roll(cluster, 3, ROOT)
        sending.more()
        assert facts(cluster, 3).hindered_by == ()
        assert finalize(cluster, 3).cluster_version == 3
        eventually(
            lambda: {version_on_disk(cluster, node) for node in cluster.nodes} == {3},
            "all directories say so",
        )
        commands(cluster, 3, "final")
        takes_kafka(cluster, 3, "late")
        code, shown = cli(capsys, "cluster", "config", "get", "lease_lifetime_ms", *there)
        assert code == 0 and shown == "lease_lifetime_ms  86400000\n"
        sending.more()

        refused = cluster.nodes[2]
        assert refused.terminate() == 0
        refused = runs(cluster, 2, previous)
        refused.start()
        assert refused.wait() == 1
        assert "has format 6, this version reads 3, 4 and 5" in refused.log_text()
        runs(cluster, 2, ROOT)
        cluster.start_nodes([2])
        sending.more()
    ledger = sending.ledger()
    cluster.wait_level(topic)
    copies = {node: [cluster.api(node)] * PARTITIONS for node in cluster.nodes}
    audits, alike = audit_all(copies, topic, ledger, int)
    assert all(one.clean for one in audits), audits
    assert alike and ledger.acknowledged == len(ledger.offsets) > 1000
    for process in cluster.nodes.values():
        assert "replica stopped" not in process.log_text()


def test_an_older_release_stops_at_a_batch_of_kafkas_protocol(previous: Path) -> None:
    """It would judge a repeat by its bytes, and so differ from the other replicas."""
    entry = BatchEntry(KAFKA_V2, 1, KAFKA_IDS + 1, 0, 1, 0, 0, -1, -1, 0, 0, 1, 1, 0)
    script = (
        "from cluster.partition.machine import PartitionMachine\n"
        "machine = PartitionMachine(None, capacity=1, listeners=set())\n"
        f"machine.apply(7, bytes.fromhex({pack_batch(entry, b'x').hex()!r}), None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=previous,
        env={**os.environ, "PYTHONPATH": str(previous)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "CorruptionError" in last and "unknown type 0x15" in last, done.stderr


def test_an_upgrade_is_finalized_by_itself(make_cluster: MakeCluster, previous: Path) -> None:
    """It is finalized once all nodes have run the newer release for long enough, and no sooner."""
    cluster = make_cluster(settings=SETTINGS, start=False)
    for node in cluster.nodes:
        runs(cluster, node, previous)
    cluster.start()
    commands(cluster, 1, "before")
    for node in cluster.nodes:
        assert facts(cluster, node).cluster_version == 1
        assert cluster.nodes[node].terminate() == 0
        runs(cluster, node, ROOT, upgrade_auto_finalize_ms=1)
        cluster.start_nodes([node])
    eventually(
        lambda: {version_on_disk(cluster, node) for node in cluster.nodes} == {3},
        "all directories say so",
    )
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        eventually(lambda: bool(admin.describe_cluster().settings), "the cluster has settings")
        assert "step-before" in admin.list_topics()


def test_all_nodes_vote_on_the_metadata_until_none_is_older(
    make_cluster: MakeCluster, previous: Path
) -> None:
    """An older release would give a learner its vote. Of six nodes one learns after the upgrade."""
    cluster = make_cluster(6, settings=SETTINGS, start=False)
    for node in cluster.nodes:
        runs(cluster, node, previous)
    cluster.start()
    upgraded = [node for node in cluster.nodes if node != 6]
    for node in upgraded:
        assert cluster.nodes[node].terminate() == 0
        runs(cluster, node, ROOT)
    cluster.start_nodes(upgraded)
    commands(cluster, 1, "mixed")
    with Admin(bootstrap_servers=cluster.addresses[1]) as admin:
        with pytest.raises(NotSupportedError, match="node 6: a release from before"):
            admin.finalize_upgrade()
        assert not any(one.metadata_learner for one in admin.list_nodes())
        roll(cluster, 6, ROOT)
        eventually(lambda: facts(cluster, 1).hindered_by == (), "all run the newer release")
        assert "metadata_learners" in admin.finalize_upgrade().features
        eventually(
            lambda: sum(one.metadata_learner for one in admin.list_nodes()) == 1, "one learns"
        )
    commands(cluster, 6, "after")
    each_node_knows_a_new_leader(cluster, "step-mixed")


def each_node_knows_a_new_leader(cluster: LocalCluster, topic: str) -> None:
    """Also the nodes without a replica, of which one may learn: the voters tell it."""

    def leader(node: int) -> tuple[int, int]:
        with Admin(bootstrap_servers=cluster.addresses[node]) as admin:
            part = admin.describe_topic(topic).partitions[0]
            return part.term, part.leader_id

    before, _ = leader(1)

    def has_moved() -> bool:
        with Admin(bootstrap_servers=cluster.addresses[1]) as admin:
            admin.transfer_leadership(topic, 0)
        return leader(1)[0] > before

    eventually(has_moved, "it is handed over")

    def all_know() -> bool:
        known = {leader(node) for node in cluster.nodes}
        return len(known) == 1 and min(known)[1] > 0

    eventually(all_know, "each node knows the leader of the newest term")
