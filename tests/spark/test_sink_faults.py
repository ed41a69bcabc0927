"""Queries into the sink whose drivers, tasks and executors die or sleep at each of its calls.

Real PySpark in a program of its own, real nodes. Beside the sink a naive one has the same fault at
the same place, and has rows twice after it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin
from tests.spark.copies import contents
from tests.spark.drivers import Driver
from tests.spark.sink_driver import Planned, write_plan
from tests.spark.sinks import Lines
from tests.spark.standalone import Standalone
from tests.spark.traps import Caught

MODULE = "tests.spark.sink_driver"


class Queries:
    """A plan's queries: their topics, their lines, their traps."""

    def __init__(self, cluster: LocalCluster, admin: Admin, directory: Path) -> None:
        self._cluster, self._admin, self.directory = cluster, admin, directory
        directory.mkdir()
        self.plan: list[Planned] = []
        self._lines: dict[str, Lines] = {}

    def add(self, *planned: Planned, files: int = 1) -> None:
        for one in planned:
            self.plan.append(one)
            self._admin.create_topic(one.name, 2, 3)
            self._lines[one.name] = Lines(one.lines(self.directory))
            self._lines[one.name].add(files)
            for trap in one.traps(self.directory):
                trap.set()
        write_plan(self.directory, self.plan)

    def driver(self, master: str, *settings: str) -> Driver:
        return Driver(self.directory, MODULE, self._cluster.bootstrap, master, *settings)

    def caught(self, driver: Driver, one: Planned) -> list[Caught]:
        return [driver.caught(trap) for trap in one.traps(self.directory)]

    def more(self, *planned: Planned) -> None:
        for one in planned:
            self._lines[one.name].add()

    def touch(self, one: Planned, what: str) -> None:
        (self.directory / f"{one.name}-{what}").touch()

    def check(self) -> None:
        """The sink has each line once; the naive one has them all, and some again."""
        for one in self.plan:
            stored = contents(self._cluster.bootstrap, one.name)
            found = sorted(int(row[0] or b"") for rows in stored.values() for row in rows)
            lines = list(range(self._lines[one.name].count))
            if one.way == "sink":
                assert found == lines, one.name
            else:
                assert sorted(set(found)) == lines, one.name
                assert len(found) > len(lines), f"{one.name}: the fault does not bite"


def both(place: str, label: str, **options: Any) -> list[Planned]:
    return [Planned(way, place, label, **options) for way in ("naive", "sink")]


@pytest.fixture
def queries(cluster: LocalCluster, admin: Admin, tmp_path: Path) -> Queries:
    return Queries(cluster, admin, tmp_path / "driver")


@pytest.mark.slow
def test_driver_and_tasks_are_killed_at_each_call(queries: Queries) -> None:
    """All at once: some queries' processes are killed in a driver that lives, then the driver."""
    sinks = ("draw", "begin", "some", "flush", "end", "ended")
    whole = [*(Planned("sink", place) for place in sinks), Planned("naive", "ended")]
    # A planner that dies is an error of the query, a task is tried again.
    parts = [Planned("sink", p, "process", fails=p in ("end", "ended")) for p in sinks[1:]]
    parts.append(Planned("naive", "some", "process"))
    queries.add(*whole, *parts)
    with queries.driver("local[20,2]") as first:
        for one in parts:
            for caught in queries.caught(first, one):
                os.kill(caught.worker, signal.SIGKILL)
        first.wait_lines(*(one.name for one in parts))
        for one in whole:
            queries.caught(first, one)
    queries.more(*queries.plan)
    with queries.driver("local[4,2]") as second:
        second.wait_lines(*(one.name for one in queries.plan))
    queries.check()


SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=200ms",
    "spark.speculation.minTaskRuntime=1s",
    # Also for a stage whose tasks all began at once.
    "spark.speculation.task.duration.threshold=2s",
    # A loser's process is left alone, like that of an executor which was cut off.
    "spark.python.task.killTimeout=600s",
    "spark.executor.memory=1g",
    # A stopped query first aborts its batch, in a process of its own.
    "spark.sql.streaming.stopTimeout=0",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)


@pytest.mark.slow
def test_attempts_that_lost_sleep_or_lose_their_executor(queries: Queries, tmp_path: Path) -> None:
    """Speculation has a second attempt of each task that is held up.

    The first one wakes up after its batch, after the next one, after a new run has committed
    either; or it never does, or its executor dies with it.
    """
    losers = both("flush", "loses")
    batch, next_one = both("some", "batch"), both("some", "next")
    run = both("some", "run", again=True)
    undecided = both("some", "undecided", held=2)
    dead = both("some", "dead", held=2)
    queries.add(*losers, *batch, *run, *undecided, *dead)
    queries.add(*next_one, files=2)
    sleepers = [*batch, *next_one, *run, *undecided]
    with (
        Standalone(tmp_path / "spark", hosts=2, cores=40) as spark,
        queries.driver(spark.master, *SPECULATION) as driver,
    ):
        stopped = {}
        for one in sleepers:
            stopped[one] = queries.caught(driver, one)
            for caught in stopped[one]:
                os.kill(caught.worker, signal.SIGSTOP)
        for one in undecided:
            queries.touch(one, "stop")
        driver.wait_lines(*(f"{one.name} waits" for one in run))
        for one in run:
            queries.more(one)
            queries.touch(one, "again")
        driver.wait_lines(*(one.name for one in (*sleepers, *losers)))
        for one, each in stopped.items():
            for trap, caught in zip(one.traps(queries.directory), each, strict=True):
                trap.release()
                os.kill(caught.worker, signal.SIGCONT)
                trap.wait_handed_on()
                assert trap.was_refused() == (one.way == "sink"), one.name
        for java in {caught.java for one in dead for caught in queries.caught(driver, one)}:
            os.kill(java, signal.SIGKILL)
        driver.wait_lines(*(one.name for one in dead))
    queries.check()
