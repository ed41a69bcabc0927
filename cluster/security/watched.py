"""Content of a file, read again when the file has changed.

Jwts, StaticTokens --renewed, value--> WatchedFile --stat, read--> the file
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from cluster.errors import ConfigError

T = TypeVar("T")
Stamp = tuple[tuple[int, int, int], ...]


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """Return a value that changes with the files. Raises OSError."""
    found = [path.stat() for path in paths]
    return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)


class WatchedFile(Generic[T]):
    """value: the result of `read` when the file was last sound."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """Raises the errors of `read`: ConfigError for a file that is unsound or missing."""
        self._path = path
        self._read = read
        self._stamp = self._stamped()
        self.value = read(path)

    def renewed(self) -> bool:
        """Return whether the file had changed, and is read.

        A missing or unsound file keeps the last value: it is being replaced.
        """
        stamp = self._stamped()
        if stamp in (self._stamp, ()):
            return False
        try:
            self.value = self._read(self._path)
        except ConfigError:
            return False
        self._stamp = stamp
        return True

    def _stamped(self) -> Stamp:
        try:
            return stamp_of([self._path])
        except OSError:
            return ()
