"""Nodes come, go and lose their disks while clients write: nothing is lost, nothing is twice."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from cluster.metadata.topics import OFFSETS_TOPIC
from harness.local_cluster import LocalCluster
from harness.node_process import NodeProcess
from harness.ports import LOOPBACK, free_ports
from oncelog import Admin, InvalidRequestError, NodeStatus, Producer
from tests.integration.conftest import MakeCluster
from tests.integration.records import read_all
from tests.integration.waiting import eventually

TOPIC = "t"


def status(admin: Admin, node: int) -> NodeStatus | None:
    return next((one for one in admin.list_nodes() if one.node_id == node), None)


def wait_settled(admin: Admin, node: int) -> None:
    def settled() -> bool:
        found = status(admin, node)
        return found is not None and found.alive and found.settled

    eventually(settled, f"node {node} is settled")


@contextmanager
def writing(bootstrap: str) -> Iterator[list[bytes]]:
    """A producer that writes all the time, and its records."""
    sent: list[bytes] = []
    stop = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=bootstrap) as producer:
            while not stop.wait(0.002):
                sent.append(b"%d" % len(sent))
                producer.send(TOPIC, sent[-1])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def check_all_are_there(cluster: LocalCluster, sent: list[bytes]) -> None:
    found = Counter(bytes(record.value or b"") for record in read_all(cluster, TOPIC))
    assert found == Counter(sent)


def test_a_lost_disk_is_replaced_while_clients_write(make_cluster: MakeCluster) -> None:
    """The first node's, which drew the cluster's founding number."""
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin, writing(cluster.bootstrap) as sent:
        admin.create_topic(TOPIC, 2, 3)
        with pytest.raises(InvalidRequestError, match="is running: stop it"):
            admin.replace_node(1)
        cluster.kill([1])
        shutil.rmtree(cluster.nodes[1].spec.data_dir)
        process = cluster.nodes[1]
        process.start()
        words = "If the old one is lost, say so: `oncelog node replace 1`"
        eventually(lambda: words in process.log_text(), "the node is kept out, and why")
        dry = admin.replace_node(1, dry_run=True)
        assert status(admin, 1).settled  # type: ignore[union-attr]
        assert admin.replace_node(1) == dry
        wait_settled(admin, 1)
        cluster.wait_serving([1])
        # The copies on the new disk count: another node may go.
        cluster.kill([2])
        before = len(sent)
        eventually(lambda: len(sent) > before + 50, "the rest takes records")
        cluster.start_nodes([2])
    check_all_are_there(cluster, sent)


def drain_all_but(admin: Admin, leader: int, others: Sequence[int]) -> None:
    """Drains these nodes; returns when `leader` leads the metadata."""
    for node in others:
        admin.drain_node(node)
    eventually(lambda: admin.describe_cluster().controller_id == leader, f"node {leader} leads")


def test_a_node_that_was_away_does_not_judge_by_the_past(make_cluster: MakeCluster) -> None:
    """It must hear news of a directory that it does not know: the leader's new one."""
    cluster = make_cluster(5)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.kill([4, 1])
        shutil.rmtree(cluster.nodes[1].spec.data_dir)
        admin.replace_node(1)
        cluster.start_nodes([1])
        wait_settled(admin, 1)
        drain_all_but(admin, 1, (2, 3, 5))
        cluster.start_nodes([4])
        admin.create_topic(TOPIC, 1, 3)
        with Admin(bootstrap_servers=cluster.addresses[4]) as at_4:
            eventually(lambda: TOPIC in at_4.list_topics(), "node 4 knows what came since")
    assert "another data directory" not in cluster.nodes[4].log_text()
    assert "refuses this node" not in cluster.nodes[1].log_text()


def test_a_node_that_was_away_hears_from_one_that_came_meanwhile(make_cluster: MakeCluster) -> None:
    """The newest node leads, and the node that was away does not know it."""
    cluster = make_cluster(4, start=False)
    early = start_three(cluster)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.kill([3])
        join_fourth(cluster, admin, early[1])
        drain_all_but(admin, 4, (1, 2))
        admin.create_topic(TOPIC, 1, 3)
        cluster.start_nodes([3])
        with Admin(bootstrap_servers=cluster.addresses[3]) as at_3:
            eventually(lambda: TOPIC in at_3.list_topics(), "node 3 knows what came since")


def start_three(cluster: LocalCluster) -> dict[int, str]:
    """The first three, that know of no other; returns where they are."""
    early = {node: cluster.nodes[node].spec.nodes[node] for node in (1, 2, 3)}
    for node in early:
        cluster.change_spec(node, nodes=early)
    cluster.start_nodes(early)
    return early


def join_fourth(cluster: LocalCluster, admin: Admin, at: str) -> None:
    """Starts node 4 as a new node that knows one address; returns when it has its place."""
    joining(cluster, 4, at).start()
    admin.add_node(4)
    wait_settled(admin, 4)


def joining(cluster: LocalCluster, node: int, at: str) -> NodeProcess:
    """The node as a new one, that knows one address and no other node."""
    spec = cluster.nodes[node].spec
    own = {node: spec.nodes[node]}
    settings = {**spec.settings, "join": at}
    return cluster.change_spec(node, nodes=own, settings=settings)


def held(admin: Admin, topic: str) -> list[int]:
    """Number of replicas of each partition."""
    return [len(one.replicas) for one in admin.describe_topic(topic).partitions if not one.target]


def test_one_node_becomes_three_and_a_first_one_leaves(make_cluster: MakeCluster) -> None:
    """No running node changes its settings, and only the node that leaves is stopped."""
    cluster = make_cluster(start=False)
    at = cluster.nodes[1].spec.nodes[1]
    cluster.change_spec(1, nodes={1: at})
    cluster.start_nodes([1])
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, 2, 1)
        admin.commit_offsets("g", {(TOPIC, 0): 0})
        with writing(cluster.bootstrap) as sent:
            early = joining(cluster, 2, at)
            early.start()
            admin.add_node(2)
            wait_settled(admin, 2)
            admin.add_node(3)
            joining(cluster, 3, cluster.nodes[2].spec.nodes[2]).start()
            wait_settled(admin, 3)
            eventually(lambda: {*held(admin, OFFSETS_TOPIC)} == {3}, "offsets are at all nodes")
            for part in range(2):
                admin.reassign_partition(TOPIC, part, [1, 2])
            eventually(
                lambda: not any(part.target for part in admin.describe_topic(TOPIC).partitions),
                "the partitions are where they shall be",
            )
            with pytest.raises(InvalidRequestError, match="is a node of the cluster"):
                admin.add_node(3)
            admin.remove_node(1)
            eventually(lambda: status(admin, 1) is None, "node 1 is forgotten")
            process = cluster.nodes[1]
            words = "serves no clients any more"
            eventually(lambda: words in process.log_text(), "what it knows is out of date")
            places = [set(part.replicas) for part in admin.describe_topic(TOPIC).partitions]
            assert places == [{2, 3}, {2, 3}]
            assert {*held(admin, OFFSETS_TOPIC)} == {2}
            cluster.kill([1])
            before = len(sent)
            eventually(lambda: len(sent) > before + 50, "the rest takes records")
    check_all_are_there(cluster, sent)
    cluster.kill([2, 3])  # each finds the other without node 1
    cluster.start_nodes([2, 3])


def test_a_node_starts_without_the_one_that_it_joined_through(make_cluster: MakeCluster) -> None:
    """`join` names one that was removed: where the others are is in its copy of the metadata."""
    cluster = make_cluster(4, start=False)
    early = start_three(cluster)
    with Admin(bootstrap_servers=[early[2], early[3]]) as admin:
        join_fourth(cluster, admin, early[1])
        admin.remove_node(1)
        eventually(lambda: status(admin, 1) is None, "node 1 is forgotten")
        cluster.kill([1, 4])
        admin.create_topic(TOPIC, 1, 1)
        cluster.kill([2, 3])
        cluster.start_nodes([4], wait=False)  # no other node runs yet
        cluster.start_nodes([2, 3], wait=False)
        cluster.wait_serving([2, 3])  # a start may take longer than a client waits
        wait_settled(admin, 4)
        with Admin(bootstrap_servers=cluster.addresses[4]) as at_4:
            eventually(lambda: TOPIC in at_4.list_topics(), "node 4 knows what came since")


def test_a_node_that_has_moved_is_found(make_cluster: MakeCluster) -> None:
    """The others look for it at its old address: the node that `join` asks tells them the new
    one.
    """
    cluster = make_cluster(4, start=False)
    early = start_three(cluster)
    with Admin(bootstrap_servers=[early[2], early[3]]) as admin:
        join_fourth(cluster, admin, early[2])
        cluster.kill([4])
        (port,) = free_ports(1)
        at = f"{LOOPBACK}:{port}"
        cluster.change_spec(4, listen=at, advertise=at, nodes={4: at}).start()
        wait_settled(admin, 4)
        found = status(admin, 4)
        assert found is not None and found.address == at


def test_a_grown_cluster_moves_at_once(make_cluster: MakeCluster) -> None:
    """Nobody leads before the links use the new addresses, and no metadata has them before."""
    cluster = make_cluster(2, start=False)
    at = cluster.nodes[1].spec.nodes[1]
    cluster.change_spec(1, nodes={1: at})
    cluster.start_nodes([1])
    with Admin(bootstrap_servers=at) as admin:
        joining(cluster, 2, at).start()
        admin.add_node(2)
        wait_settled(admin, 2)
    cluster.kill([1, 2])
    moved = dict(zip((1, 2), (f"{LOOPBACK}:{port}" for port in free_ports(2)), strict=True))
    for node, place in moved.items():
        settings = {**cluster.nodes[node].spec.settings, "join": moved[3 - node]}
        spec = {"listen": place, "advertise": place, "nodes": {node: place}}
        cluster.change_spec(node, settings=settings, **spec)
    cluster.nodes[2].start()  # node 2 asks before node 1 runs
    eventually(lambda: cluster.nodes[2].log_text().count("node started") == 2, "node 2 runs")
    cluster.nodes[1].start()
    with Admin(bootstrap_servers=list(moved.values())) as admin:
        wait_settled(admin, 1)
        wait_settled(admin, 2)
        eventually(
            lambda: {one.node_id: one.address for one in admin.list_nodes()} == moved,
            "the metadata has the new addresses",
        )


def test_a_drained_node_leads_nothing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, 2, 3)
        admin.drain_node(2)
        eventually(
            lambda: (found := status(admin, 2)) is not None and found.drained and found.settled,
            "node 2 leads nothing",
        )
        assert admin.drain_node(2, dry_run=True) == ("nothing: it is so already",)
        admin.undrain_node(2)
        eventually(
            lambda: (found := status(admin, 2)) is not None and found.leaderships > 0,
            "node 2 leads its preferred partitions again",
        )


def test_a_node_that_waits_to_be_added_ends_when_told(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(start=False)
    at = cluster.nodes[1].spec.nodes[1]
    cluster.change_spec(1, nodes={1: at})
    cluster.start_nodes([1])
    waiting = joining(cluster, 2, at)
    waiting.start()
    eventually(lambda: "does not join yet" in waiting.log_text(), "node 2 waits")
    assert waiting.terminate() == 0
