"""What a consumer does when its partitions change: on its own thread, between two records.

    GroupMember --Change--> fetch_buffer --interruption--> Rebalance --> on_lost, on_revoked,
    Owned, commits <-- GroupMember <-- the engine's thread <-'           on_assigned

The same for threads and for asyncio: how the engine is asked, and how the user is told, is
passed in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from oncelog import errors
from oncelog._engine.consume.fetch_buffer import FetchBuffer
from oncelog._engine.consume.member import Change, GroupMember
from oncelog.config import ConsumerConfig
from oncelog.types import OffsetCommit, TopicPartition

log = logging.getLogger("oncelog.consumer")

T = TypeVar("T")


class Ask(Protocol):
    """Runs a coroutine on the engine's loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]: ...


Tell = Callable[..., Awaitable[None]]  # a callback of the user, and its arguments


class Rebalance:
    """The partitions of one member, as its user knows them."""

    def __init__(
        self,
        config: ConsumerConfig,
        buffer: FetchBuffer,
        member: GroupMember,
        wake_fetcher: Callable[[], None],
        ask: Ask,
        tell: Tell,
    ) -> None:
        self._config, self._buffer, self._member = config, buffer, member
        self._wake_fetcher, self._ask, self._tell = wake_fetcher, ask, tell
        # Under which ownership the records of each partition are being read.
        self.numbers: dict[TopicPartition, int] = {}
        self.count = 0
        self._stored: dict[TopicPartition, int] = {}  # by commits of this class
        self._commit_at = time.monotonic() + config.auto_commit_interval_ms / 1000

    @property
    def is_due(self) -> bool:
        """Whether there is something to follow."""
        return bool(self._buffer.interruptions) or (
            self._config.enable_auto_commit and time.monotonic() >= self._commit_at
        )

    async def follow(self) -> None:
        """Does all that is due. Raises what callbacks raise, and what ended the membership."""
        while self._buffer.interruptions:
            await self._take(self._buffer.interruptions.popleft())
        if self._member.error is not None:
            raise self._member.error
        if self._config.enable_auto_commit and time.monotonic() >= self._commit_at:
            await self._commit(list(self.numbers))

    async def leave(self, failed: bool) -> None:
        """The consumer closes. `failed`: what was given out last may not have been worked on."""
        tps = list(self.numbers)
        try:
            if not failed:
                await self._finish(tps, time.monotonic() + self._config.revoke_timeout_ms / 1000)
            elif tps:
                await self._call(self._config.on_lost, tps)
        finally:
            self._drop(tps)
            await self._ask(self._member.leave())

    # --- parts -----------------------------------------------------------------------------

    async def _take(self, change: Change) -> None:
        """All of it, even if a callback raises."""
        self.count += any(change.step)
        try:
            await self._lose(change)
        finally:
            try:
                if change.step.revoked:
                    await self._give_back(change)
            finally:
                if change.step.assigned:
                    await self._gain(change)

    async def _lose(self, change: Change) -> None:
        lost = [tp for tp in change.step.lost if tp in self.numbers]
        self._drop(lost)
        try:
            if lost:
                await self._call(self._config.on_lost, lost)
        finally:
            if change.ended:
                await self._ask(self._member.come_back())

    async def _give_back(self, change: Change) -> None:
        asked = await self._ask(self._member.asked_back(change))
        known = [tp for tp in asked if tp in self.numbers]
        kept: list[TopicPartition] = asked
        try:
            await self._finish(known, change.deadline)
        finally:
            kept = await self._ask(self._member.release(change, asked))
            self._drop([tp for tp in known if tp not in kept])
        again = [tp for tp in known if tp in kept]
        if again:
            # A new connection has begun meanwhile, and said that they are held.
            await self._call(self._config.on_assigned, again)

    async def _gain(self, change: Change) -> None:
        new = await self._ask(self._member.still_owned(change.step.assigned))
        if not new:
            return
        self.numbers |= new
        self._buffer.assign([*self._buffer.assignment(), *new])
        self._wake_fetcher()
        await self._call(self._config.on_assigned, sorted(new))

    async def _finish(self, tps: list[TopicPartition], deadline: float) -> None:
        """What was given out is worked on and committed, even if the callback raises."""
        if not tps:
            return
        on_revoked = self._config.on_revoked
        try:
            if on_revoked is not None:
                await self._tell(on_revoked, sorted(tps), deadline)
        finally:
            if self._config.enable_auto_commit:
                await self._commit(tps)

    async def _commit(self, tps: Iterable[TopicPartition]) -> None:
        """The user's places, as far as they have moved."""
        self._commit_at = time.monotonic() + self._config.auto_commit_interval_ms / 1000
        places = {tp: self._buffer.position(tp) for tp in tps}
        moved = {
            tp: OffsetCommit(at)
            for tp, at in places.items()
            if at is not None and at != self._stored.get(tp)
        }
        if not moved:
            return
        numbers = {tp: self.numbers[tp] for tp in moved}
        try:
            await self._ask(self._member.commit(moved, numbers))
        except (errors.RetriableError, errors.FencedMemberError) as error:
            log.warning("group %s: automatic commit: %s", self._member.group, error)
        else:
            self._stored |= {tp: one.offset for tp, one in moved.items()}

    def _drop(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self.numbers.pop(tp, None)
            self._stored.pop(tp, None)
        gone = set(tps)
        if gone:
            self._buffer.assign([tp for tp in self._buffer.assignment() if tp not in gone])

    async def _call(
        self, callback: Callable[[list[TopicPartition]], Any] | None, tps: list[TopicPartition]
    ) -> None:
        if callback is not None:
            await self._tell(callback, tps)


def at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what waits for nothing, because its `ask` and `tell` return at once."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something else")


__all__ = ["Ask", "Rebalance", "Tell", "at_once"]
