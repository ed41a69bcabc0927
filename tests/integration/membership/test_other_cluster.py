"""A client learns that a node at a known address has founded another cluster, and changes nothing
there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.api import batch
from oncelog import (
    Admin,
    Consumer,
    DeliveryError,
    OtherClusterError,
    Producer,
    TopicPartition,
)
from tests.integration.conftest import MakeCluster
from tests.integration.membership.test_nodes import joining, wait_settled

T0 = TopicPartition("t", 0)


def refused(call: Callable[[], object], foundings: list[str]) -> None:
    with pytest.raises(OtherClusterError) as told:
        call()
    assert all(one in str(told.value) for one in foundings), told.value


def test_the_wiped_first_node_while_all_others_are_down(make_cluster: MakeCluster) -> None:
    """Nothing of the client reaches the other cluster, and each error names both foundings."""
    cluster = make_cluster(start=False)
    at = cluster.nodes[1].spec.nodes[1]
    cluster.change_spec(1, nodes={1: at})
    cluster.start_nodes([1])
    address, most = cluster.addresses[1], 3000
    with (
        Admin(bootstrap_servers=address, request_timeout_ms=most) as admin,
        Producer(
            bootstrap_servers=address, delivery_timeout_ms=5000, request_timeout_ms=most
        ) as producer,
        Producer(bootstrap_servers=address, producer_name="n", request_timeout_ms=most) as named,
        Consumer(bootstrap_servers=address, group_id="g", request_timeout_ms=most) as consumer,
    ):
        admin.create_topic("t", 1, replicas=1)
        producer.send("t", b"before", partition=0).result()
        named.transaction().begin().abort()
        consumer.assign([T0])
        consumer.seek_to_beginning(T0)
        assert len(consumer.getmany(timeout_ms=10_000)[T0]) == 1
        consumer.commit()
        joining(cluster, 2, at).start()
        admin.add_node(2)
        wait_settled(admin, 2)
        foundings = [admin.describe_cluster().founding]
        cluster.kill([1, 2])
        aside = cluster.nodes[1].spec.data_dir.with_suffix(".aside")
        cluster.nodes[1].spec.data_dir.rename(aside)
        cluster.start_nodes([1])
        other = cluster.api(1)
        other.create_topic("t", 1, 1)
        pid = other.lease().producer_id
        cluster.store(batch("t", 0, pid, 0, b"another"))
        foundings.append(other.describe().founding)
        refused(admin.list_topics, foundings)
        refused(lambda: admin.create_topic("u", 1), foundings)
        refused(lambda: consumer.getmany(timeout_ms=10_000), foundings)
        refused(lambda: consumer.commit({T0: 1}), foundings)
        refused(named.transaction().begin, foundings)
        with pytest.raises(DeliveryError) as told:
            producer.send("t", b"lost", partition=0).result()
        assert all(one in str(told.value) for one in foundings), told.value
        assert [topic.name for topic in other.topics()] == ["t"]
        assert cluster.latest("t", 0) == 1
