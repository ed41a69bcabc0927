"""`oncelog bench` against a real cluster: its counts equal the log's records."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer
from oncelog.cli.app import run
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

Bench = Callable[..., dict[str, Any]]


@pytest.fixture
def bench(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `oncelog bench` in this process; its JSON."""

    def call(what: str, topic: str, *options: str) -> dict[str, Any]:
        capsys.readouterr()
        words = ["bench", what, topic, "--bootstrap", cluster.bootstrap, "--format", "json"]
        with pytest.raises(SystemExit) as exited:
            run([*words, "--seconds", "0.3", *options])
        out, err = capsys.readouterr()
        assert exited.value.code == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    return call


def stored(cluster: LocalCluster, topic: str) -> int:
    with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        return sum(consumer.end_offsets(consumer.assignment()).values())


@pytest.mark.parametrize(
    ("what", "options", "first"),
    [
        # `first`: records that only wait for connections and a producer id, not counted.
        ("produce", (), 1),
        ("produce", ("--spread", "3"), 1),
        ("producers", ("--count", "4", "--depth", "2"), 4),
        ("latency", (), 1),
        ("latency", ("--rate", "2000"), 1),
    ],
    ids=["produce", "spread", "producers", "latency", "rate"],
)
def test_what_is_counted_is_stored(
    bench: Bench, cluster: LocalCluster, admin: Admin, request: pytest.FixtureRequest,
    what: str, options: tuple[str, ...], first: int,
) -> None:  # fmt: skip
    topic = f"bench-{request.node.callspec.id}"
    admin.create_topic(topic, partitions=3, replicas=3)
    found = bench(what, topic, "--record-size", "100", *options)
    assert found["records"] > 0
    assert stored(cluster, topic) == found["records"] + first
    rate = found["records"] / found["seconds"]
    assert found["records_per_s"] == pytest.approx(rate)
    assert found["mb_per_s"] == pytest.approx(rate * 100 / 1e6)
    if what == "latency":
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


@pytest.mark.parametrize("form", ["list", "arrow"])
def test_batches_are_counted_and_read_back(
    bench: Bench, cluster: LocalCluster, admin: Admin, form: str
) -> None:
    topic = f"bench-batches-{form}"
    admin.create_topic(topic, partitions=3, replicas=3)
    options = ["--arrow"] if form == "arrow" else []
    sizes = ("--record-size", "100", "--batch-bytes", "11600", "--total-mb", "1")
    found = bench("produce", topic, *sizes, *options)
    assert found["records"] == 100 * found["batches"]
    assert found["records"] * 100 >= 1_000_000
    # One batch goes ahead, before the clock.
    assert stored(cluster, topic) == found["records"] + 100
    for reading in ([], ["--records"]):
        read = bench("consume", topic, "--seconds", "30", *reading)
        # Whole batches are read before the clock starts.
        assert 0 < read["records"] <= found["records"]
        assert (stored(cluster, topic) - read["records"]) % 100 == 0
        assert read["mb_per_s"] == pytest.approx(read["records"] * 100 / read["seconds"] / 1e6)


def trial(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as exited:
        run(["bench", *words, "--format", "json"])
    out, err = capsys.readouterr()
    assert exited.value.code == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def power(own: LocalCluster) -> tuple[str, ...]:
    """Commands that end and start the nodes of `own`, as an operator's would."""
    start = (
        "from harness.local_cluster import LocalCluster; from pathlib import Path;"
        f"LocalCluster.load(Path({str(own.root)!r})).start_nodes([{{node}}])"
    )
    kill = f"kill -9 $(cat {own.root}/node{{node}}.pid)"
    return (
        "--kill", shlex.join(["sh", "-c", kill]),
        "--start", shlex.join([sys.executable, "-c", start]),
    )  # fmt: skip


@pytest.fixture
def own(make_cluster: MakeCluster) -> Iterator[LocalCluster]:
    cluster = make_cluster(settings=STEADY)
    cluster.api(1).create_topic("orders", 1, 3)
    yield cluster
    for node in cluster.nodes.values():
        node.attach()  # ends the processes that the commands of a trial started, with the rest


def test_failover_by_kill_and_by_hand_over(
    own: LocalCluster, power: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--bootstrap", own.bootstrap, "--times", "2")
    leader = own.leader("orders", 0)
    killed = trial(capsys, "failover", "orders", *where, *power)
    assert killed["samples"] == 2
    assert killed["p50_ms"] > 0
    assert own.nodes[leader].log_text().count("node started") == 2
    handed = trial(capsys, "failover", "orders", *where)
    assert handed["samples"] == 2
    assert stored(own, "orders") == 2 * (1 + 2)


def test_a_node_restarted_by_commands(
    own: LocalCluster, power: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    node = own.leader("orders", 0)
    assert verdict(own.produce(batch("orders", 0, 0, 0, b"one"))) == "APPENDED"
    where = ("--bootstrap", own.bootstrap)
    found = trial(capsys, "restart", "orders", str(node), *where, *power)
    assert found["records"] == 1
    assert 0 < found["serving_s"] <= found["level_s"]
    assert own.nodes[node].log_text().count("node started") == 2


def test_many_partitions_come_and_go(
    cluster: LocalCluster, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    before = admin.list_topics()
    where = ("--bootstrap", cluster.bootstrap)
    words = ("--count", "106", "--replicas", "1", "--seconds", "0.2")
    found = trial(capsys, "partitions", *where, *words)
    assert found["partitions"] == 106
    assert found["on_6_records_per_s"] > 0
    assert found["on_100_records_per_s"] > 0
    eventually(lambda: admin.list_topics() == before, "the topics are gone again")


@pytest.fixture(scope="module")
def shared_orders(cluster: LocalCluster) -> LocalCluster:
    """The shared cluster with the topic `orders`, for trials that end before they harm a node."""
    cluster.api(1).create_topic("orders", 1, 3)
    return cluster


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("failover", "orders", "--kill", "true"), "--kill and --start belong together"),
        (("failover", "orders", "--partition", "1"), "the partitions 0 to 0, not 1"),
        (("failover", "orders", "--kill", "false", "--start", "true"), "false: exit code 1"),
        (("failover", "orders", "--kill", "no-such", "--start", "true"), "no-such: No such file"),
        (("restart", "orders", "2"), "--kill and --start are needed"),
        (("restart", "orders", "9", "--kill", "true", "--start", "true"), "NODE 9 has no replica"),
        (("partitions", "--count", "105"), "106<=x<=100000"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_trials_that_cannot_be(
    shared_orders: LocalCluster,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    says: str,
) -> None:
    with pytest.raises(SystemExit) as exited:
        run(["bench", *words, "--bootstrap", shared_orders.bootstrap])
    assert exited.value.code != 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--batch-bytes", "1000", "--spread", "2"), "--batch-bytes and --spread exclude"),
        (("--arrow",), "--arrow and --total-mb need --batch-bytes"),
        (("--setting", "linger.ms"), "'linger.ms' is not NAME=VALUE"),
        (("--setting", "no.such.name=1"), "has no setting 'no.such.name'"),
    ],
)
def test_contradictions_are_refused(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], says: str
) -> None:
    with pytest.raises(SystemExit) as exited:
        run(["bench", "produce", "t", *options])
    assert exited.value.code != 0
    assert says in capsys.readouterr().err


def test_a_topic_must_exist(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        run(["bench", "produce", "bench-no-topic", "--bootstrap", cluster.bootstrap])
    assert exited.value.code == 1
    assert "UNKNOWN_TOPIC" in capsys.readouterr().err
