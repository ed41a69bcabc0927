"""Nodes with labels: they are told by their settings, shown, and spread partitions."""

from __future__ import annotations

from oncelog import Admin
from tests.integration.conftest import MakeCluster
from tests.integration.membership.test_nodes import wait_settled
from tests.integration.waiting import eventually

TOPIC = "t"


def test_labels_of_a_running_cluster_spread_its_partitions(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin, cluster.spare() as node:
        admin.add_node(node)
        wait_settled(admin, node)
        admin.create_topic(TOPIC, 8, 3)
        for number, rack in ((1, "a"), (2, "a"), (3, "b"), (node, "c")):
            cluster.kill([number])
            own = cluster.nodes[number].spec.settings
            labels = {"rack": rack, "machine": f"m{number}"}
            cluster.change_spec(number, settings={**own, **labels})
            cluster.start_nodes([number])
        eventually(
            lambda: (
                [(one.rack, one.machine) for one in admin.list_nodes()]
                == [("a", "m1"), ("a", "m2"), ("b", "m3"), ("c", f"m{node}")]
            ),
            "all labels are registered",
        )
        assert admin.describe_cluster().crowded_partitions
        moves = admin.plan_balance().moves
        assert moves and not any({1, 2} <= {*move.target} for move in moves)
        admin.start_balance()
        eventually(lambda: admin.describe_balance().settled, "the cluster is balanced")
        assert not admin.describe_cluster().crowded_partitions
        parts = admin.describe_topic(TOPIC).partitions
        assert not any({1, 2} <= {*part.replicas} for part in parts)
