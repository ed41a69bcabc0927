"""Path of one batch and its times: from `send()` through three nodes and back.

    python -m bench.own.path [--records N] [--directory DIR]

One record at a time, on nodes and in a client that note the time at each point
(`bench.traced_node`). For each record, the first time of each point after its `send()`; a
follower's points are those of the first follower there. Printed are medians, in microseconds
since `send()`. The notes cost a few microseconds each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.figures import Figures
from bench.processes import run_json
from bench.traced_node import NOTES_VARIABLE, Notes, note_calls
from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog._engine.produce.sender import Sender
from oncelog._engine.produce.stream import ProduceStream

CLIENT, LEADER, FOLLOWER = "client", "leader", "follower"
#: Points of a batch, in this order: (place, point), and the table's text.
POINTS: dict[tuple[str, str], str] = {
    (CLIENT, "handed over"): "client: handed to gRPC",
    (LEADER, "proposed"): "leader: received, checked, proposed",
    (LEADER, "written"): "leader: in its log, frames about to leave",
    (FOLLOWER, "entries come"): "follower: frame received",
    (FOLLOWER, "round begins"): "follower: round begins",
    (FOLLOWER, "written"): "follower: in its log, the one before applied",
    (FOLLOWER, "fsync begins"): "follower: fsync begins in its thread",
    (FOLLOWER, "fsync ends"): "follower: fsync ends",
    (LEADER, "fsync ends"): "leader: its own fsync ends",
    (LEADER, "reply comes"): "leader: the follower's reply received",
    (LEADER, "committed"): "leader: committed and applied",
    (LEADER, "answered"): "leader: answer made",
    (CLIENT, "answer comes"): "client: answer received",
    (CLIENT, "done"): "client: the caller has it",
}
WARM_UP = 200
TIMEOUT_S = 120.0
Pass = tuple[int, str, str]  # nanoseconds, where, point


def medians(begins: Sequence[int], passed: Iterable[Pass]) -> Figures:
    """Median microseconds from a beginning to each point's first pass before the next beginning."""
    ordered = sorted(passed)
    times = [one[0] for one in ordered]
    found: dict[tuple[str, str], list[float]] = {point: [] for point in POINTS}
    ends = [*begins[1:], sys.maxsize]
    for begin, end in zip(begins, ends, strict=True):
        seen: set[tuple[str, str]] = set()
        for at, where, point in ordered[bisect_left(times, begin) : bisect_left(times, end)]:
            key = (where, point)
            if key in found and key not in seen and _is_due(key, seen):
                seen.add(key)
                found[key].append((at - begin) / 1000)
    return {
        POINTS[key]: statistics.median(each)
        for key, each in found.items()
        if len(each) > len(begins) / 2
    }


def _is_due(key: tuple[str, str], seen: set[tuple[str, str]]) -> bool:
    """Whether this batch has come far enough to cause the round, reply or fsync."""
    where, point = key
    if key == (LEADER, "reply comes"):
        return (FOLLOWER, "fsync ends") in seen
    if where == LEADER and point in ("written", "fsync ends"):
        return (LEADER, "proposed") in seen
    before = {
        "round begins": "entries come",
        "written": "round begins",
        "fsync begins": "written",
        "fsync ends": "fsync begins",
    }
    return where != FOLLOWER or point not in before or (FOLLOWER, before[point]) in seen


def send(bootstrap: str, records: int) -> tuple[list[int], Notes]:
    """Sends records; returns the beginning of each `send()`, and the client's notes."""
    notes: Notes = []
    note_calls(notes, ProduceStream, "_next_message", after="handed over")
    note_calls(notes, Sender, "_answered", before="answer comes")
    value, begins = os.urandom(100), []
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        for _ in range(WARM_UP):
            producer.send("traced", value).result()
        notes.clear()
        for _ in range(records):
            begins.append(time.monotonic_ns())
            producer.send("traced", value).result()
            notes.append((time.monotonic_ns(), "done"))
    return begins, notes


def measure(directory: Path, records: int) -> Figures:
    os.environ[NOTES_VARIABLE] = str(directory / "notes")
    nodes = LocalCluster(directory / "nodes", settings={})
    for process in nodes.nodes.values():
        process.spec = replace(process.spec, module="bench.traced_node")
    with nodes as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("traced", partitions=1, replicas=3)
        leader = cluster.leader("traced", 0)
        begins, notes = send(cluster.bootstrap, records)
        passed: list[Pass] = [(at, CLIENT, point) for at, point in notes]
        for node, process in cluster.nodes.items():
            pid = process.pid
            process.terminate()
            where = LEADER if node == leader else FOLLOWER
            file = directory / f"notes.{pid}"
            passed += [(at, where, point) for at, point in json.loads(file.read_text())]
    return medians(begins, passed)


def path(directory: Path, records: int) -> Figures:
    """Runs `measure` in a process of its own: the notes stay in the code they were put into."""
    words = [sys.executable, "-m", "bench.own.path", "--json"]
    return run_json([*words, "--records", str(records), "--directory", str(directory)], TIMEOUT_S)


def table(figures: Mapping[str, float]) -> str:
    lines, before = [], 0.0
    for name, at in sorted(figures.items(), key=lambda pair: pair[1]):
        lines.append(f"{at:8,.0f} us  +{at - before:6,.0f}  {name}")
        before = at
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of one batch goes.")
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--directory", type=Path, help="for the nodes' data")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="path-", dir=options.directory) as directory:
        figures = measure(Path(directory), options.records)
    print(json.dumps(figures) if options.json else table(figures))


if __name__ == "__main__":
    main()
