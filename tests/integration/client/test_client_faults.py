"""The client under faults: leaders killed, acknowledgements lost, connections hung.

Lost acknowledgements come from a TCP proxy before each node, so they are lost every time: the proxy
holds the node's answers back until the connection is reset.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    Consumer,
    DeliveryTimeoutError,
    Producer,
    Resolution,
    TopicPartition,
    UndeliveredRecordsError,
    UnknownTopicOrPartitionError,
)
from oncelog._engine.produce.stream import Lane
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.records import read_all
from tests.integration.waiting import eventually

TIMEOUT = 60.0
RATE, HUNG_S = 4200, 1.8  # records per second, seconds


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes, each behind a proxy; a test heals the faults it causes."""
    # A frozen client connection must not look like a dead leader: only clients are cut off.
    root = tmp_path_factory.mktemp("proxied")
    with LocalCluster(root, settings=STEADY, proxied=True) as cluster:
        yield cluster


def stored_count(cluster: LocalCluster, topic: str, not_at: int) -> int:
    """Number of records that a replica other than this one knows to be committed."""
    node = next(node for node in cluster.running if node != not_at)
    return cluster.api(node).offset(topic, 0, "latest", any_replica=True)


@contextmanager
def acknowledgements_lost(cluster: LocalCluster, node: int) -> Iterator[None]:
    """Loses the node's answers to clients in this block; afterwards the node can be reached."""
    assert cluster.proxy is not None
    route = f"client-{node}"
    cluster.proxy.ask("freeze", route, direction="down")
    try:
        yield
    finally:
        cluster.proxy.ask("reset", route)
        cluster.proxy.ask("heal", route)


# --- kill -9 -----------------------------------------------------------------------------


def test_killed_leaders_lose_nothing_and_repeat_nothing(
    make_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_cluster()
    partitions, keys = 3, 7
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions, 3)
    stop = threading.Event()
    sent: list[bytes] = []
    with Producer(
        bootstrap_servers=cluster.bootstrap, batch_size=1024, linger_ms=1, buffer_memory=256 * 1024
    ) as producer:
        done = 0

        def run() -> None:
            while not stop.is_set():
                n = len(sent)
                producer.send(topic, b"%d" % n, b"key %d" % (n % keys))
                sent.append(b"%d" % n)
                if n % 20 == 19:
                    stop.wait(0.002)  # some thousand records a second, for as long as it takes

        def more() -> None:
            nonlocal done
            target = int(producer.metrics()["records_acked"]) + 500
            eventually(lambda: producer.metrics()["records_acked"] >= target, "acknowledgements")
            done += 1

        thread = threading.Thread(target=run)
        thread.start()
        try:
            more()
            for partition in range(2):
                leader = cluster.leader(topic, partition)
                cluster.kill([leader])
                more()
                cluster.start_nodes([leader])
                more()
        finally:
            stop.set()
            thread.join()
        producer.flush(timeout_ms=1000 * TIMEOUT)
        assert producer.metrics()["records_failed"] == 0
    records = read_all(cluster, topic)
    counts = Counter(record.value for record in records)
    assert [n for n in sent if n not in counts] == [], "lost"
    assert [value for value, count in counts.items() if count > 1] == [], "twice"
    assert len(records) == len(sent)
    last: dict[tuple[int, bytes | None], int] = {}
    for record in records:
        number = int(record.value or b"")
        place = (record.partition, record.key)
        assert number > last.get(place, -1), f"{record} came after {last[place]}"
        last[place] = number


def test_a_consumer_survives_a_leader_change(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(settings=STEADY)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        ) as consumer,
    ):
        reading = iter(consumer)
        numbers: list[int] = []

        def pass_on(count: int) -> None:
            for _ in range(count):
                producer.send(topic, b"%d" % len(numbers))
                numbers.append(int(next(reading).value or b""))

        pass_on(20)
        for how in ("kill", "move"):
            leader = cluster.leader(topic, 0)
            if how == "kill":
                cluster.kill([leader])
                pass_on(20)
                cluster.start_nodes([leader])
            else:
                with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                    assert admin.transfer_leadership(topic, 0) != leader
            pass_on(20)
        assert numbers == list(range(60 + 20))


def test_a_consumer_does_not_wait_for_a_leader_that_hangs(
    make_cluster: MakeCluster, topic: str
) -> None:
    """Its connections stay, so the client would await its answer until the request's timeout."""
    cluster = make_cluster(settings=STEADY)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            request_timeout_ms=600_000,
            consumer_timeout_ms=60_000,
        ) as consumer,
    ):
        reading = iter(consumer)
        producer.send(topic, b"before").result(TIMEOUT)
        assert next(reading).value == b"before"
        leader = cluster.leader(topic, 0)
        cluster.pause(leader)
        try:
            producer.send(topic, b"behind").result(TIMEOUT)
            assert next(reading).value == b"behind"
        finally:
            cluster.resume(leader)


# --- acknowledgements that are lost ------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_lost_acknowledgement(proxied: LocalCluster, topic: str, idempotent: bool) -> None:
    """The fault bites: without idempotence the very same loss stores records twice."""
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=proxied.bootstrap,
        enable_idempotence=idempotent,
        linger_ms=0,
        request_timeout_ms=5000,
    ) as producer:
        producer.send(topic, b"before").result(TIMEOUT)
        leader = proxied.leader(topic, 0)
        with acknowledgements_lost(proxied, leader):
            futures = [producer.send_batch(topic, 0, [b"%d" % n]) for n in range(5)]
            eventually(lambda: stored_count(proxied, topic, leader) == 6, "all are stored")
            assert not any(future.done() for future in futures)
        results = [future.result(TIMEOUT) for future in futures]
    values = [record.value for record in read_all(proxied, topic)]
    once = [b"before", *(b"%d" % n for n in range(5))]
    if idempotent:
        assert values == once
        assert [r.base_offset for r in results] == [1, 2, 3, 4, 5], "the originals' places"
        assert all(r.duplicate for r in results)
    else:
        assert values == [*once, *once[1:]], "a plain retry stores a second copy"


def test_an_acknowledgement_lost_beside_a_refusal_on_another_partition(
    proxied: LocalCluster, topic: str
) -> None:
    """A reset touches one partition; the other's retry keeps its sequences."""
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 2, 3)
    with Producer(
        bootstrap_servers=proxied.bootstrap, linger_ms=0, request_timeout_ms=5000
    ) as producer:
        for partition in (0, 1):
            producer.send(topic, b"before", partition=partition).result(TIMEOUT)
        leader = proxied.leader(topic, 0)
        other = proxied.leader(topic, 1)
        assert leader != other, "leaders are spread"
        with acknowledgements_lost(proxied, leader):
            lost = producer.send(topic, b"lost", partition=0)
            eventually(lambda: stored_count(proxied, topic, leader) == 2, "it is stored")
            middle = [
                producer.send(topic, b"%d" % n, partition=1, expected_offset=x)
                for n, x in enumerate([1, 99, None, None])
            ]
            assert middle[1].exception(TIMEOUT)
            assert [middle[n].result(TIMEOUT).offset for n in (0, 2, 3)] == [1, 2, 3]
        assert (lost.result(TIMEOUT).offset, lost.result().duplicate) == (1, True)
    values = {p: [r.value for r in read_all(proxied, topic) if r.partition == p] for p in (0, 1)}
    assert values == {0: [b"before", b"lost"], 1: [b"before", b"0", b"2", b"3"]}


def test_a_hung_connection(proxied: LocalCluster, topic: str) -> None:
    """4,200 events a second; one connection hangs and its acknowledgements are lost."""
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 3, 3)
    leader = proxied.leader(topic, 0)
    sent = 0
    pace = threading.Event()
    with Producer(
        bootstrap_servers=proxied.bootstrap, linger_ms=5, request_timeout_ms=5000
    ) as producer:
        start = time.monotonic()

        def send_for(seconds: float) -> None:
            nonlocal sent
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                due = int((time.monotonic() - start) * RATE)
                while sent < due:
                    producer.send(topic, b"%d" % sent, b"key %d" % (sent % 30))
                    sent += 1
                pace.wait(0.005)

        send_for(0.7)
        with acknowledgements_lost(proxied, leader):
            send_for(HUNG_S)
        send_for(0.7)
        producer.flush(timeout_ms=1000 * TIMEOUT)
        metrics = producer.metrics()
    assert metrics["records_failed"] == 0
    assert metrics["duplicates"] > 0, "something was sent again that was stored"
    counts = Counter(record.value for record in read_all(proxied, topic))
    assert set(counts.values()) == {1}
    assert counts.keys() == {b"%d" % n for n in range(sent)}
    assert sent > RATE * HUNG_S


# --- the delivery timeout ----------------------------------------------------------------


def test_delivery_timeout_with_an_unknown_outcome_that_is_resolved(
    proxied: LocalCluster, topic: str
) -> None:
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    leader = proxied.leader(topic, 0)
    with Producer(
        bootstrap_servers=proxied.bootstrap,
        linger_ms=0,
        request_timeout_ms=3000,
        delivery_timeout_ms=6000,
        retry_backoff_max_ms=100,
    ) as producer:
        producer.send(topic, b"before").result(TIMEOUT)
        with acknowledgements_lost(proxied, leader):
            future = producer.send(topic, b"in doubt")
            error = future.exception(TIMEOUT)
            assert isinstance(error, DeliveryTimeoutError)
            assert isinstance(error, TimeoutError)
            assert error.outcome == "unknown"
        found = producer.resolve(future)
        assert (found.resolution, found.offset) == (Resolution.COMMITTED, 1)
        # The partition goes on under a new producer id, and nothing is there twice.
        after = producer.send(topic, b"after").result(TIMEOUT)
        assert after.offset == 2
        assert producer.resolve(after).offset == 2
    assert [r.value for r in read_all(proxied, topic)] == [b"before", b"in doubt", b"after"]


def test_delivery_timeout_of_what_was_never_sent(proxied: LocalCluster, topic: str) -> None:
    assert proxied.proxy is not None
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=proxied.bootstrap,
        linger_ms=0,
        request_timeout_ms=3000,
        delivery_timeout_ms=6000,
        retry_backoff_max_ms=100,
    ) as producer:
        producer.send(topic, b"before").result(TIMEOUT)
        for node in proxied.nodes:
            proxied.proxy.ask("cut", f"client-{node}")
        try:
            # The client notices the broken stream before it sends anything.
            eventually(
                lambda: not any(s.opened and not s.closed for s in streams(producer)),
                "the producer's streams are closed",
            )
            error = producer.send(topic, b"never").exception(TIMEOUT)
        finally:
            for node in proxied.nodes:
                proxied.proxy.ask("heal", f"client-{node}")
        assert isinstance(error, DeliveryTimeoutError)
        assert error.outcome == "never_sent"
        assert producer.send(topic, b"after").result(TIMEOUT).sequence == 1, "none was used up"
    assert [r.value for r in read_all(proxied, topic)] == [b"before", b"after"]


def streams(producer: Producer) -> list[Lane]:
    return list(producer._sender._streams.values())


def test_closing_without_a_way_out_says_what_is_lost(proxied: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    leader = proxied.leader(topic, 0)
    producer = Producer(bootstrap_servers=proxied.bootstrap, linger_ms=0)
    producer.send(topic, b"before").result(TIMEOUT)
    with acknowledgements_lost(proxied, leader):
        future = producer.send(topic, b"x")
        eventually(lambda: stored_count(proxied, topic, leader) == 2, "it is stored")
        with pytest.raises(UndeliveredRecordsError) as caught:
            producer.close(timeout_ms=200)
    assert (caught.value.count, caught.value.outcome) == (1, "unknown")
    assert isinstance(future.exception(), DeliveryTimeoutError)


def test_a_consumer_over_a_hung_connection_goes_on(proxied: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=proxied.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    leader = proxied.leader(topic, 0)
    tp = TopicPartition(topic, 0)
    with (
        Producer(bootstrap_servers=proxied.bootstrap, linger_ms=0) as producer,
        Consumer(topic, bootstrap_servers=proxied.bootstrap, request_timeout_ms=1000) as consumer,
    ):
        assert consumer.position(tp) == 0
        producer.send(topic, b"0").result(TIMEOUT)
        assert next(iter(consumer)).value == b"0"
        with acknowledgements_lost(proxied, leader):
            producer.send(topic, b"1")
            eventually(lambda: stored_count(proxied, topic, leader) == 2, "it is stored")
            assert consumer.getmany(timeout_ms=100) == {}
        assert next(iter(consumer)).value == b"1"
        assert consumer.position(tp) == 2


def test_a_topic_that_was_deleted_with_its_answer_lost_is_deleted(
    proxied: LocalCluster, topic: str
) -> None:
    """The second try finds no topic, which is the requested state."""
    with (
        Admin(bootstrap_servers=proxied.addresses[2]) as other,
        Admin(bootstrap_servers=proxied.addresses[1]) as admin,
        ThreadPoolExecutor(1) as pool,
    ):
        admin.create_topic(topic, 1, 3)
        with acknowledgements_lost(proxied, 1):
            asked = pool.submit(admin.delete_topic, topic)
            eventually(lambda: topic not in {t.name for t in other.describe_topics()}, "it is gone")
        asked.result(TIMEOUT)
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topic(topic)
