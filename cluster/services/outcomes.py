"""Waiting for what a partition hands to a callback: the services' side of proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from cluster.consensus.proposals import Abandoned, Applied, Outcome
from cluster.dedup.verdict import Kind
from cluster.errors import NotLeaderError, NotReadyError
from cluster.partition.replica import Answer, Partition
from oncelog.errors import StorageFullError

T = TypeVar("T")


def one_answer() -> tuple[asyncio.Future[T], Callable[[T], None]]:
    """A future, and the callback that sets it. Who waits may have given up before."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(answer: T) -> None:
        if not future.done():
            future.set_result(answer)

    return future, done


async def called_back(ask: Callable[[Callable[[T], None]], object]) -> T:
    """What the callback that `ask` is given is called with."""
    future: asyncio.Future[T]
    future, done = one_answer()
    ask(done)
    return await future


def applied(outcome: Outcome) -> Applied:
    """The outcome of a proposal that was applied. Raises NotLeaderError for the other kind."""
    if isinstance(outcome, Abandoned):
        raise NotLeaderError(outcome.reason, outcome.leader_id)
    return outcome


def unable(answer: Answer) -> Exception:
    """Why a partition did not propose, as the error to raise."""
    verdict = answer.verdict
    match verdict.kind:
        case Kind.NOT_LEADER:
            return NotLeaderError("no longer the leader", answer.leader_id)
        case Kind.STORAGE_FULL:
            return StorageFullError(verdict.message)
    return NotReadyError(verdict.message or "the leader has just begun")


async def confirm(replica: Partition) -> None:
    """Returns when this node is sure to lead now. Raises NotLeaderError."""
    applied(await called_back(replica.confirm))
