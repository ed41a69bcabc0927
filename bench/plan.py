"""Plan of the measurements: sections, cases and scales."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024

#: Sections in the order in which they run; `--only` takes their names.
SHARED = ("produce", "bytes", "latency", "consume", "producers", "kafka")
OWN = ("idempotence", "failover", "partitions", "restart")
SECTIONS = ("client", *SHARED, *OWN, "path", "pids")
PEERS = ("kafka", "nats", "rabbitmq")

PRODUCE_CASES = tuple((size, count) for size in (100, 1024) for count in (1, 6))
BYTES_CASES = (64 * KIB, MIB)
CONSUME = "1 KiB records, 1 partition"
#: Producers with one small record in flight in each, and the number of their processes.
MANY_CASES = ((64, 1), (64, 8), (8, 8), (1000, 1))
SINGLE, HALF = "one record at a time", "at half of its maximum"


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of every measurement. Times in seconds."""

    limits_s: float
    seconds: float  # of each throughput measurement
    warm_up_s: float
    latency_s: float
    consume_mb: int
    rounds: int  # of few partitions against many
    on_off_rounds: int  # of idempotence on against off
    kills: int
    partitions: int
    idle_s: float
    restart_mb: int
    pids: int
    path_records: int
    system_s: float  # a system's variant is ended after this time
    own_s: float  # limit of Oncelog's part
    peer_s: float  # added to that by each variant of a peer


FULL = Scale(
    limits_s=1.0,
    seconds=4.0,
    warm_up_s=3.0,
    latency_s=6.0,
    consume_mb=1000,
    rounds=3,
    on_off_rounds=6,
    kills=30,
    partitions=1000,
    idle_s=10.0,
    restart_mb=10_000,
    pids=1_000_000,
    path_records=1_000,
    system_s=240.0,
    own_s=720.0,
    peer_s=155.0,
)
QUICK = Scale(
    limits_s=0.5,
    seconds=1.5,
    warm_up_s=1.0,
    latency_s=2.0,
    consume_mb=200,
    rounds=1,
    on_off_rounds=1,
    kills=3,
    partitions=300,
    idle_s=3.0,
    restart_mb=500,
    pids=100_000,
    path_records=300,
    system_s=130.0,
    own_s=170.0,
    peer_s=90.0,
)


def produce_case(size: int, count: int) -> str:
    return f"{_size(size)}, {count} partition{'s' if count > 1 else ''}"


def bytes_case(size: int) -> str:
    return f"batches of {_size(size)}"


def many_case(count: int, processes: int = 1, depth: int = 1) -> str:
    where = f"{processes} processes" if processes > 1 else "one process"
    deep = f", {depth} under way in each" if depth > 1 else ""
    return f"{count:,} in {where}{deep}"


def partitions_case(count: int, what: str) -> str:
    return f"{count:,} partitions: {what}"


def restart_case(megabytes: int, what: str) -> str:
    return f"{megabytes / 1000:g} GB: {what}"


def pids_case(count: int) -> str:
    return f"{count:,} producers in a partition"


def _size(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def names(text: str, known: Sequence[str]) -> list[str]:
    """Splits a list with commas. Raises argparse.ArgumentTypeError for an unknown name."""
    found = [name for name in text.split(",") if name]
    for name in found:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return found
