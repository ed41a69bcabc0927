"""A topic gets more partitions, and more and fewer replicas, while it is written and read."""

from __future__ import annotations

import io
import json
import threading
from collections import defaultdict
from functools import partial
from typing import Any

import pytest

from harness.api import Api
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog import (
    Admin,
    Consumer,
    FencedMemberError,
    InvalidRequestError,
    Producer,
    Record,
    TopicPartition,
    UnknownTopicOrPartitionError,
    aio,
    mirror,
)
from oncelog.cli.app import run
from tests.integration.background import Background
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

# Leaders stay through a stall of a busy machine: all differences come from the change.
UNSEATED_LATE = {**STEADY, "election_timeout_ms": 4000}
AGE_MS = 300  # of metadata: how soon a client sees new partitions
KEYS = [b"key-%d" % number for number in range(40)]


class Writer(Background):
    """Sends numbered records of many keys; every one must be acknowledged."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        super().__init__()
        self.count = 0
        self.placed: dict[bytes, int] = {}  # value -> partition, as acknowledged
        self._cluster, self._topic = cluster, topic

    def reaches(self, partitions: int) -> None:
        eventually(lambda: len({*self.placed.values()}) == partitions, f"{partitions} are written")
        self.goes_on()

    def goes_on(self) -> None:
        before = len(self.placed)
        eventually(lambda: len(self.placed) > before + 200, "records are acknowledged", 60)

    def _run(self) -> None:
        with Producer(
            bootstrap_servers=self._cluster.bootstrap, linger_ms=2, metadata_max_age_ms=AGE_MS
        ) as producer:
            while not self._stop.is_set():
                sent = []
                for key in KEYS:
                    value = key + b":%d" % self.count
                    sent.append((value, producer.send(self._topic, value, key)))
                self.count += 1
                for value, future in sent:
                    self.placed[value] = future.result(timeout=60).partition


class Reader(Background):
    """A consumer in a thread; it reads until it is stopped."""

    def __init__(self, cluster: LocalCluster, topic: str, **settings: Any) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.ready = threading.Event()
        self._consumer = Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="latest",
            metadata_max_age_ms=AGE_MS,
            **settings,
        )

    def has_all(self, values: set[bytes]) -> None:
        eventually(lambda: len(self.records) >= len(values), f"{len(values)} records are read", 60)

    def _run(self) -> None:
        with self._consumer as consumer:
            while not self._stop.is_set():
                for records in consumer.getmany(timeout_ms=100).values():
                    self.records += records
                if not self.ready.is_set() and _has_positions(consumer):
                    self.ready.set()


def _has_positions(consumer: Consumer) -> bool:
    """A member whose partition is on its way to another one hears of it in its next call."""
    assigned = consumer.assignment()
    try:
        return bool(assigned) and all(consumer.position(tp) >= 0 for tp in assigned)
    except FencedMemberError:
        return False


def check(records: list[Record], placed: dict[bytes, int]) -> None:
    """Each record once, in the partition of its acknowledgement, each partition in order."""
    values = [record.value for record in records]
    assert len(values) == len({*values}), "twice"
    assert {*values} == {*placed}, "lost, or nobody's"
    by_partition: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        assert record.value and placed[record.value] == record.partition
        by_partition[record.partition].append(record)
    for part in by_partition.values():
        assert [one.offset for one in part] == list(range(len(part)))
        latest: dict[bytes, int] = {}
        for one in part:
            assert one.key and one.value
            number = int(one.value.partition(b":")[2])
            assert latest.get(one.key, -1) < number, "a key's records are in order"
            latest[one.key] = number


def test_partitions_come_under_load(make_cluster: MakeCluster, topic: str) -> None:
    """From 3 to 6. All readers begin at the end, and see all: also records that came unnoticed."""
    cluster = make_cluster(3, settings=STEADY)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 3, 3)
        group = {"group_id": topic, "enable_auto_commit": True}
        with (
            Reader(cluster, topic) as alone,
            Reader(cluster, topic, **group) as first,
            Reader(cluster, topic, **group) as second,
        ):
            for reader in (alone, first, second):
                assert reader.ready.wait(30)
            with Writer(cluster, topic) as writer:
                writer.goes_on()
                assert admin.resize_topic(topic, partitions=6).topic.partition_count == 6
                writer.reaches(6)
            written = {*writer.placed}
            alone.has_all(written)
            eventually(
                lambda: len(first.records) + len(second.records) >= len(written),
                "the group has all",
            )
        check(alone.records, writer.placed)
        together = sorted(
            first.records + second.records, key=lambda one: (one.partition, one.offset)
        )
        check(together, writer.placed)
        with pytest.raises(InvalidRequestError, match="partitions: 5 must be more than"):
            admin.resize_topic(topic, partitions=5)
    cluster.kill(cluster.nodes)
    cluster.start_nodes(cluster.nodes)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert admin.describe_topic(topic).partition_count == 6, "a restart knows it"
    apis = {node: Api(cluster.addresses[node], cluster.tokens) for node in cluster.nodes}
    eventually(lambda: not compare(apis, topic, range(6)), "the replicas are equal")


def placed(admin: Admin, topic: str) -> tuple[list[int], bool]:
    """Number of replicas of each partition, and whether some are still being filled."""
    parts = admin.describe_topic(topic).partitions
    return [len(one.replicas) for one in parts], any(one.target for one in parts)


def test_replicas_come_and_go_under_load(make_cluster: MakeCluster, topic: str) -> None:
    """1 -> 3 -> 1, and the leaders stay."""
    cluster = make_cluster(3, settings=UNSEATED_LATE)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 3, 1)
        leaders = [one.leader_id for one in admin.describe_topic(topic).partitions]
        with Writer(cluster, topic) as writer:
            for replicas in (3, 1):
                writer.goes_on()
                assert admin.resize_topic(topic, replicas=replicas).count == 3
                wanted = ([replicas] * 3, False)
                eventually(partial(holds, admin, topic, wanted), f"{replicas} each", 60)
            writer.goes_on()
        now = admin.describe_topic(topic).partitions
        assert [one.replicas for one in now] == [(one,) for one in leaders], "leaders are kept"
        with Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=1000,
        ) as consumer:
            check(list(consumer), writer.placed)
        with pytest.raises(InvalidRequestError, match="replicas: 4 must be at most"):
            admin.resize_topic(topic, replicas=4)


def holds(admin: Admin, topic: str, wanted: tuple[list[int], bool]) -> bool:
    return placed(admin, topic) == wanted


@pytest.mark.slow
def test_what_is_on_its_way_is_taken_back(make_cluster: MakeCluster, topic: str) -> None:
    """A node is away, so three are never there; the number from before takes it back."""
    cluster = make_cluster(3, settings=UNSEATED_LATE)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 2, 1)
        leaders = [one.leader_id for one in admin.describe_topic(topic).partitions]
        (away, *_) = {*cluster.nodes} - {*leaders}
        cluster.kill([away])
        eventually(lambda: _grows(admin, topic), "a learner has come")
        admin.resize_topic(topic, replicas=1)
        wanted = ([1, 1], False)
        eventually(partial(holds, admin, topic, wanted), "it is taken back", 60)
        now = admin.describe_topic(topic).partitions
        assert [one.replicas for one in now] == [(one,) for one in leaders]


def _grows(admin: Admin, topic: str) -> bool:
    admin.resize_topic(topic, replicas=3)
    return any(len(one.replicas) > 1 for one in admin.describe_topic(topic).partitions)


def test_a_group_that_was_away_reads_new_partitions_from_their_start(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    """It begins at the end, but skips no record that came while it was away."""
    settings: Any = {"group_id": topic, "auto_offset_reset": "latest"}
    admin.create_topic(topic, 1)
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        producer.send(topic, b"old", partition=0).result()
        with Consumer(topic, bootstrap_servers=cluster.bootstrap, **settings) as consumer:
            assert consumer.getmany(timeout_ms=500) == {}
            consumer.commit()
        admin.resize_topic(topic, partitions=2)
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 0, not 1"):
            producer.send(topic, b"new", partition=1)
        eventually(lambda: _takes(producer, topic), "the producer asks for new partitions")
        with Consumer(topic, bootstrap_servers=cluster.bootstrap, **settings) as consumer:
            assert next(consumer.__iter__()).value == b"new"
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="latest") as other:
        other.assign([(topic, 1)])
        assert other.position((topic, 1)) == 1, "of no group: the end is the end"


def _takes(producer: Producer, topic: str) -> bool:
    try:
        return producer.send(topic, b"new", partition=1).result().offset == 0
    except UnknownTopicOrPartitionError:
        return False


def test_a_mirror_says_that_its_source_has_grown(
    cluster: LocalCluster, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror would not copy records of new partitions."""
    admin.create_topic(topic, 1)
    monkeypatch.setattr(mirror, "_LOOK_S", 0.0)
    target = f"{topic}-copy"
    with mirror.Mirror(topic, target, bootstrap_servers=cluster.bootstrap) as copy:
        admin.resize_topic(topic, partitions=2)
        with pytest.raises(InvalidRequestError, match="has 2 partitions by now, and 1 are copied"):
            copy.run()
    with pytest.raises(InvalidRequestError, match="has 1 partitions, the source 2"):
        mirror.Mirror(topic, target, bootstrap_servers=cluster.bootstrap)
    admin.resize_topic(target, partitions=2)
    with mirror.Mirror(topic, target, bootstrap_servers=cluster.bootstrap) as copy:
        assert len(copy.run(exit_at_end=True)) == 2


async def test_the_asyncio_client_resizes(cluster: LocalCluster, topic: str) -> None:
    async with aio.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topic(topic, 1, 1)
        said = await admin.resize_topic(topic, partitions=2, dry_run=True)
        assert said.count == 1 and said.topic.partition_count == 1
        said = await admin.resize_topic(topic, partitions=2)
        assert said.topic.partitions[1].added_ms > 0 == said.topic.partitions[0].added_ms
        consumer = aio.Consumer(bootstrap_servers=cluster.bootstrap)
        await consumer.assign([TopicPartition(topic, 1)])
        await consumer.close()


def test_the_command_line(
    cluster: LocalCluster,
    admin: Admin,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())  # no terminal

    def typed(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            run(["topic", "alter", topic, *words, "--bootstrap", cluster.bootstrap])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    admin.create_topic(topic, 2, 1)
    code, out, _ = typed("--partitions", "4", "--dry-run")
    assert code == 0 and "would get 2 more partitions, 4 in all" in out and "KEYS MOVE" in out
    code, _, err = typed("--partitions", "4")
    assert code == 2 and "KEYS MOVE" in err and "give --yes" in err
    assert admin.describe_topic(topic).partition_count == 2
    code, out, _ = typed("--partitions", "4", "--yes")
    assert code == 0 and "has got 2 more partitions, 4 in all" in out
    code, _, err = typed("--partitions", "4", "--yes")
    assert code == 1 and "partitions: 4 must be more than the topic has, 4" in err
    code, out, _ = typed("--replicas", "3", "--wait", "--format", "json")
    assert code == 0 and json.loads(out)["count"] == 4
    assert admin.describe_topic(topic).replica_count == 3
    code, out, _ = typed("--replicas", "3")
    assert code == 0 and "nothing to do" in out
    for words in (["--partitions", "5", "--replicas", "1"], [], ["--retention-ms", "1", "--wait"]):
        assert typed(*words)[0] == 2
