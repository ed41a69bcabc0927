"""Cost of the store on this disk: `python bench/storage.py --help`.

Prints one table row for each case. Sections:

    open     memory and time of an empty store, and of one with data
    write    entries of several sizes, synced after each 1, 16 and 256
    read     entries back, from the disk's cache and in bulk
    amplify  bytes written to disk for each byte accepted, with trimming as retention does it

Needs about twice `--mib` of free disk. Every section uses a new store.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":  # run as a file from a checkout, installed or not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from storage.engine import Engine
from storage.offset_index import IndexEntry, OffsetIndex
from storage.options import KIB, MIB, EngineOptions
from storage.raft_log import RaftLogStore

GROUPS = 6


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def disk_written() -> int:
    """Bytes that this process has caused to be written so far."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise AssertionError("no write_bytes in /proc/self/io")


class Log:
    """One group's log with its offset index, appended as a node does."""

    def __init__(self, engine: Engine, group: int) -> None:
        self.engine = engine
        self.store = RaftLogStore(engine, group)
        self.offsets = OffsetIndex(engine, group)
        self.first = self.next = 2

    def append(self, batch: object, data: bytes) -> None:
        self.store.put_entry(batch, self.next, data)  # type: ignore[arg-type]
        row = IndexEntry(self.next, self.next * 64, 64, len(data), 0, 0, 0)
        self.offsets.put(batch, row)  # type: ignore[arg-type]
        self.next += 1

    def trim(self, keep: int) -> None:
        base = self.next - 1 - keep
        if base < self.first:
            return
        batch = self.engine.batch()
        self.store.trim_to(batch, base, 0)
        self.offsets.trim_below(batch, (base + 1) * 64)
        self.engine.write(batch)
        self.first = base + 1


def row(section: str, case: str, **figures: str) -> None:
    values = "  ".join(f"{name} {value}" for name, value in figures.items())
    print(f"{section:8} {case:28} {values}", flush=True)


def bench_open(path: Path, _: int, options: EngineOptions) -> None:
    before = resident_mib()
    started = time.perf_counter()
    engine = Engine.open(path, options=options)
    took = time.perf_counter() - started
    row(
        "open",
        "empty",
        ms=f"{took * 1e3:.1f}",
        rss_of_engine_mib=f"{resident_mib() - before:.1f}",
        rss_mib=f"{resident_mib():.1f}",
    )
    engine.close()


def bench_write(path: Path, mib: int, options: EngineOptions) -> None:
    for size in (100, 1 * KIB, 16 * KIB, 64 * KIB, 1 * MIB):
        for group_size in (1, 16, 256):
            target = path / f"w{size}-{group_size}"
            budget = min(mib, 512) * MIB // 2
            count = max(group_size, min(3000 * group_size, budget // size, 20_000))
            with Engine.open(target, options=options) as engine:
                row(
                    "write",
                    f"{size} B, sync per {group_size}",
                    **_write(engine, size, count, group_size),
                )
            shutil.rmtree(target)


def _write(engine: Engine, size: int, count: int, group_size: int) -> dict[str, str]:
    log = Log(engine, 1)
    payload = os.urandom(size)
    latencies = []
    started = time.perf_counter()
    for _ in range(max(1, count // group_size)):
        begin = time.perf_counter()
        for _ in range(group_size):
            batch = engine.batch()
            log.append(batch, payload)
            engine.write(batch)
        engine.sync()
        latencies.append(time.perf_counter() - begin)
    took = time.perf_counter() - started
    latencies.sort()
    done = log.next - 2
    return {
        "mb_s": f"{done * size / took / 1e6:.1f}",
        "entries_s": f"{done / took:.0f}",
        "p50_ms": f"{latencies[len(latencies) // 2] * 1e3:.2f}",
        "p99_ms": f"{latencies[len(latencies) * 99 // 100] * 1e3:.2f}",
        "rss_mib": f"{resident_mib():.0f}",
    }


def bench_read(path: Path, mib: int, options: EngineOptions) -> None:
    for size in (1 * KIB, 64 * KIB, 1 * MIB):
        target = path / f"r{size}"
        count = max(16, min(mib, 256) * MIB // size // (8 if size == KIB else 1))
        with Engine.open(target, options=options) as engine:
            log = Log(engine, 1)
            for _ in range(count):
                batch = engine.batch()
                log.append(batch, os.urandom(size))
                engine.write(batch)
            engine.sync()
        with Engine.open(target, options=options) as engine:
            store = RaftLogStore(engine, 1)
            at_once = max(1, MIB // size)
            started = time.perf_counter()
            for first in range(2, 2 + count, at_once):
                store.read(first, min(first + at_once - 1, count + 1))
            took = time.perf_counter() - started
            row("read", f"{size} B, {at_once} at once", mb_s=f"{count * size / took / 1e6:.0f}")
        shutil.rmtree(target)


def bench_amplify(path: Path, mib: int, options: EngineOptions) -> None:
    for size, kept_share in ((64 * KIB, 0.1), (64 * KIB, 1.0), (4 * KIB, 0.1), (1 * KIB, 0.1)):
        target = path / f"a{size}-{kept_share}"
        total = mib * MIB if size == 64 * KIB else mib * MIB // 8
        _amplify(target, size, total, kept_share, options)
        shutil.rmtree(target)


def _amplify(path: Path, size: int, total: int, kept_share: float, options: EngineOptions) -> None:
    """Appends round robin to some groups; after each sixteenth, trims all but the share."""
    payload = os.urandom(size)
    count = total // size
    keep = int(count * kept_share) // GROUPS
    before = disk_written()
    started = time.perf_counter()
    with Engine.open(path, options=options) as engine:
        logs = [Log(engine, group) for group in range(GROUPS)]
        for number in range(0, count, 16):
            batch = engine.batch()
            for entry in range(number, number + 16):
                logs[entry % GROUPS].append(batch, payload)
            engine.write(batch)
            engine.sync()
            if number // 16 % max(1, count // 256) == 0:
                for log in logs:
                    log.trim(keep)
        took = time.perf_counter() - started
        resident = resident_mib()
    with Engine.open(path, options=options) as engine:
        left = engine.stats().disk_bytes
        engine.reclaim()
        reclaimed = engine.stats().disk_bytes
    row(
        "amplify",
        f"{size} B, keep {kept_share:.0%} of {total // MIB} MiB",
        written_per_byte=f"{(disk_written() - before) / total:.2f}",
        mb_s=f"{total / took / 1e6:.0f}",
        disk_mib=f"{left / MIB:.0f}",
        after_reclaim_mib=f"{reclaimed / MIB:.0f}",
        rss_mib=f"{resident:.0f}",
    )


SECTIONS: dict[str, Callable[[Path, int, EngineOptions], None]] = {
    "open": bench_open,
    "write": bench_write,
    "read": bench_read,
    "amplify": bench_amplify,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--path", type=Path, help="directory on the disk to measure")
    parser.add_argument("--mib", type=int, default=2048, help="data of the amplify section")
    parser.add_argument("--only", choices=sorted(SECTIONS), action="append")
    arguments = parser.parse_args()
    options = EngineOptions()
    root = Path(tempfile.mkdtemp(prefix="oncelog-bench-", dir=arguments.path))
    try:
        for name, section in SECTIONS.items():
            if not arguments.only or name in arguments.only:
                section(root / name, arguments.mib, options)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
