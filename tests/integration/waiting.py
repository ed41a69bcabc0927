"""Waiting for what no call waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

from harness.local_cluster import LOOK_AGAIN

TIMEOUT = 20.0


def eventually(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    """Looks until the condition holds; fails with `what` after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not so after {timeout} s: {what}"
        time.sleep(LOOK_AGAIN)
