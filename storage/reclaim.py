"""Reclaimer of disk space that trims have freed.

A segment of the commit log is deleted once no group has an entry in it. Groups are trimmed at their
own pace, so a slow one can keep many segments. When more than half of the log is garbage, the live
entries of the emptiest segments are appended again, and these segments are deleted.

A segment is deleted only after a sync: a power loss must not undo the trim or the move of its
entries afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from storage import keys
from storage.commitlog.log import CommitLog, Pointer
from storage.commitlog.usage import SegmentUsage, Span
from storage.database import Database
from storage.errors import CorruptionError
from storage.flush_cycle import FlushCycle, usage_key
from storage.kv import Family
from storage.page import page_rows

log = logging.getLogger(__name__)

# Above this share of garbage, in the log and in a segment, copying the rest pays.
WORTH_MOVING = 0.5
# Share of the log that one call copies at most.
MOVED_SHARE = 0.25
MOVED_AT_ONCE = 4 * 1024 * 1024
# Of the segment that is written to: below this size its garbage is no matter.
MIN_CLOSED_BYTES = 4 * 1024 * 1024

#: key and place of an entry to write again if it is still there
Moved = tuple[bytes, Pointer]


@dataclass(slots=True)
class _Old:
    """A segment that may be deleted. left: about the bytes of entries that are still needed."""

    number: int
    size: int
    left: int
    usage: SegmentUsage


class Reclaimer:
    """Reclaimer of one open store; one call of `run` at a time."""

    def __init__(
        self,
        db: Database,
        commit_log: CommitLog,
        cycle: FlushCycle,
        move: Callable[[list[Moved]], None],
    ) -> None:
        """move: appends these entries again."""
        self._db = db
        self._log = commit_log
        self._cycle = cycle
        self._move = move
        self.garbage_bytes = 0

    def run(self, free_bytes: int) -> None:
        """Deletes unneeded segments; copies entries if that pays and fits. Raises StorageError."""
        if self._cycle.done.segment < self._log.end.segment:
            self._cycle.run()  # else the last closed segments would wait for more writes
        old = list(self._old_segments())
        total = sum(each.size for each in old)
        left = sum(each.left for each in old)
        self.garbage_bytes = total - left
        gone = [each.number for each in old if not each.left]
        if total - left > WORTH_MOVING * total:
            emptiest = sorted(
                (each for each in old if each.left), key=lambda each: each.left / each.size
            )
            gone += self._move_from(emptiest, int(MOVED_SHARE * total), free_bytes)
        if gone:
            self._log.sync()
            self._log.delete(gone)
            self._db.note({}, [usage_key(number) for number in gone])

    def is_mostly_garbage(self, spans: Iterable[tuple[bytes, Span]], size: int) -> bool:
        """Tells whether a segment of that size is to be closed, so that it can be freed."""
        if size < MIN_CLOSED_BYTES:
            return False
        begins: dict[bytes, bytes | None] = {}
        left = sum(span.left(self._begin(group, begins)) for group, span in spans)
        return size - left > WORTH_MOVING * size

    def _old_segments(self) -> Iterator[_Old]:
        """Yields segments that are closed, and not needed for a replay."""
        begins: dict[bytes, bytes | None] = {}
        for number, size in self._log.sizes().items():
            if number >= self._cycle.done.segment:
                return
            row = self._db.noted(usage_key(number))
            if row is None:
                log.warning("segment %d of the commit log is not known; it stays", number)
                continue
            usage = SegmentUsage.unpack(row)
            left = sum(span.left(self._begin(group, begins)) for group, span in usage.spans.items())
            yield _Old(number, size, min(left, size), usage)

    def _begin(self, group: bytes, begins: dict[bytes, bytes | None]) -> bytes | None:
        """Returns the group's present first key."""
        if group not in begins:
            begin, end = keys.group_range(int.from_bytes(group))
            rows = page_rows(self._db.families[Family.ENTRIES], begin, end, 1)
            begins[group] = rows[0][0] if rows else None
        return begins[group]

    def _move_from(self, emptiest: list[_Old], most: int, free_bytes: int) -> list[int]:
        """Copies the entries left in one segment, and in more up to `most` bytes.

        Returns the numbers of these segments.
        """
        moved: list[int] = []
        size = 0
        for each in emptiest:
            size += each.left
            too_full = each.left > WORTH_MOVING * each.size
            if too_full or size > free_bytes or (moved and size > most):
                break
            try:
                self._empty(each)
            except CorruptionError as error:
                # The segment stays as it is; a reader will find the damage.
                log.error("segment %d cannot be emptied: %s", each.number, error)
                continue
            moved.append(each.number)
        return moved

    def _empty(self, old: _Old) -> None:
        chunk: list[Moved] = []
        size = 0
        for key, pointer in self._entries_in(old):
            chunk.append((key, pointer))
            size += pointer.size
            if size >= MOVED_AT_ONCE:
                self._move(chunk)
                chunk, size = [], 0
        if chunk:
            self._move(chunk)

    def _entries_in(self, old: _Old) -> Iterator[Moved]:
        for span in old.usage.spans.values():
            begin, end = span.first, span.last + b"\x00"
            while rows := page_rows(self._db.families[Family.ENTRIES], begin, end):
                for key, row in rows:
                    pointer = Pointer.unpack(row)
                    if pointer.segment == old.number:
                        yield key, pointer
                begin = rows[-1][0] + b"\x00"
