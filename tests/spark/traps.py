"""A place in a Spark job where the first process that comes waits for the test.

    trap = Trap(tmp_path / "trap").set()
   query = ...                     # its writer goes through `trap.rows`
   caught = trap.wait_caught()     # a worker has handed on half of its rows, and waits
   os.kill(caught.worker, signal.SIGKILL)      # the fault
   trap.release()

Workers are other processes, often forks of forks, so a trap is a folder. One that nobody
as set lets everybody pass.

    caught      the process: its pid, the pids of its parents; later processes pass
   released    it may go on
   handed_on   it has handed on the rest of its rows
   refused     they were not taken: the writer has failed by then
   finished    after that, it may end
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog import StoredBatch
from tests.integration.waiting import eventually
from tests.spark.copies import TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Caught:
    """A process and its parents, nearest first: Spark's daemon of workers, then a JVM."""

    worker: int
    parents: tuple[int, ...]

    @property
    def daemon(self) -> int:
        return self.parents[0]

    @property
    def java(self) -> int:
        return self.parents[1]


class Trap:
    def __init__(self, directory: Path, partition: int | None = 0) -> None:
        self._directory = directory
        self._partition = partition

    def set(self) -> Trap:
        self._directory.mkdir(parents=True)
        return self

    # --- in the job ------------------------------------------------------------------

    def rows(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Hand on the batches of a task; of the partition's, wait in the middle of the first.

        `partition` None: of any. In a batch as it is stored there is no middle: then behind it.
        """
        for batch in batches:
            if not _is_of(batch, self._partition):
                yield batch
                continue
            first, rest = _halves(batch)
            yield first
            caught = self.reach()
            if rest is None:
                rest = next(batches, None)
            try:
                if rest is not None:
                    yield rest
            except GeneratorExit:
                if caught:
                    self._touch("refused")
                    self._touch("handed_on")
                raise
            if caught:
                self._touch("handed_on")
                self._wait("finished")

    def reach(self) -> bool:
        """The first that comes waits until it is released; tell whether this was it."""
        try:
            file = (self._directory / "caught").open("x")
        except (FileExistsError, FileNotFoundError):
            return False
        # When a JVM dies the kernel wakes up and hangs up its stopped workers; not this process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        parents = [os.getppid()]
        while parents[-1] > 1:
            parents.append(_parent(parents[-1]))
        with file:
            file.write(json.dumps([os.getpid(), parents]) + "\n")
        self._wait("released")
        return True

    def refused_here(self) -> None:
        """The writer has failed; if this process was caught, its rows were not taken."""
        if self.has_caught() and self.wait_caught().worker == os.getpid():
            self._touch("refused")
            self._touch("handed_on")

    def _wait(self, name: str) -> None:
        eventually((self._directory / name).exists, f"{self._directory}: {name}", TIMEOUT_S)

    def _touch(self, name: str) -> None:
        (self._directory / name).touch()

    # --- in the test -----------------------------------------------------------------

    def has_caught(self) -> bool:
        path = self._directory / "caught"
        return path.exists() and path.read_text().endswith("\n")

    def wait_caught(self) -> Caught:
        eventually(self.has_caught, f"somebody comes to {self._directory}", TIMEOUT_S)
        worker, parents = json.loads((self._directory / "caught").read_text())
        return Caught(worker, tuple(parents))

    def release(self, *, finish: bool = True) -> None:
        """Let it go on; without `finish` it does not end before `finish` is called."""
        if finish:
            self.finish()
        self._touch("released")

    def finish(self) -> None:
        self._touch("finished")

    def wait_handed_on(self) -> None:
        self._wait("handed_on")

    def was_refused(self) -> bool:
        return (self._directory / "refused").exists()


def _is_of(batch: Any, partition: int | None) -> bool:
    if isinstance(batch, StoredBatch):
        return batch.partition == partition
    if partition is None:
        return bool(batch.num_rows > 1)
    return bool(batch.num_rows and batch.column("partition")[0].as_py() == partition)


def _halves(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, StoredBatch):
        return batch, None
    half = batch.num_rows // 2
    return batch.slice(0, half), batch.slice(half)


def _parent(pid: int) -> int:
    # "pid (name) state parent ...", and a name may hold anything
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
