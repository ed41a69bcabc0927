"""Pauses before a retry: doubling, capped, with jitter."""

from __future__ import annotations

import random

from oncelog.errors import OncelogError, ThrottledError


class Backoff:
    """Delays in seconds. The random source is passed in, so that tests can repeat them."""

    def __init__(self, first_s: float, max_s: float, rng: random.Random | None = None) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._rng = rng or random.Random()

    def delay(self, failures: int) -> float:
        """Return the pause after so many failures in a row; 0 for none.

        Jitter of 20 % either way keeps clients from returning all at once.
        """
        if failures <= 0:
            return 0.0
        pause = min(self._max_s, self._first_s * float(1 << min(failures - 1, 30)))
        return pause * self._rng.uniform(0.8, 1.2)

    def after(self, error: OncelogError, failures: int) -> float:
        """Return the same pause, but at least the one that a node asks for."""
        asked = error.retry_after_ms / 1000 if isinstance(error, ThrottledError) else 0.0
        return max(self.delay(failures), asked)
