"""Partition changes of a consumer: runs on its own thread, between two records.

    GroupSession --MembershipChange--> fetch_buffer --interruption--> Rebalance --> on_lost,
    Owned, commits <-- GroupSession <-- the engine's thread <-'           on_revoked, on_assigned

Threads and asyncio share this class: the calls to the engine and to the user's callbacks are passed
in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from oncelog import errors
from oncelog._engine.consume.fetch_buffer import FetchBuffer
from oncelog._engine.consume.member import GroupSession, MembershipChange
from oncelog._engine.net import runtime
from oncelog.config import ConsumerConfig
from oncelog.types import OffsetCommit, TopicPartition

log = logging.getLogger("oncelog.consumer")

T = TypeVar("T")


class Ask(Protocol):
    """Runs a coroutine on the engine's loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]: ...


Tell = Callable[..., Awaitable[None]]  # a callback of the user, and its arguments


class Rebalance:
    """Partitions of one member, as its user knows them."""

    def __init__(
        self,
        config: ConsumerConfig,
        buffer: FetchBuffer,
        member: GroupSession,
        wake_fetcher: Callable[[], None],
        ask: Ask,
        tell: Tell,
    ) -> None:
        self._config = config
        self._buffer = buffer
        self._member = member
        self._wake_fetcher = wake_fetcher
        self._ask = ask
        self._tell = tell
        # Ownership number under which each partition's records are being read.
        self.numbers: dict[TopicPartition, int] = {}
        self.count = 0
        self._is_following = False
        self._stored: dict[TopicPartition, int] = {}  # by commits of this class
        self._commit_at = time.monotonic() + config.auto_commit_interval_ms / 1000

    @property
    def is_due(self) -> bool:
        """True if there are changes to follow."""
        return bool(self._buffer.interruptions) or (
            self._config.enable_auto_commit and time.monotonic() >= self._commit_at
        )

    async def follow(self) -> None:
        """Follow all changes. Raises errors of callbacks, and the end of the membership."""
        if self._is_following:
            text = "records are asked for while on_assigned, on_revoked or on_lost is called"
            raise errors.InvalidRequestError(text, field="partitions")
        try:
            self._is_following = True
            while self._buffer.interruptions:
                await self._follow(self._buffer.interruptions[0])
        finally:
            self._is_following = False
        if self._member.error is not None:
            raise self._member.error
        if self._config.enable_auto_commit and time.monotonic() >= self._commit_at:
            await self._commit(list(self.numbers))

    async def _follow(self, change: MembershipChange) -> None:
        """Apply a change, then remove it: an interrupted one is there for the next call."""
        try:
            await self._take(change)
        except Exception:
            self._buffer.interruptions.popleft()
            raise
        self._buffer.interruptions.popleft()
        self.count += any(change.step)

    async def leave(self, failed: bool) -> None:
        """Give all partitions up. `failed`: the last records may be unprocessed."""
        tps = list(self.numbers)
        try:
            if not failed:
                deadline = time.monotonic() + self._config.revoke_timeout_ms / 1000
                error = await self._finish(tps, deadline)
            else:
                error = await self._call(self._config.on_lost, tps)
        finally:
            self._drop(tps)
        if error is not None:
            raise error

    # --- parts -----------------------------------------------------------------------------

    async def _take(self, change: MembershipChange) -> None:
        """Apply all of a change, even if callbacks raise; then raise the first error.

        A cancellation or a signal may interrupt it anywhere. Then it runs again from its beginning,
        and its parts do only the remaining work. An interrupted callback is called again.
        """
        raised = (
            await self._lose(change),
            await self._give_back(change),
            await self._gain(change),
        )
        for error in raised:
            if error is not None:
                raise error

    async def _lose(self, change: MembershipChange) -> Exception | None:
        lost = {tp: self.numbers[tp] for tp in change.step.lost if tp in self.numbers}
        self._drop(lost)
        try:
            raised = await self._call(self._config.on_lost, list(lost))
        except BaseException:
            self.numbers |= lost
            raise
        if change.ended:
            await self._ask(self._member.come_back())
        return raised

    async def _give_back(self, change: MembershipChange) -> Exception | None:
        if not change.step.revoked:
            return None
        asked = await self._ask(self._member.asked_back(change))
        known = [tp for tp in asked if tp in self.numbers]
        raised = await self._finish(known, change.deadline)
        owned = await self._ask(self._member.release(change, asked))
        mine = [tp for tp in change.step.revoked if tp in self.numbers]
        self._drop([tp for tp in mine if owned.get(tp) != self.numbers[tp]])
        # A new connection has begun in the meantime, and reported that they are held.
        again = [tp for tp in known if tp in self.numbers]
        return raised or await self._call(self._config.on_assigned, again)

    async def _gain(self, change: MembershipChange) -> Exception | None:
        new = {}
        if change.step.assigned:
            new = await self._ask(self._member.still_owned(change.step.assigned))
        if not new:
            return None
        try:
            self.numbers |= new
            self._buffer.assign([*self._buffer.assignment(), *new])
            self._wake_fetcher()
            return await self._call(self._config.on_assigned, sorted(new))
        except BaseException:
            self._drop(new)
            raise

    async def _finish(self, tps: list[TopicPartition], deadline: float) -> Exception | None:
        """Call on_revoked, then auto-commit the returned records, even if it raised."""
        raised = await self._call(self._config.on_revoked, sorted(tps), deadline)
        if self._config.enable_auto_commit and tps:
            try:
                await self._commit(tps)
            except errors.OncelogError as error:
                return raised or error
        return raised

    async def _commit(self, tps: Iterable[TopicPartition]) -> None:
        """Commit the user's positions that have moved."""
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
        self, callback: Callable[..., Any] | None, tps: list[TopicPartition], *more: float
    ) -> Exception | None:
        """Call a callback; return its error, so that the steps behind it still run."""
        if callback is not None and tps:
            try:
                await self._tell(callback, tps, *more)
            except Exception as error:  # noqa: BLE001  # the user's own
                return error
        return None


async def ask_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Wait on the caller's thread: the `ask` of consumers without asyncio."""
    return runtime.run(coroutine)


async def tell_at_once(callback: Callable[..., Any], *arguments: Any) -> None:
    """Call a callback that is no coroutine: the `tell` of consumers without asyncio."""
    callback(*arguments)


def at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, because its `ask` and `tell` return at once."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something else")
