"""Futures for a partition's callbacks: the services' side of proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from cluster.consensus.proposals import Abandoned, Applied, Outcome
from cluster.dedup.verdict import Kind
from cluster.errors import NotLeaderError, NotReadyError, ProposalTimeoutError
from cluster.partition.replica import Answer, Partition
from oncelog.errors import StorageFullError

T = TypeVar("T")


def one_answer() -> tuple[asyncio.Future[T], Callable[[T], None]]:
    """Return a future, and the callback that sets it. Its waiter may have given up before."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(answer: T) -> None:
        if not future.done():
            future.set_result(answer)

    return future, done


async def called_back(ask: Callable[[Callable[[T], None]], object]) -> T:
    """Return the value passed to the callback that `ask` receives."""
    future: asyncio.Future[T]
    future, done = one_answer()
    ask(done)
    return await future


def applied(outcome: Outcome) -> Applied:
    """Return the outcome of an applied proposal.

    Raises NotLeaderError for one that never commits, ProposalTimeoutError for one that may.
    """
    if not isinstance(outcome, Abandoned):
        return outcome
    if outcome.lost:
        raise NotLeaderError(outcome.reason, outcome.leader_id)
    raise ProposalTimeoutError(f"{outcome.reason}: the command may be committed yet")


def confirmed(outcome: Outcome) -> None:
    """Return for an applied proposal that changes nothing by itself. Raises NotLeaderError."""
    if isinstance(outcome, Abandoned):
        raise NotLeaderError(outcome.reason, outcome.leader_id)


def unable(answer: Answer) -> Exception:
    """Return the error for a partition that did not propose."""
    verdict = answer.verdict
    match verdict.kind:
        case Kind.NOT_LEADER:
            return NotLeaderError("no longer the leader", answer.leader_id)
        case Kind.STORAGE_FULL:
            return StorageFullError(verdict.message)
    return NotReadyError(verdict.message or "the leader has just begun")


async def confirm(replica: Partition) -> None:
    """Return when this node is sure to lead now. Raises NotLeaderError."""
    confirmed(await called_back(replica.confirm))
