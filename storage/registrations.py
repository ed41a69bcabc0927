"""Registrations of node starts in a data directory (`cluster/metadata/registrations.py`).

    DIR/lives   magic "OLLIFE1\n" | known u64 | its number u64 | begun u64 | crc32c u32

The file's name and magic are older than the term "registration": existing files must open. The file
is written in place, and shorter than a sector, so that a node starts on a full disk. It is in the
store, so that a restored copy has it together with the node's promises.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from crc32c import crc32c

from storage.errors import CorruptionError, StorageError
from storage.system import SYSTEM, System

_LAYOUT = struct.Struct("<8sQQQ")
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"OLLIFE1\n"
_SIZE = _LAYOUT.size + _CHECKSUM.size


class StoredRegistrations:
    """Stored registrations. known, number: the newest that the cluster has confirmed. begun:
    written, and perhaps registered; the same as known if none is in progress. 0: none.
    """

    def __init__(self, path: Path, system: System = SYSTEM) -> None:
        """Opens the file; creates it. Raises CorruptionError if it is damaged, StorageError."""
        self._system = system
        try:
            if not path.exists():
                system.write_atomically(path, _encode(0, 0, 0))
            self._descriptor = system.open(path, os.O_RDWR)
            content = system.pread(self._descriptor, _SIZE + 1, 0)
        except OSError as error:
            raise StorageError(f"{path}: {error}") from error
        self.known = self.number = self.begun = 0
        if len(content) == _SIZE:
            _, self.known, self.number, self.begun = _LAYOUT.unpack_from(content)
        if content != _encode(self.known, self.number, self.begun):
            self.close()
            raise CorruptionError(f"{path} is damaged")

    def begin(self) -> None:
        """Begins a new one, durable before any node hears of it. Raises StorageError."""
        self._write(self.known, self.number, self._system.random_number())

    def confirm(self, number: int) -> None:
        """Records that the begun one is registered. Raises StorageError."""
        self._write(self.begun, number, self.begun)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._system.close(self._descriptor)
            self._descriptor = -1

    def _write(self, known: int, number: int, begun: int) -> None:
        try:
            self._system.pwrite(self._descriptor, _encode(known, number, begun), 0)
            self._system.fsync(self._descriptor)
        except OSError as error:
            raise StorageError(f"the registrations of the data directory: {error}") from error
        self.known = known
        self.number = number
        self.begun = begun


def _encode(known: int, number: int, begun: int) -> bytes:
    head = _LAYOUT.pack(_MAGIC, known, number, begun)
    return head + _CHECKSUM.pack(crc32c(head))
