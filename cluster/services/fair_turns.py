"""Slices of work: a task that handles many batches lets other tasks run in between.

One event loop serves all calls and the heartbeats of all groups. So no request may hold it
for longer than a slice takes, a few milliseconds.

    Turn   of one call: everything else that is ready runs once between its slices
    Turns  of all that append: a slice for all together, and clients that want more take turns
"""

from __future__ import annotations

import asyncio
from collections import deque

SLICE_BATCHES = 128
SLICE_BYTES = 2 * 1024 * 1024
_BATCH_COST = SLICE_BYTES // SLICE_BATCHES  # in bytes: a batch's cost beside its own


class Turn:
    """Work of one call since other tasks last ran.

    if turn.spend(len(payload)):
        await asyncio.sleep(0)
    """

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, size: int, batches: int = 1) -> bool:
        """Count work on batches of `size` bytes; returns whether to let others run."""
        self._spent += size + batches * _BATCH_COST
        if self._spent < SLICE_BYTES:
            return False
        self._spent = 0
        return True


class Turns:
    """Work of all appending calls since one of them last let others run.

    await turns.take(client)
    if turns.spend(len(payload)):
        await turns.take(client)

    No call waits until a slice is used up. Then clients take turns, one slice each, regardless
    of how many calls each has: a flood delays the flooder.
    """

    def __init__(self) -> None:
        self._spent = 0
        self._round_ends = False  # its end is scheduled
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the first is next

    def spend(self, size: int) -> bool:
        """Count work on a batch of `size` bytes; returns whether to take a turn before the next."""
        self._spent += size + _BATCH_COST
        return self._spent >= SLICE_BYTES

    @property
    def must_wait(self) -> bool:
        return self._spent >= SLICE_BYTES or bool(self._waiting)

    async def take(self, client: str) -> None:
        """Return when the client may go on."""
        if not self.must_wait:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(future)
        if not self._round_ends:
            self._end_round_soon()
        await future

    def _end_round_soon(self) -> None:
        self._round_ends = True
        asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._spent = 0
        self._round_ends = False
        while self._waiting:
            client = next(iter(self._waiting))
            calls = self._waiting.pop(client)
            future = calls.popleft()
            if calls:
                self._waiting[client] = calls  # behind all others
            if not future.done():  # else its call has ended meanwhile
                future.set_result(None)
                self._end_round_soon()
                return
