"""The node's own replicas follow the metadata group: topics come, change and go."""

from __future__ import annotations

import pytest

from cluster.consensus.journal import Journal
from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.cluster import Cluster, create_topic, register_node, topic_config
from tests.sim.node import Settings

GID, SECOND = 16, 17
NODES = [1, 2, 3]


def run(cluster: Cluster, seconds: float) -> None:
    cluster.scheduler.run_until(cluster.scheduler.now + seconds)


def do(cluster: Cluster, command: mpb.MetadataCommand) -> None:
    """Has a command applied by the leader."""
    results: list[bytes] = []
    end = cluster.scheduler.now + 20.0
    while not results and cluster.scheduler.now < end:
        cluster.command(command, results.append)
        run(cluster, 0.5)
    assert mpb.MetadataResult.FromString(results[0]).error == ""


@pytest.fixture
def cluster() -> Cluster:
    """Three nodes with one topic; the metadata log is kept short."""
    settings = Settings(metadata=True, checkpoint_entries=4, retention_check=1.0)
    cluster = Cluster(settings, seed=1)
    cluster.start()
    for node in NODES:
        do(cluster, register_node(node))
    do(cluster, create_topic("t16", [NODES], settings))
    run(cluster, 5.0)
    return cluster


def held(cluster: Cluster) -> dict[int, set[int]]:
    """Groups that each node holds."""
    return {node.id: set(node.partitions) for node in cluster.nodes.values()}


def test_a_topic_is_opened_where_it_is_placed_and_closed_when_it_is_deleted(
    cluster: Cluster,
) -> None:
    do(cluster, create_topic("x", [[2, 3]], cluster.settings))
    run(cluster, 5.0)
    assert held(cluster) == {1: {GID}, 2: {GID, SECOND}, 3: {GID, SECOND}}
    assert cluster.leader(SECOND) is cluster.nodes[2], "the first replica stands first"
    do(cluster, mpb.MetadataCommand(delete_topic=mpb.DeleteTopic(name="x")))
    run(cluster, 5.0)
    assert held(cluster) == {1: {GID}, 2: {GID}, 3: {GID}}
    assert cluster.converged()
    cluster.check_end()


def test_altered_settings_reach_the_replicas_of_their_topic_only(cluster: Cluster) -> None:
    do(cluster, create_topic("x", [NODES], cluster.settings))
    alter = mpb.AlterTopic(name="x", config=topic_config(777))
    do(cluster, mpb.MetadataCommand(alter_topic=alter))
    run(cluster, 5.0)
    for node in cluster.nodes.values():
        assert node.partitions[SECOND].policy.retention_bytes == 777
        assert node.partitions[GID].policy.retention_bytes == -1


def test_a_shorter_lease_reaches_all_replicas(cluster: Cluster) -> None:
    leader = cluster.leader(METADATA_GROUP)
    assert leader is not None
    shorter = leader.running.state.lease_lifetime_ms - 1000
    cluster.settings.lease_ms = shorter
    do(cluster, mpb.MetadataCommand(allocate_producer_ids=mpb.AllocateProducerIds(count=1)))
    run(cluster, 5.0)
    lifetimes = {node.partitions[GID].policy.lease_lifetime_ms for node in cluster.nodes.values()}
    assert lifetimes == {shorter}


def test_what_a_metadata_snapshot_brought_is_opened(cluster: Cluster) -> None:
    """A node was away while topics came and went, and the log of that is gone."""
    cluster.nodes[3].crash("test")
    do(cluster, create_topic("x", [NODES], cluster.settings))
    for _ in range(20):
        do(cluster, mpb.MetadataCommand(allocate_producer_ids=mpb.AllocateProducerIds(count=1)))
    run(cluster, 3.0)
    cluster.nodes[3].start()
    run(cluster, 8.0)
    assert cluster.installs > 0
    assert held(cluster)[3] == {GID, SECOND}
    assert cluster.converged()


def test_deleted_and_created_again_while_a_node_was_away(cluster: Cluster) -> None:
    do(cluster, create_topic("x", [NODES], cluster.settings))
    run(cluster, 3.0)
    cluster.nodes[2].crash("test")
    do(cluster, mpb.MetadataCommand(delete_topic=mpb.DeleteTopic(name="x")))
    do(cluster, create_topic("x", [NODES], cluster.settings))
    run(cluster, 2.0)
    cluster.nodes[2].start()
    run(cluster, 8.0)
    assert held(cluster) == {node: {GID, SECOND + 1} for node in NODES}
    assert cluster.converged()
    cluster.check_end()


@pytest.mark.parametrize("commit_is_saved", [True, False])
def test_a_node_that_starts_alone_knows_its_topics(
    commit_is_saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone node reads its disk: no leader tells it the commit index, and no limit was met.

    The topics are made so soon after each other that there is a checkpoint of the first only.
    """
    settings = Settings(metadata=True, checkpoint_entries=10**6)
    cluster = Cluster(settings, seed=1)
    if not commit_is_saved:
        monkeypatch.setattr(Journal, "save_commit", lambda self, index: None)
    cluster.start()
    for number in NODES:
        do(cluster, register_node(number))
    run(cluster, 2.0)
    for name in ("t16", "x", "y"):
        cluster.command(create_topic(name, [NODES], settings), lambda result: None)
        run(cluster, 0.3)
    for node in cluster.nodes.values():
        assert set(node.partitions) == {GID, GID + 1, GID + 2}
        node.crash("the power of all nodes fails")
    alone = cluster.nodes[2]
    alone.start()
    run(cluster, 3.0)
    known = {GID, GID + 1, GID + 2}
    assert set(alone.partitions) == known if commit_is_saved else set(alone.partitions) < known
