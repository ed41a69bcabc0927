"""Share of the commit log in the system's page cache, and its limit.

    append --> wrote(segment, begin, end) --> the newest pieces of the log
    read ----> read(segment, begin, end) ---> others, the ones read last
    excess(durable) --> pieces to give back, with POSIX_FADV_DONTNEED

Problem: the system keeps every page that was ever written, until all memory is used, and takes a
free page for each new one. A page that was never used before is expensive: on a virtual machine
whose host takes free memory back, it comes from the host, at five times the price of writing it.
Moreover, a node's memory use then says nothing about its needs.

Answer: a limit. Beyond it, the oldest of the written pieces are given back, and the system hands
out their pages next. Later reads of them come from disk. A quarter of the limit is for pieces that
such reads bring in, so a reader of old records does not push out the new ones.

Pure: knows numbers, no files. Safe for use by several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

# The kernel gives back whole folios only, which are at most 2 MiB, at multiples of their size.
PIECE_BYTES = 4 * 1024 * 1024

#: A segment's number, and the number of the piece in it.
Piece = tuple[int, int]


class PageCache:
    """Pieces of the log in the page cache, as far as this process brought them there."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: 0 leaves the cache to the system; else it is at least two pieces."""
        assert limit_bytes >= 0
        self._is_limited = limit_bytes > 0
        pieces = limit_bytes // PIECE_BYTES
        self._read_limit = max(1, pieces // 4)
        self._written_limit = max(1, pieces - self._read_limit)
        self._written: OrderedDict[Piece, None] = OrderedDict()
        self._read: OrderedDict[Piece, None] = OrderedDict()
        self._lock = threading.Lock()

    def wrote(self, segment: int, begin: int, end: int) -> None:
        """Notes that the bytes begin..end of the segment are at the log's end now."""
        if self._is_limited:
            with self._lock:
                for piece in _pieces(segment, begin, end):
                    self._written[piece] = None
                    self._read.pop(piece, None)

    def read(self, segment: int, begin: int, end: int) -> None:
        """Notes that the bytes begin..end of the segment were read."""
        if self._is_limited:
            with self._lock:
                for piece in _pieces(segment, begin, end):
                    if piece not in self._written:
                        self._read[piece] = None
                        self._read.move_to_end(piece)

    def excess(self, segment: int, position: int) -> list[Piece]:
        """Returns pieces to give back, which no longer count then.

        Bytes at or behind `position` of `segment` may not be durable: they stay.
        """
        if len(self._written) <= self._written_limit and len(self._read) <= self._read_limit:
            return []
        bound = (segment, position // PIECE_BYTES)
        with self._lock:
            return [
                *_taken_off(self._written, self._written_limit, bound),
                *_taken_off(self._read, self._read_limit, bound),
            ]

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops deleted segments; their pages are gone with them."""
        gone = set(numbers)
        with self._lock:
            for kept in (self._written, self._read):
                for piece in [piece for piece in kept if piece[0] in gone]:
                    del kept[piece]


def _pieces(segment: int, begin: int, end: int) -> Iterator[Piece]:
    """Yields the pieces that hold any of the bytes begin..end."""
    assert 0 <= begin <= end
    last = max(begin, end - 1) // PIECE_BYTES
    return ((segment, number) for number in range(begin // PIECE_BYTES, last + 1))


def _taken_off(kept: OrderedDict[Piece, None], limit: int, bound: Piece) -> list[Piece]:
    """Takes off the excess: the oldest pieces below the bound."""
    below = (piece for piece in kept if piece < bound)
    taken = list(islice(below, max(0, len(kept) - limit)))
    for piece in taken:
        del kept[piece]
    return taken
