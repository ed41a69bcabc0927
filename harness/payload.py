"""Payload reader: values and keys, by the layout in docs/protocol.md.

Checkers use it, because they must not trust the code that wrote the payload.
"""

from __future__ import annotations

import struct
from itertools import pairwise

_PREAMBLE = struct.Struct("<4s7I")
_VALUE_NULLS, _KEYS, _KEY_NULLS = 1, 2, 4
ZSTD, LZ4 = 1, 2


def decompress(codec: int, payload: bytes) -> bytes:
    """Decompresses a payload. Raises ValueError for an unknown codec."""
    if codec == 0:
        return payload
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(payload)
    if codec == LZ4:
        import lz4.frame

        return bytes(lz4.frame.decompress(payload))
    raise ValueError(f"codec {codec} is unknown")


def values_and_keys(payload: bytes) -> tuple[list[bytes | None], list[bytes | None]]:
    """Reads the two columns. Raises ValueError for an invalid payload."""
    magic, flags, rows, _, value_bytes, key_bytes, _, _ = _PREAMBLE.unpack_from(payload)
    if magic != b"OLB1":
        raise ValueError(f"a payload does not begin with {magic!r}")
    values, position = _column(payload, _PREAMBLE.size, rows, value_bytes, flags & _VALUE_NULLS)
    if not flags & _KEYS:
        return values, [None] * rows
    keys, _ = _column(payload, position, rows, key_bytes, flags & _KEY_NULLS)
    return values, keys


def _column(
    payload: bytes, position: int, rows: int, size: int, nulls: int
) -> tuple[list[bytes | None], int]:
    bitmap = -1
    if nulls:
        length = (rows + 7) // 8
        bitmap = int.from_bytes(payload[position : position + length], "little")
        position = _aligned(position + length)
    offsets = struct.unpack_from(f"<{rows + 1}i", payload, position)
    start = _aligned(position + 4 * (rows + 1))
    ends = pairwise(offsets)
    cells: list[bytes | None]
    if bitmap < 0:
        cells = [payload[start + a : start + b] for a, b in ends]
    else:
        cells = [
            payload[start + a : start + b] if bitmap >> row & 1 else None
            for row, (a, b) in enumerate(ends)
        ]
    return cells, _aligned(start + size)


def _aligned(position: int) -> int:
    return (position + 7) // 8 * 8
