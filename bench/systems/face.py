"""The face that Oncelog and each of its peers show to the benchmark.

A system is made ready (`prepare`: downloads), started in a directory of its own, loaded by
clients that are processes of their own, and stopped. One object is one variant of one
system: Kafka as shipped and Kafka with flush.messages=1 are two.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import Figures
from bench.processes import BenchError, run_json, usage

# What a client may take beyond the time it was asked to send for, seconds: its own start,
# connections, the drain of its buffers.
CLIENT_PATIENCE = 30.0
PYTHON = "python"


class Unavailable(BenchError):
    """The system cannot be had on this machine."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a client is asked to do; which fields count depends on the workload.

    rate: records/s; 0: as fast as it goes. total_mb: for filling a topic to read.
    """

    size: int
    partitions: int = 1
    seconds: float = 5.0
    rate: float = 0.0
    total_mb: int = 0


class System(ABC):
    """`name` is what tables show; `durable`: it acknowledges only what is fsynced."""

    name: str
    durable: bool

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    # -- life ---------------------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> None:
        """Downloads what is needed. Raises Unavailable."""

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Starts three nodes, their data in `directory`; returns when they serve."""

    @abstractmethod
    def stop(self) -> None:
        """Ends all processes. Never raises for what does not run."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Version and settings of servers and clients, as far as they are not the defaults."""

    @abstractmethod
    def pids(self) -> list[int]:
        """The processes of the running servers."""

    def clients(self, section: str) -> tuple[str, ...]:
        """The clients that a section is measured with, the Python client first."""
        return (PYTHON,)

    # -- topics -------------------------------------------------------------------------

    @abstractmethod
    def create(self, topic: str, partitions: int) -> None:
        """A topic with three replicas of each partition, every partition with a leader."""

    def fresh(self, partitions: int) -> str:
        """The name of a new topic."""
        topic = f"bench{next(self._numbers)}"
        self.create(topic, partitions)
        return topic

    # -- workloads: each in a client process --------------------------------------------

    @abstractmethod
    def produce(self, client: str, load: Load) -> Figures:
        """Records of `size`, as fast as they are acknowledged."""

    @abstractmethod
    def produce_bytes(self, client: str, load: Load) -> Figures:
        """Batches (where the system has none: messages) of `size`, many in flight."""

    @abstractmethod
    def latency(self, client: str, load: Load) -> Figures:
        """One record at a time, or `rate` of them a second."""

    @abstractmethod
    def consume(self, client: str, load: Load) -> Figures:
        """Writes `total_mb` of records of `size`, then reads them back."""

    # -- for subclasses -----------------------------------------------------------------

    def measured(self, run: Callable[[], Figures]) -> Figures:
        """The figures of a client's run, with what the servers' processors did meanwhile."""
        os.sync()  # what was written before is not this measurement's burden
        pids = self.pids()
        before, started = usage(pids), time.monotonic()
        figures = run()
        spent, seconds = usage(pids) - before, time.monotonic() - started
        figures["broker_cores"] = spent.cpu_s / seconds
        return figures

    def run_client(self, module: str, workload: str, asked: Mapping[str, Any]) -> Figures:
        """Runs `python -m bench.clients.MODULE`, see bench/clients/common.py."""
        from bench.clients.common import command

        patience = CLIENT_PATIENCE + 4 * float(asked["seconds"])
        return self.measured(
            lambda: run_json([sys.executable, *command(module, workload, asked)], patience)
        )


__all__ = ["CLIENT_PATIENCE", "PYTHON", "Figures", "Load", "System", "Unavailable"]
