"""Watch of the event loop's delay, which Raft, requests and reads all wait for.

timer, ten times a second --> how late it came --> metric; a standstill --> log
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

PERIOD = 0.1  # seconds


async def watch_loop(observe: Callable[[float], None], standstill: float) -> None:
    """Measure forever. standstill: seconds; a longer delay costs leaderships."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + PERIOD
        await asyncio.sleep(PERIOD)  # the sleep itself is measured
        delay = max(0.0, loop.time() - due)
        observe(delay)
        if delay > standstill:
            log.warning("the event loop stood still: seconds=%.2f", delay)
