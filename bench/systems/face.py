"""Face of Oncelog and each of its peers towards the benchmark.

A system is made ready (`prepare`: downloads), started in a directory of its own, loaded by
clients that are processes of their own, and stopped. One object is one variant of one
system: Kafka as shipped and Kafka with flush.messages=1 are two.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import Figures
from bench.processes import BenchError, Stack, run_json, usage

# Seconds that a client may take beyond its sending time: its start, connections, and the
# drain of its buffers.
CLIENT_TIMEOUT = 30.0
PYTHON = "python"
# Many producers: small records over some partitions. Programs that measure together have
# this time to connect: PROGRAM_S for each program, PRODUCER_S for each of its producers.
SMALL, SMALL_PARTITIONS = 100, 6
PROGRAM_S, PRODUCER_S = 1.5, 0.02


class Unavailable(BenchError):
    """The system cannot run on this machine."""


@dataclass(frozen=True, slots=True)
class Load:
    """Work of a client; each workload uses some of the fields.

    rate: records/s; 0: as fast as possible. total_mb: for filling a topic to read.
    """

    size: int
    partitions: int = 1
    seconds: float = 5.0
    rate: float = 0.0
    total_mb: int = 0


class System(ABC):
    """System under test. `name` is for tables; `durable`: it acknowledges only fsynced records."""

    name: str
    durable: bool

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    # -- life ---------------------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> None:
        """Downloads the system's files. Raises Unavailable."""

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Starts three nodes, their data in `directory`; returns when they serve."""

    @abstractmethod
    def stop(self) -> None:
        """Ends all processes. Never raises for stopped processes."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Version and non-default settings of servers and clients."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Processes of the running servers."""

    def clients(self, section: str) -> tuple[str, ...]:
        """Clients of a section, the Python client first."""
        return () if section == "kafka" else (PYTHON,)

    # -- topics -------------------------------------------------------------------------

    @abstractmethod
    def create(self, topic: str, partitions: int) -> None:
        """Makes a topic with three replicas of each partition, every partition with a leader."""

    def fresh(self, partitions: int) -> str:
        """Name of a new topic."""
        topic = f"bench{next(self._numbers)}"
        self.create(topic, partitions)
        return topic

    # -- workloads: each in a client process --------------------------------------------

    @abstractmethod
    def produce(self, client: str, load: Load) -> Figures:
        """Sends records of `size`, as fast as they are acknowledged."""

    @abstractmethod
    def produce_bytes(self, client: str, load: Load) -> Figures:
        """Sends batches (messages if the system has none) of `size`, many in flight."""

    @abstractmethod
    def latency(self, client: str, load: Load) -> Figures:
        """Sends one record at a time, or `rate` of them a second."""

    @abstractmethod
    def consume(self, client: str, load: Load) -> Figures:
        """Writes `total_mb` of records of `size`, then reads them back."""

    @abstractmethod
    def producers(self, count: int, processes: int, seconds: float) -> Figures:
        """Runs `count` producers in some processes, one record of 100 B in flight in each."""

    # -- for subclasses -----------------------------------------------------------------

    def measured(self, run: Callable[[], Figures]) -> Figures:
        """Runs a client; returns its figures and the servers' processor use meanwhile."""
        os.sync()  # earlier writes are not this measurement's burden
        pids = self.pids()
        before, started = usage(pids), time.monotonic()
        figures = run()
        spent, seconds = usage(pids) - before, time.monotonic() - started
        figures["broker_cores"] = spent.cpu_s / seconds
        if figures.get("records"):
            figures["broker_us_per_record"] = spent.cpu_s * 1e6 / figures["records"]
        return figures

    def together(
        self, module: str, addresses: list[str], count: int, processes: int, seconds: float,
        settings: Mapping[str, Any],
    ) -> Figures:  # fmt: skip
        """Runs the client program's workload `producers` in processes that begin at one time.

        Rates and processors add up; of the latencies it is the median process's, p99 the worst.
        """
        from bench.clients.common import command

        alone = processes == 1
        connecting = processes * PROGRAM_S + count * PRODUCER_S
        asked = {
            "addresses": addresses,
            "topic": self.fresh(SMALL_PARTITIONS),
            "seconds": seconds,
            "size": SMALL,
            "partitions": SMALL_PARTITIONS,
            "window": count // processes,
            "start_at": 0.0 if alone else time.time() + connecting,
            "settings": settings,
        }
        words = [sys.executable, *command(module, "producers", asked)]
        timeout = CLIENT_TIMEOUT + connecting + 4 * seconds

        def run() -> Figures:
            with ThreadPoolExecutor(processes) as pool:
                found = list(pool.map(lambda _: run_json(words, timeout), range(processes)))
            figures = dict(found[0])
            for name in ("records", "records_per_s", "mb_per_s", "client_cores"):
                figures[name] = sum(one[name] for one in found)
            figures["p50_ms"] = statistics.median(one["p50_ms"] for one in found)
            figures["p99_ms"] = max(one["p99_ms"] for one in found)
            return figures

        figures = self.measured(run)
        if not alone:
            del figures["broker_cores"], figures["broker_us_per_record"]  # with programs that wait
        return figures


class Peer(System):
    """Another broker: three servers on a stack, clients that are programs of bench/clients.

    `module` names the program; the clients connect to `addresses`.
    """

    module: str
    #: Settings of a producer that waits for each record.
    singly: Mapping[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.stack = Stack()
        self.addresses: list[str] = []

    def stop(self) -> None:
        self.stack.stop()

    def pids(self) -> list[int]:
        return self.stack.pids()

    def producers(self, count: int, processes: int, seconds: float) -> Figures:
        return self.together(self.module, self.addresses, count, processes, seconds, self.singly)

    def asked(self, load: Load, **more: Any) -> dict[str, Any]:
        """Request to a client, with a new topic."""
        return {
            "addresses": self.addresses,
            "topic": self.fresh(load.partitions),
            "seconds": load.seconds,
            "size": load.size,
            "partitions": load.partitions,
            "rate": load.rate,
            **more,
        }

    def fill(self, load: Load, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Writes records with the same client; returns the request to the reader."""
        records = load.total_mb * 1_000_000 // load.size
        filling = {**asked, "seconds": load.seconds * 4, "records": records}
        filled = self.run_client("produce", filling)
        return {**asked, "records": int(filled["records"])}

    def run_client(self, workload: str, asked: Mapping[str, Any]) -> Figures:
        """Runs the client program, see bench/clients/common.py."""
        from bench.clients.common import command

        timeout = CLIENT_TIMEOUT + 4 * float(asked["seconds"])
        return self.measured(
            lambda: run_json([sys.executable, *command(self.module, workload, asked)], timeout)
        )


class MessagePeer(Peer):
    """A peer without batches: at most `window` messages, and window_bytes, unacknowledged."""

    window: int
    window_bytes = 32_000_000

    def asked(self, load: Load, **more: Any) -> dict[str, Any]:
        window = max(4, min(self.window, self.window_bytes // load.size))
        return super().asked(load, window=window, **more)

    def produce(self, client: str, load: Load) -> Figures:
        return self.run_client("produce", self.asked(load))

    def produce_bytes(self, client: str, load: Load) -> Figures:
        return self.produce(client, load)

    def latency(self, client: str, load: Load) -> Figures:
        return self.run_client("latency", self.asked(load))

    def consume(self, client: str, load: Load) -> Figures:
        return self.run_client("consume", self.fill(load, self.asked(load)))


__all__ = [
    "CLIENT_TIMEOUT",
    "PYTHON",
    "Figures",
    "Load",
    "MessagePeer",
    "Peer",
    "System",
    "Unavailable",
]
