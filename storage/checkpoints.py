"""Checkpoints of a group: its state machine's state at an applied index.

A checkpoint is stored in chunks, and a manifest written after them makes it exist. Batches become
durable in order, so a manifest implies its chunks. A small checkpoint goes into the caller's batch.
Of a large one only the manifest does; its chunks go to the store piece by piece before. So no batch
and no memtable ever holds hundreds of megabytes. A `CheckpointWriter` takes the state as it is
made, so saving may take its time.

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
    """Checkpoints of one group."""

    def __init__(self, kv: KeyValue, group: int) -> None:
        self._kv = kv
        self._group = group
        self._prefix = keys.prefix(group)

    def writer(self, index: int, term: int) -> CheckpointWriter:
        """Makes a writer for the state at `index`, which comes piece by piece."""
        return CheckpointWriter(self, index, term)

    def put(self, batch: WriteBatch, index: int, term: int, state: bytes) -> int:
        """Stores a checkpoint that is complete once `batch` is written; returns its CRC-32C."""
        writer = self.writer(index, term)
        writer.add(state)
        return writer.finish(batch)

    def list(self) -> list[CheckpointInfo]:
        """Returns the complete checkpoints, oldest first."""
        begin, end = self._manifest_key(0), self._manifest_key(keys.MAX_NUMBER + 1)
        try:
            return [
                self._info(value)[0] for _, value in self._kv.scan(Family.CHECKPOINTS, begin, end)
            ]
        except CorruptionError as error:
            raise CorruptionError(f"checkpoints: {error}", group=self._group) from error

    def load(self, index: int) -> bytes:
        """Returns the state stored at `index`, checked.

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
        """Drops the checkpoint at `index`."""
        batch.delete(Family.CHECKPOINTS, self._manifest_key(index))
        batch.delete_range(Family.CHECKPOINTS, self._chunks_key(index), self._chunks_key(index + 1))

    def drop_below(self, batch: WriteBatch, index: int) -> None:
        """Drops the checkpoints below `index`, and the chunks of unfinished ones."""
        for key in (self._manifest_key, self._chunks_key):
            batch.delete_range(Family.CHECKPOINTS, key(0), key(index))

    def put_chunks(self, index: int, first_chunk: int, chunks: bytes) -> None:
        """Writes a part of a large checkpoint at once."""
        pieces = self._kv.batch()
        if not first_chunk:
            # An older attempt at the same index must not be read with new chunks.
            pieces.delete(Family.CHECKPOINTS, self._manifest_key(index))
            self._kv.write(pieces)
            pieces = self._kv.batch()
        self.add_chunks(pieces, index, first_chunk, chunks)
        self._kv.write(pieces)

    def add_chunks(self, batch: WriteBatch, index: int, first_chunk: int, chunks: bytes) -> None:
        for number, begin in enumerate(range(0, len(chunks), CHUNK_BYTES), first_chunk):
            key = self._chunk_key(index, number)
            batch.put(Family.CHECKPOINTS, key, chunks[begin : begin + CHUNK_BYTES])

    def add_manifest(self, batch: WriteBatch, info: CheckpointInfo) -> None:
        row = _ROW.pack(info.index, info.term, info.size, info.crc32c, CHUNK_BYTES)
        batch.put(Family.CHECKPOINTS, self._manifest_key(info.index), row)

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


class CheckpointWriter:
    """Writer of one state that is made piece by piece.

    A large state writes its chunks as they come; they are invisible until the manifest
    is written, and dropped with the next `drop_below` if it never is.
    """

    def __init__(self, store: CheckpointStore, index: int, term: int) -> None:
        self._store = store
        self._index = index
        self._term = term
        self._waiting = bytearray()
        self._crc = self._chunks = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Adds the next bytes of the state. Writes large states at once, before `finish`."""
        self._crc = crc32c(piece, self._crc)
        self.size += len(piece)
        self._waiting += piece
        while len(self._waiting) > INLINE_BYTES:
            self._write(INLINE_BYTES)

    def finish(self, batch: WriteBatch) -> int:
        """Completes the checkpoint once `batch` is written; returns its CRC-32C."""
        if self._chunks:
            self._write(len(self._waiting))
        else:
            self._store.add_chunks(batch, self._index, 0, bytes(self._waiting))
        self._store.add_manifest(
            batch, CheckpointInfo(self._index, self._term, self.size, self._crc)
        )
        return self._crc

    def _write(self, size: int) -> None:
        assert size % CHUNK_BYTES == 0 or size == len(self._waiting)
        self._store.put_chunks(self._index, self._chunks, bytes(self._waiting[:size]))
        self._chunks += -(-size // CHUNK_BYTES)
        del self._waiting[:size]
