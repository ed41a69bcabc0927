"""A new node takes its share of the partitions while clients write."""

from __future__ import annotations

from collections import Counter

from oncelog import Admin, Balance
from oncelog.cli.balance import describe
from tests.integration.conftest import MakeCluster
from tests.integration.membership.test_nodes import check_all_are_there, wait_settled, writing
from tests.integration.waiting import eventually

TOPIC = "t"


def test_a_new_node_gets_its_part_by_count_and_leads(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin, cluster.spare() as node:
        admin.create_topic(TOPIC, 4, 3)
        with writing(cluster.bootstrap) as sent:
            admin.add_node(node)
            wait_settled(admin, node)
            dry = admin.plan_balance()
            assert not dry.balancing and 3 <= dry.count <= 4
            assert sum(node in move.target for move in dry.moves) == 3, "12 replicas, 4 nodes"
            assert admin.describe_balance().settled, "nothing was begun"
            seen = [admin.start_balance()]
            assert seen[0].balancing

            def settled() -> bool:
                seen.append(admin.describe_balance())
                return seen[-1].settled

            eventually(settled, "the cluster is balanced")
            assert any("partitions move" in describe(one) for one in seen)
            assert all(move.waits_for for one in seen for move in one.moves)
            parts = admin.describe_topic(TOPIC).partitions
            assert Counter(n for part in parts for n in part.replicas) == dict.fromkeys(
                (1, 2, 3, node), 3
            )
            leads = Counter(part.replicas[0] for part in parts)
            assert leads == dict.fromkeys((1, 2, 3, node), 1)
            assert admin.plan_balance() == Balance(False, (), 0, 0, 0)
        check_all_are_there(cluster, sent)
