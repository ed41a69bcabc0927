"""A leader's answers about a staged sequence while its marker is on the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.consensus.proposals import Applied
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta, ResolutionKind
from cluster.services.log.resolve import Resolver
from cluster.transactions.runs import RunTable
from cluster.transactions.types import Expected, Marker

PRODUCER, TRANSACTION, GROUP = 7, 1, 16


class OnePartition:
    """A leader's state with one batch staged, sequences 0 and 1, under epoch 0."""

    closed, names_index = False, 0

    def __init__(self) -> None:
        self.last_seen = LastSeen()
        self.machine = SimpleNamespace(runs=RunTable())
        held = SimpleNamespace(epoch=1)
        names = SimpleNamespace(applied_index=0, holder=lambda producer_id: held)
        self.policy = SimpleNamespace(names=names)
        self.group = SimpleNamespace(failed=None)
        meta = BatchMeta(PRODUCER, 0, 0, 1, -1, 2, 99)
        self.machine.runs.stage(
            meta, TRANSACTION, self.last_seen,
            index=1, size=10, max_timestamp_us=0, time_ms=1, pin=True,
        )  # fmt: skip

    def lease_verdict(self, producer_id: int, epoch: int) -> None:
        return None

    def confirm(self, done: Any) -> None:
        done(Applied(1, None))

    def mark(self, *expected: Expected) -> None:
        marker = Marker(TRANSACTION, bool(expected), expected, 1, 1)
        self.machine.runs.mark(marker, self.last_seen, index=2, next_offset=0, time_ms=2)


async def resolved(partition: Any, sequence: int) -> ResolutionKind:
    node: Any = SimpleNamespace()
    found = await Resolver(node)._resolve(partition, PRODUCER, 0, sequence)
    return found.resolution


async def test_what_waits_for_a_commits_marker_is_not_never() -> None:
    partition = OnePartition()
    assert await resolved(partition, 1) is ResolutionKind.NOT_YET
    partition.last_seen.open(PRODUCER, 1, 2)
    assert await resolved(partition, 1) is ResolutionKind.NOT_YET, (
        "fenced, and still to be published"
    )
    assert await resolved(partition, 2) is ResolutionKind.NEVER
    partition.mark(Expected(GROUP, PRODUCER, 2, 1))
    assert await resolved(partition, 1) is ResolutionKind.COMMITTED


async def test_what_was_dropped_is_never() -> None:
    partition = OnePartition()
    partition.last_seen.open(PRODUCER, 1, 2)
    partition.mark()
    assert await resolved(partition, 1) is ResolutionKind.NEVER
