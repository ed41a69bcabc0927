"""One of three nodes is down, and with it the only replica of two of a topic's six partitions.

The other four go on: records without a key, reading, the command line. Commands that name leaders
say which partitions have none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    Consumer,
    NotReadyError,
    Producer,
    RequestTimeoutError,
    TopicPartition,
    aio,
    mirror,
)
from oncelog.cli.app import cli
from tests.integration.conftest import STEADY
from tests.integration.waiting import eventually

TOPIC, PARTITIONS, EACH = "orders", 6, 10


@pytest.fixture(scope="module")
def crippled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Ten records in each partition, then a node is killed."""
    with LocalCluster(tmp_path_factory.mktemp("crippled"), settings=STEADY) as cluster:
        with (
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
            Producer(bootstrap_servers=cluster.bootstrap) as producer,
        ):
            admin.create_topic(TOPIC, PARTITIONS, 1)
            for number in range(PARTITIONS * EACH):
                producer.send(TOPIC, b"old", partition=number % PARTITIONS)
            admin.commit_offsets("idle", {(TOPIC, n): 1 for n in range(PARTITIONS)})
        cluster.kill([3])
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            eventually(lambda: len(leaderless(admin)) == 2, "two partitions have no leader")
        yield cluster


def leaderless(admin: Admin) -> list[TopicPartition]:
    partitions = admin.describe_topic(TOPIC).partitions
    return [TopicPartition(TOPIC, one.partition) for one in partitions if not one.leader_id]


def test_health_counts_what_has_lost_its_leader(crippled: LocalCluster) -> None:
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        facts = admin.describe_cluster()
    assert facts.leaderless_partitions >= 2
    assert not facts.healthy


def test_records_without_a_key_are_stored_by_the_others(crippled: LocalCluster) -> None:
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        gone = {tp.partition for tp in leaderless(admin)}
    with Producer(bootstrap_servers=crippled.bootstrap, batch_size=1024, linger_ms=0) as producer:
        sent = [producer.send(TOPIC, bytes(2000)) for _ in range(200)]
        producer.flush(timeout_ms=30_000)
    went = {one.result().partition for one in sent}
    assert went.isdisjoint(gone)
    assert len(went) > 1


@pytest.mark.parametrize("group", [None, "readers"])
def test_the_others_are_read_from_their_start(crippled: LocalCluster, group: str | None) -> None:
    with Consumer(
        bootstrap_servers=crippled.bootstrap,
        group_id=group,
        membership="manual",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([TOPIC])
        old = 0
        while old < 4 * EACH:
            found = consumer.getmany(timeout_ms=30_000)
            assert found, "no record for so long"
            old += sum(one.value == b"old" for some in found.values() for one in some)


def test_an_error_names_the_partitions(crippled: LocalCluster) -> None:
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        gone = leaderless(admin)
    with Consumer(bootstrap_servers=crippled.bootstrap, request_timeout_ms=3000) as consumer:
        with pytest.raises(NotReadyError, match="has no leader") as caught:
            consumer.end_offsets([(TOPIC, number) for number in range(PARTITIONS)])
    assert str(caught.value).startswith(f"no offsets of {gone[0]}, {gone[1]}: ")


@pytest.mark.parametrize("client", [Producer, aio.Producer])
async def test_a_position_that_nobody_tells_is_an_error_that_names_the_partition(
    crippled: LocalCluster, client: Any
) -> None:
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        gone = leaderless(admin)[0]
    producer = client(
        bootstrap_servers=crippled.bootstrap, producer_name=client.__module__, max_block_ms=4000
    )
    says = f"^{gone}: no position within max_block_ms=4000: it has no leader: NOT_LEADER$"
    if client is Producer:
        with producer, pytest.raises(RequestTimeoutError, match=says):
            await asyncio.to_thread(producer.position, gone.topic, gone.partition)
    else:
        async with producer:
            with pytest.raises(RequestTimeoutError, match=says):
                await producer.position(gone.topic, gone.partition)


def test_a_mirror_that_cannot_start_names_the_partitions_and_fences_nobody(
    crippled: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_START_S", 3.0)
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        gone = leaderless(admin)
        says = f"^no offsets of {gone[0]}, {gone[1]}: {gone[0]} has no leader$"
        with pytest.raises(NotReadyError, match=says):
            mirror.Mirror(TOPIC, "copy", bootstrap_servers=crippled.bootstrap, name="copies")
        assert not [one for one in admin.list_producer_names() if one.name.startswith("copies")]


def test_the_command_line_stores_records_without_a_key(crippled: LocalCluster) -> None:
    words = ["topic", "produce", TOPIC, "one", "two", "three", "--bootstrap", crippled.bootstrap]
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, done.stderr) == (0, f"stored 3 records in {TOPIC}\n")


def test_a_group_is_described_as_far_as_leaders_tell(crippled: LocalCluster) -> None:
    words = ["group", "describe", "idle", "--format", "json", "--bootstrap", crippled.bootstrap]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        gone = leaderless(admin)
        lag = admin.group_lag("idle")
    assert len(lag.partitions) == PARTITIONS, "none is missing"
    assert {tp: type(error) for tp, error in lag.errors.items()} == dict.fromkeys(
        gone, NotReadyError
    )
    assert all(one.lag is None for tp, one in lag.partitions.items() if tp in gone)
    rows = {row["partition"]: row for row in json.loads(done.stdout)["offsets"]}
    assert {row["offset"] for row in rows.values()} == {1}
    assert {number for number, row in rows.items() if row["lag"] is None} == {
        tp.partition for tp in gone
    }
    for tp in gone:
        assert f"{tp}: its lag is not known: {tp} has no leader\n" in done.stderr


def test_the_command_line_prints_the_others_and_says_which_are_missing(
    crippled: LocalCluster,
) -> None:
    options = ["--from", "start", "-e", "--bootstrap", crippled.bootstrap]
    done = CliRunner().invoke(cli, ["topic", "consume", TOPIC, *options])
    assert done.stdout.splitlines().count("old") == 4 * EACH
    with Admin(bootstrap_servers=crippled.bootstrap) as admin:
        for tp in leaderless(admin):
            assert f"{tp} has no leader: it is not read\n" in done.stderr
    assert done.exit_code == 1
