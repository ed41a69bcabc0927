"""First figures of a three-node cluster on this machine, each beside the machine's own limit.

    python -m bench.cluster [--seconds 5] [--kills 10] [--json FILE]

Starts three nodes with their default settings, in a temporary directory, and
measures with the Python client, idempotence on, acks from a quorum's fsync:

    echo      a gRPC server in another process that sends nothing back: MB/s by message size
    fdatasync of a 4 KiB write: ms
    produce   batches of one size to one partition, many in flight: MB/s
    latency   one record at a time, linger 0: ms
    failover  SIGKILL of the leader to the next acknowledgement: s
    memory    RSS of an empty node: MB

Timings on a shared machine are noisy: read the ratios, not the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from oncelog import Admin, Producer
from tests.harness.local_cluster import LocalCluster

RECORD_BYTES = 1024
SIZES = (64 * 1024, 1024 * 1024)
IN_FLIGHT = 64  # batches of a partition; the default of 5 is Kafka's and waits for round trips
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
ECHO = "/bench.Echo/Take"


def _same(data: bytes) -> bytes:
    return data


def serve_echo() -> None:
    """Takes streams of bytes and counts them, until standard input ends."""

    def take(requests: Any, context: Any) -> bytes:
        return str(sum(len(request) for request in requests)).encode()

    server = grpc.server(ThreadPoolExecutor(2), options=UNLIMITED)
    handler = grpc.stream_unary_rpc_method_handler(take, _same, _same)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Echo", {"Take": handler}),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


def echo(size: int, seconds: float) -> float:
    """MB/s of one gRPC stream to another process."""
    command = [sys.executable, "-m", "bench.cluster", "--serve-echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdin is not None
        port = int(server.stdout.readline())
        message, until = b"x" * size, time.monotonic() + seconds

        def messages() -> Any:
            while time.monotonic() < until:
                yield message

        with grpc.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
            started = time.monotonic()
            taken = int(channel.stream_unary(ECHO, _same, _same)(messages()))
            speed = taken / (time.monotonic() - started) / 1e6
        server.stdin.close()
    return speed


def fdatasync(directory: Path, rounds: int = 200) -> float:
    """Median of a 4 KiB write with fdatasync, ms."""
    times = []
    with (directory / "fdatasync").open("wb", buffering=0) as file:
        for _ in range(rounds):
            started = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def produce(bootstrap: str, topic: str, size: int, seconds: float) -> float:
    """MB/s of acknowledged payload in batches of `size` bytes."""
    count = size // RECORD_BYTES
    batch = [b"x" * (RECORD_BYTES - 16)] * count
    waiting: deque[Future[Any]] = deque()
    acknowledged = 0
    with Producer(bootstrap, max_in_flight=IN_FLIGHT) as producer:
        producer.send_batch(topic, 0, batch).result()
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            waiting.append(producer.send_batch(topic, 0, batch))
            if len(waiting) * size > 16 * 1024 * 1024:
                waiting.popleft().result()
                acknowledged += 1
        for future in waiting:
            future.result()
            acknowledged += 1
        return acknowledged * count * (RECORD_BYTES - 16) / (time.monotonic() - started) / 1e6


def latency(bootstrap: str, topic: str, rounds: int = 500) -> tuple[float, float]:
    """(p50, p99) of one 100-byte record at a time, ms."""
    times = []
    with Producer(bootstrap, linger_ms=0) as producer:
        for _ in range(rounds):
            started = time.perf_counter()
            producer.send(topic, b"x" * 100, partition=0).result()
            times.append((time.perf_counter() - started) * 1e3)
    times.sort()
    return times[rounds // 2], times[rounds * 99 // 100]


def failover(cluster: LocalCluster, topic: str, kills: int) -> list[float]:
    """Seconds from each SIGKILL of the leader to the next acknowledgement."""
    times = []
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for _ in range(kills):
            producer.send(topic, b"before", partition=0).result()
            leader = cluster.leader(topic, 0)
            cluster.kill([leader])
            started = time.monotonic()
            producer.send(topic, b"after", partition=0).result()
            times.append(time.monotonic() - started)
            cluster.start_nodes([leader])
            cluster.wait_level(topic)
    return times


def resident(pid: int) -> float:
    """MB of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(seconds: float, kills: int) -> list[tuple[str, float, str]]:
    rows: list[tuple[str, float, str]] = []

    def note(name: str, value: float, unit: str) -> None:
        rows.append((name, value, unit))
        print(f"{name:44} {value:10.2f} {unit}", flush=True)

    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as path:
        directory = Path(path)
        note("fdatasync of 4 KiB, median", fdatasync(directory), "ms")
        limits = {size: echo(size, min(seconds, 3)) for size in SIZES}
        for size, speed in limits.items():
            note(f"gRPC stream to one process, {size // 1024} KiB", speed, "MB/s")
        with LocalCluster(directory / "cluster", settings={}) as cluster:
            pids = [process.pid for process in cluster.nodes.values()]
            note("memory of an empty node, largest", max(map(resident, pids)), "MB")
            with Admin(cluster.bootstrap) as admin:
                admin.create_topic("bench", partitions=1, replicas=3)
            for size in SIZES:
                speed = produce(cluster.bootstrap, "bench", size, seconds)
                note(f"produce, 1 partition, {size // 1024} KiB batches", speed, "MB/s")
                note("  share of the gRPC stream", speed / limits[size] * 100, "%")
            p50, p99 = latency(cluster.bootstrap, "bench")
            note("one record at a time, p50", p50, "ms")
            note("one record at a time, p99", p99, "ms")
            if kills:
                times = failover(cluster, "bench", kills)
                note(f"SIGKILL to next ack, median of {kills}", statistics.median(times), "s")
                note(f"SIGKILL to next ack, worst of {kills}", max(times), "s")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each throughput run")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write JSON lines there")
    parser.add_argument("--serve-echo", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_echo:
        serve_echo()
        return 0
    rows = measure(options.seconds, options.kills)
    if options.json:
        lines = [json.dumps({"name": n.strip(), "value": v, "unit": u}) for n, v, u in rows]
        options.json.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
