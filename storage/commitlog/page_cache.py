"""How much of the log the system's page cache holds.

    append --> wrote(segment, begin, end) --> the newest pieces of the log
    read ----> read(segment, begin, end) ---> others, the ones read last
    excess(durable) --> pieces to give back, with POSIX_FADV_DONTNEED

Problem: the system keeps every page that was ever written, until all memory is used, and
takes a free page for each new one. Where that page was never used before it is dear: on a
virtual machine whose host takes free memory back, it comes from the host, at five times the
price of writing it. And what a node uses of memory says nothing about what it needs.

Answer: a limit. Beyond it, the oldest of the written pieces are given back, and their pages
are what the system hands out next. Who reads them later reads from disk. A quarter of the
limit is for what such readers bring in, so one that goes through old records does not cost
the others the new ones.

Pure: knows numbers, no files. Safe for use by several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

# The kernel gives back whole folios only, which are at most 2 MiB, at multiples of their size.
PIECE_BYTES = 4 * 1024 * 1024

#: A segment's number, and which of its pieces.
Piece = tuple[int, int]


class PageCache:
    """Which pieces of the log are in the page cache, as far as we brought them there."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: 0 leaves it all to the system; else two pieces are the least."""
        assert limit_bytes >= 0
        self._is_limited = limit_bytes > 0
        pieces = limit_bytes // PIECE_BYTES
        self._read_limit = max(1, pieces // 4)
        self._written_limit = max(1, pieces - self._read_limit)
        self._written: OrderedDict[Piece, None] = OrderedDict()
        self._read: OrderedDict[Piece, None] = OrderedDict()
        self._lock = threading.Lock()

    def wrote(self, segment: int, begin: int, end: int) -> None:
        """The bytes begin..end of the segment are at the log's end now."""
        if self._is_limited:
            with self._lock:
                for piece in _pieces(segment, begin, end):
                    self._written[piece] = None
                    self._read.pop(piece, None)

    def read(self, segment: int, begin: int, end: int) -> None:
        """Somebody read the bytes begin..end of the segment."""
        if self._is_limited:
            with self._lock:
                for piece in _pieces(segment, begin, end):
                    if piece not in self._written:
                        self._read[piece] = None
                        self._read.move_to_end(piece)

    def excess(self, segment: int, position: int) -> list[Piece]:
        """Pieces to give back, from then on not counted any more.

        What stands at or behind `position` of `segment` may not be durable: it stays.
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
        """The files of these segments are gone, and their pages with them."""
        gone = set(numbers)
        with self._lock:
            for kept in (self._written, self._read):
                for piece in [piece for piece in kept if piece[0] in gone]:
                    del kept[piece]


def _pieces(segment: int, begin: int, end: int) -> Iterator[Piece]:
    """Those that hold any of the bytes begin..end."""
    assert 0 <= begin <= end
    last = max(begin, end - 1) // PIECE_BYTES
    return ((segment, number) for number in range(begin // PIECE_BYTES, last + 1))


def _taken_off(kept: OrderedDict[Piece, None], limit: int, bound: Piece) -> list[Piece]:
    """The oldest ones below the bound, as many as there are too many."""
    below = (piece for piece in kept if piece < bound)
    taken = list(islice(below, max(0, len(kept) - limit)))
    for piece in taken:
        del kept[piece]
    return taken
