"""Leases and names that end, in a cluster where that takes seconds; all by log time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.api import CALL_TIMEOUT, batch, verdict
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog import Admin
from oncelog.errors import InvalidRequestError
from oncelog.v1 import batch_pb2, log_pb2, producer_pb2

LIFETIME_MS, NAME_EXPIRY_MS = 1500, 4000
# Ids of one thousandth of a lease share a record, and so end together.
GRAIN_MS = LIFETIME_MS // 1000 + 1
SETTINGS = {
    "election_timeout_ms": 500,
    "heartbeat_ms": 50,
    "retention_check_ms": 100,
    "lease_lifetime_ms": LIFETIME_MS,
    "producer_name_expiry_ms": NAME_EXPIRY_MS,
}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes with short leases."""
    with LocalCluster(tmp_path_factory.mktemp("short"), settings=SETTINGS) as cluster:
        yield cluster


def lease(cluster: LocalCluster, name: str = "") -> producer_pb2.LeaseProducerResponse:
    answer: producer_pb2.LeaseProducerResponse = cluster.api(1).producers.LeaseProducer(
        producer_pb2.LeaseProducerRequest(producer_name=name), timeout=CALL_TIMEOUT
    )
    return answer


def opened(
    cluster: LocalCluster, topic: str, partition: int, pid: int, epoch: int
) -> producer_pb2.OpenedPartition:
    request = producer_pb2.OpenProducerRequest(
        producer_id=pid,
        epoch=epoch,
        partitions=[batch_pb2.TopicPartition(topic=topic, partition=partition)],
    )
    api = cluster.api(cluster.leader(topic, partition))
    answer: producer_pb2.OpenProducerResponse = api.producers.OpenProducer(
        request, timeout=CALL_TIMEOUT
    )
    return answer.partitions[0]


def resolution(cluster: LocalCluster, topic: str, pid: int, sequence: int) -> tuple[str, int]:
    request = log_pb2.ResolveSequenceRequest(
        topic=topic, partition=0, producer_id=pid, sequence=sequence
    )
    api = cluster.api(cluster.leader(topic, 0))
    answer = api.log.ResolveSequence(request, timeout=CALL_TIMEOUT)
    name = log_pb2.Resolution.Name(answer.resolution).removeprefix("RESOLUTION_")
    return name, answer.offset


def write_until_refused(cluster: LocalCluster, topic: str, pid: int, epoch: int = 0) -> list[int]:
    """Appends batches in sequence until one is refused; returns the log times of the stored
    ones.
    """
    times: list[int] = []
    while True:
        sequence = len(times)
        result = cluster.produce(batch(topic, 0, pid, sequence, b"%d" % sequence, epoch=epoch))
        if verdict(result) != "APPENDED":
            assert verdict(result) == "PRODUCER_EXPIRED", result
            return times
        times.append(result.append_time_ms)


def forgotten(cluster: LocalCluster, topic: str, pid: int) -> None:
    """Waits until no replica remembers the producer: the duty lets time pass."""
    leader = cluster.api(cluster.leader(topic, 0))
    while len(leader.fetch(topic, 0, 0).batches) == 0:
        leader.fetch(topic, 0, 0, min_bytes=1, max_wait_ms=50)  # it has just begun to lead
    end = leader.offset(topic, 0, "latest")
    for node in cluster.nodes:
        api = cluster.api(node)
        while api.offset(topic, 0, "latest", any_replica=True) < end or any(
            state.producer_id == pid for state in api.last_seen(topic, 0)
        ):
            api.fetch(topic, 0, end, any_replica=True, min_bytes=1, max_wait_ms=50)


def test_a_lease_ends_by_log_time_and_a_name_outlives_it(short: LocalCluster, topic: str) -> None:
    short.api(1).create_topic(topic, 2, 3)
    fresh, named = lease(short), lease(short, topic)
    assert 0 < fresh.lifetime_ms <= LIFETIME_MS
    store = batch(topic, 0, named.producer_id, 0, b"named", epoch=named.epoch)
    assert verdict(short.produce(store)) == "APPENDED", "pinned by its first batch, never opened"
    times = write_until_refused(short, topic, fresh.producer_id)
    assert times[-1] < fresh.expire_ms + GRAIN_MS
    stored = list(short.api(1).stored(topic, 0))
    # A stored record is a duplicate as long as it is remembered; then all is refused for good.
    count = len(times)
    last = batch(topic, 0, fresh.producer_id, count - 1, b"%d" % (count - 1))
    assert verdict(short.produce(last)) in ("DUPLICATE", "PRODUCER_EXPIRED")
    forgotten(short, topic, fresh.producer_id)
    for sequence in (count, count - 1, 0):
        late = batch(topic, 0, fresh.producer_id, sequence, b"%d" % sequence)
        assert verdict(short.produce(late)) == "PRODUCER_EXPIRED"
    assert opened(short, topic, 0, fresh.producer_id, 0).error == "PRODUCER_EXPIRED"
    assert list(short.api(1).stored(topic, 0)) == stored
    # Its stored records can still be found, and it is certain that no more come.
    middle = count // 2
    assert resolution(short, topic, fresh.producer_id, middle) == ("COMMITTED", middle + 1)
    assert resolution(short, topic, fresh.producer_id, count) == ("NEVER", -1)
    assert resolution(short, topic, fresh.producer_id, count + 100) == ("NEVER", -1)
    # The name's id is of the same age.
    assert verdict(short.produce(store)) == "DUPLICATE"
    following = batch(topic, 0, named.producer_id, 1, b"more", epoch=named.epoch)
    assert verdict(short.produce(following)) == "APPENDED"
    # In a partition where it has never written it opens first.
    elsewhere = batch(topic, 1, named.producer_id, 0, b"x", epoch=named.epoch)
    result = short.produce(elsewhere)
    assert verdict(result) == "PRODUCER_EXPIRED"
    assert "has to open the partition" in result.message
    assert opened(short, topic, 1, named.producer_id, named.epoch).error == ""
    assert verdict(short.produce(elsewhere)) == "APPENDED"
    short.wait_level(topic)
    assert compare({n: short.api(n) for n in short.nodes}, topic, [0, 1]) == []


def test_a_name_that_nobody_leases_gives_up_its_id(short: LocalCluster, topic: str) -> None:
    short.api(1).create_topic(topic, 1, 3)
    named = lease(short, topic)
    pid = named.producer_id
    assert opened(short, topic, 0, pid, named.epoch).error == ""
    first = batch(topic, 0, pid, 0, b"0", epoch=named.epoch)
    assert verdict(short.produce(first)) == "APPENDED"
    names = producer_pb2.ListProducerNamesRequest()
    # The metadata's clock moves with its commands.
    last = lease(short)
    while any(
        held.name == topic
        for held in short.api(1).producers.ListProducerNames(names, timeout=CALL_TIMEOUT).names
    ):
        last = lease(short)
    assert last.expire_ms - LIFETIME_MS >= named.expire_ms - LIFETIME_MS + NAME_EXPIRY_MS - GRAIN_MS
    forgotten(short, topic, pid)
    # The next epoch was leased by nobody: a batch that began there would have no proof.
    for epoch, begins in ((named.epoch, "PRODUCER_EXPIRED"), (named.epoch + 1, "UNKNOWN_PRODUCER")):
        for sequence, answer in ((0, begins), (1, "PRODUCER_EXPIRED")):
            late = batch(topic, 0, pid, sequence, b"%d" % sequence, epoch=epoch)
            assert verdict(short.produce(late)) == answer
        assert opened(short, topic, 0, pid, epoch).error == begins
    assert resolution(short, topic, pid, 0) == ("COMMITTED", 0)
    assert resolution(short, topic, pid, 1) == ("NEVER", -1)
    # The name comes back with another id, and its epochs go on.
    again = lease(short, topic)
    assert again.producer_id > pid
    assert again.epoch == named.epoch + 1
    assert opened(short, topic, 0, again.producer_id, again.epoch).last_sequence == -1
    assert (
        verdict(short.produce(batch(topic, 0, again.producer_id, 0, b"new", epoch=again.epoch)))
        == "APPENDED"
    )
    short.wait_level(topic)
    assert compare({n: short.api(n) for n in short.nodes}, topic, [0]) == []


def test_expired_producers_leave_an_idle_partition_also_after_a_restart(
    short: LocalCluster, topic: str
) -> None:
    short.api(1).create_topic(topic, 1, 3)
    leases = [lease(short) for _ in range(5)]
    for one in leases:
        assert verdict(short.produce(batch(topic, 0, one.producer_id, 0, b"x"))) == "APPENDED"
    short.kill(short.nodes)
    short.start()
    for one in leases:
        forgotten(short, topic, one.producer_id)
        late = batch(topic, 0, one.producer_id, 0, b"x")
        assert verdict(short.produce(late)) == "PRODUCER_EXPIRED"
    assert short.api(1).offset(topic, 0, "latest", any_replica=True) == 5


def test_longer_leases_in_the_settings_bring_nothing_back(short: LocalCluster, topic: str) -> None:
    short.api(1).create_topic(topic, 1, 3)
    old = lease(short)
    times = write_until_refused(short, topic, old.producer_id)
    short.kill(short.nodes)
    for node in short.nodes.values():
        for name in ("lease_lifetime_ms", "producer_name_expiry_ms"):
            node.spec.settings.pop(name, None)  # type: ignore[attr-defined]
    short.start()
    with Admin(bootstrap_servers=short.bootstrap) as admin:
        with pytest.raises(InvalidRequestError, match="must be at most"):
            admin.set_cluster_setting("lease_lifetime_ms", 3_600_000)
    late = batch(topic, 0, old.producer_id, len(times), b"%d" % len(times))
    assert verdict(short.produce(late)) == "PRODUCER_EXPIRED"
    new = lease(short)
    assert new.lifetime_ms <= LIFETIME_MS, "the shorter time stays in force"
    assert write_until_refused(short, topic, new.producer_id)
