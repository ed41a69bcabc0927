"""One file of the commit log.

Whoever reads holds the object, so a file that is dropped from a cache, or deleted, stays
open until the last reader is done with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

# What one system call takes; the limit of Linux is 1024.
_PARTS = 512
# Values up to here are joined first: copying is cheaper than a list of many parts.
_JOINED_BYTES = 64 * 1024


class Segment:
    """An open segment file. Raises OSError from every call."""

    __slots__ = ("_descriptor", "number")

    def __init__(self, directory: Path, number: int, flags: int = os.O_RDONLY) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path_of(directory, number), flags | os.O_CLOEXEC, 0o644)
        self.number = number

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes: fewer only where the file ends."""
        content = os.pread(self._descriptor, size, position)
        if len(content) == size or not content:
            return content
        return content + self.read(position + len(content), size - len(content))

    def write(self, position: int, head: bytes, values: Sequence[bytes], size: int) -> None:
        """Writes `size` bytes: the head and the values after it."""
        parts = [head, *values]
        if size <= _JOINED_BYTES:
            parts = [b"".join(parts)]
        for first in range(0, len(parts), _PARTS):
            position += self._write_parts(position, parts[first : first + _PARTS])

    def _write_parts(self, position: int, parts: list[bytes]) -> int:
        size = sum(len(part) for part in parts)
        done = os.pwritev(self._descriptor, parts, position)
        if done < size:  # a disk that is nearly full, or more than the system takes at once
            rest = memoryview(b"".join(parts))
            while done < size:
                done += os.pwrite(self._descriptor, rest[done:], position + done)
        return size

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def give_back(self, position: int, size: int) -> None:
        """Lets go of the pages that the system keeps of these bytes, as far as they are on disk."""
        os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def cut(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size


def path_of(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.log"


def numbers_in(directory: Path) -> list[int]:
    """Of all segment files there, rising."""
    return sorted(int(file.stem) for file in directory.glob("*.log") if file.stem.isdecimal())
