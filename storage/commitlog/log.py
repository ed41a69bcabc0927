"""Files of the commit log: append, sync, roll, and reading a value back.

    append(encoded) --> pwritev at the end of the active segment (page cache)
    accept()        --> the record counts; or take_back(): it never was there
    sync()          --> fdatasync of every segment written since the last one, then the mark;
                        excess pages of the cache are given back (page_cache.py)
    roll(next)      --> the next segment; the ones before are only read from now on
    read(pointer)   --> the value, checked

Records never span segments, so a segment may be larger than `segment_bytes` by one record.

After its first fault the log takes no more writes. After an fsync that failed, the system drops the
pages, forgets the error and reports success the next time. So the fault is noted under the lock
that the sync holds; callers that wait for it are refused, as is every later append, roll, deletion
and mark. Reading goes on.

Threads: `read`, `sync` and `following` from any. The caller keeps `append`, with the calls after
it, and `roll` apart.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage.commitlog.page_cache import PIECE_BYTES, PageCache
from storage.commitlog.record import EncodedRecord
from storage.commitlog.segment import HEADER_BYTES, Header, Segment, numbers_in, path_of
from storage.errors import NO_DESCRIPTORS, CorruptionError, StorageError, StorageFullError
from storage.system import NO_SPACE, SYSTEM, System
from storage.watermark import Watermark

_POINTER = struct.Struct(">IIII")
_PLACE = struct.Struct(">QQQ")


class Place(NamedTuple):
    """A place between two records. number: of the record before it, 0 before the first."""

    segment: int
    position: int
    number: int

    def pack(self) -> bytes:
        return _PLACE.pack(*self)

    @classmethod
    def unpack(cls, row: bytes) -> Place:
        """Unpacks a place. Raises CorruptionError."""
        if len(row) != _PLACE.size:
            raise CorruptionError(f"where tables end in the commit log: {len(row)} bytes")
        return cls(*_PLACE.unpack(row))


#: Start of the log of a new store.
BEGIN = Place(1, 0, 0)


class Pointer(NamedTuple):
    """Place of a value, its size and its CRC-32C."""

    segment: int
    position: int
    size: int
    crc: int

    def pack(self) -> bytes:
        return _POINTER.pack(*self)

    @classmethod
    def unpack(cls, row: bytes) -> Pointer:
        """Unpacks a pointer. Raises CorruptionError."""
        if len(row) != _POINTER.size:
            raise CorruptionError(f"a place in the commit log of {len(row)} bytes")
        return cls(*_POINTER.unpack(row))


class CommitLog:
    """The log, open at its end. Every method raises the system's OSError.

    failure: the first fault. A lack of space or of open files is none if nothing was harmed.
    """

    def __init__(
        self,
        directory: Path,
        end: Place,
        mark: Watermark,
        *,
        directory_id: int = 0,
        open_segments: int,
        page_cache_bytes: int = 0,
        system: System = SYSTEM,
    ) -> None:
        """Opens the log at `end`, the place of the next record.

        Everything before `end` is durable; nothing is behind it. At position 0 the segment is
        created, else it has a header. `page_cache_bytes`: 0 is no limit.
        """
        self.directory = directory
        self.failure: OSError | None = None
        self._system = system
        self._mark = mark
        self._directory_id = directory_id
        self._open_segments = open_segments
        self._cache: OrderedDict[int, Segment] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._sync_lock = system.lock()
        self._following_lock = system.lock()
        self._following: Segment | None = None
        # Salts of segments that may still be appended to, by segment number.
        self._salts: dict[int, int] = {}
        if end.position:
            self._active = Segment(directory, end.segment, system, os.O_RDWR)
            header = self._active.header()
            if header is None:
                raise CorruptionError(f"{path_of(directory, end.segment)}: the header is missing")
            self._salts[header.number] = header.salt
        else:
            self._active = self._create(end.segment)
        self._end = end._replace(position=max(end.position, HEADER_BYTES))
        self._unsynced: list[Segment] = []
        self._appended: Place | None = None
        self._synced = self._end
        self._pages = PageCache(page_cache_bytes)

    @property
    def end(self) -> Place:
        return self._end

    @property
    def is_synced(self) -> bool:
        """Whether every accepted record is durable. The caller keeps others from appending."""
        return self._synced == self._end

    # -- faults -------------------------------------------------------------------

    def refuse_if_failed(self) -> None:
        """Raises StorageError after the first fault."""
        if self.failure is not None:
            raise StorageError(
                f"commit log {self.directory}: refused since an earlier fault: {self.failure}"
            )

    def _note_failure(self, error: OSError) -> None:
        # A file that could not be opened was neither written nor synced: nothing is in doubt.
        if self.failure is None and error.errno not in NO_DESCRIPTORS:
            self.failure = error

    # -- writing ------------------------------------------------------------------

    def append(self, encoded: EncodedRecord) -> Place:
        """Writes the next record, not durable yet; returns its place. `accept` must follow.

        Raises StorageFullError when there is no space and nothing was appended. After any other
        OSError the file's content is unknown.
        """
        assert self._appended is None, "the record before was neither accepted nor taken back"
        self.refuse_if_failed()
        before, active = self._end, self._active
        if active not in self._unsynced:
            self._unsynced.append(active)
        head = encoded.head(self._salts[active.number], before.number + 1, self._synced.number)
        parts = [head, encoded.body, *encoded.values]
        try:
            active.write(before.position, parts, encoded.record_bytes)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._note_failure(error)
                raise
            self._cut(before.position)
            text = f"{self.directory}: {error}"
            raise StorageFullError(text, recoverable_in_place=True) from error
        end = before.position + encoded.record_bytes
        self._appended = Place(before.segment, end, before.number + 1)
        return before

    def accept(self) -> None:
        """Makes the appended record count from now on."""
        assert self._appended is not None
        self._pages.wrote(self._end.segment, self._end.position, self._appended.position)
        self._end, self._appended = self._appended, None

    def take_back(self) -> None:
        """Removes the appended record, which no sync counted."""
        assert self._appended is not None
        self._appended = None
        self._cut(self._end.position)

    def _cut(self, position: int) -> None:
        try:
            self._active.cut(position)
        except OSError as error:
            self._note_failure(error)
            raise

    def following(self) -> Segment | None:
        """Creates the next segment, for `roll`; None if there is no space or file handle."""
        with self._following_lock:
            self.refuse_if_failed()
            number, made = self._end.segment + 1, self._following
            if made is not None and made.number == number:
                return made
            try:
                self._following = self._create(number)
            except OSError as error:
                if error.errno in NO_SPACE:
                    return None
                self._note_failure(error)
                raise
            return self._following

    def _create(self, number: int) -> Segment:
        """Creates a durable segment without records."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        segment = Segment(self.directory, number, self._system, flags)
        header = Header(self._directory_id, number, self._system.random_number())
        segment.write(0, [header.pack()], HEADER_BYTES)
        segment.sync()
        self._system.sync_directory(self.directory)
        self._salts[number] = header.salt
        return segment

    def roll(self, following: Segment | None) -> None:
        """Goes on in the next segment; does nothing when another thread has done it."""
        assert self._appended is None
        self.refuse_if_failed()
        if following is None or following.number != self._end.segment + 1:
            return
        with self._cache_lock:
            self._cache[self._active.number] = self._active
        del self._salts[self._active.number]
        self._active = following
        self._end = Place(following.number, HEADER_BYTES, self._end.number)

    def sync(self) -> int:
        """Makes all records accepted before the call durable; returns the last one's number."""
        with self._sync_lock:
            self.refuse_if_failed()
            end, unsynced = self._end, tuple(self._unsynced)
            active = self._active
            try:
                for segment in unsynced:
                    segment.sync()
                self._mark.advance(end.number)
            except OSError as error:
                self._note_failure(error)
                raise
            for segment in unsynced:
                if segment is not active:
                    self._unsynced.remove(segment)
            self._synced = end
        self._give_back()
        return end.number

    # -- reading ------------------------------------------------------------------

    def read(self, pointer: Pointer) -> bytes:
        """Reads a value. Raises CorruptionError when it differs from the written one."""
        value = self.read_unchecked(pointer)
        if crc32c(value) != pointer.crc:
            raise CorruptionError(f"{self._place_of(pointer)}: the bytes fail their checksum")
        return value

    def is_cached(self, pointer: Pointer) -> bool:
        """Whether the value is in memory, so that a read of it does not wait for the disk."""
        number, active = pointer.segment, self._active
        segment = active if number == active.number else self._cache.get(number)
        return segment is not None and segment.is_cached(pointer.position, pointer.size)

    def read_unchecked(self, pointer: Pointer) -> bytes:
        """Reads a value that may be damaged. Raises CorruptionError when it is cut off."""
        try:
            value = self._segment(pointer.segment).read(pointer.position, pointer.size)
        except FileNotFoundError as error:
            raise CorruptionError(f"{self._place_of(pointer)}: the file is missing") from error
        self._pages.read(pointer.segment, pointer.position, pointer.position + pointer.size)
        self._give_back()
        if len(value) != pointer.size:
            raise CorruptionError(f"{self._place_of(pointer)}: only {len(value)} bytes are there")
        return value

    def _place_of(self, pointer: Pointer) -> str:
        file = path_of(self.directory, pointer.segment)
        return f"{file}, {pointer.size} bytes at {pointer.position}"

    def _segment(self, number: int) -> Segment:
        active = self._active
        if number == active.number:
            return active
        with self._cache_lock:
            segment = self._cache.get(number)
            if segment is None:
                segment = self._cache[number] = Segment(self.directory, number, self._system)
            self._cache.move_to_end(number)
            while len(self._cache) > self._open_segments:
                self._cache.popitem(last=False)
        return segment

    def _give_back(self) -> None:
        """Gives pages beyond the limit back to the system; never pages that may not be durable."""
        for number, piece in self._pages.excess(self._synced.segment, self._synced.position):
            # The file may be deleted by now; and nothing depends on a hint.
            with suppress(OSError):
                self._segment(number).give_back(piece * PIECE_BYTES, PIECE_BYTES)

    # -- the files ----------------------------------------------------------------

    def sizes(self) -> dict[int, int]:
        """Returns the bytes of each segment by number, rising."""
        return {
            number: path_of(self.directory, number).stat().st_size
            for number in numbers_in(self.directory)
        }

    def delete(self, numbers: Iterable[int]) -> None:
        """Deletes segments that nothing points to any more."""
        self.refuse_if_failed()
        numbers = tuple(numbers)
        try:
            for number in numbers:
                assert number < self._end.segment, "the active segment stays"
                with self._cache_lock:
                    self._cache.pop(number, None)
                self._system.unlink(path_of(self.directory, number))
            self._system.sync_directory(self.directory)
        except OSError as error:
            self._note_failure(error)
            raise
        self._pages.forget(numbers)

    def close(self) -> None:
        with self._cache_lock:
            self._cache.clear()
        self._unsynced.clear()
