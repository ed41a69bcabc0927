"""Machine's own limits: measurements are compared with them.

    python -m bench.limits --directory DIR [--seconds 1]

Prints one JSON object. All limits are between this process and one other on loopback, with
Python's grpc.aio on both sides and the sizes of the measurements:

    stream_SIZE_mb_per_s, stream_SIZE_per_s   one stream into a server that only counts
    give_SIZE_mb_per_s                        one stream out of a server
    round_trip_p50_ms, round_trip_p99_ms      100 B there and back on an open stream
    fdatasync_p50_ms, fdatasync_p99_ms        append of 4 KiB, then fdatasync
    steady_sync_p50_ms, _p99_ms, _max_ms      three files, to each of which 256 KiB are appended
                                              with fdatasync 150 times a second, as three nodes do
    memcpy_gb_per_s                           copy of 64 MiB
    write_mb_per_s                            sequential file, fdatasync at the end
    floor_ms                                  two round trips and one fdatasync: the least
                                              that one replicated, synced record can take
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bench.echo import SERVICE, UNLIMITED
from bench.figures import percentiles

KIB, MIB = 1024, 1024 * 1024
SIZES = {"100B": 100, "1KiB": KIB, "64KiB": 64 * KIB, "1MiB": MIB}
ROUND_TRIPS = 3000
STEADY_FILES, STEADY_BYTES, STEADY_PER_S = 3, 256 * KIB, 150
# A limit is the best of some tries: other work on the machine only lowers it.
TRIES = 3


def _same(data: bytes) -> bytes:
    return data


async def _stream(channel: grpc.aio.Channel, size: int, seconds: float) -> tuple[float, float]:
    """(messages/s, MB/s) into the server."""
    message, until = b"x" * size, time.monotonic() + seconds

    async def messages() -> AsyncIterator[bytes]:
        while time.monotonic() < until:
            yield message

    started = time.monotonic()
    call = channel.stream_unary(f"/{SERVICE}/Take", _same, _same)
    taken = int(await call(messages()))
    spent = time.monotonic() - started
    return taken / size / spent, taken / spent / 1e6


async def _give(channel: grpc.aio.Channel, size: int, seconds: float, expected: float) -> float:
    """MB/s out of the server, of about as many messages as fit into the time."""
    count = max(1, int(expected * 1e6 * seconds / size))
    started = time.monotonic()
    call: Any = channel.unary_stream(f"/{SERVICE}/Give", _same, _same)
    async for _ in call(f"{size} {count}".encode()):
        pass
    return count * size / (time.monotonic() - started) / 1e6


async def _round_trips(channel: grpc.aio.Channel) -> list[float]:
    """Milliseconds of each round trip."""
    call: Any = channel.stream_stream(f"/{SERVICE}/Echo", _same, _same)()
    times, message = [], b"x" * 100
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        await call.write(message)
        await call.read()
        times.append((time.perf_counter() - started) * 1e3)
    await call.done_writing()
    return times[ROUND_TRIPS // 10 :]


def _prefixed(name: str, times: list[float]) -> dict[str, float]:
    found = percentiles(times)
    return {f"{name}_{which}": found[which] for which in ("p50_ms", "p99_ms")}


async def grpc_limits(port: int, seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
        await channel.channel_ready()
        for name, size in SIZES.items():
            tries = [await _stream(channel, size, seconds / TRIES) for _ in range(TRIES)]
            per_s, mb_per_s = max(tries)
            found |= {f"stream_{name}_per_s": per_s, f"stream_{name}_mb_per_s": mb_per_s}
        for name in ("64KiB", "1MiB"):
            expected = found[f"stream_{name}_mb_per_s"]
            found[f"give_{name}_mb_per_s"] = max(
                [await _give(channel, SIZES[name], seconds / TRIES, expected) for _ in range(TRIES)]
            )
        found |= _prefixed("round_trip", await _round_trips(channel))
    return found


def _append_synced(file: FileIO, data: bytes) -> float:
    """Appends and syncs; returns milliseconds."""

    def append() -> None:
        file.write(data)
        os.fdatasync(file.fileno())

    return _timed(append) * 1e3


def disk_limits(directory: Path, quick: bool) -> dict[str, float]:
    path = directory / "limits"
    with path.open("wb", buffering=0) as file:
        times = [_append_synced(file, b"x" * 4096) for _ in range(300)]
    count = 128 if quick else 512
    block = os.urandom(MIB)
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(block)
        os.fdatasync(file.fileno())
        spent = time.perf_counter() - started
    path.unlink()
    return {**_prefixed("fdatasync", times), "write_mb_per_s": count * MIB / spent / 1e6}


def steady_limit(directory: Path, seconds: float) -> dict[str, float]:
    """Bound of any tail latency, at a load that does not fill the disk's time."""

    def append(number: int) -> list[float]:
        path, times = directory / f"steady-{number}", []
        data = os.urandom(STEADY_BYTES)
        with path.open("wb", buffering=0) as file:
            begin = time.perf_counter()
            for turn in range(int(seconds * STEADY_PER_S)):
                due = begin + turn / STEADY_PER_S
                time.sleep(max(0.0, due - time.perf_counter()))  # a rate is a matter of time
                times.append(_append_synced(file, data))
        path.unlink()
        return times

    with ThreadPoolExecutor(STEADY_FILES) as pool:
        times = [one for each in pool.map(append, range(STEADY_FILES)) for one in each]
    return {**_prefixed("steady_sync", times), "steady_sync_max_ms": max(times)}


def memory_limit(rounds: int = 9) -> dict[str, float]:
    source, target = bytearray(64 * MIB), bytearray(64 * MIB)

    def copy() -> None:
        target[:] = source

    times = [_timed(copy) for _ in range(rounds)]
    return {"memcpy_gb_per_s": 64 * MIB / statistics.median(times) / 1e9}


def _timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(directory: Path, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.echo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            found = asyncio.run(grpc_limits(port, seconds))
        finally:
            server.kill()
    found |= disk_limits(directory, quick=seconds < 1)
    found |= steady_limit(directory, 6 * seconds)
    found |= memory_limit()
    found["floor_ms"] = 2 * found["round_trip_p50_ms"] + found["fdatasync_p50_ms"]
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="The machine's own limits, as JSON.")
    parser.add_argument("--directory", type=Path, required=True, help="on the disk to measure")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each stream")
    options = parser.parse_args()
    print(json.dumps(measure(options.directory, options.seconds)))


if __name__ == "__main__":
    main()
