"""A node whose data directory was emptied has forgotten its promises: it stays out."""

from __future__ import annotations

import shutil
import time

import pytest

from harness.api import batch, verdict
from oncelog import Admin, InvalidRequestError
from tests.integration.conftest import MakeCluster
from tests.integration.records import stored_batches
from tests.integration.waiting import eventually


def test_an_emptied_directory_is_refused_and_the_cluster_goes_on(
    make_cluster: MakeCluster,
) -> None:
    """It could otherwise vote for a leader that lacks records it had acknowledged."""
    cluster = make_cluster()
    cluster.api(1).create_topic("t", 1, 3)
    pid = cluster.api(1).lease().producer_id
    cluster.store(batch("t", 0, pid, 0, b"before"))
    lost = next(node for node in cluster.nodes if node != cluster.leader("t", 0))
    cluster.kill([lost])
    process = cluster.nodes[lost]
    shutil.rmtree(process.spec.data_dir)
    process.start()
    assert process.wait(60) == 1
    assert f"node_id {lost} is registered with another data directory" in process.log_text()
    cluster.store(batch("t", 0, pid, 1, b"after"))
    assert verdict(cluster.produce(batch("t", 0, pid, 0, b"before"))) == "DUPLICATE"


def test_an_older_copy_that_is_put_back_is_refused_and_named(make_cluster: MakeCluster) -> None:
    """It has the right id, and has forgotten later acknowledgements: replace is the remedy."""
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.finalize_upgrade()
        cluster.api(1).create_topic("t", 1, 3)
        pid = cluster.api(1).lease().producer_id
        cluster.store(batch("t", 0, pid, 0, b"before"))
        victim = next(node for node in cluster.nodes if node != cluster.leader("t", 0))
        process = cluster.nodes[victim]
        cluster.kill([victim])
        cluster.start_nodes([victim])  # from the second start on it is registered for sure
        cluster.wait_level("t")
        cluster.kill([victim])
        copy = process.spec.data_dir.with_name("copy")
        shutil.copytree(process.spec.data_dir, copy)
        cluster.start_nodes([victim])
        cluster.store(batch("t", 0, pid, 1, b"after"))
        cluster.wait_level("t")
        cluster.kill([victim])
        shutil.rmtree(process.spec.data_dir)
        copy.rename(process.spec.data_dir)
        process.start()
        assert process.wait(60) == 1
        assert f"the data directory of node {victim} is an older copy" in process.log_text()
        cluster.store(batch("t", 0, pid, 2, b"on"))
        # The remedy: replace the node, with an empty directory in its place.
        admin.replace_node(victim)
        shutil.rmtree(process.spec.data_dir)
        cluster.start_nodes([victim])
        eventually(lambda: admin.describe_cluster().healthy, "the node is whole again")
        cluster.wait_level("t")
        assert verdict(cluster.produce(batch("t", 0, pid, 1, b"after"))) == "DUPLICATE"


def test_a_node_that_is_killed_again_and_again_is_let_in(make_cluster: MakeCluster) -> None:
    """Wherever it dies, it knows the start that was registered last, or has begun it."""
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.finalize_upgrade()
        cluster.api(1).create_topic("t", 1, 3)
        for wait in (0.0, 0.3, 0.6, 0.9):
            cluster.kill([3])
            cluster.nodes[3].start()
            time.sleep(wait)  # it dies at some other point of its start
        cluster.kill([3])
        cluster.start_nodes([3])
        cluster.wait_level("t")
        eventually(lambda: admin.describe_cluster().healthy, "it takes part")


def test_of_two_replicas_the_one_that_is_left_goes_on(make_cluster: MakeCluster) -> None:
    """The replica that is left has all acknowledged records: none is lost, none is stored twice."""
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.finalize_upgrade()
        cluster.api(1).create_topic("t", 1, 2)
        pid = cluster.api(1).lease().producer_id
        for sequence in range(3):
            sent = batch("t", 0, pid, sequence, b"before")
            cluster.store(sent)
        lost = cluster.leader("t", 0)
        cluster.kill([lost])
        shutil.rmtree(cluster.nodes[lost].spec.data_dir)
        admin.replace_node(lost)  # no loss has to be accepted
        assert verdict(cluster.produce(batch("t", 0, pid, 2, b"before"))) == "DUPLICATE"
        cluster.store(batch("t", 0, pid, 3, b"alone"))
        cluster.start_nodes([lost])
        eventually(lambda: admin.describe_cluster().healthy, "two replicas are there again")
        held = cluster.describe_topic("t").partitions[0].replicas
        assert lost in held and len(held) == 2
        (left,) = {*held} - {lost}
        cluster.wait_level("t")
        cluster.kill([left])
        # The replaced node has all records, too; with two voters both are needed.
        cluster.start_nodes([left])
        assert verdict(cluster.produce(batch("t", 0, pid, 3, b"alone"))) == "DUPLICATE"
        cluster.store(batch("t", 0, pid, 4, b"both"))
        stored = [one.payload for one in stored_batches(cluster.bootstrap, "t")]
        assert stored == [b"before"] * 3 + [b"alone", b"both"]


def test_a_disk_with_the_only_replica_is_given_up_only_if_that_is_said(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.finalize_upgrade()
        cluster.api(1).create_topic("single", 1, 1)
        lost = cluster.leader("single", 0)
        cluster.kill([lost])
        with pytest.raises(InvalidRequestError, match=r"these partitions end.*single-0"):
            admin.replace_node(lost)
        admin.replace_node(lost, accept_loss=True)


def test_of_two_nodes_the_other_one_goes_on_when_that_is_said(make_cluster: MakeCluster) -> None:
    """Only the operator can know which one is lost: the command tells the operator the cost."""
    cluster = make_cluster(nodes=2)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.finalize_upgrade()
        cluster.api(1).create_topic("t", 1, 2)
        pid = cluster.api(1).lease().producer_id
        cluster.store(batch("t", 0, pid, 0, b"before"))
        cluster.kill([2])
        shutil.rmtree(cluster.nodes[2].spec.data_dir)
        eventually(lambda: admin.describe_cluster().controller_id != 1, "1 decides nothing")
        with pytest.raises(InvalidRequestError, match="node 1 decides alone") as refused:
            admin.replace_node(2, accept_loss=True)
        directory = int(str(refused.value).rpartition(" ")[2], 16)
        admin.replace_node(2, accept_loss=True, directory_id=directory)
        cluster.store(batch("t", 0, pid, 1, b"alone"))
        cluster.restart(1)
        assert verdict(cluster.produce(batch("t", 0, pid, 1, b"alone"))) == "DUPLICATE"
        cluster.start_nodes([2])
        eventually(lambda: admin.describe_cluster().healthy, "both are there again")
        cluster.wait_level("t")
        assert verdict(cluster.produce(batch("t", 0, pid, 0, b"before"))) == "DUPLICATE"
        cluster.store(batch("t", 0, pid, 2, b"both"))
        stored = [one.payload for one in stored_batches(cluster.bootstrap, "t")]
        assert stored == [b"before", b"alone", b"both"]
