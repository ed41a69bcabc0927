"""Layout of keys: each begins with its group, big endian, so a group is one range everywhere.

    ENTRIES      group u64 | index u64
    OFFSETS      group u64 | last offset u64
                 group u64 with its highest bit | transaction u64 | producer u64 | last offset u64
    STATE        group u64 | kind u8 [| first index u64]
    CHECKPOINTS  group u64 | kind u8 | index u64 [| chunk u32]

Big endian makes the byte order of keys the order of numbers.
"""

from __future__ import annotations

import struct

MAX_GROUP = 2**63 - 1
MAX_NUMBER = 2**63 - 1
NUMBERED_BYTES, STAGED_BYTES = 16, 32
# No group has this bit, so staged rows are outside all ranges of offsets.
STAGED = 2**63

_U64 = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
_FOUR = struct.Struct(">QQQQ")


def prefix(group: int) -> bytes:
    assert 0 <= group <= MAX_GROUP, group
    return _U64.pack(group)


def group_range(group: int) -> tuple[bytes, bytes]:
    """Returns (begin, end) of all keys of the group in any family."""
    return prefix(group), _U64.pack(group + 1)


def numbered(group: int, number: int) -> bytes:
    """Returns an entry's or index row's key. `number` up to 2**63: one past the last is a bound."""
    assert 0 <= number <= MAX_NUMBER + 1, number
    return _PAIR.pack(group, number)


def staged(group: int, transaction: int = 0, producer: int = 0, number: int = 0) -> bytes:
    """Returns the key of a staged row, in a range of the group's own; 0: its begin."""
    assert 0 <= group <= MAX_GROUP and 0 <= number <= MAX_NUMBER + 1, (group, number)
    return _FOUR.pack(group | STAGED, transaction, producer, number)


def staged_range(group: int) -> tuple[bytes, bytes]:
    """Returns (begin, end) of all staged keys of the group."""
    return _U64.pack(group | STAGED), _U64.pack((group + 1) | STAGED)


def number_of(key: bytes) -> int:
    """Returns the number at the end of a `numbered` or `staged` key."""
    value: int = _U64.unpack_from(key, len(key) - 8)[0]
    return value
