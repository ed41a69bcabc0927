"""Replay of the commit log at a start: reads the records that no table holds yet.

It reads from a place on, record by record, until one is not whole: the end, perhaps. All records up
to the last synced one must be there. The sync mark has its number, but may lag. So before the end
is accepted, the bytes behind it are searched for whole records, and their claims count too. Records
that no claim covers may be torn, with good records after them, because the disk writes in its own
order. They are cut off, so that the survivors are a prefix of the written records.

Values of entries that are known to be synced are not read: their checksums are compared at the
first read. Behind the synced records, checksums of values decide where the log ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage.commitlog.log import Place
from storage.commitlog.record import (
    HEAD_BYTES,
    SALT,
    Operation,
    RecordHead,
    decode,
    head_bytes,
    is_whole,
    parse_head,
)
from storage.commitlog.segment import HEADER_BYTES, Header, Segment, numbers_in, path_of
from storage.errors import CorruptionError, IdentityError
from storage.kv import Family
from storage.system import SYSTEM, System

_PIECE_BYTES = 1024 * 1024

#: an operation, and the value of a put to another family than ENTRIES
Replayed = tuple[Operation, bytes | None]


class _OpenedSegment(NamedTuple):
    """A segment. header: None in format 3."""

    segment: Segment
    header: Header | None

    @property
    def begin(self) -> int:
        return HEADER_BYTES if self.header else 0

    @property
    def salt(self) -> int:
        return self.header.salt if self.header else 0


class Replay:
    """One pass over the log from `start` on.

    end: moves with each record read. synced: highest number known to be synced; the records up to
    it must be there. directory_id: from the headers, None before the first.
    """

    def __init__(
        self,
        directory: Path,
        start: Place,
        synced: int,
        *,
        directory_id: int | None = None,
        has_log: bool = False,
        system: System = SYSTEM,
    ) -> None:
        """Begins a pass over the log.

        directory_id: expected in headers, None if unknown. has_log: a log exists for certain, and
        its last files have headers.
        """
        self.end = start
        self.synced = synced
        self.directory_id = directory_id
        self._directory = directory
        self._has_log = has_log
        self._system = system
        self._unsynced_from = start
        self._opened: _OpenedSegment | None = None

    # -- reading ------------------------------------------------------------------

    def records(self) -> Iterator[tuple[Place, list[Replayed]]]:
        """Yields each record: (its place, its operations).

        Raises CorruptionError when synced records are missing or damaged, IdentityError when a file
        is of another data directory; no file was changed then.
        """
        self._check_start()
        while (record := self._next() or self._next_if_synced()) is not None:
            yield record
        if self.end.number < self.synced:
            raise CorruptionError(
                f"{path_of(self._directory, self.end.segment)}: "
                f"{self.synced - self.end.number} synced writes are missing "
                f"(found up to {self.end.number}, synced up to {self.synced})"
            )

    def _check_start(self) -> None:
        """Checks that the log reaches the start: the tables' entries must still be there."""
        opened = self._at(self.end.segment)
        size = opened.segment.size if opened is not None else 0
        if size < self.end.position or (opened is None and self._has_log):
            raise CorruptionError(
                f"{path_of(self._directory, self.end.segment)}: synced writes are missing "
                f"({size} bytes are there, at least {self.end.position or HEADER_BYTES} were)"
            )
        if opened is not None and not self.end.position:
            self.end = self._unsynced_from = self.end._replace(position=opened.begin)

    def _at(self, number: int) -> _OpenedSegment | None:
        """Returns the segment; None if it is missing, or was torn during its creation."""
        if self._opened is None or self._opened.segment.number != number:
            self._opened = self._open(number)
        return self._opened

    def _open(self, number: int) -> _OpenedSegment | None:
        path = path_of(self._directory, number)
        try:
            segment = Segment(self._directory, number, self._system)
            header = segment.header()
        except FileNotFoundError:
            return None
        except CorruptionError as error:
            raise CorruptionError(f"{path}: {error}") from error
        if header is None:
            return self._without_header(segment)
        if self.directory_id is None:
            self.directory_id = header.directory_id
        elif header.directory_id != self.directory_id:
            raise IdentityError(
                f"{path} belongs to the data directory with id {header.directory_id}, "
                f"here is {self.directory_id}: put back the files that belong together"
            )
        return _OpenedSegment(segment, header)

    def _without_header(self, segment: Segment) -> _OpenedSegment | None:
        """Returns a segment of format 3, which begins with a record; else it may be torn."""
        opened = _OpenedSegment(segment, None)
        if self._read_head(opened, 0) is not None:
            return opened
        if segment.size <= HEADER_BYTES:
            return None
        if self._has_log:
            raise CorruptionError(
                f"{path_of(self._directory, segment.number)}: the header is damaged"
            )
        return opened

    def _next(self) -> tuple[Place, list[Replayed]] | None:
        """Returns the record at `end`, None if it is not whole."""
        while (opened := self._at(self.end.segment)) is not None:
            if (record := self._read(opened)) is not None:
                head, operations = record
                place = self.end
                self.end = Place(place.segment, place.position + head.record_bytes, head.number)
                if head.number <= self.synced:
                    self._unsynced_from = self.end
                return place, operations
            if self.end.position < opened.segment.size:
                return None
            following = self._open(self.end.segment + 1)
            if following is None:
                return None
            self._opened = following
            self.end = Place(following.segment.number, following.begin, self.end.number)
        return None

    def _next_if_synced(self) -> tuple[Place, list[Replayed]] | None:
        """Tries again, if a record behind it claims that it was synced."""
        claimed = max(self._claims_behind(), default=0)
        if claimed <= self.synced or claimed <= self.end.number:
            return None
        self.synced = claimed
        return self._next()

    def _read_head(self, opened: _OpenedSegment, position: int) -> tuple[RecordHead, bytes] | None:
        """Returns head and body of the record there, None when they are not whole."""
        size = head_bytes(opened.salt)
        content = opened.segment.read(position, size)
        head = parse_head(content, opened.salt) if len(content) == size else None
        if head is None or position + size + head.body_bytes > opened.segment.size:
            return None
        body = opened.segment.read(position + size, head.body_bytes)
        return (head, body) if is_whole(head, body) else None

    def _read(self, opened: _OpenedSegment) -> tuple[RecordHead, list[Replayed]] | None:
        position, segment = self.end.position, opened.segment
        if (found := self._read_head(opened, position)) is None:
            return None
        head, body = found
        if head.number != self.end.number + 1 or position + head.record_bytes > segment.size:
            return None
        operations: list[Replayed] = []
        for operation in decode(head, body):
            value = None
            is_entry = operation.family is Family.ENTRIES
            if operation.value_at and not (is_entry and head.number <= self.synced):
                value = segment.read(position + operation.value_at, operation.value_bytes)
                if crc32c(value) != operation.value_crc:
                    return None
            operations.append((operation, None if is_entry else value))
        return head, operations

    # -- records behind the end ---------------------------------------------------

    def _claims_behind(self) -> Iterator[int]:
        """Yields the claims of whole records from `end` on: numbers up to which all was synced."""
        for number in numbers_in(self._directory):
            if number >= self.end.segment:
                opened = self._open(number)
                if opened is not None and opened.salt:
                    begin = self.end.position if number == self.end.segment else 0
                    yield from self._claims_in(opened, begin)

    def _claims_in(self, opened: _OpenedSegment, begin: int) -> Iterator[int]:
        """Yields the claims in one segment; a record may begin at each occurrence of the salt."""
        salt = SALT.pack(opened.salt)
        while len(content := opened.segment.read(begin, _PIECE_BYTES)) >= HEAD_BYTES:
            at = content.find(salt)
            while at >= 0:
                found = self._read_head(opened, begin + at)
                if found is not None:
                    yield found[0].synced
                at = content.find(salt, at + 1)
            begin += len(content) - SALT.size + 1

    # -- the end ------------------------------------------------------------------

    @property
    def log_end(self) -> Place:
        """The place of the next record: in a new segment if the last one has no header."""
        if self._opened is not None and not self._opened.header and self.end.position:
            return Place(self.end.segment + 1, 0, self.end.number)
        return self.end

    def finish(self) -> None:
        """Makes the records read durable, and cuts off the bytes behind them.

        Records that no sync covered are rewritten in their place: after an fsync that failed, their
        pages may be in memory only, and look clean.
        """
        for number in numbers_in(self._directory):
            if number > self.end.segment:
                self._system.unlink(path_of(self._directory, number))
        position = self._unsynced_from.position
        for number in range(self._unsynced_from.segment, self.end.segment + 1):
            if not path_of(self._directory, number).exists():
                break  # a new log
            segment = Segment(self._directory, number, self._system, os.O_RDWR)
            if number == self.end.segment:
                segment.cut(self.end.position)
            while content := segment.read(position, _PIECE_BYTES):
                segment.write(position, [content], len(content))
                position += len(content)
            segment.sync()
            position = 0
        self._system.sync_directory(self._directory)
