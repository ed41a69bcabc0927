"""Cost of TLS, tokens and permissions: the same loads on clusters with and without, in turns.

    python -m bench.security [--turns N] [--seconds S]

Three clusters of three nodes run at the same time, and one load at a time goes to one of them:
`plain`; `tls`, on all ports, callers known by certificates; `checked`, the same with static
tokens, permissions and an audit log. Each turn measures all three one after the other. The order
rotates, so that other work on the machine falls on all of them. Printed are medians over the
turns: each cluster's rate, its ratio to another cluster's rate, and the nodes' processor time for
each unit. Processor time says more than the rate on a machine with other work.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.local_cluster import LocalCluster
from oncelog import Admin, PermissionRule, Producer

TOPIC = "load"
CLUSTERS = ("plain", "tls", "checked")
# -> bytes or records done, and the seconds
Load = Callable[[Producer, float], tuple[float, float]]


def records_of(size: int) -> Load:
    """Load of records of this size; counts bytes."""

    def load(producer: Producer, seconds: float) -> tuple[float, float]:
        value, sent = b"v" * size, 0
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            for _ in range(max(1, 256 * 1024 // size)):
                producer.send(TOPIC, value, partition=0)
                sent += size
        producer.flush(timeout_ms=60_000)
        return sent, time.monotonic() - begun

    return load


def one_record(producer: Producer, seconds: float) -> tuple[float, float]:
    """Load of a caller that waits for each record; counts records."""
    sent, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        producer.send(TOPIC, b"v" * 100, partition=0).result(30)
        sent += 1
    return sent, time.monotonic() - begun


LOADS: dict[str, tuple[Load, dict[str, Any]]] = {
    "1 KiB records": (records_of(1024), {"batch_size": 1 << 20, "linger_ms": 5}),
    "1 MiB records": (records_of(1 << 20), {"batch_size": 2 << 20, "linger_ms": 0}),
    "one at a time": (one_record, {"linger_ms": 0}),
}


@contextmanager
def cluster_of(kind: str, root: Path) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Starts a cluster of that kind with its topic; yields its clients' settings, its processes."""
    settings: dict[str, str] = {}
    folder = root / kind
    folder.mkdir()
    if kind == "checked":
        digest = hashlib.scrypt(b"secret", salt=b"s" * 16, n=4096, r=8, p=1, dklen=32)
        tokens = folder / "tokens"
        tokens.write_text(f"load scrypt:4096:8:1:{(b's' * 16).hex()}:{digest.hex()}\n")
        settings = {
            "permissions": "true", "superusers": "dns:tester", "tokens_file": str(tokens),
            "audit_file": str(folder / "audit"),
        }  # fmt: skip
    with LocalCluster(folder / "nodes", settings=settings, secured=kind != "plain") as cluster:
        clients = {"bootstrap_servers": cluster.bootstrap, **cluster.client_files}
        with Admin(**clients) as admin:
            admin.create_topic(TOPIC, partitions=1, replicas=3)
            if kind == "checked":
                rule = PermissionRule("token:load", ("write",), "topic", TOPIC)
                admin.alter_permissions(add=[rule])
        if kind == "checked":
            clients["token"] = "oncelog.load.secret"
        yield clients, [node.pid for node in cluster.nodes.values()]


@dataclass(frozen=True, slots=True)
class Figure:
    """One load's figure. rate: units/s. cost: processor seconds of all nodes for each unit."""

    rate: float
    cost: float


def measure(turns: int, seconds: float) -> dict[str, dict[str, list[Figure]]]:
    """Measures load -> cluster -> a figure of each turn."""
    found: dict[str, dict[str, list[Figure]]] = {
        load: {kind: [] for kind in CLUSTERS} for load in LOADS
    }
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-bench-")))
        clusters = {kind: stack.enter_context(cluster_of(kind, root)) for kind in CLUSTERS}
        for turn in range(turns + 1):
            for name, (load, settings) in LOADS.items():
                for place in range(len(CLUSTERS)):
                    kind = CLUSTERS[(turn + place) % len(CLUSTERS)]
                    clients, pids = clusters[kind]
                    with Producer(**clients, **settings) as producer:
                        producer.send(TOPIC, b"first", partition=0).result(60)
                        before = sum(map(processor_seconds, pids))
                        done, took = load(producer, seconds)
                        spent = sum(map(processor_seconds, pids)) - before
                    if turn:  # the first one warms up
                        found[name][kind].append(Figure(done / took, spent / done))
    return found


def processor_seconds(pid: int) -> float:
    """Processor time of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(load: str, figures: dict[str, list[Figure]], base: str, kinds: Sequence[str]) -> None:
    unit, per = ("records/s", 1.0) if load == "one at a time" else ("MB/s", 1e6)
    for kind in kinds:
        pairs = list(zip(figures[kind], figures[base], strict=True))
        rates = [mine.rate / theirs.rate for mine, theirs in pairs]
        costs = [mine.cost / theirs.cost for mine, theirs in pairs]
        rate = statistics.median(one.rate for one in figures[kind]) / per
        print(
            f"{load:14} {kind:8} {rate:9.1f} {unit:9} {statistics.median(rates):5.2f} of {base}'s "
            f"({min(rates):.2f}..{max(rates):.2f}), nodes' processor time for each "
            f"{statistics.median(costs):.2f} ({min(costs):.2f}..{max(costs):.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each load in a turn")
    options = parser.parse_args()
    for load, figures in measure(options.turns, options.seconds).items():
        show(load, figures, "plain", CLUSTERS)
        show(load, figures, "tls", ["checked"])


if __name__ == "__main__":
    main()
