"""What is done to RocksDB's WAL files before RocksDB opens them.

First they are kept: opening drops what it cannot replay, and if that turns out
to be more than an unsynced end, somebody will want to see it.

Then they are mended. RocksDB up to at least 9.10 never returns from opening
when it meets a record whose type byte is that of a recycled log file (issue
13333 of its tracker), in every recovery mode. One flipped bit makes such a
type of a good one, and so does the garbage that a power loss may leave at the
end. The file is cut there and ends in a torn record instead, which RocksDB
handles as it should: whatever follows is dropped, in this file and the next.
Whether anything synced was among it is for `watermark` to say.

    block of 32 KiB: records, then fewer than 7 bytes unused
    record:          crc u32 | length u16 | type u8 | data, little endian
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from pathlib import Path

from storage.identity import write_atomically

log = logging.getLogger(__name__)

_BLOCK = 32 * 1024
_HEADER = 7
_LENGTH_AND_TYPE = struct.Struct("<HB")
# 0 is space allocated ahead; full, first, middle, last. Others are of features not in use.
_HIGHEST_TYPE = 4
# A record that says it is longer than the file.
_TORN = struct.pack("<IHB", 0, 0x7000, 1)


def wal_bytes(database: Path) -> int:
    """What a start would replay at most."""
    return sum(file.stat().st_size for file in database.glob("*.log"))


def keep_wal(database: Path, kept: Path) -> None:
    """Links the WAL files into `kept`, at no cost.

    Does nothing when `kept` exists: then it holds what an earlier, failed start found.
    """
    if not kept.exists():
        kept.mkdir()
        for file in database.glob("*.log"):
            os.link(file, kept / file.name)


def mend_wal(database: Path) -> None:
    """Cuts each WAL file where RocksDB would not come back from it."""
    for file in sorted(database.glob("*.log")):
        position = foreign_record(file)
        if position is not None:
            log.warning("%s: no record at byte %d, the rest is dropped", file, position)
            with file.open("rb") as whole:
                write_atomically(file, whole.read(position) + _TORN)


def foreign_record(file: Path) -> int | None:
    """Where the first record of an unknown type begins, None if there is none.

    Goes from header to header as RocksDB does, and after a length that cannot
    be on to the next block; does not look at checksums, RocksDB does.
    """
    if file.stat().st_size < _HEADER:
        return None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as content:
        unpack = _LENGTH_AND_TYPE.unpack_from
        size = len(content)
        position = 0
        block_end = _BLOCK
        while position + _HEADER <= size:
            length, kind = unpack(content, position + 4)
            if kind > _HIGHEST_TYPE:
                return position
            position += _HEADER + length
            if kind == 0 or position + _HEADER > block_end:
                position = block_end
                block_end += _BLOCK
    return None
