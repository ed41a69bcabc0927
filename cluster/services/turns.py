"""Work in slices: whoever handles many batches lets the others run in between.

One event loop serves all calls and the heartbeats of all groups. So no request may hold it
for longer than a slice takes, a few milliseconds.

    Turn   of one call: between its slices whatever else is ready runs once
    Turns  of all that append: a slice for all together, and clients that want more take turns
"""

from __future__ import annotations

import asyncio
from collections import deque

SLICE_BATCHES = 128
SLICE_BYTES = 2 * 1024 * 1024
_BATCH_COST = SLICE_BYTES // SLICE_BATCHES  # in bytes: what a batch costs beside its own


class Turn:
    """What one call has done since others last ran.

    if turn.spend(len(payload)):
        await asyncio.sleep(0)
    """

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, size: int, batches: int = 1) -> bool:
        """Counts work on batches of `size` bytes; whether it is time to let others run."""
        self._spent += size + batches * _BATCH_COST
        if self._spent < SLICE_BYTES:
            return False
        self._spent = 0
        return True


class Turns:
    """What all calls that append have done since one of them last let others run.

    await turns.take(client)
    if turns.spend(len(payload)):
        await turns.take(client)

    Until a slice was done, nobody waits. Then clients come one after the other, a slice each,
    however many calls each of them has: a flood delays the flooder.
    """

    def __init__(self) -> None:
        self._spent = 0
        self._round_ends = False  # its end is scheduled
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the first is next

    def spend(self, size: int) -> bool:
        """Counts work on a batch of `size` bytes; whether to take a turn before the next."""
        self._spent += size + _BATCH_COST
        return self._spent >= SLICE_BYTES

    @property
    def must_wait(self) -> bool:
        return self._spent >= SLICE_BYTES or bool(self._waiting)

    async def take(self, client: str) -> None:
        """Returns when the client may go on."""
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
        self._spent, self._round_ends = 0, False
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
