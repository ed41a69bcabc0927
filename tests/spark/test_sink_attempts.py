"""A batch's attempts and drivers without Spark, on real nodes: deaths and late returns anywhere.

The writers' steps in Spark's processes are done here by hand, so that each place can be met.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.errors import BatchChangedError, OncelogError, TransactionError
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.writing import SinkBatch, Staged, connected, end_batch, stage_rows
from tests.integration.conftest import MakeCluster
from tests.spark.copies import TIMEOUT_S, contents

pa = pytest.importorskip("pyarrow")


class Query:
    """One query with its input: numbers, and batches that are ranges of them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.options = SinkOptions.parse(
            {"bootstrap.servers": bootstrap, "topic": topic, "sinkId": topic}
        )
        self.bootstrap, self.topic = bootstrap, topic

    def draw(self, batch: int) -> SinkBatch:
        """A driver begins a batch."""
        with connected(self.options) as sink:
            ticket = sink.draw_ticket(self.topic, jobs=False)
        return SinkBatch(self.topic, False, f"q {self.topic}", "r", ticket, batch)

    def attempt(self, asked: SinkBatch, task: int, rows: range, gate: Gate | None = None) -> Staged:
        pieces = rows_of(rows)
        return stage_rows(self.options, asked, task, pieces if gate is None else gate.hold(pieces))

    def write(self, batch: int, rows: range, tasks: int = 2) -> None:
        asked = self.draw(batch)
        self.end(self.stage(asked, rows, tasks))

    def stage(self, asked: SinkBatch, rows: range, tasks: int = 2) -> list[Staged]:
        return [self.attempt(asked, task, rows[task::tasks]) for task in range(tasks)]

    def end(self, staged: list[Staged]) -> None:
        end_batch(self.options, staged)

    def numbers(self) -> list[int]:
        stored = contents(self.bootstrap, self.topic)
        return sorted(int(row[0] or b"") for rows in stored.values() for row in rows)


class Gate:
    """Holds an attempt in the middle of its rows, as a process that is stopped."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield next(batches)
        self.reached.set()
        assert self.opened.wait(TIMEOUT_S)
        yield from batches


def rows_of(rows: range) -> Iterator[Any]:
    """The rows in two Arrow batches."""
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        values = pa.array([str(n).encode() for n in part], pa.binary())
        places = pa.array([n % 2 for n in part], pa.int32())
        yield pa.record_batch({"value": values, "partition": places})


@contextmanager
def killed(cluster: LocalCluster, node: int) -> Iterator[None]:
    cluster.nodes[node].kill()
    yield
    cluster.start_nodes([node])


class Naive(Query):
    """A sink written by hand: rows of every attempt stay, and nobody ends anything."""

    def draw(self, batch: int) -> SinkBatch:
        return SinkBatch(self.topic, False, "q", "r", 0, batch)

    def attempt(self, asked: SinkBatch, task: int, rows: range, gate: Gate | None = None) -> Staged:
        pieces = rows_of(rows)
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for piece in pieces if gate is None else gate.hold(pieces):
                for row in piece.to_pylist():
                    producer.send(self.topic, row["value"], partition=row["partition"])
                producer.flush()
        return Staged(asked, task)

    def end(self, staged: list[Staged]) -> None: ...


@pytest.fixture
def query(cluster: LocalCluster, admin: Admin, topic: str) -> Query:
    admin.create_topic(topic, 2, 3)
    return Query(cluster.bootstrap, topic)


@pytest.fixture
def naive(cluster: LocalCluster, admin: Admin, topic: str) -> Naive:
    admin.create_topic(f"{topic}-naive", 2, 3)
    return Naive(cluster.bootstrap, f"{topic}-naive")


@pytest.mark.parametrize("dies", ["draw", "begin", "stage some", "stage all", "end"])
def test_a_driver_dies_after_each_call(query: Query, naive: Naive, dies: str) -> None:
    """The next driver plays the batch again, with another count of tasks, and goes on."""
    for one in (naive, query):
        one.write(0, range(10))
        asked = one.draw(1)
        if dies == "begin" and one is query:
            with connected(query.options) as sink:
                assert sink.begin(asked) > 0
        elif dies == "stage some":
            one.attempt(asked, 0, range(10, 15))
        elif dies in ("stage all", "end"):
            staged = one.stage(asked, range(10, 20))
            if dies == "end":
                one.end(staged)
        one.write(1, range(10, 20), tasks=3)
        one.write(2, range(20, 25))
    assert query.numbers() == list(range(25))
    assert (len(naive.numbers()) > 25) == (dies in ("stage some", "stage all", "end"))


@pytest.mark.parametrize("wakes", ["after its batch", "after the next one", "after a new run"])
def test_a_stopped_attempt_wakes_up(query: Query, naive: Naive, wakes: str) -> None:
    count = 20 if wakes == "after the next one" else 10
    for one in (naive, query):
        asked, gate = one.draw(0), Gate()
        with ThreadPoolExecutor(1) as pool:
            zombie: Future[Staged] = pool.submit(one.attempt, asked, 0, range(10), gate)
            assert gate.reached.wait(TIMEOUT_S)
            if wakes == "after a new run":
                one.write(0, range(10))
            else:
                one.end(one.stage(asked, range(10)))
            if wakes == "after the next one":
                one.write(1, range(10, 20))
            gate.opened.set()
            ended = zombie.exception(TIMEOUT_S)
        assert isinstance(ended, OncelogError) == (one is query)
    assert query.numbers() == list(range(count))
    assert len(naive.numbers()) > count


def test_a_zombie_that_begins_late_gets_nothing(query: Query) -> None:
    old = query.draw(0)
    query.write(0, range(10))
    with pytest.raises(OncelogError, match="replaced"):
        query.attempt(old, 0, range(10))
    assert query.numbers() == list(range(10))


def test_two_drivers_of_one_query(query: Query) -> None:
    """Each of them has planned the same batch; one writes it."""
    first, second = query.draw(0), query.draw(0)
    staged = query.stage(first, range(10))
    others = query.stage(second, range(10))
    with pytest.raises(TransactionError):
        query.end(staged)
    query.end(others)
    assert query.numbers() == list(range(10))


def test_an_attempt_without_rows_counts(query: Query, admin: Admin) -> None:
    query.write(0, range(0))
    query.write(0, range(0), tasks=3)
    query.write(1, range(10))
    assert query.numbers() == list(range(10))
    assert admin.describe_sink(query.topic).committed_batch == 1


def test_other_rows_under_a_committed_number_are_refused(query: Query) -> None:
    query.write(0, range(10))
    for rows in (range(9), range(11), range(1, 11)):
        with pytest.raises(BatchChangedError, match="sinkReset"):
            query.write(0, rows)
    assert query.numbers() == list(range(10))


def test_tasks_lie_in_their_order(query: Query) -> None:
    asked = query.draw(0)
    staged = [query.attempt(asked, task, range(task * 10, task * 10 + 10)) for task in (2, 0, 1)]
    query.end(staged)
    stored = contents(query.bootstrap, query.topic)
    for partition, rows in stored.items():
        assert [int(row[0] or b"") for row in rows] == list(range(partition, 30, 2))


def test_nodes_are_killed_in_the_middle_of_a_batch(make_cluster: MakeCluster) -> None:
    """Each node goes once: while rows are staged, before the end, and while it is repeated."""
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", 2, 3)
    query, gate = Query(cluster.bootstrap, "t"), Gate()
    asked = query.draw(0)
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(query.attempt, asked, 0, range(0, 1000, 2), gate)
        assert gate.reached.wait(TIMEOUT_S)
        with killed(cluster, cluster.leader("t", 0)):
            gate.opened.set()
            staged = [attempt.result(TIMEOUT_S)]
    with killed(cluster, cluster.leader("t", 1)):
        staged.append(query.attempt(asked, 1, range(1, 1000, 2)))
    with killed(cluster, cluster.api(1).describe().controller_id):
        query.end(staged)
    query.end(staged)
    query.write(0, range(1000), tasks=3)
    query.write(1, range(1000, 1010))
    assert query.numbers() == list(range(1010))
