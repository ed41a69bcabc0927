"""What a file holds, read again when the file has changed.

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
    """Changes with the files. Raises OSError."""
    found = [path.stat() for path in paths]
    return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)


class WatchedFile(Generic[T]):
    """value: what `read` made of the file when it was last sound."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """Raises what `read` raises, ConfigError for a file that is unsound or not there."""
        self._path, self._read = path, read
        self._stamp = self._stamped()
        self.value = read(path)

    def renewed(self) -> bool:
        """Whether the file had changed, and is read.

        One that is gone or unsound leaves what was there: it is being replaced.
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
