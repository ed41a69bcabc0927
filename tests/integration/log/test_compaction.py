"""Compacted topics on real nodes: the worker's process, repeats afterwards, a killed leader."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from harness.api import Api, Batch, batch, verdict
from harness.audit import Ledger, audit_all
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog import Admin, CleanupPolicy, InvalidRequestError, Producer, TopicConfig
from oncelog.cli import load
from oncelog.wire.batch import encode_payload
from tests.integration.conftest import STEADY
from tests.integration.kafka import kafka_rig
from tests.integration.records import read_all, stored_batches
from tests.integration.waiting import eventually

SOON = {"retention_check_ms": 300, "cleaner_bytes_per_s": 0}
# All records are due at the next look.
COMPACT = TopicConfig(cleanup_policy=CleanupPolicy.COMPACT, max_compaction_lag_ms=1)
BATCHES, RECORDS, KEYS = 12, 5, 7
MANY = 250_000  # records of one key: a batch of blanks has 60,000 at most


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that look for topics to compact all the time."""
    with LocalCluster(
        tmp_path_factory.mktemp("compacting"), settings=STEADY | SOON, kafka=True
    ) as made:
        yield made


def payload(number: int) -> bytes:
    """Builds the batch of this number: its records overwrite some of those before it."""
    offsets = range(number * RECORDS, (number + 1) * RECORDS)
    values = [b"%d" % offset for offset in offsets]
    return encode_payload(values, [*offsets], [b"%d" % (offset % KEYS) for offset in offsets])


def numbered(topic: str, pid: int, number: int) -> Batch:
    first, data = number * RECORDS, payload(number)
    return batch(topic, 0, pid, first, data, count=RECORDS, codec=0)


def shown(cluster: LocalCluster, topic: str) -> list[int]:
    """Returns the offsets of the records that a reader gets."""
    records = read_all(cluster, topic)
    assert all(record.value == b"%d" % record.offset for record in records)
    return [record.offset for record in records]


def newest(batches: int) -> list[int]:
    return [*range(batches * RECORDS - KEYS, batches * RECORDS)]


def cleaned(api: Api, topic: str) -> int:
    """Returns the end of the cleaned batches of this node's own replica."""
    (info,) = api.topic(topic).partitions
    return int(info.cleaned_offset)


def workers(cluster: LocalCluster) -> list[str]:
    """Returns the lines of `ps` of the nodes' workers."""
    nodes = {process.pid_file.read_text().strip() for process in cluster.nodes.values()}
    ran = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True)
    lines = [line for line in ran.stdout.splitlines() if "cluster.cleaning_worker" in line]
    return [line for line in lines if line.split()[0] in nodes]


def test_repeats_are_known_after_a_cleaning_and_a_killed_leader(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3, COMPACT)
    pid = cluster.api(1).lease().producer_id
    for number in range(BATCHES):
        cluster.store(numbered(topic, pid, number))
    eventually(lambda: shown(cluster, topic) == newest(BATCHES), "all is cleaned")
    eventually(lambda: not workers(cluster), "no worker runs where nothing is due")
    leader = cluster.leader(topic, 0)
    cluster.kill([leader])
    for number in range(BATCHES):
        repeat = cluster.produce(numbered(topic, pid, number))
        assert verdict(repeat) == "DUPLICATE", (number, repeat)
        is_recent = number >= BATCHES - 5
        assert repeat.base_offset == (number * RECORDS if is_recent else -1), number
    cluster.store(numbered(topic, pid, BATCHES))
    eventually(lambda: shown(cluster, topic) == newest(BATCHES + 1), "the next leader cleans")
    cluster.start_nodes([leader])
    cluster.wait_level(topic)
    apis = {n: cluster.api(n) for n in cluster.nodes}
    sent = (BATCHES + 1) * RECORDS
    # Carried batches come later in the log, and move no high watermark.
    eventually(lambda: all(cleaned(api, topic) == sent for api in apis.values()), "each is clean")
    assert compare(apis, topic, [0]) == []
    ledger = Ledger.of(sent)
    for row in range(sent):
        ledger.acknowledge(row, 0, row)
    audits, alike = audit_all({n: [api] for n, api in apis.items()}, topic, ledger, int)
    assert alike and all(one.clean for one in audits)
    assert {(one.records, one.removed) for one in audits} == {(KEYS, sent - KEYS)}


def test_a_bench_ends_with_the_records_of_a_compacted_topic(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3, COMPACT)
    pid = cluster.api(1).lease().producer_id
    for number in range(BATCHES):
        cluster.store(numbered(topic, pid, number))
    eventually(lambda: shown(cluster, topic) == newest(BATCHES), "all is cleaned")
    limit = 300.0
    for records in (True, False):
        found = load.consume([cluster.bootstrap], topic, seconds=limit, records=records)
        assert found["seconds"] < limit, "it does not wait for the blanks"


def test_policies_of_a_topic_change(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    """Retention is for those with a policy of deletion."""
    info = admin.create_topic(topic, 1, 3, TopicConfig(retention_ms=-1))
    assert info.config.cleanup_policy == CleanupPolicy.DELETE
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(30):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 3))
        producer.flush()
    assert len(shown(cluster, topic)) == 30
    changed = admin.alter_topic(
        topic,
        TopicConfig(retention_ms=1, cleanup_policy=CleanupPolicy.COMPACT, max_compaction_lag_ms=1),
    )
    assert changed.config.cleanup_policy == CleanupPolicy.COMPACT
    eventually(lambda: shown(cluster, topic) == [27, 28, 29], "it is compacted, and keeps those")
    admin.alter_topic(topic, TopicConfig(cleanup_policy=CleanupPolicy.COMPACT_DELETE))
    eventually(lambda: not shown(cluster, topic), "old records are deleted, too")
    with pytest.raises(InvalidRequestError, match=r"min_cleanable_dirty_ratio: 2.0 must be 0..1"):
        admin.alter_topic(topic, TopicConfig(min_cleanable_dirty_ratio=2.0))


def test_kafkas_clients_compact_a_topic_and_read_what_is_left(
    cluster: LocalCluster, topic: str
) -> None:
    settings = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1"}
    client = kafka_rig.admin(cluster)
    kafka_rig.create(client, topic, cleanup_policy="compact", max_compaction_lag_ms="1")
    kafka = {"bootstrap.servers": kafka_rig.servers(cluster)}
    sender = kafka_rig.idempotent({**kafka, "linger.ms": 5, "compression.type": "gzip"})
    for number in range(60):
        sender.produce(topic, b"%d" % number, b"%d" % (number % 3))
        if number % 7 == 6:
            assert sender.flush(60) == 0
    assert sender.flush(60) == 0

    def left() -> list[tuple[int, bytes | None]]:
        return [(one.offset(), one.value()) for one in kafka_rig.read(cluster, topic, 0, 3)]

    eventually(lambda: left() == [(57, b"57"), (58, b"58"), (59, b"59")], "the newest are left")
    assert [record.offset for record in read_all(cluster, topic)] == [57, 58, 59]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = client.describe_configs([resource]).values()
    values = {name: entry.value for name, entry in described.result(60).items()}
    assert values.items() >= settings.items()


def test_kafkas_clients_pass_blanks_that_are_larger_than_their_fetches(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    """Each answer has one batch, and some have no record at all."""
    admin.create_topic(topic, 1, 3, COMPACT)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(MANY):
            producer.send(topic, b"%d" % number, key=b"same" if number else b"other")
        producer.flush()
    eventually(lambda: shown(cluster, topic) == [0, MANY - 1], "all is cleaned")
    batches = stored_batches(cluster.bootstrap, topic)
    assert len([batch for batch in batches if not batch.records()]) >= 2
    small = {"bootstrap.servers": kafka_rig.servers(cluster), "fetch.message.max.bytes": 1}
    found = kafka_rig.read_with(small, topic, 0, 2)
    assert [message.offset() for message in found] == [0, MANY - 1]
