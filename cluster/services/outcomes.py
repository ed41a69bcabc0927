"""Waiting for what a partition tells a callback: the services' side of proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from cluster.consensus.proposals import Abandoned, Applied, Outcome
from cluster.errors import NotLeaderError

T = TypeVar("T")


class Confirms(Protocol):
    """A replica that can make sure that it leads."""

    def confirm(self, done: Callable[[Outcome], None]) -> None: ...


def one_answer() -> tuple[asyncio.Future[T], Callable[[T], None]]:
    """A future, and the callback that sets it. Who waits may have given up before."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(answer: T) -> None:
        if not future.done():
            future.set_result(answer)

    return future, done


async def told(ask: Callable[[Callable[[T], None]], object]) -> T:
    """What `ask` tells the callback that it is given."""
    future: asyncio.Future[T]
    future, done = one_answer()
    ask(done)
    return await future


def applied(outcome: Outcome) -> Applied:
    """The outcome of a proposal that was applied. Raises NotLeaderError for the other kind."""
    if isinstance(outcome, Abandoned):
        raise NotLeaderError(outcome.reason, outcome.leader_id)
    return outcome


async def confirm(replica: Confirms) -> None:
    """Returns when this node is sure to lead now. Raises NotLeaderError."""
    applied(await told(replica.confirm))
