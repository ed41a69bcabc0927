"""Time that a group takes to share its partitions, its moves, and its coordinator's work.

    python -m bench.groups --members 100 --partitions 1000

Members are the client's own, without the reading: they join at once, and a tenth of them
leaves at once when all have their share. A move is a partition given to a member.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from harness.local_cluster import LocalCluster
from oncelog import Admin, TopicPartition
from oncelog._engine.consume.fetch_buffer import FetchBuffer
from oncelog._engine.consume.groups import Groups
from oncelog._engine.consume.member import GroupSession
from oncelog._engine.consume.rebalance import Rebalance
from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig

TOPIC, GROUP = "shared", "g"
LOOK_S = 0.01
SETTLED_LIMIT_S = 120.0
T = TypeVar("T")


async def ask(coroutine: Coroutine[Any, Any, T]) -> T:
    return await coroutine


async def tell(callback: Callable[..., Any], *arguments: Any) -> None:
    callback(*arguments)


class Member:
    """Member that gives each revoked partition back at once."""

    def __init__(self, bootstrap: str, moves: Counter[TopicPartition]) -> None:
        config = ConsumerConfig.from_settings(
            {"bootstrap_servers": bootstrap, "group_id": GROUP, "on_assigned": moves.update}
        )
        self._cluster = Cluster(config)
        self._changed = asyncio.Event()
        buffer = FetchBuffer(1, lambda _: None)
        buffer.listener = self._changed.set
        self._member = GroupSession(config, self._cluster, Groups(self._cluster), buffer, [TOPIC])
        self.rebalance = Rebalance(config, buffer, self._member, lambda: None, ask, tell)
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.rebalance.follow()

    async def leave(self) -> None:
        self._task.cancel()
        await self.rebalance.leave(failed=False)
        await self._cluster.close()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def settled(members: list[Member], partitions: int) -> None:
    """Waits until each partition has one owner, and shares differ by at most one partition."""
    async with asyncio.timeout(SETTLED_LIMIT_S):
        while True:
            held = [len(member.rebalance.numbers) for member in members]
            if sum(held) == partitions and max(held) - min(held) <= 1:
                return
            await asyncio.sleep(LOOK_S)


async def measured(
    what: str,
    cluster: LocalCluster,
    moves: Counter[TopicPartition],
    partitions: int,
    change: Callable[[], Awaitable[list[Member]]],
) -> list[Member]:
    before = {node: cpu_s(process.pid) for node, process in cluster.nodes.items()}
    moves.clear()
    start = time.monotonic()
    members = await change()
    await settled(members, partitions)
    seconds = time.monotonic() - start
    busy = max(cpu_s(process.pid) - before[node] for node, process in cluster.nodes.items())
    print(
        f"{what}: {seconds:.2f} s, {sum(moves.values())} moves, "
        f"at most {max(moves.values(), default=0)} of one partition, "
        f"{busy:.2f} s CPU of the busiest node",
        flush=True,
    )
    return members


async def run(cluster: LocalCluster, count: int, partitions: int) -> None:
    moves: Counter[TopicPartition] = Counter()
    members: list[Member] = []

    async def join() -> list[Member]:
        return [*members, *(Member(cluster.bootstrap, moves) for _ in range(count))]

    async def leave() -> list[Member]:
        gone = members[: count // 10]
        await asyncio.gather(*(member.leave() for member in gone))
        return members[count // 10 :]

    members = await measured(f"{count} members join", cluster, moves, partitions, join)
    members = await measured(f"{count // 10} leave", cluster, moves, partitions, leave)
    before = {node: cpu_s(process.pid) for node, process in cluster.nodes.items()}
    await asyncio.sleep(10)
    busy = max(cpu_s(process.pid) - before[node] for node, process in cluster.nodes.items())
    print(f"at rest: {busy / 10:.1%} of a core at the busiest node")
    await asyncio.gather(*(member.leave() for member in members))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root, LocalCluster(Path(root)) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=120_000) as admin:
            admin.create_topic(TOPIC, given.partitions, 1)
        asyncio.run(run(cluster, given.members, given.partitions))


if __name__ == "__main__":
    main()
