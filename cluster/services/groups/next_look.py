"""Timer of a running group: its coordinator's next look, which each event may move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class NextLook:
    """Calls `look` at the newest time that it was given."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def at(self, due: float) -> None:
        """Replace the time, by the loop's clock; infinity: never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if due < float("inf"):
            self._timer = asyncio.get_running_loop().call_at(due, self._look)
