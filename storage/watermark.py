"""Sync mark beside the commit log: the number of the last synced record.

A record that was torn by a power loss looks like one that was damaged later, and a missing segment
leaves no trace. So after each sync the number of the last record is written here, and on start the
log must have at least that many. The mark itself is not synced: after a kill it is exact, after a
power loss it may be some seconds old, but it never claims more than was synced. The records
themselves prove the later syncs (`commitlog/record.py`).

    magic "OLSYNC1\\n" | record number u64 | crc32c of both u32
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from crc32c import crc32c

from storage.errors import CorruptionError
from storage.system import SYSTEM, System

_MAGIC = b"OLSYNC1\n"
_MARK = struct.Struct(">8sQI")


def _encode(sequence: int) -> bytes:
    head = struct.pack(">8sQ", _MAGIC, sequence)
    return head + struct.pack(">I", crc32c(head))


class Watermark:
    """The mark's open file."""

    def __init__(self, path: Path, system: System = SYSTEM) -> None:
        """Opens the mark, creating it at 0. Raises CorruptionError if it is damaged."""
        self._system = system
        if not path.exists():
            system.write_atomically(path, _encode(0))
        self._descriptor = system.open(path, os.O_RDWR)
        content = system.pread(self._descriptor, _MARK.size + 1, 0)
        self.sequence = int.from_bytes(content[8:16], "big")
        if content != _encode(self.sequence):
            self.close()
            raise CorruptionError(f"sync mark {path} is damaged")

    def advance(self, sequence: int) -> None:
        """Records that everything up to `sequence` is durable."""
        if sequence > self.sequence:
            self._system.pwrite(self._descriptor, _encode(sequence), 0)
            self.sequence = sequence

    def close(self) -> None:
        if self._descriptor >= 0:
            self._system.close(self._descriptor)
            self._descriptor = -1
