"""Damaged leader: it stops when it reads the damage, and a sound replica answers instead.

Every test makes sure that the damage was met: the stopped replica says so in its node's log. A
replica without others goes on with its sound entries.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.api import batch, verdict
from harness.local_cluster import QUICK, LocalCluster
from harness.replicas import compare
from oncelog import Admin, Consumer, Producer, Resolution
from oncelog.v1 import log_pb2
from tests.durability.damage import Damage, cut_offset_index, entries_flip
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

TOPIC = "damaged"
RECORDS = 40  # each a batch
# A damaged replica stays as it stopped, to be looked at.
SETTINGS = {**QUICK, "preferred_leader_delay_ms": 3_600_000, "repair_after_ms": 0}
TIMEOUT = 60.0


def value(number: int) -> bytes:
    return b"%d:" % number + bytes(4096)


def written(cluster: LocalCluster) -> int:
    """Stores RECORDS values in partition 0, one a batch; returns the producer's id."""
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        for number in range(RECORDS):
            found = producer.send(TOPIC, value(number), partition=0, timestamp_ms=1000 + number)
            assert found.result(TIMEOUT).offset == number
        assert producer.producer_id is not None
        return producer.producer_id


def harm(cluster: LocalCluster, node: int, damage: Damage) -> None:
    """Stops the node in order, so that its data is in files, damages them, and starts it."""
    assert cluster.nodes[node].terminate() == 0
    damage(cluster.nodes[node].spec.data_dir)
    cluster.start_nodes([node])


def has_stopped(cluster: LocalCluster, node: int) -> bool:
    return f"replica stopped partition={TOPIC}-0" in cluster.nodes[node].log_text()


Damaged = Callable[..., tuple[LocalCluster, int, int]]


@pytest.fixture
def led_by_damage(make_cluster: MakeCluster) -> Damaged:
    """Makes a cluster with a damaged leader of TOPIC-0; returns (cluster, leader, producer id)."""

    def make(damage: Damage, **settings: int) -> tuple[LocalCluster, int, int]:
        cluster = make_cluster(settings={**SETTINGS, **settings})
        cluster.api(1).create_topic(TOPIC, 1, 3)
        producer_id = written(cluster)
        cluster.wait_level(TOPIC)
        victim = cluster.leader(TOPIC, 0)
        harm(cluster, victim, damage)
        cluster.wait_level(TOPIC)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert admin.transfer_leadership(TOPIC, 0, victim) == victim
        assert cluster.leader(TOPIC, 0) == victim
        assert not has_stopped(cluster, victim), "the damage is met only when it is read"
        return cluster, victim, producer_id

    return make


def read_all(cluster: LocalCluster, **settings: object) -> list[bytes | None]:
    with Consumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=16 * 1024,
        **settings,  # type: ignore[arg-type]
    ) as consumer:
        values = []
        for record in consumer:
            values.append(record.value)
            if len(values) == RECORDS:
                return values
    raise AssertionError("the consumer ended")


def test_what_a_damaged_leader_cannot_read_is_read_from_another(led_by_damage: Damaged) -> None:
    cluster, victim, _ = led_by_damage(entries_flip)
    assert read_all(cluster) == [value(n) for n in range(RECORDS)]
    assert has_stopped(cluster, victim)
    leader = cluster.leader(TOPIC, 0)
    assert leader != victim
    # A client of the stopped replica's node is sent on to the leader.
    answer = cluster.api(victim).fetch(TOPIC, 0, 0)
    assert answer.error == log_pb2.PARTITION_ERROR_NOT_LEADER
    assert answer.leader_address == cluster.addresses[leader]
    refused = cluster.api(victim).fetch(TOPIC, 0, 0, any_replica=True)
    assert refused.error == log_pb2.PARTITION_ERROR_STORAGE
    assert "this replica has stopped" in refused.message
    # The two others go on taking records.
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        assert producer.send(TOPIC, b"on", partition=0).result(TIMEOUT).offset == RECORDS


def test_a_damaged_replica_is_made_anew_from_the_leader(led_by_damage: Damaged) -> None:
    """The replica is removed, added as another instance, and then has all records again."""
    cluster, victim, _ = led_by_damage(entries_flip, repair_after_ms=500)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.finalize_upgrade()
        assert read_all(cluster) == [value(n) for n in range(RECORDS)]
        assert has_stopped(cluster, victim)
        with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
            assert producer.send(TOPIC, b"on", partition=0).result(TIMEOUT).offset == RECORDS

        def is_whole() -> bool:
            answer = cluster.api(victim).fetch(TOPIC, 0, RECORDS, any_replica=True)
            facts = admin.describe_cluster()
            return not answer.error and b"on" in answer.batches[0].payload and facts.healthy

        eventually(is_whole, "the replica is made anew")
    assert "damaged replica: to be rebuilt" in cluster.nodes[victim].log_text()
    api = cluster.api(victim)
    stored = [one.payload for one in api.stored(TOPIC, 0)]
    assert [value(n) in one for n, one in enumerate(stored[:RECORDS])] == [True] * RECORDS
    assert compare({node: cluster.api(node) for node in cluster.nodes}, TOPIC, [0]) == []


def test_a_search_for_a_record_goes_on_at_another(led_by_damage: Damaged) -> None:
    """A leader whose map lost a batch reads its log back, and meets damage."""
    cluster, victim, producer_id = led_by_damage(entries_flip)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        found = [admin.resolve_sequence(TOPIC, 0, producer_id, 0, n) for n in range(RECORDS)]
    assert [(f.resolution, f.offset) for f in found] == [
        (Resolution.COMMITTED, n) for n in range(RECORDS)
    ]
    assert has_stopped(cluster, victim)


def test_offsets_by_time_come_from_another(led_by_damage: Damaged) -> None:
    cluster, victim, _ = led_by_damage(cut_offset_index)
    with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap) as consumer:
        assert consumer.offsets_for_times({(TOPIC, 0): 1007}) == {(TOPIC, 0): 7}
    assert has_stopped(cluster, victim)
    assert cluster.leader(TOPIC, 0) != victim


def test_a_reader_of_any_replica_turns_to_a_sound_one(led_by_damage: Damaged) -> None:
    cluster, victim, _ = led_by_damage(entries_flip)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.transfer_leadership(TOPIC, 0)
    for _ in range(3):  # each begins at a replica of its own choice
        assert read_all(cluster, any_replica=True) == [value(n) for n in range(RECORDS)]
    # One that insists on this replica is told why it gets nothing.
    eventually(
        lambda: bool(cluster.api(victim).fetch(TOPIC, 0, 0, any_replica=True).error),
        "the damage is met",
    )
    assert has_stopped(cluster, victim)


def test_a_lone_replica_serves_what_is_sound(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, settings=SETTINGS)
    cluster.api(1).create_topic(TOPIC, 1, 1)
    producer_id = written(cluster)
    harm(cluster, 1, entries_flip)
    cluster.leader(TOPIC, 0)
    api = cluster.api(1)
    answers = [api.fetch(TOPIC, 0, offset, max_bytes=1) for offset in range(RECORDS)]
    damaged = [n for n, answer in enumerate(answers) if answer.error]
    assert 0 < len(damaged) < RECORDS
    for number, answer in enumerate(answers):
        if number in damaged:
            assert answer.error == log_pb2.PARTITION_ERROR_STORAGE
            assert "index " in answer.message, "says which entry"
        else:
            assert value(number) in answer.batches[0].payload
    assert not has_stopped(cluster, 1)
    (result,) = api.produce(batch(TOPIC, 0, producer_id, RECORDS, b"on"))
    assert verdict(result) == "APPENDED"
