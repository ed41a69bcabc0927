"""Work in slices: whoever handles many batches lets the others run in between.

One event loop serves all calls and the heartbeats of all groups. So no request may hold it
for longer than a slice takes, a few milliseconds.
"""

from __future__ import annotations

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
