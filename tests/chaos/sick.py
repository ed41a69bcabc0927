"""Disks and clocks that fall ill while their node runs.

    Sickness --numbers in a file--> sick_calls.c (the disk), sick_node.py (the clock)
    sick_calls.c --pages of a failed sync--> Sickness.take_lost_pages, once the node has ended

Neither root nor a kernel module is needed, only a C compiler: libfaketime would move the
timers of gRPC too, and an error injected by the device mapper needs one that has it.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from tests.chaos.sick_node import NUMBERS

SOURCE = Path(__file__).with_name("sick_calls.c")
MODULE = "tests.chaos.sick_node"
_CLOCK, _DELAY, _HOLD, _FAIL, _FAILED, _LIE = range(6)


class Sickness:
    """Faults of one node's machine."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._dropped = control.with_name(control.name + ".dropped")

    def set_clock(self, ahead_ms: int) -> None:
        self._set(_CLOCK, ahead_ms)

    def slow_syncs(self, milliseconds: int) -> None:
        self._set(_DELAY, milliseconds)

    def hold_syncs(self, *, held: bool) -> None:
        """Holds all syncs until it is set to False."""
        self._set(_HOLD, int(held))

    def fail_syncs(self, count: int) -> None:
        """Fails so many of the next syncs with EIO."""
        self._set(_FAIL, count)

    def lie_in_syncs(self) -> None:
        """Makes syncs report success while nothing is on the disk."""
        self._set(_LIE, 1)

    @property
    def failed_syncs(self) -> int:
        return self._get(_FAILED)

    def heal(self) -> None:
        for number in (_CLOCK, _DELAY, _HOLD, _FAIL, _LIE):
            self._set(number, 0)

    def take_lost_pages(self) -> int:
        """Drops unsynced pages once nobody holds the files any more; returns their bytes."""
        lost = 0
        lines = self._dropped.read_text().splitlines() if self._dropped.exists() else []
        for line in lines:
            first, end, name = line.split(" ", 2)
            lost += _take(Path(name), int(first), int(end))
        self._dropped.unlink(missing_ok=True)
        return lost

    def _set(self, number: int, value: int) -> None:
        with self._control.open("r+b") as file:
            file.seek(8 * number)
            file.write(value.to_bytes(8, "little", signed=True))

    def _get(self, number: int) -> int:
        return int(NUMBERS.unpack(self._control.read_bytes())[number])


def _take(path: Path, first: int, end: int) -> int:
    """Drops pages as if never written: the file ends before them, or they are zeros."""
    if not path.exists():
        return 0
    size = path.stat().st_size
    if end >= size:
        with path.open("r+b") as file:
            file.truncate(min(first, size))
        return max(0, size - first)
    with path.open("r+b") as file:
        file.seek(first)
        file.write(bytes(end - first))
    return end - first


def prepare(cluster: LocalCluster, *, off: str = "") -> None:
    """Lets the nodes' machines fall ill from their next start. Raises HarnessError.

    off: a protection of the nodes that is taken out, see `sick_node`.
    """
    if missing():
        raise HarnessError(missing())
    cluster.root.mkdir(parents=True, exist_ok=True)
    library = cluster.root / "sick_calls.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"{' '.join(words)}: {done.stderr}")
    for node, process in cluster.nodes.items():
        assert not process.running
        control = cluster.root / f"node{node}.control"
        control.write_bytes(bytes(NUMBERS.size))
        settings = {
            **process.spec.settings,
            "test_preload": str(library),
            "test_control": str(control),
            "test_off": off,
        }
        process.spec = replace(process.spec, settings=settings, module=MODULE)


def is_prepared(cluster: LocalCluster) -> bool:
    return all(process.spec.module == MODULE for process in cluster.nodes.values())


def machine(cluster: LocalCluster, node: int) -> Sickness:
    """Machine of a node that was prepared."""
    return Sickness(Path(str(cluster.nodes[node].spec.settings["test_control"])))


@functools.cache
def missing() -> str:
    """Names the reason why machines cannot fall ill here; empty if they can."""
    return "" if shutil.which("cc") else "sick disks and clocks need a C compiler (cc)"
