"""Copies whose tasks, executors, drivers and brokers are killed or stopped in the middle.

Each fault is first shown to bite: the naive copy, which differs only in its producers, has records
twice after it. The mirror's copy is identical, by plain reading of both topics. In each, a broker
that leads the copy is killed at the same moment.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.spark import audit
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually
from tests.spark.copies import (
    TIMEOUT_S,
    contents,
    put,
    put_large,
    sent_on_unseen,
    wait_stored,
)
from tests.spark.drivers import Driver
from tests.spark.traps import Trap
from tests.spark.ways import copy_naively, copy_with_mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 400  # in two partitions
WAYS: dict[str, Callable[..., Any]] = {"naive": copy_naively, "mirror": copy_with_mirror}


@pytest.fixture
def filled(make_cluster: MakeCluster, topic: str) -> LocalCluster:
    """Three nodes with `topic`, and with the topics of both copies.

    In each partition are two batches that a mirror sends on as they are stored, and small
    ones, of which it looks at the records.
    """
    cluster = make_cluster(3, settings=STEADY, metrics=True)
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        for name in (topic, f"{topic}-naive", f"{topic}-mirror"):
            admin.create_topic(name, 2, 3)
        for first in range(0, RECORDS // 2, 50):
            put_large(producer, topic, first // 50 % 2, range(first, first + 50))
        put(producer, topic, range(RECORDS // 2, RECORDS))
    return cluster


@contextmanager
def without_leader(cluster: LocalCluster, topic: str) -> Iterator[None]:
    """The broker that leads partition 0 is killed now, and comes back at the end."""
    leader = cluster.leader(topic, 0)
    cluster.kill([leader])
    yield
    cluster.start_nodes([leader])


def assert_bites(cluster: LocalCluster, topic: str) -> None:
    """The naive copy has all records, some of them twice."""
    source = Counter(contents(cluster.bootstrap, topic)[0])
    copy = Counter(contents(cluster.bootstrap, f"{topic}-naive")[0])
    assert source < copy
    assert set(source) == set(copy)


def assert_identical(cluster: LocalCluster, topic: str) -> None:
    assert contents(cluster.bootstrap, f"{topic}-mirror") == contents(cluster.bootstrap, topic)
    # The second of the large batches was sent on unseen: the first opens the producer.
    assert sent_on_unseen(cluster.bootstrap, f"{topic}-mirror", 1) == 1


def fenced(cluster: LocalCluster, topic: str) -> int:
    """Number of batches for partition 0 that the running nodes have answered with FENCED."""
    count = 0
    for node in cluster.running:
        with urllib.request.urlopen(f"http://{cluster.metrics_addresses[node]}/metrics") as page:
            text = page.read().decode()
        labels = re.escape(f'topic="{topic}",partition="0",verdict="FENCED"')
        count += sum(int(float(n)) for n in re.findall(rf"{labels}}} (\S+)", text))
    return count


# --- tasks ---------------------------------------------------------------------------


def test_a_task_that_is_killed_and_tried_again(
    spark: SparkSession, filled: LocalCluster, topic: str, tmp_path: Path
) -> None:
    for way, start in WAYS.items():
        trap = Trap(tmp_path / f"trap-{way}").set()
        target, notes = f"{topic}-{way}", str(tmp_path / f"notes-{way}")
        query = start(spark, filled.bootstrap, topic, target, trap, checkpoint=notes)
        caught = trap.wait_caught()
        wait_stored(filled.bootstrap, target, 0, 1)
        with without_leader(filled, target):
            os.kill(caught.worker, signal.SIGKILL)
            assert query.awaitTermination(int(TIMEOUT_S))
    assert_bites(filled, topic)
    assert_identical(filled, topic)


def test_a_lost_checkpoint(
    spark: SparkSession, filled: LocalCluster, topic: str, tmp_path: Path
) -> None:
    for way, start in WAYS.items():
        trap = Trap(tmp_path / f"trap-{way}")
        target, notes = f"{topic}-{way}", str(tmp_path / f"notes-{way}")
        query = start(spark, filled.bootstrap, topic, target, trap, checkpoint=notes)
        assert query.awaitTermination(int(TIMEOUT_S))
        shutil.rmtree(notes)
    with Producer(bootstrap_servers=filled.bootstrap) as producer:
        put(producer, topic, range(RECORDS, RECORDS + 100))
    for way, start in WAYS.items():
        trap = Trap(tmp_path / f"trap-{way}").set()
        target, notes = f"{topic}-{way}", str(tmp_path / f"notes-{way}")
        query = start(spark, filled.bootstrap, topic, target, trap, checkpoint=notes)
        trap.wait_caught()
        with without_leader(filled, target):
            trap.release()
            assert query.awaitTermination(int(TIMEOUT_S))
    assert_bites(filled, topic)
    assert_identical(filled, topic)
    # The audit has the same result.
    found = {
        way: audit(
            spark,
            topic,
            copy=f"{topic}-{way}",
            bootstrap_servers=filled.bootstrap,
            path=str(tmp_path / f"audit-{way}"),
        ).faults
        for way in WAYS
    }
    assert found["naive"]["twice"] == RECORDS
    kinds = ("missing", "extra", "twice", "changed", "moved", "disordered")
    assert {kind: found["mirror"][kind] for kind in kinds} == dict.fromkeys(kinds, 0)


# --- drivers -------------------------------------------------------------------------


def driver(directory: Path, cluster: LocalCluster, topic: str, *words: str) -> Driver:
    """A program that copies in both ways at once."""
    return Driver(directory, "tests.spark.mirror_driver", cluster.bootstrap, topic, *words)


def test_a_driver_that_is_killed_in_a_commit(
    spark: SparkSession, filled: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """All tasks have written, and Spark's notes lack it: another driver does the batch again."""
    directory = tmp_path / "driver"
    traps = [Trap(directory / f"{way}-commit").set() for way in WAYS]
    with driver(directory, filled, topic, "local[2]") as first:
        for trap in traps:
            first.caught(trap)
    open_to_all = Trap(tmp_path / "no trap")
    with without_leader(filled, f"{topic}-mirror"):
        for way, start in WAYS.items():
            notes = str(directory / f"{way}-checkpoint")
            target = f"{topic}-{way}"
            query = start(spark, filled.bootstrap, topic, target, open_to_all, checkpoint=notes)
            assert query.awaitTermination(int(TIMEOUT_S))
    assert_bites(filled, topic)
    assert_identical(filled, topic)


def test_an_attempt_that_sleeps_until_its_successor_is_done(
    filled: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """The executor is stopped with all processes and taken for lost, and its task is given to
    another. The worker wakes up when that and the later micro-batches have written.
    """
    directory = tmp_path / "driver"
    traps = {way: Trap(directory / f"{way}-rows").set() for way in WAYS}
    settings = (
        "spark.executor.memory=512m",
        "spark.executor.heartbeatInterval=1s",
        "spark.network.timeout=15s",
        "spark.network.timeoutInterval=1s",
        # An executor's code is over before the best machine code for it would be compiled.
        "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    with driver(directory, filled, topic, "local-cluster[3,1,1024]", *settings) as copies:
        sleepers = {way: copies.caught(trap) for way, trap in traps.items()}
        for way, one in sleepers.items():
            wait_stored(filled.bootstrap, f"{topic}-{way}", 0, 1)
            for pid in (one.java, one.daemon, one.worker):
                os.kill(pid, signal.SIGSTOP)
        with without_leader(filled, f"{topic}-mirror"):
            copies.wait_lines(*WAYS)
            for way, one in sleepers.items():
                traps[way].release(finish=False)
                os.kill(one.worker, signal.SIGCONT)  # if Spark has not killed its JVM yet
            for trap in traps.values():
                trap.wait_handed_on()
            # The attempt's batch was fenced, or its producer knew of the fence before it sent one.
            eventually(
                lambda: traps["mirror"].was_refused() or fenced(filled, f"{topic}-mirror") > 0,
                "the sleeper is FENCED",
            )
    assert_bites(filled, topic)
    assert_identical(filled, topic)
