"""A machine's second process: rates and processor time of two processes against one.

    python -m bench.machines [--turns N] [--seconds S] [--producers N]

One machine with two processes, topics with one replica, records of 100 B with one under way in
each producer. A cheap client (clients/cheap_producers.py) runs in this process, so on the same
cores. The cases take turns, and their order rotates:

    one     N producers at the first process, none at the second
    both    N producers at each
    spread  N producers in all, half of them at each

Printed are medians over the turns, and ratios within a turn: `both` to `one` in records/s says
what the second process is worth; in processor time of a record, what it costs. Processor time
of other programs falsifies rates, hardly processor times: trust the turns with little of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.clients.cheap_producers import CheapProducers
from bench.processes import usage
from bench.systems.face import SMALL
from harness.arguments import number
from harness.local_cluster import LocalCluster

TOPIC, PARTITIONS = "small", 12
CASES = ("one", "both", "spread")
WARM_UP = 0.1  # of a turn's seconds
CALM = 0.4  # cores that others may use in a turn that counts as calm
GOALS = {"both": (1.5, 1.05), "spread": (0.0, 1.05)}  # least rate, most processor time


@dataclass(frozen=True, slots=True)
class Turn:
    """A case's figures in one turn. Times in processor seconds."""

    records: int
    seconds: float
    nodes_s: float
    client_s: float
    others_s: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cost(self) -> float:
        """Processor time of the nodes for a record, in us."""
        return 1e6 * self.nodes_s / self.records

    @property
    def others(self) -> float:
        """Cores that other programs used."""
        return self.others_s / self.seconds


async def measure(
    cluster: LocalCluster, nodes: Sequence[int], turns: int, seconds: float, producers: int
) -> dict[str, list[Turn]]:
    """Measures case -> a figure of each turn. nodes: two that lead partitions of TOPIC."""
    leaders = [cluster.leader(TOPIC, partition) for partition in range(PARTITIONS)]
    found: dict[str, list[Turn]] = {case: [] for case in CASES}
    async with AsyncExitStack() as stack:
        clients = []
        for node in nodes:
            led = [partition for partition, leader in enumerate(leaders) if leader == node]
            one = CheapProducers(cluster.addresses[node], TOPIC, led, SMALL)
            stack.push_async_callback(one.close)
            await one.lease(producers)
            clients.append(one)
        pids = [process.pid for process in cluster.nodes.values()]
        for turn in range(turns):
            for place in range(len(CASES)):
                case = CASES[(turn + place) % len(CASES)]
                await _run(case, clients, producers, WARM_UP * seconds, pids)
                found[case].append(await _run(case, clients, producers, seconds, pids))
    return found


async def _run(
    case: str,
    clients: Sequence[CheapProducers],
    producers: int,
    seconds: float,
    pids: Sequence[int],
) -> Turn:
    each = producers // 2 if case == "spread" else producers
    loaded = clients[:1] if case == "one" else clients
    nodes, client, busy = usage(pids).cpu_s, _own_seconds(), _busy_seconds()
    began = time.monotonic()
    done = await asyncio.gather(*(one.run(each, began + seconds) for one in loaded))
    took = time.monotonic() - began
    nodes, client = usage(pids).cpu_s - nodes, _own_seconds() - client
    others = max(0.0, _busy_seconds() - busy - nodes - client)
    return Turn(sum(done), took, nodes, client, others)


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _busy_seconds() -> float:
    """Processor time of all programs of this machine since its start."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def lines(found: dict[str, list[Turn]]) -> list[str]:
    """Returns the report."""
    said = []
    for case, turns in found.items():
        rate, cost, others = (
            statistics.median(getattr(turn, name) for turn in turns)
            for name in ("rate", "cost", "others")
        )
        client = statistics.median(1e6 * turn.client_s / turn.records for turn in turns)
        said.append(
            f"{case:7} {rate:8,.0f} records/s, nodes {cost:5.0f} us a record, "
            f"client {client:4.0f} us, others {others:4.2f} cores"
        )
    for case, (least, most) in GOALS.items():
        pairs = list(zip(found[case], found["one"], strict=True))
        calm = [pair for pair in pairs if all(turn.others < CALM for turn in pair)]
        for name, chosen in (("all", pairs), ("calm", calm)):
            if not chosen:
                said.append(f"{case} to one, {name} turns: none")
                continue
            rates = [mine.rate / theirs.rate for mine, theirs in chosen]
            costs = [mine.cost / theirs.cost for mine, theirs in chosen]
            goal = f", goal {least} at least" if least else ""
            said.append(
                f"{case} to one, {name} turns ({len(chosen)}): rate {_spread(rates)}{goal}; "
                f"processor time of a record {_spread(costs)}, goal {most} at most"
            )
    return said


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"


def prepare(cluster: LocalCluster) -> None:
    """Makes the topic, with one replica of each partition."""
    cluster.api(cluster.running[0]).create_topic(TOPIC, PARTITIONS, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=number(int, 1), default=8)
    parser.add_argument("--seconds", type=number(float, 0.1), default=4.0, help="of each case")
    parser.add_argument("--producers", type=number(int, 2), default=1000, help="at a process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as root:
        with LocalCluster(Path(root) / "machine", 1, settings={}, processes=2) as cluster:
            prepare(cluster)
            work = (list(cluster.nodes), options.turns, options.seconds, options.producers)
            print("\n".join(lines(asyncio.run(measure(cluster, *work)))))


if __name__ == "__main__":
    main()
