"""How late the event loop comes to what is due: Raft, requests and reads all wait for so long.

timer, ten times a second --> how late it came --> metric; a standstill --> log
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

PERIOD = 0.1  # seconds


async def watch_loop(observe: Callable[[float], None], standstill: float) -> None:
    """Measures for ever. standstill: seconds; a longer delay costs leaderships."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + PERIOD
        await asyncio.sleep(PERIOD)  # what is measured, not what is waited for
        delay = max(0.0, loop.time() - due)
        observe(delay)
        if delay > standstill:
            log.warning("the event loop stood still: seconds=%.2f", delay)
