"""Requests to a cleaner's worker, and its replies, as bytes. Pure.

    begin, note, clean -> bytes --pipe--> CleaningWorker.answer -> bytes --pipe--> full_at, pieces

Each request has one reply. The node and its worker are of one release, so nothing here is read by
another one. A frame is a message behind its length in LENGTH_BYTES, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from cluster.cleaning.by_key import CleaningTerms
from cluster.cleaning.passes import CleaningPass, Piece, SourceBatch

LENGTH_BYTES = 4
_BEGIN, _NOTE, _CLEAN = range(3)
_TERMS = struct.Struct("<Bqqq")
_CLEAN_HEAD = struct.Struct("<B?qqI")
_BATCH = struct.Struct("<qqqq?I")
_PIECE = struct.Struct("<qqII")
_FULL_AT = struct.Struct("<q")
_NOWHERE = -1


def begin(terms: CleaningTerms, most_bytes: int) -> bytes:
    """Asks for a new pass. most_bytes: of memory for its keys."""
    return _TERMS.pack(_BEGIN, terms.log_time_ms, terms.delete_retention_ms, most_bytes)


def note(batches: Iterable[SourceBatch]) -> bytes:
    return b"".join((bytes((_NOTE,)), *_packed(batches)))


def clean(
    batches: Iterable[SourceBatch], log_time_ms: int, again_below: int, growth: int, *, left: bool
) -> bytes:
    """growth: see CleaningPass.go_on. left: batches before these stay uncleaned."""
    head = _CLEAN_HEAD.pack(_CLEAN, left, log_time_ms, again_below, growth)
    return b"".join((head, *_packed(batches)))


def full_at(reply: bytes) -> int | None:
    """Returns the offset of the first batch that was not noted; None: all were."""
    (offset,) = _FULL_AT.unpack(reply)
    return None if offset == _NOWHERE else offset


def pieces(reply: bytes) -> Iterator[Piece]:
    at, view = 0, memoryview(reply)
    while at < len(view):
        base, end, size, error_size = _PIECE.unpack_from(view, at)
        at += _PIECE.size
        data, error = bytes(view[at : at + size]), bytes(view[at + size : at + size + error_size])
        at += size + error_size
        yield Piece(base, end, data, error.decode())


def _packed(batches: Iterable[SourceBatch]) -> Iterator[bytes | memoryview]:
    for *fields, data in batches:
        yield _BATCH.pack(*fields, len(data))
        yield data


def _unpacked(view: memoryview) -> Iterator[SourceBatch]:
    at = 0
    while at < len(view):
        base, end, raft_index, time_ms, joined, size = _BATCH.unpack_from(view, at)
        at += _BATCH.size
        yield SourceBatch(base, end, raft_index, time_ms, joined, view[at : at + size])
        at += size


class CleaningWorker:
    """Answers requests; it has one pass at a time."""

    def __init__(self) -> None:
        self._pass: CleaningPass | None = None

    def answer(self, request: bytes) -> bytes:
        kind, view = request[0], memoryview(request)
        if kind == _BEGIN:
            _, log_time_ms, delete_retention_ms, most_bytes = _TERMS.unpack(request)
            self._pass = CleaningPass(CleaningTerms(log_time_ms, delete_retention_ms), most_bytes)
            return b""
        assert self._pass is not None, "a pass begins with its terms"
        if kind == _NOTE:
            offset = self._pass.note(_unpacked(view[1:]))
            return _FULL_AT.pack(_NOWHERE if offset is None else offset)
        _, left, log_time_ms, again_below, growth = _CLEAN_HEAD.unpack_from(request)
        self._pass.go_on(log_time_ms, again_below, growth)
        if left:
            self._pass.left()
        parts = list[bytes]()
        for piece in self._pass.clean(_unpacked(view[_CLEAN_HEAD.size :])):
            error = piece.error.encode()
            head = _PIECE.pack(piece.base_offset, piece.end, len(piece.data), len(error))
            parts += (head, piece.data, error)
        return b"".join(parts)
