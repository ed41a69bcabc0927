"""Committed offsets of groups: in consumers, sync and asyncio, and on the command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    Consumer,
    FencedError,
    InvalidRequestError,
    OffsetCommit,
    OutOfOrderError,
    Producer,
    SequenceConflictError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    aio,
)
from oncelog.cli.app import run
from tests.integration.conftest import MakeCluster

TIMEOUT = 30.0


def fill(cluster: LocalCluster, topic: str, count: int = 10) -> None:
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        admin.create_topic(topic, 2, 3)
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=0)


def consumer(cluster: LocalCluster, topic: str, **settings: Any) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        **settings,
    )


def test_a_group_goes_on_where_it_committed(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic)
    tp = TopicPartition(topic, 0)
    with consumer(cluster, topic, group_id=topic) as one:
        assert one.committed(tp) is None
        reading = iter(one)
        assert [next(reading).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        one.commit()
        known = one.committed(tp)
        assert known is not None
        assert (known.offset, known.producer_id, known.metadata) == (4, 0, "")
        next(reading)  # read, not committed
    with consumer(cluster, topic, group_id=topic) as two:
        assert next(iter(two)).value == b"4"
        two.commit({tp: OffsetCommit(9, metadata="mark"), (topic, 1): 0})
        known = two.committed(tp)
        assert known is not None
        assert (known.offset, known.metadata) == (9, "mark")
    with consumer(cluster, topic, group_id=topic) as three:
        assert next(iter(three)).value == b"9"
        assert three.lag(tp) == 0
    with consumer(cluster, topic, group_id=f"{topic}-other") as other:
        assert next(iter(other)).value == b"0", "another group has its own offsets"


def test_an_offset_that_is_gone_falls_back_to_the_reset(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic, 3)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.commit_offsets(topic, {(topic, 0): 99})
    with consumer(cluster, topic, group_id=topic) as one:
        assert [r.offset for r in islice(one, 3)] == [0, 1, 2]


def test_commits_with_producer_state(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic)
    tp = TopicPartition(topic, 0)
    with consumer(cluster, topic, group_id=topic, membership="manual") as one:

        def commit(offset: int, epoch: int, sequence: int) -> None:
            one.commit({tp: OffsetCommit(offset, "", 7, epoch, sequence)})

        commit(3, 1, 5)
        commit(3, 1, 5)  # the same again is a success
        with pytest.raises(SequenceConflictError):
            commit(4, 1, 5)
        with pytest.raises(OutOfOrderError) as late:
            commit(2, 1, 4)
        assert late.value.last_sequence == 5
        commit(6, 2, 0)
        with pytest.raises(FencedError) as zombie:
            commit(8, 1, 6)
        assert zombie.value.current_epoch == 2
        known = one.committed(tp)
        assert known is not None
        assert (known.offset, known.producer_id, known.epoch, known.sequence) == (6, 7, 2, 0)


def test_what_is_refused(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic, 1)
    with consumer(cluster, topic) as none:
        with pytest.raises(InvalidRequestError, match="no group_id"):
            none.commit()
        with pytest.raises(InvalidRequestError, match="no group_id"):
            none.committed((topic, 0))
    with consumer(cluster, topic, group_id=topic, membership="manual") as one:
        with pytest.raises(InvalidRequestError, match="offset"):
            one.commit({(topic, 0): -1})
        with pytest.raises(UnknownTopicOrPartitionError):
            one.commit({("no-such-topic", 0): 1})
        with pytest.raises(InvalidRequestError, match="metadata"):
            one.commit({(topic, 0): OffsetCommit(1, "m" * 5000)})


async def test_the_asyncio_consumer_commits_too(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic)
    tp = TopicPartition(topic, 0)
    for expected in (b"0", b"1", b"2"):
        async with aio.Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            group_id=topic,
        ) as one:
            async for record in one:
                assert record.value == expected
                break
            await one.commit()
            known = await one.committed(tp)
            assert known is not None
            assert known.offset == int(expected) + 1
    async with aio.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert topic in [group.group for group in await admin.list_groups()]
        await admin.commit_offsets(topic, {tp: 7})
        described = await admin.describe_group(topic)
        assert (described.exists, described.offsets[tp].offset) == (True, 7)
        assert await admin.delete_group(topic)
        assert not (await admin.describe_group(topic)).exists


def test_offsets_survive_the_loss_of_their_leader(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    fill(cluster, topic)
    tp = TopicPartition(topic, 0)
    with (
        consumer(cluster, topic, group_id=topic, membership="manual") as one,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        one.commit({tp: 3})
        coordinator = admin.describe_group(topic).coordinator_id
        cluster.kill([coordinator])
        one.commit({tp: 6})
        known = one.committed(tp)
        assert known is not None
        assert known.offset == 6
        assert admin.describe_group(topic).coordinator_id != coordinator
        cluster.kill(cluster.running)
        cluster.start_nodes(cluster.nodes)
        known = one.committed(tp)
        assert known is not None
        assert known.offset == 6


# --- the command line --------------------------------------------------------------------


@pytest.fixture
def cli(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", cluster.bootstrap)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            run(list(words) if words[0] == "topic" else ["group", *words])
        assert isinstance(exited.value.code, int)
        return (exited.value.code, *capsys.readouterr())

    return call


def test_a_groups_lag_in_time_lies_between_append_times(cluster: LocalCluster, topic: str) -> None:
    tp, times = TopicPartition(topic, 0), list[int]()
    servers = cluster.bootstrap
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        admin.create_topic(topic, partitions=1)
        for _ in range(3):
            producer.send(topic, b"a batch of its own").result(60)
        consumer.assign([tp])
        while len(times) < 3:
            batch = consumer.stored_batch(timeout_ms=60_000)
            assert batch is not None
            times.append(batch.append_time_ms)
        for offset, known in enumerate([*times, times[-1]]):
            admin.commit_offsets(topic, {(topic, 0): offset})
            lag = admin.group_lag(topic)
            one = lag.partitions[tp]
            assert (one.lag, one.lag_ms, lag.lag_ms) == (3 - offset, *[times[-1] - known] * 2)


def test_group_commands(
    cluster: LocalCluster, topic: str, cli: Callable[..., tuple[int, str, str]]
) -> None:
    fill(cluster, topic)
    assert cli("describe", topic)[0] == 1
    code, out, err = cli("seek", topic, topic, "--to", "start")
    assert (code, err) == (0, "")
    assert f"group {topic} goes on in {topic}" in out
    assert "would go on" in cli("seek", topic, topic, "--to", "earliest", "--dry-run")[1]
    moved = json.loads(cli("seek", topic, topic, "-p", "0", "--to", "4", "--format", "json")[1])
    assert moved == [{"topic": topic, "partition": 0, "before": 0, "offset": 4}]
    described = json.loads(cli("describe", topic, "--format", "json")[1])
    assert [(o["partition"], o["offset"], o["lag"]) for o in described["offsets"]] == [
        (0, 4, 6), (1, 0, 0),
    ]  # fmt: skip
    assert described["lag"] == 6
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        lag = admin.group_lag(topic)
        one = lag.partitions[TopicPartition(topic, 0)]
        assert (one.lag, one.log_start_offset, one.high_watermark) == (6, 0, 10)
        assert (lag.lag, lag.errors, lag.group) == (6, {}, admin.describe_group(topic))
        nobody = admin.group_lag(f"{topic}-nobody")
        assert (nobody.group.exists, nobody.partitions) == (False, {})
    assert "behind" in cli("describe", topic)[1]
    assert cli("seek", topic, topic, "--to", "end", "--format", "json")[0] == 0
    assert json.loads(cli("describe", topic, "--format", "json")[1])["lag"] == 0
    code, out, err = cli("seek", topic, topic, "-p", "0", "--to", "11")
    assert (code, out) == (1, "")
    assert "offsets 0 to 10, not 11" in err
    assert cli("seek", topic, topic, "--to", "middle")[0] == 2
    assert "time zone" in cli("seek", topic, topic, "--to", "2026-11-23T08:00")[2]
    for moment, offset in (
        ("1970-01-02T00:00Z", 0), ("2999-01-01T00:00+01:00", 10), ("-3", 7), ("9000d", 0),
    ):  # fmt: skip
        words = ("seek", topic, topic, "-p", "0", "--to", moment, "--dry-run", "--format", "json")
        assert [row["offset"] for row in json.loads(cli(*words)[1])] == [offset]
    assert json.loads(cli("describe", topic, "--format", "json")[1])["lag"] == 0, "not by --dry-run"
    assert cli("seek", topic, topic, "-p", "2", "--to", "end")[0] == 1
    assert topic in cli("list")[1]
    assert topic in [group["group"] for group in json.loads(cli("list", "--format", "json")[1])]
    assert cli("delete", topic, "--yes")[:2] == (0, f"deleted group {topic}\n")
    assert cli("delete", topic, "--yes")[0] == 1
    assert topic not in cli("list")[1]


def test_commands_of_a_group_with_members(
    cluster: LocalCluster, topic: str, cli: Callable[..., tuple[int, str, str]]
) -> None:
    fill(cluster, topic)
    words = ("topic", "consume", topic, "-g", topic, "--from", "start")
    assert cli(*words, "-n", "4")[1].split() == ["0", "1", "2", "3"]
    assert cli(*words, "-n", "2")[1].split() == ["4", "5"]
    assert cli(*words, "-e")[0] == 2
    with consumer(cluster, topic, group_id=topic) as one:
        while not one.assignment():
            one.getmany(timeout_ms=100)
        described = json.loads(cli("describe", topic, "--format", "json")[1])
        (member,) = described["members"]
        assert (member["owned"], member["lag"], described["lag"]) == (2, 4, 4)
        assert {row["owner"] for row in described["offsets"]} == {member["member_id"]}
        assert member["member_id"] in cli("describe", topic)[1]
        code, _, err = cli("seek", topic, topic, "--to", "start")
        assert code == 1
        assert "has members" in err
