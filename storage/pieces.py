"""State as bytes in pieces, so that its writer can do other work in between.

PartitionMachine, MetadataMachine --pieces()--> Checkpoints, a few at a time

A piece takes no longer than a millisecond or two to make, however large the state is. So it
has about PIECE_BYTES where bytes are only copied, and fewer where they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

PIECE_BYTES = 512 * 1024
PIECE_RECORDS = 500  # that are made for it


def joined(parts: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """Yield the same bytes in pieces; only a larger part makes a larger piece."""
    waiting: list[bytes | bytearray] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting.clear()
            size = 0
    if waiting:
        yield b"".join(waiting)


def in_pieces(
    records: Iterable[T], weight: Callable[[T], int] = lambda record: 1
) -> Iterator[list[T]]:
    """Yield as many records as fit one piece. weight: the cost of one."""
    some: list[T] = []
    total = 0
    for record in records:
        some.append(record)
        total += weight(record)
        if total >= PIECE_RECORDS:
            yield some
            some, total = [], 0
    if some:
        yield some
