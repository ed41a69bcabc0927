"""What a start reads of the commit log: the records that no table holds yet.

Reads from a place on, record by record, until one is not whole: the end. Up to the sync
mark everything must be there; behind it there may be a torn record, and good ones after
it, because the disk writes in its own order. Those are cut off, so that what survives is a
prefix of what was written.

Values of entries up to the mark are not read: their checksums are compared when somebody
reads them. Behind the mark they decide where the log ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from storage.commitlog.log import Place
from storage.commitlog.record import (
    HEAD_BYTES,
    Head,
    Operation,
    decode,
    is_whole,
    parse_head,
)
from storage.commitlog.segment import Segment, numbers_in, path_of
from storage.errors import CorruptionError
from storage.identity import sync_directory
from storage.kv import Family

_COPY_BYTES = 1024 * 1024

#: an operation, and the value of a put to another family than ENTRIES
Replayed = tuple[Operation, bytes | None]


class Replay:
    """One pass over the log from `start` on. `end` moves with each record read."""

    def __init__(self, directory: Path, start: Place, synced: int) -> None:
        """synced: number of the last record that must be there."""
        self._directory = directory
        self._synced = synced
        self._unsynced_from = start
        self.end = start

    def records(self) -> Iterator[tuple[Place, list[Replayed]]]:
        """(where it begins, its operations) of each record.

        Raises CorruptionError when synced records are missing or damaged; no file was
        changed then.
        """
        self._check_start()
        while (segment := self._segment()) is not None:
            while (record := self._next(segment)) is not None:
                head, operations = record
                place = self.end
                self.end = Place(place.segment, place.position + head.record_bytes, head.number)
                if head.number <= self._synced:
                    self._unsynced_from = self.end
                yield place, operations
            following = path_of(self._directory, self.end.segment + 1)
            if self.end.position < segment.size or not following.exists():
                break
            self.end = Place(self.end.segment + 1, 0, self.end.number)
        if self.end.number < self._synced:
            raise CorruptionError(
                f"{path_of(self._directory, self.end.segment)}: "
                f"{self._synced - self.end.number} synced writes are missing "
                f"(found up to {self.end.number}, synced up to {self._synced})"
            )

    def _check_start(self) -> None:
        """What tables hold was there once, and its entries must be there still."""
        segment = self._segment()
        size = segment.size if segment is not None else 0
        if size < self.end.position:
            raise CorruptionError(
                f"{path_of(self._directory, self.end.segment)}: synced writes are missing "
                f"({size} bytes are there, at least {self.end.position} were)"
            )

    def _segment(self) -> Segment | None:
        try:
            return Segment(self._directory, self.end.segment)
        except FileNotFoundError:
            return None

    def _next(self, segment: Segment) -> tuple[Head, list[Replayed]] | None:
        """The record at `end`, None when there is no whole one."""
        position = self.end.position
        content = segment.read(position, HEAD_BYTES)
        if len(content) < HEAD_BYTES:
            return None
        head = parse_head(content)
        if head.number != self.end.number + 1 or position + head.record_bytes > segment.size:
            return None
        body = segment.read(position + HEAD_BYTES, head.body_bytes)
        if not is_whole(head, body):
            return None
        operations: list[Replayed] = []
        for operation in decode(head, body):
            value = None
            is_entry = operation.family is Family.ENTRIES
            if operation.value_at and not (is_entry and head.number <= self._synced):
                value = segment.read(position + operation.value_at, operation.value_bytes)
                if crc32c(value) != operation.value_crc:
                    return None
            operations.append((operation, None if is_entry else value))
        return head, operations

    def settle(self) -> None:
        """Makes what was read durable, and cuts off what stands behind it.

        What no sync covered is written once more in its place: after an fsync that failed,
        the pages may be in memory only, and look clean.
        """
        for number in numbers_in(self._directory):
            if number > self.end.segment:
                path_of(self._directory, number).unlink()
        position = self._unsynced_from.position
        for number in range(self._unsynced_from.segment, self.end.segment + 1):
            if not path_of(self._directory, number).exists():
                break  # a new log
            segment = Segment(self._directory, number, os.O_RDWR)
            if number == self.end.segment:
                segment.cut(self.end.position)
            while content := segment.read(position, _COPY_BYTES):
                segment.write(position, content, (), len(content))
                position += len(content)
            segment.sync()
            position = 0
        sync_directory(self._directory)
