"""Checkpoints: what the state machine of a group was at one applied index.

A checkpoint is stored in chunks, and a manifest written after them makes it
exist. Batches become durable in order, so a manifest implies its chunks. A
small checkpoint rides in the caller's batch; of a large one only the manifest
does, and its chunks go to the store piece by piece before, so that no batch
and no memtable ever holds hundreds of megabytes.

    CHECKPOINTS  group | 1 | index          -> manifest: index, term, size, crc32c, chunk bytes
                 group | 2 | index | chunk  -> bytes
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from storage import keys
from storage.errors import CorruptionError
from storage.kv import Family, KeyValue, WriteBatch

CHUNK_BYTES = 1024 * 1024
# The largest state that goes into the caller's batch as a whole.
INLINE_BYTES = 4 * CHUNK_BYTES

_MANIFEST = b"\x01"
_CHUNK = b"\x02"
_ROW = struct.Struct(">QQQII")
_U64 = struct.Struct(">Q")
_POSITION = struct.Struct(">QI")


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A complete checkpoint: applied index, that entry's term, bytes, checksum of the bytes."""

    index: int
    term: int
    size: int
    crc32c: int


class CheckpointStore:
    """The checkpoints of one group."""

    def __init__(self, kv: KeyValue, group: int) -> None:
        self._kv = kv
        self._group = group
        self._prefix = keys.prefix(group)

    def put(self, batch: WriteBatch, index: int, term: int, state: bytes) -> int:
        """Stores `state` as the checkpoint at `index` once `batch` is written; its CRC-32C.

        A large state writes its chunks at once, before `batch`; they are
        invisible until the manifest in `batch` is written, and dropped with
        the next `drop_below` if it never is.
        """
        info = CheckpointInfo(index, term, len(state), crc32c(state))
        if len(state) <= INLINE_BYTES:
            self._put_chunks(batch, index, state, 0, len(state))
        else:
            self._put_large(index, state)
        row = _ROW.pack(info.index, info.term, info.size, info.crc32c, CHUNK_BYTES)
        batch.put(Family.CHECKPOINTS, self._manifest_key(index), row)
        return info.crc32c

    def list(self) -> list[CheckpointInfo]:
        """The complete checkpoints, oldest first."""
        begin, end = self._manifest_key(0), self._manifest_key(keys.MAX_NUMBER + 1)
        try:
            return [
                self._info(value)[0] for _, value in self._kv.scan(Family.CHECKPOINTS, begin, end)
            ]
        except CorruptionError as error:
            raise CorruptionError(f"checkpoints: {error}", group=self._group) from error

    def load(self, index: int) -> bytes:
        """The state stored at `index`, checked.

        Raises KeyError if there is no such checkpoint, CorruptionError if it is damaged.
        """
        try:
            row = self._kv.get(Family.CHECKPOINTS, self._manifest_key(index))
            if row is None:
                raise KeyError(f"group {self._group} has no checkpoint at index {index}")
            info, chunk_bytes = self._info(row)
            state = self._load_chunks(info, chunk_bytes)
        except CorruptionError as error:
            raise CorruptionError(f"checkpoint: {error}", group=self._group, index=index) from error
        if len(state) != info.size or crc32c(state) != info.crc32c:
            raise CorruptionError(
                f"checkpoint of {info.size} bytes fails its checksum",
                group=self._group,
                index=index,
            )
        return state

    def drop(self, batch: WriteBatch, index: int) -> None:
        """The checkpoint at `index` goes."""
        batch.delete(Family.CHECKPOINTS, self._manifest_key(index))
        batch.delete_range(Family.CHECKPOINTS, self._chunks_key(index), self._chunks_key(index + 1))

    def drop_below(self, batch: WriteBatch, index: int) -> None:
        """Drops the checkpoints below `index`, and chunks left of ones never finished."""
        for key in (self._manifest_key, self._chunks_key):
            batch.delete_range(Family.CHECKPOINTS, key(0), key(index))

    def _put_large(self, index: int, state: bytes) -> None:
        # An older attempt at the same index must not be read with new chunks.
        pieces = self._kv.batch()
        pieces.delete(Family.CHECKPOINTS, self._manifest_key(index))
        self._kv.write(pieces)
        for start in range(0, len(state), INLINE_BYTES):
            pieces = self._kv.batch()
            self._put_chunks(pieces, index, state, start, min(len(state), start + INLINE_BYTES))
            self._kv.write(pieces)

    def _put_chunks(
        self, batch: WriteBatch, index: int, state: bytes, start: int, stop: int
    ) -> None:
        for begin in range(start, stop, CHUNK_BYTES):
            key = self._chunk_key(index, begin // CHUNK_BYTES)
            batch.put(Family.CHECKPOINTS, key, state[begin : begin + CHUNK_BYTES])

    def _load_chunks(self, info: CheckpointInfo, chunk_bytes: int) -> bytes:
        state = bytearray()
        for chunk in range(-(-info.size // chunk_bytes)):
            piece = self._kv.get(Family.CHECKPOINTS, self._chunk_key(info.index, chunk))
            if piece is None:
                raise CorruptionError(f"chunk {chunk} is missing")
            state += piece
        return bytes(state)

    def _info(self, row: bytes) -> tuple[CheckpointInfo, int]:
        if len(row) != _ROW.size:
            raise CorruptionError(f"manifest of {len(row)} bytes, expected {_ROW.size}")
        index, term, size, crc, chunk_bytes = _ROW.unpack(row)
        if not chunk_bytes:
            raise CorruptionError("manifest names chunks of 0 bytes")
        return CheckpointInfo(index, term, size, crc), chunk_bytes

    def _manifest_key(self, index: int) -> bytes:
        return self._prefix + _MANIFEST + _U64.pack(index)

    def _chunks_key(self, index: int) -> bytes:
        return self._prefix + _CHUNK + _U64.pack(index)

    def _chunk_key(self, index: int, chunk: int) -> bytes:
        return self._prefix + _CHUNK + _POSITION.pack(index, chunk)
