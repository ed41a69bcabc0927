"""`python -m cluster` on a machine whose disk or clock is sick, as `sick.Sickness` says.

    ONCELOG_TEST_PRELOAD=LIB      the library before the system's calls: sick_calls.c
    ONCELOG_TEST_CONTROL=FILE     the numbers that the harness sets while the node runs
    ONCELOG_TEST_OFF=NAME         a protection of the product that is taken out, so that the
                                  fault is seen to be one: `clock` or `eio`

The product has no such settings: all changes here come from outside.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path

from cluster.node.health.clock_agreement import ClockAgreement
from storage.system import System

NUMBERS = struct.Struct("=6q")


def shift_clock(control: Path) -> None:
    """Shifts the wall clock by the milliseconds in the file."""
    with control.open("rb") as file:
        shared = mmap.mmap(file.fileno(), NUMBERS.size, access=mmap.ACCESS_READ)
    right = time.time_ns
    time.time_ns = lambda: right() + 1_000_000 * NUMBERS.unpack_from(shared)[0]


def believe_own_clock() -> None:
    def believing(self: ClockAgreement, own_ms: float) -> None:
        self._checked_ms, self.agreed = own_ms, True

    ClockAgreement._check = believing  # type: ignore[method-assign]


def ignore_failed_syncs() -> None:
    def sync(self: System, descriptor: int) -> None:
        try:
            os.fdatasync(descriptor)
        except OSError:
            return

    System.fdatasync = System.fsync = sync  # type: ignore[method-assign]


PROTECTIONS = {"clock": believe_own_clock, "eio": ignore_failed_syncs}


def main() -> int:
    given = os.environ
    if "LD_PRELOAD" not in given:
        os.environ["LD_PRELOAD"] = given["ONCELOG_TEST_PRELOAD"]
        os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.sick_node"])
    shift_clock(Path(given["ONCELOG_TEST_CONTROL"]))
    if off := given.get("ONCELOG_TEST_OFF"):
        PROTECTIONS[off]()
    from cluster.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
