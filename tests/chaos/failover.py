"""Figures of failover: disruption by a kill, the killed node's return, the effect of a rejoin.

One topic with one partition on all nodes; each measurement leaves the cluster whole:

    kill      SIGKILL to the leader, until the next record is acknowledged
    in sync   records are written while it is down; from its start until it has them
    rejoin    a node is cut off from the others for a while and comes back: terms that this
              took, and the longest time without an acknowledgement from then on
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from harness.failover import ACKNOWLEDGE_TIMEOUT, kill_leader, percentile
from harness.local_cluster import LocalCluster
from oncelog import OncelogError, Producer, RecordMetadata

# Leaders stay where elections put them: a planned move is no disruption by a fault.
SETTINGS: dict[str, str | int] = {"preferred_leader_delay_ms": 3_600_000}
SYNC_TIMEOUT = 120.0
MISSED_MB = (0, 1, 8, 32)  # data that a killed node misses, in turn
PULSE = 0.01  # seconds between the records that are watched for acknowledgement
CUT = 5.0  # seconds that a node is cut off
SETTLE = 4.0  # seconds after it is back in which to look for a disruption


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill; all times in seconds. serving_s and in_sync_s: since the node's start."""

    node: int
    acknowledged_s: float
    missed_mb: float
    serving_s: float
    in_sync_s: float


@dataclass(frozen=True, slots=True)
class Rejoin:
    """One node cut off and back. silent_ms: the longest after it came back; usual_ms: before."""

    role: str
    terms_while_cut: int
    terms_after: int
    silent_ms: float
    usual_ms: float


@dataclass(slots=True)
class Figures:
    """All measurements."""

    kills: list[Kill] = field(default_factory=list)
    rejoins: list[Rejoin] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        times = sorted(kill.acknowledged_s for kill in self.kills)
        return {
            "kill_to_acknowledgement_s": {
                "kills": len(times),
                "p50": percentile(times, 50),
                "p99": percentile(times, 99),
                "max": percentile(times, 100),
            },
            "kills": [asdict(kill) for kill in self.kills],
            "rejoins": [asdict(rejoin) for rejoin in self.rejoins],
        }


# -- measurements -------------------------------------------------------------------------------


def one_kill(cluster: LocalCluster, producer: Producer, topic: str, missed_mb: int) -> Kill:
    """Kills the leader, writes data that it misses, and waits until it has that."""
    node, acknowledged_s = kill_leader(cluster, producer, topic)
    batches = [
        producer.send_batch(topic, 0, [bytes(1000)] * 1000)  # a megabyte
        for _ in range(missed_mb)
    ]
    for batch in batches:
        batch.result(ACKNOWLEDGE_TIMEOUT)
    started = time.monotonic()
    cluster.start_nodes([node], wait=False)
    cluster.wait_serving([node])
    serving_s = time.monotonic() - started
    cluster.wait_caught_up(node, SYNC_TIMEOUT)
    in_sync_s = time.monotonic() - started
    cluster.wait_joined()
    return Kill(node, acknowledged_s, missed_mb, serving_s, in_sync_s)


class Pulse(threading.Thread):
    """A pulse: a record every few milliseconds, and the times of acknowledgement."""

    def __init__(self, producer: Producer, topic: str) -> None:
        super().__init__(name="pulse")
        self._producer, self._topic = producer, topic
        self._stop_asked = threading.Event()
        self.acknowledged: deque[float] = deque()

    def run(self) -> None:
        while not self._stop_asked.wait(PULSE):
            self._producer.send(self._topic, b"pulse", partition=0, on_delivery=self._delivered)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        self._producer.flush(timeout_ms=1000 * ACKNOWLEDGE_TIMEOUT)

    def _delivered(self, metadata: RecordMetadata | None, error: OncelogError | None) -> None:
        if metadata is not None:
            self.acknowledged.append(time.monotonic())

    def longest_silence(self, start: float, end: float) -> float:
        """The longest silence between the two times, in milliseconds."""
        times = [start, *(at for at in list(self.acknowledged) if start < at < end), end]
        return 1000 * max(b - a for a, b in itertools.pairwise(times))


@contextmanager
def cut_off(cluster: LocalCluster, node: int) -> Iterator[None]:
    """Cuts a node off the network, or, where nodes share one, resets its connections."""
    if cluster.network is not None:
        with cluster.split([node], [other for other in cluster.nodes if other != node]):
            yield
        return
    cluster.isolate(node)
    try:
        yield
    finally:
        cluster.isolate(node, "heal")
    cluster.wait_joined()


def one_rejoin(cluster: LocalCluster, producer: Producer, topic: str, role: str) -> Rejoin:
    """Cuts off the leader, or a follower, and measures the effect of its return."""
    leader = cluster.leader(topic, 0)
    node = leader if role == "leader" else next(n for n in cluster.nodes if n != leader)
    pulse = Pulse(producer, topic)
    pulse.start()
    try:
        calm = time.monotonic()
        time.sleep(SETTLE)
        first = _term(cluster, topic)
        usual_ms = pulse.longest_silence(calm, time.monotonic())
        with cut_off(cluster, node):
            time.sleep(CUT)
            cluster.leader(topic, 0, not_in=[node])
            second = _term(cluster, topic, not_in=[node])
            back = time.monotonic()
        cluster.wait_caught_up(node)
        time.sleep(max(0.0, back + SETTLE - time.monotonic()))
        third = _term(cluster, topic)
        silent_ms = pulse.longest_silence(back, time.monotonic())
    finally:
        pulse.stop()
    return Rejoin(role, second - first, third - second, silent_ms, usual_ms)


def _term(cluster: LocalCluster, topic: str, not_in: Sequence[int] = ()) -> int:
    """The partition's term, as its leader knows it."""
    leader = cluster.leader(topic, 0, not_in=not_in)
    return int(cluster.api(leader).topic(topic).partitions[0].term)


def measure(
    cluster: LocalCluster, *, kills: int, rejoins: int, say: Callable[[str], None]
) -> Figures:
    """`rejoins`: of a follower and of the leader each. The cluster must serve."""
    topic, figures = f"failover-{int(time.time())}", Figures()
    cluster.api(cluster.running[0]).create_topic(topic, 1, 0)
    cluster.wait_level(topic)
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        for number, missed_mb in zip(range(kills), itertools.cycle(MISSED_MB)):
            kill = one_kill(cluster, producer, topic, missed_mb)
            figures.kills.append(kill)
            say(
                f"kill {number + 1}: node {kill.node}, {kill.acknowledged_s:.2f} s to the next "
                f"acknowledgement; {missed_mb} MB missed, in sync after {kill.in_sync_s:.2f} s"
            )
        for role in ("follower", "leader") * rejoins:
            rejoin = one_rejoin(cluster, producer, topic, role)
            figures.rejoins.append(rejoin)
            say(f"rejoin of a {role}: {rejoin.terms_after} terms, "
                f"silent for {rejoin.silent_ms:.0f} ms")  # fmt: skip
    return figures


# -- tables -------------------------------------------------------------------------------------


def tables(figures: Figures) -> Iterator[Table]:
    """Builds the tables of the measurements."""
    said = figures.to_json()["kill_to_acknowledgement_s"]
    table = _table("SIGKILL of the leader to the next acknowledgement", *said)
    table.add_row(str(said["kills"]), *(f"{said[name]:.2f} s" for name in ("p50", "p99", "max")))
    yield table
    table = _table("A killed node, from its start", "missed", "kills", "serving, median",
                   "in sync, median", "in sync, max")  # fmt: skip
    for missed_mb in sorted({kill.missed_mb for kill in figures.kills}):
        group = [kill for kill in figures.kills if kill.missed_mb == missed_mb]
        in_sync = [kill.in_sync_s for kill in group]
        table.add_row(
            f"{missed_mb} MB", str(len(group)),
            f"{statistics.median(kill.serving_s for kill in group):.2f} s",
            f"{statistics.median(in_sync):.2f} s", f"{max(in_sync):.2f} s",
        )  # fmt: skip
    yield table
    table = _table("A node comes back from a partition", "it was", "times",
                   "terms while it was away", "terms after", "longest silence after, median",
                   "max", "usual, median")  # fmt: skip
    for role in dict.fromkeys(rejoin.role for rejoin in figures.rejoins):
        some = [rejoin for rejoin in figures.rejoins if rejoin.role == role]
        silent = [rejoin.silent_ms for rejoin in some]
        table.add_row(
            role, str(len(some)),
            _range([rejoin.terms_while_cut for rejoin in some]),
            _range([rejoin.terms_after for rejoin in some]),
            f"{statistics.median(silent):.0f} ms", f"{max(silent):.0f} ms",
            f"{statistics.median(rejoin.usual_ms for rejoin in some):.0f} ms",
        )  # fmt: skip
    yield table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name)
    return table


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}..{high}"
