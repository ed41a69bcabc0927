"""CRC-32C by a table: for PyPy, where calls of the package's C extension cost more than that."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected


def _row(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_row(value) for value in range(256)]


def crc32c(data: bytes, value: int = 0) -> int:
    """The checksum of `data`; value: that of what comes before it."""
    table, value = _TABLE, value ^ 0xFFFFFFFF
    for byte in bytes(data):
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF
