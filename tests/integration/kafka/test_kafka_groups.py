"""Consumer groups of Kafka's own clients: librdkafka, aiokafka, kafka-python, kcat."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka.coordinator.assignors import range as kafka_range

import oncelog
from harness.local_cluster import LocalCluster
from oncelog.errors import GroupHasMembersError
from tests.integration.conftest import STEADY
from tests.integration.kafka.kafka_rig import admin, create, idempotent, lines_of, send, servers
from tests.integration.waiting import TIMEOUT, eventually

PARTITIONS = 6
SETTINGS = STEADY | {"kafka_initial_rebalance_delay_ms": "100", "kafka_compact": "keep"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("kafka-groups")
    with LocalCluster(root, settings=SETTINGS, kafka=True) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> AdminClient:
    return admin(cluster)


class Reader:
    """A consumer in a group, which a test polls."""

    def __init__(self, cluster: LocalCluster, topic: str, group: str, **config: Any) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers(cluster),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 300,
                **settings,
            }
        )
        self.values: list[bytes | None] = []
        self.rebalances = 0
        self.fault: KafkaError | None = None
        self.consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        """Takes the records that have come, and commits them."""
        for message in self.consumer.consume(100, 0.05):
            if message.error() is not None:
                self.fault = message.error()
                continue
            self.values.append(message.value())
            try:
                self.consumer.commit(message=message, asynchronous=False)
            except KafkaException as error:
                self.fault = error.args[0]

    @property
    def share(self) -> list[int]:
        return sorted(one.partition for one in self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


def all_poll(readers: list[Reader], done: Callable[[], bool]) -> Callable[[], bool]:
    def step() -> bool:
        for reader in readers:
            reader.poll()
        return done()

    return step


def shared_out(readers: list[Reader]) -> bool:
    """Whether each has a share, and all together each partition once."""
    shares = [reader.share for reader in readers]
    return all(shares) and sorted(chain(*shares)) == list(range(PARTITIONS))


def fill(cluster: LocalCluster, topic: str, count: int, start: int = 0) -> list[bytes]:
    producer = idempotent({"bootstrap.servers": servers(cluster)})
    sent = list[bytes]()
    for partition in range(PARTITIONS):
        values = [b"%d/%d" % (partition, start + number) for number in range(count)]
        send(producer, topic, values, partition)
        sent += values
    return sent


def test_members_come_and_go(cluster: LocalCluster, client: AdminClient, topic: str) -> None:
    create(client, topic, partitions=PARTITIONS)
    sent = fill(cluster, topic, 20)
    first = Reader(cluster, topic, topic)
    eventually(all_poll([first], lambda: len(first.values) == len(sent)), "it reads all")
    assert first.share == list(range(PARTITIONS))
    second = Reader(cluster, topic, topic)
    both = [first, second]
    eventually(all_poll(both, lambda: shared_out(both)), "they share the partitions")
    more = fill(cluster, topic, 20, 20)
    whole = len(sent) + len(more)
    eventually(all_poll(both, lambda: len(first.values + second.values) >= whole), "they read all")
    assert sorted(map(bytes, filter(None, first.values + second.values))) == sorted(sent + more)
    second.close()
    eventually(all_poll([first], lambda: len(first.share) == PARTITIONS), "it has all again")
    assert first.fault is None
    first.close()


def test_a_group_is_seen_by_admins_of_both_kinds(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=PARTITIONS)
    fill(cluster, topic, 5)
    reader = Reader(cluster, topic, topic, client_id="me", group_instance_id="i")
    eventually(all_poll([reader], lambda: len(reader.values) == 5 * PARTITIONS), "it reads all")
    listed = client.list_consumer_groups(request_timeout=TIMEOUT).result(TIMEOUT)
    assert not listed.errors
    assert {one.group_id: one.state.name for one in listed.valid}[topic] == "STABLE"
    (future,) = client.describe_consumer_groups([topic], request_timeout=TIMEOUT).values()
    found = future.result(TIMEOUT)
    (member,) = found.members
    assert (found.state.name, found.partition_assignor) == ("STABLE", "range")
    assert (member.client_id, member.group_instance_id, member.host) == ("me", "i", "/127.0.0.1")
    assert len(member.assignment.topic_partitions) == PARTITIONS
    fill(cluster, topic, 2, 5)
    with oncelog.Admin(bootstrap_servers=cluster.bootstrap) as ours:
        (info,) = [one for one in ours.list_groups() if one.group == topic]
        assert (info.offsets, info.members, info.protocol) == (PARTITIONS, 1, "kafka")
        progress = ours.group_lag(topic)
        assert (progress.lag, progress.group.protocol) == (2 * PARTITIONS, "kafka")
        (seen,) = progress.group.members
        assert (seen.member_id, seen.instance_id) == (member.member_id, "i")
        assert sorted(one.partition for one in seen.owned) == list(range(PARTITIONS))
        assert progress.group.assignor == "range" and progress.group.epoch > 0
        with pytest.raises(GroupHasMembersError):
            ours.commit_offsets(topic, {(topic, 0): 1})

    assert error_of(client, topic).code() == KafkaError.NON_EMPTY_GROUP
    reader.close()
    # A static member leaves by its session's end, or by an admin's word.
    removed = kafka.KafkaAdminClient(bootstrap_servers=servers(cluster))
    removed.remove_group_members(topic, [kafka.admin.MemberToRemove(group_instance_id="i")])
    removed.close()
    (gone,) = client.delete_consumer_groups([topic], request_timeout=TIMEOUT).values()
    gone.result(TIMEOUT)
    assert error_of(client, topic).code() == KafkaError.GROUP_ID_NOT_FOUND


def error_of(client: AdminClient, group: str) -> KafkaError:
    (future,) = client.delete_consumer_groups([group], request_timeout=TIMEOUT).values()
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT)
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_a_static_member_restarts_without_a_rebalance(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=PARTITIONS)
    readers = [Reader(cluster, topic, topic, group_instance_id=f"i{number}") for number in range(2)]
    eventually(all_poll(readers, lambda: shared_out(readers)), "they share the partitions")
    first, second = readers
    share, rebalances = first.share, second.rebalances
    first.close()
    sent = fill(cluster, topic, 10)
    again = Reader(cluster, topic, topic, group_instance_id="i0")
    both = [again, second]
    eventually(all_poll(both, lambda: len(again.values + second.values) == len(sent)), "all")
    assert again.share == share and second.rebalances == rebalances

    twin = Reader(cluster, topic, topic, group_instance_id="i0")
    three = [twin, again, second]
    eventually(all_poll(three, lambda: again.fault is not None), "the older one is fenced")
    assert again.fault is not None and again.fault.code() == KafkaError._FATAL
    eventually(all_poll([twin, second], lambda: twin.share == share), "the newer one has its share")
    assert second.rebalances == rebalances
    for reader in three:
        reader.close()


def test_a_group_goes_on_without_a_rebalance_when_its_leader_is_killed(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=PARTITIONS)
    readers = [Reader(cluster, topic, topic) for _ in range(3)]
    eventually(all_poll(readers, lambda: shared_out(readers)), "they share the partitions")
    shares = [reader.share for reader in readers]
    rebalances = [reader.rebalances for reader in readers]
    sent = set[bytes | None]()

    def values() -> set[bytes | None]:
        return {value for reader in readers for value in reader.values}

    with oncelog.Admin(bootstrap_servers=cluster.bootstrap) as ours:
        for round_ in range(2):
            before = ours.describe_group(topic)
            cluster.kill([before.coordinator_id])
            sent.update(fill(cluster, topic, 20, 20 * round_))
            eventually(all_poll(readers, lambda: values() >= sent), "all is read")
            after = ours.describe_group(topic)
            assert after.coordinator_id != before.coordinator_id
            assert (after.epoch, len(after.members)) == (before.epoch, 3)
            cluster.start_nodes([before.coordinator_id])
            cluster.wait_caught_up(before.coordinator_id)
        caught_up = all_poll(readers, lambda: ours.group_lag(topic).lag == 0)
        eventually(caught_up, "all is committed")
    assert [reader.share for reader in readers] == shares
    assert [reader.rebalances for reader in readers] == rebalances
    assert values() == sent
    for reader in readers:
        reader.close()


def test_a_group_is_of_one_protocol_while_it_has_members(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=PARTITIONS, oncelog_formats="both")
    sent = fill(cluster, topic, 3)
    reader = Reader(cluster, topic, topic)
    eventually(all_poll([reader], lambda: len(reader.values) == len(sent)), "it reads all")
    with pytest.raises(GroupHasMembersError, match="Kafka's clients"):
        oncelog.Consumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=topic, membership="assigned"
        )
    reader.close()
    more = fill(cluster, topic, 2, 3)
    with oncelog.Consumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=topic, membership="assigned"
    ) as ours:
        found = [one.value for one in islice(ours, len(more))]
        assert sorted(map(bytes, filter(None, found))) == sorted(more), "it goes on from there"
        other = Reader(cluster, topic, topic)
        eventually(all_poll([other], lambda: other.fault is not None), "it is refused")
        assert other.fault is not None
        assert other.fault.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        other.close()
        (future,) = client.describe_consumer_groups([topic], request_timeout=TIMEOUT).values()
        (member,) = future.result(TIMEOUT).members
        assert len(member.assignment.topic_partitions) == PARTITIONS


def test_offsets_of_a_topic_are_deleted_when_nobody_reads_it(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=PARTITIONS)
    fill(cluster, topic, 1)
    reader = Reader(cluster, topic, topic)
    eventually(all_poll([reader], lambda: len(reader.values) == PARTITIONS), "it reads all")
    java_like = kafka.KafkaAdminClient(bootstrap_servers=servers(cluster))
    part = kafka.TopicPartition(topic, 0)
    refused = java_like.delete_group_offsets(topic, [part])
    assert "GroupSubscribedToTopic" in str(refused), refused
    reader.close()
    java_like.delete_group_offsets(topic, [part])
    java_like.close()
    wanted = ConsumerGroupTopicPartitions(topic)
    (future,) = client.list_consumer_group_offsets([wanted], request_timeout=TIMEOUT).values()
    left = [one.partition for one in future.result(TIMEOUT).topic_partitions]
    assert sorted(left) == [1, 2, 3, 4, 5]


async def test_aiokafka_and_kafka_python_share_a_group(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=PARTITIONS)
    sent = fill(cluster, topic, 10)
    found = list[bytes]()
    other = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers(cluster),
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[kafka_range.RangePartitionAssignor],
    )
    async with aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=servers(cluster), group_id=topic, auto_offset_reset="earliest",
        heartbeat_interval_ms=300, partition_assignment_strategy=[RangePartitionAssignor],
    ) as consumer:  # fmt: skip
        while not (consumer.assignment() and other.assignment() and len(set(found)) == len(sent)):
            theirs = await asyncio.to_thread(other.poll, 100)
            ours = await consumer.getmany(timeout_ms=100)
            found += [one.value for batch in (theirs, ours) for many in batch.values()
                      for one in many]  # fmt: skip
        assert len(consumer.assignment()) == len(other.assignment()) == PARTITIONS / 2
    other.close()
    assert set(found) == set(sent)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_in_a_group(cluster: LocalCluster, client: AdminClient, topic: str) -> None:
    create(client, topic, partitions=PARTITIONS)
    sent = fill(cluster, topic, 5)
    command = ["kcat", "-b", servers(cluster), "-G", topic, "-c", str(len(sent)), "-u", "-q",
               "-X", "auto.offset.reset=earliest", topic]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True)
    assert sorted(done.stdout.split()) == sorted(sent)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_pages_lines_for_kcat(cluster: LocalCluster, client: AdminClient, topic: str) -> None:
    """The last line reads until it is ended; `-c 1` ends it behind the record."""
    create(client, topic)
    lines = lines_of("kcat", "sh", cluster, topic).replace("-G audit", f"-c 1 -G {topic}")
    done = subprocess.run(["sh", "-ec", lines], capture_output=True, timeout=TIMEOUT, check=True)
    assert done.stdout.splitlines() == [b"0@0 alice 42 EUR", b"42 EUR"]


def test_a_topic_for_connects_groups_is_compacted_and_keeps_all(client: AdminClient) -> None:
    """With kafka_compact=keep, Kafka Connect starts: it checks this before it joins its group."""
    create(client, "connect-configs", cleanup_policy="compact", retention_ms="60000")
    create(client, "with-an-age", retention_ms="60000")
    told = {}
    for topic in ("connect-configs", "with-an-age"):
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (found,) = client.describe_configs([resource]).values()
        values = found.result(TIMEOUT)
        told[topic] = [values[name].value for name in ("cleanup.policy", "retention.ms")]
    assert told == {"connect-configs": ["compact", "-1"], "with-an-age": ["delete", "60000"]}


def test_a_topic_without_a_limit_is_not_deleted_by_a_word(client: AdminClient) -> None:
    """Success would be a lie: the topic would keep all, and be described as compacted."""
    create(client, "kept", cleanup_policy="compact")
    policy, age = ("cleanup.policy", "delete"), ("retention.ms", "60000")
    with pytest.raises(KafkaException, match="no limit of retention"):
        alter(client, "kept", policy)
    alter(client, "kept", policy, age)
    alter(client, "kept", policy)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    (found,) = client.describe_configs([resource]).values()
    assert found.result(TIMEOUT)["cleanup.policy"].value == "delete"


def alter(client: AdminClient, topic: str, *values: tuple[str, str]) -> None:
    operation = AlterConfigOpType.SET
    entries = [ConfigEntry(*one, incremental_operation=operation) for one in values]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    (done,) = client.incremental_alter_configs([resource]).values()
    done.result(TIMEOUT)
