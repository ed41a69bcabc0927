"""Segment file of the commit log, and its header.

    header   magic "OLLOG4\\r\\n" | directory id u64 | segment number u64 | salt u64 |
             crc32c of all before u32
    records  one after the other, see `record`

The header is durable before the first record is written behind it. Files of format 3 have
none: they begin with a record.

A reader holds the object, so a file that is dropped from a cache, or deleted, stays open until its
last reader is done.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage.errors import CorruptionError
from storage.system import SYSTEM, System

# Parts of one system call; the limit of Linux is 1024.
_PARTS = 512
# Values up to here are joined first: copying is cheaper than a list of many parts.
_JOINED_BYTES = 64 * 1024

_PAGE_BYTES = 4096

_MAGIC = b"OLLOG4\r\n"
_FIELDS = struct.Struct(">8sQQQ")
_CRC = struct.Struct(">I")
HEADER_BYTES = _FIELDS.size + _CRC.size


class Header(NamedTuple):
    """Header of a segment file.

    directory_id: of the data directory, 0 if there is none. number: of the segment. salt: each of
    its records begins with it.
    """

    directory_id: int
    number: int
    salt: int

    def pack(self) -> bytes:
        fields = _FIELDS.pack(_MAGIC, *self)
        return fields + _CRC.pack(crc32c(fields))


class Segment:
    """An open segment file. Raises OSError from every call."""

    __slots__ = ("_descriptor", "_system", "number")

    def __init__(
        self, directory: Path, number: int, system: System = SYSTEM, flags: int = os.O_RDONLY
    ) -> None:
        self._descriptor = -1
        self._system = system
        self._descriptor = system.open(path_of(directory, number), flags)
        self.number = number

    def __del__(self) -> None:
        if self._descriptor >= 0:
            self._system.close(self._descriptor)

    def header(self) -> Header | None:
        """Returns the header; None: it has none, being of format 3 or torn when it was made.

        Raises CorruptionError.
        """
        content = self.read(0, HEADER_BYTES)
        if not content.startswith(_MAGIC) or len(content) < HEADER_BYTES:
            return None
        header = Header(*_FIELDS.unpack_from(content)[1:])
        if content != header.pack():
            if self.size == HEADER_BYTES:
                return None  # no record follows, so it may never have been durable
            raise CorruptionError("the header fails its checksum")
        if header.number != self.number:
            raise CorruptionError(f"the header is of segment {header.number}")
        return header

    def read(self, position: int, size: int) -> bytes:
        """Reads up to `size` bytes: fewer only at the file's end."""
        content = self._system.pread(self._descriptor, size, position)
        if len(content) == size or not content:
            return content
        return content + self.read(position + len(content), size - len(content))

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the first and last page of these bytes are in the system's page cache."""
        last = position + size - 1
        is_cached = self._system.is_cached(self._descriptor, position)
        if is_cached and last // _PAGE_BYTES > position // _PAGE_BYTES:
            is_cached = self._system.is_cached(self._descriptor, last)
        return is_cached

    def write(self, position: int, parts: Sequence[bytes], size: int) -> None:
        """Writes the parts one after the other, `size` bytes."""
        if size <= _JOINED_BYTES:
            parts = [b"".join(parts)]
        for first in range(0, len(parts), _PARTS):
            position += self._write_parts(position, parts[first : first + _PARTS])

    def _write_parts(self, position: int, parts: Sequence[bytes]) -> int:
        size = sum(len(part) for part in parts)
        done = self._system.pwritev(self._descriptor, parts, position)
        if done < size:  # a nearly full disk, or the system's limit for one call
            rest = memoryview(b"".join(parts))
            while done < size:
                done += self._system.pwrite(self._descriptor, rest[done:], position + done)
        return size

    def sync(self) -> None:
        self._system.fdatasync(self._descriptor)

    def give_back(self, position: int, size: int) -> None:
        """Gives back the system's cached pages of these bytes, as far as they are on disk."""
        os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def cut(self, size: int) -> None:
        self._system.ftruncate(self._descriptor, size)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size


def path_of(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.log"


def numbers_in(directory: Path) -> list[int]:
    """Returns the numbers of all segment files there, rising."""
    return sorted(int(file.stem) for file in directory.glob("*.log") if file.stem.isdecimal())
