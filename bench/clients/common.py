"""Shared parts of the peers' client programs.

    python -m bench.clients.MODULE WORKLOAD '{"addresses": [...], "topic": ..., ...}'

WORKLOAD is produce, latency or consume; the JSON object holds the fields of `Asked`. A
program prints one JSON object of figures, named as those of `oncelog bench`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.figures import Figures, percentiles

VALUES = 64  # values that take turns
TICK_S = 0.001  # interval at which a load at a given rate sends its due records
DRAIN_S = 30.0  # limit for the last acknowledgements


@dataclass(frozen=True, slots=True)
class Asked:
    """Workload settings. addresses: "host:port" of the nodes. window: most unacknowledged messages.

    rate: records/s, 0: as fast as possible. records: number to write or to read, 0: as many as the
    time allows. start_at: common start of several programs, as time.time() gives it. settings:
    the client's own, by its own names.
    """

    addresses: list[str]
    topic: str
    seconds: float
    size: int = 0
    partitions: int = 1
    rate: float = 0.0
    records: int = 0
    window: int = 1000
    start_at: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def values(self) -> list[bytes]:
        return [os.urandom(self.size) for _ in range(VALUES)]


def until_start(asked: Asked) -> float:
    """Seconds until the common start. Ends a late program."""
    left = asked.start_at - time.time()
    if asked.start_at and left < 0:
        raise SystemExit(f"connected {-left:.1f} s after the others had begun")
    return max(0.0, left)


def command(module: str, workload: str, asked: Mapping[str, Any]) -> list[str]:
    return ["-m", f"bench.clients.{module}", workload, json.dumps(asked)]


class Clock:
    """Wall and processor time of this process since the start."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._cpu = time.process_time()

    def figures(self, records: int, size: int) -> Figures:
        seconds = max(time.monotonic() - self.started, 1e-9)
        return {
            "seconds": seconds,
            "records": records,
            "records_per_s": records / seconds,
            "mb_per_s": records * size / seconds / 1e6,
            "client_cores": (time.process_time() - self._cpu) / seconds,
        }


def main(workloads: Mapping[str, Callable[[Asked], Figures | Awaitable[Figures]]]) -> None:
    """Runs the whole program: parse, run, print."""
    _, name, text = sys.argv
    asked = Asked(**json.loads(text))
    found = workloads[name](asked)
    if not isinstance(found, dict):
        found = asyncio.run(_await(found))
    print(json.dumps(found))


async def _await(figures: Awaitable[Figures]) -> Figures:
    return await figures


__all__ = [
    "DRAIN_S",
    "TICK_S",
    "Asked",
    "Clock",
    "Figures",
    "command",
    "main",
    "percentiles",
    "until_start",
]
