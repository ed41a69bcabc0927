"""Upkeep thread of the store: makes the next segment, and moves tables on.

An acknowledgement waits for a sync, so a sync does nothing else. It wakes this thread, which checks
if any step is due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Upkeep:
    """Calls `work` once or more after each `wake`, until `stop`."""

    def __init__(self, work: Callable[[], None]) -> None:
        """work: must not raise."""
        self._work = work
        self._changed = threading.Condition()
        self._wanted = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="oncelog-upkeep", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        with self._changed:
            self._wanted = True
            self._changed.notify()

    def stop(self) -> None:
        """Returns when `work` has returned for the last time. May be called more than once."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                self._wanted = False
            self._work()
