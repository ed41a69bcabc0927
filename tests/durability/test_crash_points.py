"""SIGKILL at the N-th call that changes a file, for many N: restart converges, nothing is lost.

All three nodes of a cluster under load die at a point of their own, start again with the
next one, and so on until all points are done; snapshots and retention go on meanwhile. Then
every replica is checked against all that was acknowledged. Two ways to count calls:

    ours    the calls of our own code: write, sync, mark, fsync, rename, link, mkdir
    system  the system calls of the whole process, RocksDB's threads included; every other
            point tears the write that it hits. Needs a C compiler

By default a sample of the points runs, with `-m slow` each of the first 300, and 900 of the
system's.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.local_cluster import QUICK, LocalCluster
from harness.node_process import HarnessError
from tests.durability.conftest import hook, unhook
from tests.durability.workload import Workload, problems
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

KIB = 1024
LAST = 300
CHUNK = 75  # in one test, which else takes too long
ENOUGH = 90  # batches of the short topic, more than it keeps
SAMPLE = (2, 5, 12, 30, 75, 190, 300)
POINT_TIMEOUT = 60.0  # seconds of looking at a running node that does not reach its point
SLICE = 0.02
COMPILER = shutil.which("cc")
# Snapshots and trims every few batches, so that the points meet them.
BUSY = {
    **QUICK,
    "checkpoint_entries": 20,
    "checkpoint_bytes": 64 * KIB,
    "retention_check_ms": 100,
    "preferred_leader_delay_ms": 200,
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("counting system calls needs a C compiler (cc)")
    made = tmp_path_factory.mktemp("preload") / "crash_points.so"
    source = Path(__file__).with_name("crash_points.c")
    words = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"]
    subprocess.run(words, check=True)
    return made


def crash_at(cluster: LocalCluster, points: Iterable[dict[str, str | int]]) -> int:
    """Kills a node at each point, whichever node is next; returns how many died there."""
    left = deque(points)
    met = 0
    seconds_left: dict[int, float] = {}
    for node in cluster.nodes:
        if left:
            cluster.kill([node])
            begin(cluster, node, left.popleft())
            seconds_left[node] = POINT_TIMEOUT
    while seconds_left:
        for node in sorted(seconds_left):
            process = cluster.nodes[node]
            try:
                # Never long for one: a point may need a majority, so the others must go on.
                code = process.wait(SLICE)
            except HarnessError as error:
                seconds_left[node] -= SLICE
                if seconds_left[node] > 0:
                    continue
                raise AssertionError(f"{process.spec.settings} was not met") from error
            assert code == -signal.SIGKILL, f"exit code {code}\n{process.log_tail()}"
            met += 1
            seconds_left[node] = POINT_TIMEOUT
            if left:
                begin(cluster, node, left.popleft())
            else:
                del seconds_left[node]
                unhook(cluster, node)
                process.start()
    return met


def begin(cluster: LocalCluster, node: int, point: dict[str, str | int]) -> None:
    hook(cluster, node, **point)
    cluster.nodes[node].start()


def run_points(
    cluster: LocalCluster, topic: str, points: Iterable[dict[str, str | int]]
) -> list[str]:
    """Crashes nodes under load, then runs everything; returns the check's findings."""
    wanted = list(points)
    kept, short = f"{topic}-kept", f"{topic}-short"
    cluster.api(1).create_topic(kept, 2, 3)
    cluster.api(1).create_topic(short, 1, 3, retention_bytes=64 * KIB)
    workload = Workload(cluster, {kept: 2, short: 1}).start()
    workload.more(50)
    assert crash_at(cluster, wanted) == len(wanted)
    cluster.wait_serving(cluster.nodes)
    cluster.wait_joined()
    workload.more(ENOUGH, short)
    workload.stop()
    cluster.wait_level(short)
    eventually(
        lambda: len(starts(cluster, short)) == 1 and starts(cluster, short) != {0},
        "retention dropped something, and all replicas start at the same offset",
    )
    return problems(cluster, {kept: 2, short: 1}, workload.acks)


def starts(cluster: LocalCluster, topic: str) -> set[int]:
    return {
        cluster.api(node).offset(topic, 0, "earliest", any_replica=True) for node in cluster.nodes
    }


def own(numbers: Iterable[int]) -> list[dict[str, str | int]]:
    return [{"kill_at": number} for number in numbers]


def system(numbers: Iterable[int], library: Path) -> list[dict[str, str | int]]:
    points: list[dict[str, str | int]] = []
    for number in numbers:
        point: dict[str, str | int] = {"kill_at_call": number, "preload": str(library)}
        points.append({**point, "torn": 1} if number % 2 else point)
    return points


@pytest.mark.skipif(COMPILER is not None, reason="a sample of system calls holds these too")
def test_a_sample_of_our_own_calls(make_cluster: MakeCluster, topic: str) -> None:
    assert run_points(make_cluster(settings=BUSY), topic, own(SAMPLE)) == []


def test_a_sample_of_system_calls(make_cluster: MakeCluster, topic: str, library: Path) -> None:
    points = system((number * 5 for number in SAMPLE), library)
    assert run_points(make_cluster(settings=BUSY), topic, points) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, LAST, CHUNK))
def test_each_of_our_own_first_calls(make_cluster: MakeCluster, topic: str, first: int) -> None:
    points = own(range(first, first + CHUNK))
    assert run_points(make_cluster(settings=BUSY), topic, points) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 3 * LAST, CHUNK))
def test_each_of_the_first_system_calls(
    make_cluster: MakeCluster, topic: str, library: Path, first: int
) -> None:
    points = system(range(first, first + CHUNK), library)
    assert run_points(make_cluster(settings=BUSY), topic, points) == []
