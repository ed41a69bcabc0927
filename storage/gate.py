"""Gate to RocksDB: many callers at once, or the one that closes it.

The binding frees the interpreter's lock in some calls, and closing under such a call is an error
there. So closing waits for the callers inside, and new callers are turned away instead of blocked:
a caller may be an event loop.
"""

from __future__ import annotations

import threading


class ClosingGate:
    """`enter`/`leave` around each use, `shut`/`open` around closing."""

    __slots__ = ("_changed", "_inside", "_shut")

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False

    def enter(self) -> bool:
        """Enters; returns False when the gate is shut, else `leave` must follow."""
        with self._changed:
            if self._shut:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._shut:
                self._changed.notify_all()

    def shut(self) -> bool:
        """Waits until the gate is empty. False when another thread has shut it."""
        with self._changed:
            if self._shut:
                return False
            self._shut = True
            self._changed.wait_for(lambda: self._inside == 0)
            return True

    def open(self) -> None:
        with self._changed:
            self._shut = False
