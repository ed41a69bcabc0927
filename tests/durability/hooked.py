"""`python -m cluster` with faults built in, as variables ask for. For tests only.

    ONCELOG_TEST_NO_SYNC=1     the store's sync does nothing: the records lost by a power cut
                               show that the cut is a real one
    ONCELOG_TEST_KILL_AT=N     SIGKILL to itself before the N-th write, sync or rename that
                               our own code makes
    ONCELOG_TEST_PRELOAD=LIB   the same for the system calls of the whole process, RocksDB's
                               included: see crash_points.c, which counts up to
                               ONCELOG_TEST_KILL_AT_CALL below ONCELOG_DATA_DIR

The product has no such settings: all changes here come from outside.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage.commitlog.log import CommitLog
from storage.engine import Engine
from storage.watermark import Watermark

KILLED = "killed at call"


def no_sync() -> None:
    """Makes the disk lie: it says that all is durable at once."""

    def sync(self: CommitLog) -> int:
        return self.end.number

    CommitLog.sync = sync  # type: ignore[method-assign]


def kill_at(number: int) -> None:
    """Counts the calls that change files, over all threads; the N-th does not happen."""
    calls = itertools.count(1)

    def counted(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                os.write(2, f"{KILLED} {number}: {name}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(owner, name, call)

    for owner, name in (
        (Engine, "write"),
        (Engine, "sync"),
        (Watermark, "advance"),
        (os, "fsync"),
        (os, "fdatasync"),
        (os, "ftruncate"),
        (os, "rename"),
        (os, "replace"),
        (os, "write"),
        (os, "pwritev"),
        (Path, "mkdir"),
        (Path, "unlink"),
    ):
        counted(owner, name)


def main() -> int:
    given = os.environ
    library = given.get("ONCELOG_TEST_PRELOAD")
    if library and "LD_PRELOAD" not in given:
        os.environ["LD_PRELOAD"] = library
        os.execv(sys.executable, [sys.executable, "-m", "tests.durability.hooked"])
    if given.get("ONCELOG_TEST_NO_SYNC"):
        no_sync()
    if number := given.get("ONCELOG_TEST_KILL_AT"):
        kill_at(int(number))
    from cluster.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
