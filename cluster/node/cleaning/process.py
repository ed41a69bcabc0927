"""Process of a cleaner's worker, beside its node: requests and replies over pipes.

    Cleaner --ask--> WorkerProcess --frames--> cluster.cleaning_worker --frames--> done
    Node --> Cleaning (cleaner and process, their start, end and metrics)

The process starts with the first request and ends when nothing is due any more, so a node without a
compacted topic has none. It ends by itself when its node does: its input ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.cleaning.messages import LENGTH_BYTES
from cluster.config.node_config import NodeConfig
from cluster.consensus.background_reads import BackgroundReads
from cluster.metrics.text import COUNTER, GAUGE, MetricFamily, counter, labels
from cluster.node.cleaning.cleaner import Cleaner, CleanerSettings
from cluster.partition.replica import Partition

log = logging.getLogger(__name__)

MIN_DIRTY_BYTES = 64 * 1024  # fewer wait for the topic's max_compaction_lag_ms
ROOT = Path(__file__).resolve().parents[3]
Done = Callable[[bytes | None], None]


class WorkerProcess:
    """The port of a `Cleaner` to its worker; it has one request at a time."""

    def __init__(self, memory_bytes: int) -> None:
        """memory_bytes: of the keys of one pass; the process may take some more."""
        self._memory_bytes = memory_bytes
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    def ask(self, request: bytes, done: Done) -> None:
        self._begin(self._ask(request, done))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            self._begin(process.wait())

    async def stop(self) -> None:
        """Ends the process and waits for its end; requests are not answered any more."""
        for _ in range(2):  # a request may be starting the process meanwhile
            self.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, request: bytes, done: Done) -> None:
        process: asyncio.subprocess.Process | None = None
        reply: bytes | None = None
        try:
            process = self._process
            if process is None:
                process = self._process = await self._started()
            reply = await _exchange(process, request)
        except (OSError, asyncio.IncompleteReadError) as error:
            log.warning("the cleaner's worker ended: %s", error)
            if self._process is process:
                self.close()
        done(reply)

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cluster.cleaning_worker",
            str(self._memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


async def _exchange(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(len(request).to_bytes(LENGTH_BYTES, "little"))
    process.stdin.write(request)
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "little")
    return await process.stdout.readexactly(length)


class Cleaning:
    """The cleaner of a node, with its worker's process."""

    def __init__(
        self, config: NodeConfig, by_group: Mapping[int, Partition], reads: BackgroundReads
    ) -> None:
        self._by_group = by_group
        self._worker = WorkerProcess(config.cleaner_memory_bytes)
        settings = CleanerSettings(
            config.cleaner_bytes_per_s, config.cleaner_memory_bytes, MIN_DIRTY_BYTES
        )
        self.cleaner = Cleaner(settings, by_group, reads, self._worker, _later)

    async def stop(self) -> None:
        self.cleaner.close()
        await self._worker.stop()

    def families(self) -> Iterator[MetricFamily]:
        """Yields the metrics of cleanings."""
        counters = self.cleaner.counters
        passes = [
            (labels(outcome="done"), counters.passes),
            (labels(outcome="broken_off"), counters.broken_off),
        ]
        yield MetricFamily(
            "oncelog_cleaner_passes_total", COUNTER, "Cleanings of a compacted partition", passes
        )
        text = "Bytes of compacted partitions that were read to clean them"
        yield counter("oncelog_cleaner_read_bytes_total", text, counters.read_bytes)
        text = "Bytes of batches that took the place of others"
        yield counter("oncelog_cleaner_carried_bytes_total", text, counters.carried_bytes)
        text = "Batches that cleanings had to leave as they are, each time"
        yield counter("oncelog_cleaner_left_batches_total", text, counters.left_batches)
        yield MetricFamily(
            "oncelog_cleaner_failing",
            GAUGE,
            "1: the newest cleaning of the partition broke off",
            [(labels(partition=name), 1) for name in list(counters.errors)],
        )


def _later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
