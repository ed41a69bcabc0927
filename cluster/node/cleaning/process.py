"""Process of a cleaner's worker, beside its node: requests and replies over pipes.

    Cleaner --ask--> WorkerProcess --frames--> cluster.cleaning_worker --frames--> done
    Node --> Cleaning (cleaner and process, their start, end and metrics)

The process starts with the first request and ends a while after the last one, so a node without a
compacted topic has none. It ends by itself when its node does: its input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from cluster.cleaning.messages import LENGTH_BYTES
from cluster.config.node_config import NodeConfig
from cluster.consensus.background_reads import BackgroundReads
from cluster.metrics.text import COUNTER, GAUGE, MetricFamily, counter, labels
from cluster.node.cleaning.cleaner import Cleaner, CleanerSettings
from cluster.node.tasks import start_all
from cluster.partition.replica import Partition

log = logging.getLogger(__name__)

MIN_DIRTY_BYTES = 64 * 1024  # fewer wait for the topic's max_compaction_lag_ms
ROOT = Path(__file__).resolve().parents[3]
Done = Callable[[bytes | None], None]
T = TypeVar("T")


class WorkerProcess:
    """The port of a `Cleaner` to its worker; it has one request at a time."""

    def __init__(self, memory_bytes: int) -> None:
        """memory_bytes: of the keys of one pass; the process may take some more."""
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: set[asyncio.Future[object]] = set()
        # Waits for the process. A request of a process that was killed ends soon.
        self._thread = start_all(ThreadPoolExecutor(1, "cleaning"), 1)

    def ask(self, request: bytes, done: Done) -> None:
        self._begin(asyncio.ensure_future(self._ask(request, done)))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._begin(self._in_thread(_release, process))

    async def stop(self) -> None:
        """Ends the process and waits for its end; requests are not answered any more."""
        for _ in range(2):  # a request that was just made starts the process meanwhile
            self.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown()

    def _begin(self, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _in_thread(self, call: Callable[..., T], *args: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def _ask(self, request: bytes, done: Done) -> None:
        process, reply = self._process, None
        try:
            if process is None:
                process = self._process = self._started()
            reply = await self._in_thread(_exchange, process, request)
        except Exception as error:  # the cleaner must not wait for ever
            is_expected = isinstance(error, OSError | EOFError)
            log.warning("the cleaner's worker ended: %s", error, exc_info=not is_expected)
            if self._process is process:
                self.close()
        done(reply)

    def _started(self) -> subprocess.Popen[bytes]:
        """Starts the process by `vfork`, which takes 3 to 6 ms.

        A fork by the loop copies the page tables of the node, and the loop stood still for 20 to
        120 ms of it.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "cluster.cleaning_worker", str(self._memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(len(request).to_bytes(LENGTH_BYTES, "little"))
    process.stdin.write(request)
    process.stdin.flush()
    head = process.stdout.read(LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    reply = process.stdout.read(length)
    if len(head) < LENGTH_BYTES or len(reply) < length:
        raise EOFError("its output ended")
    return reply


def _release(process: subprocess.Popen[bytes]) -> None:
    """Waits for a killed process, and closes its pipes: one may hold a request."""
    with contextlib.suppress(OSError), process:
        pass


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
