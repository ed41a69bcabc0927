"""Labels in the settings of nodes: they are registered and shown, and partitions spread by them."""

from __future__ import annotations

from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from oncelog import Admin
from oncelog.cli.app import cli
from tests.integration.conftest import MakeCluster
from tests.integration.kafka.kafka_rig import servers
from tests.integration.waiting import TIMEOUT, eventually

TOPIC = "t"


def test_labels_of_a_running_cluster_spread_its_partitions(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4, kafka=True)
    options = ["--bootstrap", cluster.bootstrap]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, 8, 3)
        for number, rack in zip((1, 2, 3, 4), "aabc", strict=True):
            cluster.kill([number])
            labels = {"rack": rack, "machine": f"m{number}"}
            own = cluster.nodes[number].spec.settings
            cluster.change_spec(number, settings={**own, **labels})
            cluster.start_nodes([number])
        wanted = [("a", "m1"), ("a", "m2"), ("b", "m3"), ("c", "m4")]
        eventually(
            lambda: [(one.rack, one.machine) for one in admin.list_nodes()] == wanted,
            "all labels are registered",
        )
        listed = CliRunner().invoke(cli, ["node", "list", *options]).output
        assert "rack  machine" in listed and "m4" in listed
        kafka = AdminClient({"bootstrap.servers": servers(cluster)})
        brokers = kafka.describe_cluster().result(TIMEOUT).nodes
        assert {one.id: one.rack for one in brokers} == {1: "a", 2: "a", 3: "b", 4: "c"}
        assert admin.describe_cluster().crowded_partitions
        eventually(lambda: not admin.plan_balance().waits_for, "all nodes answer")
        moves = admin.plan_balance().moves
        assert moves and not any({1, 2} <= {*move.target} for move in moves)
        admin.start_balance()
        eventually(lambda: admin.describe_balance().settled, "the cluster is balanced")
        (left,) = admin.describe_cluster().crowded_partitions
        assert left.startswith("metadata: 2 of its 4 voters are in rack a: without them")
        parts = admin.describe_topic(TOPIC).partitions
        assert not any({1, 2} <= {*part.replicas} for part in parts)
