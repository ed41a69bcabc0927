"""`oncelog bench` against a real cluster: what it counts is what the log holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oncelog import Admin, Consumer
from oncelog.cli.app import run
from tests.harness.local_cluster import LocalCluster

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
        ("produce", ("--producers", "4", "--depth", "2", "--setting", "linger.ms=0"), 4),
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
        # What is read before the clock starts is whole batches.
        assert 0 < read["records"] <= found["records"]
        assert (stored(cluster, topic) - read["records"]) % 100 == 0
        assert read["mb_per_s"] == pytest.approx(read["records"] * 100 / read["seconds"] / 1e6)


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
