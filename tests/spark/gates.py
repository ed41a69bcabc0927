"""Holding a Spark job in the middle, from the test: files are the events.

    gate = Gate(tmp_path)
    rows = in_background(lambda: frame.mapInArrow(gate.hold, frame.schema).collect())
    gate.wait_reached(2)        # two tasks have had their first batch, and wait
    ...                         # the fault
    gate.open()

Workers are other processes, so a gate is a folder.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from harness.local_cluster import LOOK_AGAIN
from tests.integration.waiting import eventually

T = TypeVar("T")
TIMEOUT_S = 120.0


class Gate:
    """Lets the first Arrow batch of each task through, and the rest when it is opened."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / f"gate-{uuid.uuid4().hex[:8]}"
        self._directory.mkdir(parents=True)

    def hold(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`: the batches as they are."""
        for number, batch in enumerate(batches):
            if number == 1:
                (self._directory / f"reached-{os.getpid()}-{uuid.uuid4().hex[:8]}").touch()
                end = time.monotonic() + TIMEOUT_S
                while not self._opened.exists():
                    assert time.monotonic() < end, "nobody opened the gate"
                    time.sleep(LOOK_AGAIN)
            yield batch

    @property
    def _opened(self) -> Path:
        return self._directory / "open"

    def wait_reached(self, tasks: int) -> None:
        """Waits until so many tasks stand at the gate."""
        eventually(
            lambda: len(list(self._directory.glob("reached-*"))) >= tasks,
            f"{tasks} tasks are at the gate",
            timeout=TIMEOUT_S,
        )

    def open(self) -> None:
        self._opened.touch()


def in_background(action: Callable[[], T]) -> Future[T]:
    """Run it in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(action)
    pool.shutdown(wait=False)
    return future
