"""The two programs that people will copy, killed again and again.

`examples/kv_store.py`: no update is lost and none is made twice, at any kill. `oncelog mirror`: the
copy is identical, however many copies run and wherever they end.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, FencedError, InvalidRequestError, Producer, TopicConfig
from oncelog.mirror import Mirror
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT = 60.0


class Program:
    """A process whose lines are collected as they come."""

    def __init__(self, *words: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> tuple[int, str]:
        """The exit code and the text on stderr."""
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        code = self.process.wait(TIMEOUT)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return code, errors


def rows(cluster: LocalCluster, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """All that a copy must have in common with its source, per partition, in order."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for tp, records in consumer.getmany(timeout_ms=1000).items():
                found.setdefault(tp.partition, []).extend(
                    (r.value, r.key, tuple(r.headers), r.timestamp_us) for r in records
                )
    return found


# --- the key-value store -----------------------------------------------------------------


def test_two_writers_lose_no_update(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    keys = ["one", "other"]  # both in the only shard: each writer's change moves the log's end
    killed: list[Program] = []

    def writer(key: str) -> Program:
        return Program(
            "-m", "examples.kv_store", "--bootstrap", cluster.bootstrap, "--topic", topic,
            "--shards", "1", "increment", key, "--times", "1000000",
        )  # fmt: skip

    def progress(programs: list[Program], count: int = 10) -> None:
        wanted = [len(program.lines) + count for program in programs]
        for program, target in zip(programs, wanted, strict=True):
            eventually(
                lambda program=program, target=target: (  # type: ignore[misc]
                    len(program.lines) >= target or program.process.poll() is not None
                ),
                "increments",
            )
            assert program.process.poll() is None, program.wait()

    # Two that fight for one key, and one that is in the way of both.
    running = [writer(keys[0]), writer(keys[0]), writer(keys[1])]
    try:
        progress(running)
        killed.append(running[0])
        running[0].kill()
        running[0] = writer(keys[0])
        progress(running)
        leader = cluster.leader(topic, 0)
        cluster.kill([leader])
        progress(running)
        cluster.start_nodes([leader])
        progress(running)
    finally:
        for program in running:
            if program.process.poll() is None:
                program.kill()
    killed += running
    # The log of a key is 1, 2, 3, ...: an update that was lost or made twice breaks it.
    log = rows(cluster, topic)[0]
    counts: dict[str, int] = {}
    for key in keys:
        values = [int(value) for value, one, _, _ in log if one == key.encode()]
        assert values == list(range(1, len(values) + 1))
        counts[key] = len(values)
    # Each result shown to a user is there, once; each kill hides one answer at most.
    told = Counter(
        int(line) for program in killed if program is not running[2] for line in program.lines
    )
    assert set(told.values()) == {1}
    assert max(told) <= counts[keys[0]]
    assert counts[keys[0]] - len(told) <= 3
    reader = Program(
        "-m",
        "examples.kv_store",
        "--bootstrap",
        cluster.bootstrap,
        "--topic",
        topic,
        "get",
        keys[0],
    )
    assert reader.wait() == (0, "")
    assert reader.lines == [str(counts[keys[0]])]


def test_the_store_puts_deletes_and_refuses_strangers(cluster: LocalCluster, topic: str) -> None:
    def kv(*words: str) -> tuple[int, list[str]]:
        program = Program(
            "-m", "examples.kv_store", "--bootstrap", cluster.bootstrap, "--topic", topic, *words
        )
        code, errors = program.wait()
        assert errors == ""
        return code, program.lines

    assert kv("get", "a") == (1, ["no value for a"])
    assert kv("put", "a", "blue") == (0, [])
    assert kv("get", "a") == (0, ["blue"])
    assert kv("delete", "a") == (0, [])
    assert kv("get", "a")[0] == 1
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        assert producer.send(topic, b"no condition", b"a").exception(TIMEOUT) is not None


# --- mirror ------------------------------------------------------------------------------


@contextmanager
def records_keep_coming(cluster: LocalCluster, topic: str) -> Iterator[None]:
    """Keys, nulls and headers into a topic, some hundred a second, for as long as it takes."""
    stop = threading.Event()

    def run() -> None:
        n = 0
        with Producer(bootstrap_servers=cluster.bootstrap, compression_type="zstd") as producer:
            while not stop.wait(0.01):
                for _ in range(5):
                    producer.send(
                        topic,
                        None if n % 7 == 0 else b"value %d" % n,
                        None if n % 5 == 0 else b"key %d" % (n % 11),
                        headers={"n": str(n), "none": None} if n % 3 == 0 else None,
                    )
                    n += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_mirror_killed_at_random_makes_an_identical_copy(
    make_cluster: MakeCluster, topic: str
) -> None:
    """Two or three zombies at once, across clusters, kill -9 of copies and of a leader."""
    source = make_cluster(1, cluster_id="source")
    target = make_cluster(3, cluster_id="target")
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        admin.create_topic(topic, 2, 1)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.create_topic("copy", 2, 3)
    rng = random.Random(8)
    words = ("-m", "oncelog.cli", "mirror", topic, "copy", "-b", source.bootstrap,
             "--to", target.bootstrap)  # fmt: skip
    copies: list[Program] = []
    ended: list[tuple[int, str]] = []
    pause = threading.Event()

    def stored() -> int:
        # Asks the target itself, not a client of the copy.
        return sum(target.latest("copy", p) for p in (0, 1))

    try:
        with records_keep_coming(source, topic):
            for turn in range(5):
                before = stored()
                copies.append(Program(*words))
                eventually(lambda before=before: stored() > before, "copies")  # type: ignore[misc]
                pause.wait(rng.random() / 2)
                if turn == 2:
                    leader = target.leader("copy", 0)
                    target.kill([leader])
                    target.start_nodes([leader])
                if turn % 2:
                    copies.pop(rng.randrange(len(copies))).kill()
            # The copy that leased the name last goes on; the others learn of it at their next
            # write.
            eventually(
                lambda: sum(copy.process.poll() is None for copy in copies) == 1,
                "all but one stop",
            )
    finally:
        for copy in copies:
            if copy.process.poll() is None:
                copy.process.kill()
            ended.append(copy.wait())
    assert len(ended) >= 3
    assert sorted(code for code, _ in ended) == [-signal.SIGKILL] + [1] * (len(ended) - 1)
    for code, text in ended:
        if code == 1:
            assert text.startswith("oncelog: FENCED: "), text
            assert len(text.splitlines()) == 1
    last = Program(*words, "-e")
    code, errors = last.wait()
    assert code == 0, errors
    original = rows(source, topic)
    assert rows(target, "copy") == original
    assert sum(len(part) for part in original.values()) > 200


def test_a_mirror_goes_on_where_it_stopped(cluster: LocalCluster, topic: str) -> None:
    copy = f"{topic}-copy"
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        admin.create_topic(topic, 2, 3)

        def run(**more: Any) -> list[int]:
            with Mirror(topic, copy, bootstrap_servers=cluster.bootstrap, **more) as mirror:
                return [one.copied for one in mirror.run(exit_at_end=True).values()]

        assert run() == [0, 0]
        for n in range(10):
            producer.send(topic, bytes(100_000), b"%d" % n, partition=n % 2)
        producer.flush()
        assert run(partitions=[1]) == [5]
        assert run(compression_type="lz4") == [5, 0]
        assert run() == [0, 0]
        assert rows(cluster, copy) == rows(cluster, topic)

        # A second copy takes over from the first, which reports why it stops.
        def taken_over() -> None:
            with Mirror(topic, copy, bootstrap_servers=cluster.bootstrap) as first:
                with Mirror(topic, copy, bootstrap_servers=cluster.bootstrap):
                    producer.send(topic, b"x", partition=0).result(TIMEOUT)
                    first.run(exit_at_end=True)

        with pytest.raises(FencedError):
            taken_over()
        assert run() == [1, 0]
        assert rows(cluster, copy) == rows(cluster, topic)


def test_a_target_with_other_records_needs_a_word(cluster: LocalCluster, topic: str) -> None:
    """An expired name looks the same: a fresh start would copy everything twice."""
    there, copy = cluster.bootstrap, f"{topic}-copy"
    with Admin(bootstrap_servers=there) as admin, Producer(bootstrap_servers=there) as producer:
        for name in (topic, copy):
            admin.create_topic(name, 2, 3)
        for n in range(20):
            producer.send(topic, b"%d" % n, partition=n % 2)
        producer.send(copy, b"other", partition=1)
        producer.flush()
        with pytest.raises(InvalidRequestError, match="1 records, and none of them is known"):
            Mirror(topic, copy, bootstrap_servers=there)
        with Mirror(topic, copy, bootstrap_servers=there, starting_offsets={1: 7}) as mirror:
            assert [one.copied for one in mirror.run(exit_at_end=True).values()] == [10, 3]
        with Mirror(topic, copy, bootstrap_servers=there) as mirror:  # now it is known
            assert [one.copied for one in mirror.run(exit_at_end=True).values()] == [0, 0]
    copied = [row[0] for row in rows(cluster, copy)[1]]
    assert copied == [b"other", b"15", b"17", b"19"]
    program = Program("-m", "oncelog.cli", "mirror", topic, copy, "-b", there, "--start", "1")
    assert program.wait()[0] == 2


def test_what_a_mirror_refuses(cluster: LocalCluster, topic: str) -> None:
    there = cluster.bootstrap
    with Admin(bootstrap_servers=there) as admin:
        admin.create_topic(topic, 2, 3)
        admin.create_topic(f"{topic}-3", 3, 3)
        with pytest.raises(InvalidRequestError, match="3 partitions, the source 2"):
            Mirror(topic, f"{topic}-3", bootstrap_servers=there)
        with pytest.raises(InvalidRequestError, match="the source topic itself"):
            Mirror(topic, topic, bootstrap_servers=there)
        small = f"{topic}-small"
        admin.create_topic(small, 2, 3, TopicConfig(max_batch_bytes=2000))
        with Producer(bootstrap_servers=there) as producer:
            producer.send(topic, bytes(3000), partition=0).result(TIMEOUT)
        with pytest.raises(Exception, match="max_batch_bytes is 2000"):
            with Mirror(topic, small, bootstrap_servers=there) as mirror:
                mirror.run(exit_at_end=True)
