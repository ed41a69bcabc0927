"""Consumers that share a topic: threads of this process, and processes that are harmed."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from harness.group_worker import WorkerProcess
from harness.local_cluster import LocalCluster
from harness.own_python import ROOT
from oncelog import (
    Admin,
    ConfigError,
    Consumer,
    FencedMemberError,
    GroupHasMembersError,
    InvalidRequestError,
    OncelogError,
    Producer,
    TopicPartition,
    aio,
)
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

PARTITIONS = 4
SESSION_MS = 3000
LONG_MS = 20_000  # time enough to start a process or elect a leader


class Reader:
    """A consumer in a thread, which reads until it is stopped."""

    def __init__(self, cluster: LocalCluster, *topics: str, group: str, **settings: Any) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.values: list[bytes] = []
        self.error: OncelogError | None = None
        self._stopped = threading.Event()
        self.consumer = Consumer(
            *topics,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            on_assigned=lambda tps: self._tell("assigned", tps),
            on_revoked=lambda tps, _: self._tell("revoked", tps),
            on_lost=lambda tps: self._tell("lost", tps),
            **settings,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _tell(self, what: str, tps: list[TopicPartition]) -> None:
        self.told.append((what, [tp.partition for tp in tps]))

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                for records in self.consumer.getmany(timeout_ms=100).values():
                    self.values += [record.value or b"" for record in records]
        except OncelogError as error:
            self.error = error

    @property
    def parts(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment()}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(30)

    def close(self) -> None:
        self.stop()
        self.consumer.close()


def fill(cluster: LocalCluster, topic: str, count: int = 40, start: int = 0) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for n in range(start, start + count):
            producer.send(topic, b"%d" % n, partition=n % PARTITIONS)


@pytest.fixture
def shared(cluster: LocalCluster, topic: str) -> LocalCluster:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)
    fill(cluster, topic)
    return cluster


def test_a_member_that_unsubscribes_leaves_and_may_come_back(
    shared: LocalCluster, topic: str
) -> None:
    told: list[str] = []
    with Consumer(
        topic,
        bootstrap_servers=shared.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        on_revoked=lambda tps, deadline: told.append(f"revoked {len(tps)}"),
    ) as consumer:
        values = [consumer.getone().value]
        consumer.unsubscribe()
        assert (told, consumer.assignment()) == ([f"revoked {PARTITIONS}"], frozenset())
        with Admin(bootstrap_servers=shared.bootstrap) as admin:
            assert admin.describe_group(topic).members == ()
            assert admin.group_lag(topic).lag == 39
        consumer.subscribe([topic])
        values += [consumer.getone().value for _ in range(39)]
        assert consumer.getmany(timeout_ms=100) == {}
    assert len(values) == 40 and set(values) == {b"%d" % n for n in range(40)}


def test_two_share_a_topic_and_one_goes_on_where_the_other_committed(
    shared: LocalCluster, topic: str
) -> None:
    one = Reader(shared, topic, group=topic, enable_auto_commit=True)
    eventually(lambda: len(one.values) == 40, "one reads all")
    assert one.told == [("assigned", [0, 1, 2, 3])]
    two = Reader(shared, topic, group=topic, enable_auto_commit=True)
    eventually(lambda: len(one.parts) == len(two.parts) == 2, "both have half")
    assert ("revoked", sorted(two.parts)) in one.told
    fill(shared, topic, start=40)
    eventually(lambda: len(one.values) + len(two.values) == 80, "each record once")
    assert len({*one.values, *two.values}) == 80
    with Admin(bootstrap_servers=shared.bootstrap) as admin:
        found = admin.describe_group(topic)
        assert sorted(len(member.owned) for member in found.members) == [2, 2]
        with pytest.raises(GroupHasMembersError):
            admin.commit_offsets(topic, {(topic, 0): 0})

    def is_shown(row: str) -> bool:
        pages = [urlopen(f"http://{at}/metrics").read() for at in shared.metrics_addresses.values()]
        return any(row.encode() in page for page in pages)

    assert is_shown(f'oncelog_group_members{{group="{topic}"}} 2')
    lag = f'oncelog_group_lag_records{{group="{topic}",topic="{topic}"}}'
    eventually(lambda: is_shown(lag), "its node has asked the leaders")
    with pytest.raises(InvalidRequestError, match="manual"):
        one.consumer.assign([(topic, 0)])
    one.close()
    assert one.told[-1][0] == "revoked", "who closes has finished"
    eventually(lambda: len(two.parts) == PARTITIONS, "who stays has all")
    assert two.consumer.metrics()["rebalances"] >= 2
    two.close()
    assert len(two.values) < 80, "what was committed is not read again"
    with Consumer(
        bootstrap_servers=shared.bootstrap, group_id=topic, membership="manual"
    ) as manual:
        manual.commit({(topic, 0): 0})


def test_what_is_read_under_an_ownership_is_not_committed_under_another(
    shared: LocalCluster, topic: str
) -> None:
    one = Reader(shared, topic, group=topic)
    eventually(lambda: len(one.parts) == PARTITIONS, "it has all")
    one.stop()
    with pytest.raises(FencedMemberError):
        one.consumer.commit({(topic, 99): 1})
    assert one.consumer._rebalance is not None
    numbers = one.consumer._rebalance.numbers
    stale = {tp: number - 1 for tp, number in numbers.items()}
    one.consumer.commit({(topic, 0): 3})
    numbers.update(stale)
    with pytest.raises(FencedMemberError):
        one.consumer.commit({(topic, 0): 4})
    with Admin(bootstrap_servers=shared.bootstrap) as admin:
        assert admin.describe_group(topic).offsets[TopicPartition(topic, 0)].offset == 3
    one.consumer.close()


def test_a_body_that_fails_commits_nothing(shared: LocalCluster, topic: str) -> None:
    told: list[str] = []

    def read() -> None:
        with Consumer(
            topic,
            bootstrap_servers=shared.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            on_revoked=lambda *_: told.append("revoked"),
            on_lost=lambda _: told.append("lost"),
        ) as consumer:
            for _ in consumer:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    assert told == ["lost"]
    with Admin(bootstrap_servers=shared.bootstrap) as admin:
        eventually(lambda: not admin.describe_group(topic).members, "it has left")
        assert not admin.describe_group(topic).offsets


def test_range_gives_the_same_partitions_of_each_topic(
    shared: LocalCluster, admin: Admin, topic: str
) -> None:
    """One process then reads the records that one key has in two topics."""
    other = f"{topic}-other"
    admin.create_topic(other, PARTITIONS, 3)
    readers = [Reader(shared, topic, other, group=topic, assignor="range") for _ in range(2)]

    def shares() -> list[list[tuple[str, int]]]:
        return sorted(sorted(one.consumer.assignment()) for one in readers)

    eventually(
        lambda: shares() == [[(topic, a), (topic, b), (other, a), (other, b)]
                             for a, b in ((0, 1), (2, 3))],
        "each has the same of both",
    )  # fmt: skip
    assert admin.describe_group(topic).assignor == "range"
    readers[0].close()
    eventually(lambda: len(readers[1].consumer.assignment()) == 2 * PARTITIONS, "one has all")
    readers[1].close()


def test_who_comes_and_goes_moves_only_what_it_is_given(
    shared: LocalCluster, admin: Admin, topic: str
) -> None:
    readers = [Reader(shared, topic, group=topic) for _ in range(2)]

    def owners() -> dict[int, tuple[str, int]]:
        members = admin.describe_group(topic).members
        return {tp.partition: (one.member_id, n) for one in members for tp, n in one.owned.items()}

    eventually(lambda: [len(one.parts) for one in readers] == [2, 2], "both have half")
    before, given = owners(), set[int]()
    for _ in range(10):
        flapping = Reader(shared, topic, group=topic)
        eventually(lambda: bool(flapping.parts), "it is given its share")  # noqa: B023
        given |= flapping.parts
        flapping.close()
    eventually(lambda: [len(one.parts) for one in readers] == [2, 2], "both have half again")
    after = owners()
    untouched = before.keys() - given
    assert untouched, "the fewest moves are of the same partitions"
    assert {part: after[part] for part in untouched} == {p: before[p] for p in untouched}
    for one in readers:
        one.close()


def test_a_pattern_takes_topics_that_come_later(cluster: LocalCluster, topic: str) -> None:
    one = Reader(cluster, f"^{topic}-[a-z]+", group=topic)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(f"{topic}-first", PARTITIONS, 3)
        admin.create_topic(f"{topic}-2", PARTITIONS, 3)
        eventually(lambda: len(one.parts) == PARTITIONS, "it is found")
        fill(cluster, f"{topic}-first")
        eventually(lambda: len(one.values) == 40, "it is read")
        admin.delete_topic(f"{topic}-first")
        eventually(lambda: not one.parts, "it is gone")
    assert one.error is None
    assert {what for what, _ in one.told} == {"assigned", "lost"}
    one.close()
    with pytest.raises(InvalidRequestError, match="pattern"):
        Consumer("^a", bootstrap_servers=cluster.bootstrap)
    with pytest.raises(ConfigError, match="group_id"):
        Consumer("a", bootstrap_servers=cluster.bootstrap, enable_auto_commit=True)


async def test_the_asyncio_consumer_shares_too(shared: LocalCluster, topic: str) -> None:
    told: list[tuple[str, int]] = []

    async def on_revoked(tps: list[TopicPartition], deadline: float) -> None:
        assert deadline > time.monotonic()
        await one.commit()
        told.append(("revoked", len(tps)))

    async with aio.Consumer(
        topic,
        bootstrap_servers=shared.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        on_assigned=lambda tps: told.append(("assigned", len(tps))),
        on_revoked=on_revoked,
    ) as one:
        read = 0
        while read < 40:
            read += sum(map(len, (await one.getmany(timeout_ms=1000)).values()))
        two = Reader(shared, topic, group=topic)
        while len(one.assignment()) == PARTITIONS:
            await one.getmany(timeout_ms=50)
        eventually(lambda: len(two.parts) == 2, "the other has its share")
    assert told == [("assigned", 4), ("revoked", 2), ("revoked", 2)]
    eventually(lambda: len(two.parts) == PARTITIONS, "the other has all")
    two.close()
    assert not two.values, "all was committed"


def test_who_does_not_come_back_for_records_loses_its_share(
    shared: LocalCluster, topic: str
) -> None:
    told: list[str] = []
    with Consumer(
        topic,
        bootstrap_servers=shared.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        processing_timeout_ms=1000,
        revoke_timeout_ms=1000,
        on_assigned=lambda _: told.append("assigned"),
        on_lost=lambda _: told.append("lost"),
    ) as slow:
        while not slow.getmany(timeout_ms=500):
            pass
        other = Reader(shared, topic, group=topic)
        eventually(lambda: len(other.parts) == PARTITIONS, "who works gets all")
        eventually(lambda: len(other.values) == 40, "what was not committed is read again")
        with pytest.raises(FencedMemberError):
            slow.commit()
        end = time.monotonic() + 60
        while told != ["assigned", "lost", "assigned"] and time.monotonic() < end:
            slow.getmany(timeout_ms=100)
        other.close()
    assert told == ["assigned", "lost", "assigned"]


# --- processes --------------------------------------------------------------------------


class Workers:
    """Worker processes of one group, and all that they told."""

    def __init__(self, cluster: LocalCluster, topic: str, log: Path) -> None:
        self._cluster, self._topic, self._log = cluster, topic, log
        self.all: list[WorkerProcess] = []

    def start(self, **settings: Any) -> WorkerProcess:
        one = WorkerProcess(
            self._log,
            bootstrap=self._cluster.bootstrap,
            topic=self._topic,
            group=self._topic,
            **{"session_timeout_ms": SESSION_MS, **settings},
        )
        self.all.append(one)
        return one

    def shares(self) -> list[int]:
        return sorted(len(one.owned) for one in self.all if one.running)

    def kill(self) -> None:
        for one in self.all:
            one.end(signal.SIGKILL)


@pytest.fixture
def workers(
    request: pytest.FixtureRequest, shared: LocalCluster, topic: str, tmp_path: Path
) -> Iterator[Workers]:
    made = Workers(shared, topic, tmp_path / "workers.log")
    yield made
    made.kill()


def test_who_was_stopped_longer_than_its_session_commits_nothing(
    workers: Workers, shared: LocalCluster, topic: str
) -> None:
    one, two = workers.start(), workers.start()
    eventually(lambda: workers.shares() == [2, 2], "both have half")
    before = one.owned
    one.send(signal.SIGSTOP)
    eventually(lambda: len(two.owned) == PARTITIONS, "the other has all")
    fill(shared, topic, start=40)
    one.send(signal.SIGCONT)
    eventually(lambda: any(e["event"] == "lost" for e in one.events), "it notices")
    eventually(lambda: workers.shares() == [2, 2], "it joins again")
    for part, number in one.owned.items():
        assert number > before.get(part, 0), "under other numbers"


def test_the_coordinator_is_killed_and_nobody_loses_a_partition(
    make_cluster: MakeCluster, topic: str, tmp_path: Path
) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)
        workers = Workers(cluster, topic, tmp_path / "workers.log")
        one, two = (workers.start(session_timeout_ms=LONG_MS) for _ in range(2))
        eventually(lambda: workers.shares() == [2, 2], "both have half")
        before = one.owned | two.owned
        cluster.kill([admin.describe_group(topic).coordinator_id])
        fill(cluster, topic)

        def committed() -> int:
            return sum(at.offset for at in admin.describe_group(topic).offsets.values())

        eventually(lambda: committed() == 40, "all is read and committed")
        eventually(
            lambda: all(member.connected for member in admin.describe_group(topic).members),
            "both are back",
        )
        assert one.owned | two.owned == before
    workers.kill()


def test_members_with_names_are_restarted_one_by_one_and_nothing_moves(workers: Workers) -> None:
    for name in ("a", "b", "c"):
        workers.start(group_instance_id=name, session_timeout_ms=LONG_MS)
    eventually(lambda: workers.shares() == [1, 1, 2], "each has its share")
    for name in ("a", "b", "c"):
        before = [set(one.owned) for one in workers.all[-3:]]
        old = workers.all[-3]
        old.end()
        again = workers.start(group_instance_id=name, session_timeout_ms=LONG_MS)
        eventually(lambda: set(again.owned) == before[0], f"{name} has what it had")  # noqa: B023
        assert [set(one.owned) for one in workers.all[-3:-1]] == before[1:]
    # Two members of one name: the newer wins, and the older ends.
    newer = workers.start(group_instance_id="c", session_timeout_ms=LONG_MS)
    eventually(lambda: not workers.all[-2].running, "the older one ends")
    assert workers.all[-2].events[-1]["event"] == "lost"
    eventually(lambda: len(newer.owned) > 0, "the newer one has its share")


def test_jobs_of_workers_that_are_killed_and_stopped(cluster: LocalCluster) -> None:
    done = subprocess.run(
        [sys.executable, "examples/workers.py", "--bootstrap", cluster.bootstrap,
         "--jobs", "600", "--transactions"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "600 jobs: 0 without an effect, 0 effects too many" in done.stdout


def test_a_member_that_is_dropped_leaves_its_group(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    """Its session would last for longer than the test waits."""
    admin.create_topic(topic, 2, 1)

    def member() -> Consumer:
        consumer = Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=topic,
            session_timeout_ms=60_000,
        )
        eventually(
            lambda: consumer.getmany(timeout_ms=100) == {} and len(consumer.assignment()) == 2,
            "it reads both partitions",
        )
        return consumer

    def drop() -> None:
        member()
        gc.collect()

    with pytest.warns(ResourceWarning, match="a consumer was dropped without close"):
        drop()
    member().close()
