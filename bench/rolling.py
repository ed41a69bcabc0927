"""Rolling restart under load: a producer's longest silence for each node restarted.

    python -m bench.rolling --rounds 10 [--rate 20] [--partitions 6] [--no-restarts | --upgrade]

Three nodes. One process writes in bulk (--rate MB/s; 0: as fast as possible); this one sends a
small record to each partition every 10 ms. In each round each node is ended by SIGTERM, started,
and leads its partitions again. A silence is the longest time without an acknowledgement from a
partition that records were sent to:

    stop    from SIGTERM to the end of the process
    start   until it serves and all nodes hear each other
    back    some seconds more, in which leaderships go back to it

With --no-restarts the same spans are measured without restarts: the effect of the load alone.
With --upgrade the nodes begin with the release before this one. The first round brings each to
this one, the second one back, and so on, and nothing is finalized.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from bench.answers import Answers
from bench.figures import percentiles
from bench.processes import BenchError
from harness import previous_release
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT
from oncelog import Admin, Producer, RecordMetadata, TopicConfig

TOPIC = "rolled"
MB = 1_000_000
VALUE_BYTES = 1000
RETENTION_BYTES = 500 * MB  # of a partition, so that no rate fills the disk
PULSE = 0.01  # seconds
BACK_AFTER_MS = 1000  # until a restarted node leads again
SETTLE = 4.0  # seconds that belong to a restart after the node is back
CALM = 5.0  # seconds before the first restart
ACKNOWLEDGE = 120.0  # seconds after which a record counts as lost
PHASES = ("stop", "start", "back")


def bulk(bootstrap: str, rate: float, stop: Event, done: Any) -> None:
    """Sends in a process of its own; puts (acknowledged bytes, seconds) into `done`."""
    value, began, sent = os.urandom(VALUE_BYTES), time.monotonic(), 0
    try:
        with Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
            while not stop.is_set():
                if rate and sent > (time.monotonic() - began) * rate * MB:
                    time.sleep(0.001)
                    continue
                producer.send(TOPIC, value)
                sent += VALUE_BYTES
    finally:
        done.put((sent, time.monotonic() - began))


@dataclass(slots=True)
class Pulses:
    """Small records to each partition; the times at which each was sent and acknowledged."""

    bootstrap: str
    partitions: int
    failed: list[str] = field(default_factory=list)
    answers: dict[int, Answers] = field(default_factory=dict)  # of each partition
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self.answers = {number: Answers() for number in range(self.partitions)}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Producer(bootstrap_servers=self.bootstrap, linger_ms=0) as producer:
            while not self._stop.wait(PULSE):
                for number in range(self.partitions):
                    now = time.monotonic()
                    found = producer.send(TOPIC, b"pulse", partition=number)
                    found.add_done_callback(partial(self._answered, number, now))
            producer.flush(timeout_ms=1000 * ACKNOWLEDGE)

    def _answered(self, number: int, sent: float, found: Future[RecordMetadata]) -> None:
        error = found.exception()
        if error is not None:
            self.failed.append(repr(error))
        else:
            self.answers[number].add(sent)

    def stop(self) -> None:
        assert self._thread is not None
        self._stop.set()
        self._thread.join()

    def silence(self, begin: float, end: float) -> tuple[float, int, float]:
        """Longest silence: (milliseconds, partition, seconds from `begin` to its beginning)."""
        found = {number: one.silence(begin, end) for number, one in self.answers.items()}
        number = max(found, key=lambda number: found[number])
        seconds, since = found[number]
        return 1000 * seconds, number, since - begin

    def waits(self, begin: float, end: float) -> list[float]:
        """Milliseconds from the send to the acknowledgement."""
        return [1000 * wait for one in self.answers.values() for wait in one.waits(begin, end)]


def restart(cluster: LocalCluster, node: int, tree: Path | None) -> list[float]:
    """Restarts a node; returns the beginning of each phase, and the end of the last.

    tree: of the release to start; None: the node keeps running.
    """
    times = [time.monotonic()]
    if tree is not None:
        code = cluster.nodes[node].terminate()
        assert code == 0, cluster.nodes[node].log_tail()
        times.append(time.monotonic())
        cluster.change_spec(node, tree=tree)
        cluster.start_nodes([node])
        times.append(time.monotonic())
    time.sleep(SETTLE)
    return [*times, time.monotonic()]


def releases(options: argparse.Namespace, root: Path) -> list[Path | None]:
    """Trees of the first start, and of the restarts in odd and even rounds."""
    if options.upgrade:
        before = root / "previous"
        before.mkdir()
        previous_release.extract(before)
        return [before, ROOT, before]
    return [ROOT] + 2 * [None if options.no_restarts else ROOT]


def measure(options: argparse.Namespace, root: Path) -> list[tuple[int, list[float]]]:
    spans: list[tuple[int, list[float]]] = []
    settings: dict[str, str | int] = {
        "preferred_leader_delay_ms": BACK_AFTER_MS,
        "retention_check_ms": 1000,
    }
    context = multiprocessing.get_context("spawn")
    stop, done = context.Event(), context.Queue()
    first, odd, even = releases(options, root)
    cluster = LocalCluster(root / "cluster", settings=settings)
    for node in cluster.nodes:
        cluster.change_spec(node, tree=first)
    with cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            kept = TopicConfig(retention_bytes=RETENTION_BYTES)
            admin.create_topic(TOPIC, options.partitions, 3, kept)
        cluster.wait_level(TOPIC)
        words = (cluster.bootstrap, options.rate, stop, done)
        load, pulses = (
            context.Process(target=bulk, args=words),
            Pulses(cluster.bootstrap, options.partitions),
        )
        load.start()
        pulses.start()
        try:
            time.sleep(CALM)
            for number in range(options.rounds):
                for node in cluster.nodes:
                    if not load.is_alive():
                        raise BenchError("the process that writes in bulk has ended")
                    times = restart(cluster, node, even if number % 2 else odd)
                    spans.append((node, times))
                    show(number, node, times, pulses)
        finally:
            stop.set()
            pulses.stop()
            sent, seconds = done.get(timeout=ACKNOWLEDGE)
            load.join()
        print(f"bulk: {sent / MB / seconds:.1f} MB/s over {seconds:.0f} s", flush=True)
    summary(spans, pulses)
    return spans


def show(number: int, node: int, times: list[float], pulses: Pulses) -> None:
    """Prints one line for a restart."""
    text = []
    for phase, (begin, end) in zip(PHASES[-len(times) + 1 :], pairwise(times), strict=True):
        silent, partition, after = pulses.silence(begin, end)
        text.append(f"{phase} {end - begin:.1f} s, silent {silent:.0f} ms "
                    f"(partition {partition}, {after:.2f} s in)")  # fmt: skip
    print(f"round {number + 1} node {node}: {'; '.join(text)}", flush=True)


def summary(spans: list[tuple[int, list[float]]], pulses: Pulses) -> None:
    silences = [pulses.silence(times[0], times[-1])[0] for _, times in spans]
    waits = pulses.waits(spans[0][1][0], spans[-1][1][-1])
    found = {
        "restarts": len(spans),
        "silence": {name: round(value, 1) for name, value in percentiles(silences).items()},
        "record": {name: round(value, 1) for name, value in percentiles(waits).items()},
        "failed": pulses.failed[:5],
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=0.0, help="MB/s; 0: as fast as it goes")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--no-restarts", action="store_true", help="measure the load alone")
    what.add_argument("--upgrade", action="store_true", help="from the last release, and back")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        measure(options, Path(root))


if __name__ == "__main__":
    main()
