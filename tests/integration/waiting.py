"""Waiting for what no call waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

from harness.local_cluster import LOOK_AGAIN

PATIENCE = 20.0


def eventually(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Looks until the condition holds; fails with `what` after `patience` seconds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not so after {patience} s: {what}"
        time.sleep(LOOK_AGAIN)
