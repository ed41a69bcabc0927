"""A topic that is deleted and created again under its name while a producer holds it.

The new topic is empty, has leaders of its own, and knows no producer. Records sent from now on are
stored in it once; records in flight fail; a producer with the application's own sequences stops,
since the records before them are gone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, DeliveryError, Producer, ProducerFatalError
from tests.integration.conftest import STEADY
from tests.integration.records import by_partition, read_all
from tests.integration.waiting import eventually

TIMEOUT = 60.0
PARTITIONS = 3


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("recreated")
    with LocalCluster(root, settings=STEADY, proxied=True) as cluster:
        yield cluster


def topic_ids(cluster: LocalCluster, topic: str) -> set[int]:
    return {cluster.api(node).topic(topic).topic_id for node in cluster.running}


def make_anew(cluster: LocalCluster, topic: str, *, elsewhere: bool) -> None:
    """elsewhere: each partition is led by another node than before."""
    count = len(cluster.describe_topic(topic).partitions)
    old = [cluster.leader(topic, number) for number in range(count)]
    (before,) = topic_ids(cluster, topic)
    with Admin(
        bootstrap_servers=[cluster.nodes[node].spec.listen for node in cluster.nodes]
    ) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, count, 3)
        eventually(lambda: topic_ids(cluster, topic).isdisjoint({before}), "all know the new one")
        for number, former in enumerate(old):
            wanted = former % 3 + 1 if elsewhere else former
            if cluster.leader(topic, number) != wanted:
                admin.transfer_leadership(topic, number, wanted)
            _wait_led(cluster, topic, number, wanted)


def _wait_led(cluster: LocalCluster, topic: str, partition: int, node: int) -> None:
    eventually(
        lambda: cluster.high_watermark(node, topic, partition) is not None,
        f"node {node} leads partition {partition}",
    )


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_new_records_go_to_the_new_topic_once(
    proxied: LocalCluster, topic: str, name: str | None, elsewhere: bool
) -> None:
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)
    with Producer(
        bootstrap_servers=proxied.bootstrap,
        linger_ms=0,
        batch_size=256,
        producer_name=name and f"{name}-{topic}",
    ) as producer:

        def send(text: str) -> list[int]:
            futures = [
                producer.send(topic, f"{text} {number}".encode(), partition=number % PARTITIONS)
                for number in range(30)
            ]
            return [future.result(TIMEOUT).offset for future in futures]

        assert send("old") == [n // PARTITIONS for n in range(30)]
        make_anew(proxied, topic, elsewhere=elsewhere)
        assert send("new") == [n // PARTITIONS for n in range(30)]
        assert send("more") == [10 + n // PARTITIONS for n in range(30)]
        assert producer.metrics()["records_failed"] == 0
    found = by_partition(read_all(proxied, topic))
    for partition, records in found.items():
        wanted = [
            f"{text} {n}".encode() for text in ("new", "more") for n in range(partition, 30, 3)
        ]
        assert [record.value for record in records] == wanted


def test_what_was_on_its_way_fails_and_says_why(proxied: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    assert proxied.proxy is not None
    leader = proxied.leader(topic, 0)
    route = f"client-{leader}"
    with Producer(bootstrap_servers=proxied.bootstrap, linger_ms=0) as producer:
        producer.send(topic, b"before").result(TIMEOUT)
        proxied.proxy.ask("freeze", route, direction="down")
        try:
            future = producer.send(topic, b"on its way")
            other = leader % 3 + 1
            eventually(
                lambda: proxied.api(other).offset(topic, 0, "latest", any_replica=True) == 2,
                "it is stored",
            )
            with Admin(bootstrap_servers=proxied.addresses[other]) as admin:
                admin.delete_topic(topic)
                admin.create_topic(topic, 1, 3)
        finally:
            proxied.proxy.ask("reset", route)
            proxied.proxy.ask("heal", route)
        error = future.exception(TIMEOUT)
        assert isinstance(error, DeliveryError)
        assert not isinstance(error, ProducerFatalError)
        assert error.outcome == "unknown"
        assert "deleted and created anew while this was on its way" in str(error)
        assert producer.send(topic, b"after").result(TIMEOUT).offset == 0
    assert [record.value for record in read_all(proxied, topic)] == [b"after"]


@pytest.mark.parametrize("name", [None, "named"])
def test_nobodys_own_sequences_go_on_in_a_new_topic(
    proxied: LocalCluster, topic: str, name: str | None
) -> None:
    """Otherwise a mirror would go on behind its position, and earlier records would be lost
    unseen.
    """
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=proxied.bootstrap, linger_ms=0, producer_name=name and f"{name}-{topic}"
    ) as producer:
        producer.send(topic, b"0", partition=0, sequence=10).result(TIMEOUT)
        make_anew(proxied, topic, elsewhere=False)
        error = producer.send(topic, b"1", partition=0, sequence=11).exception(TIMEOUT)
        assert isinstance(error, ProducerFatalError)
        assert error.outcome == "not_stored"
        assert "sequences up to 10" in str(error)
        with pytest.raises(ProducerFatalError, match="sequences up to 10"):
            producer.send(topic, b"2", partition=0, sequence=12)
    assert read_all(proxied, topic) == []


@pytest.mark.parametrize("group", [None, "readers"])
def test_a_topic_with_fewer_partitions_is_written_and_read_on(
    proxied: LocalCluster, topic: str, group: str | None
) -> None:
    """Positions in the old topic do not apply, though the new one has as many records."""
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)
    with (
        Producer(bootstrap_servers=proxied.bootstrap, linger_ms=0) as producer,
        Consumer(
            topic,
            bootstrap_servers=proxied.bootstrap,
            group_id=group and f"{group}-{topic}",
            auto_offset_reset="earliest",
        ) as consumer,
    ):

        def send(count: int, partitions: int, text: bytes) -> None:
            for number in range(count):
                producer.send(topic, text, partition=number % partitions).result(TIMEOUT)

        def read(count: int) -> list[tuple[bytes | None, int]]:
            found: list[tuple[bytes | None, int]] = []
            while len(found) < count:
                some = consumer.getmany(timeout_ms=int(TIMEOUT * 1000))
                assert some, f"{found}, and nothing more for so long"
                found += [(one.value, one.offset) for part in some.values() for one in part]
            return found

        send(2 * PARTITIONS, PARTITIONS, b"old")
        assert sorted(read(2 * PARTITIONS)) == sorted([(b"old", 0), (b"old", 1)] * PARTITIONS)
        if group:
            consumer.commit()
        with Admin(bootstrap_servers=proxied.bootstrap) as admin:
            admin.delete_topic(topic)
            admin.create_topic(topic, 1, 3)
        error = producer.send(topic, b"lost", partition=2).exception(TIMEOUT)
        assert isinstance(error, DeliveryError)
        assert error.outcome == "not_stored"
        send(3, 1, b"new")
        assert read(3) == [(b"new", 0), (b"new", 1), (b"new", 2)]
