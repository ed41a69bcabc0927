"""Entries that a replica needs and has in memory no more, for one who takes them in order.

    apply, a follower that is behind --entry(index)--> Journal's memory, else what was read
                                           '--not there--> BackgroundReads --> there

Whoever gets None goes on when the replica is touched. What was read is kept until the end of
the step in which it is offered, so that what nobody takes holds no memory.
"""

from __future__ import annotations

from functools import partial

from crc32c import crc32c

from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.journal import Journal
from storage.errors import StorageError

READ_BYTES = 8 * 1024 * 1024  # of one read; at least one entry
READ_ENTRIES = 4096

Entry = tuple[bytes, int]  # with its checksum


class ReadAhead:
    """For one consumer. Its entries are committed, or of the leader that it works for."""

    def __init__(self, group: int, journal: Journal, reads: BackgroundReads) -> None:
        self._group, self._journal, self._reads = group, journal, reads
        self._found: dict[int, Entry] = {}
        self._error: tuple[int, StorageError] | None = None
        self.is_reading = self._is_closed = False

    def entry(self, index: int, last: int, max_bytes: int = READ_BYTES) -> Entry | None:
        """None: it is being read, and what follows up to `last` or about so many bytes.

        Raises storage.StorageError if it cannot be read.
        """
        found = self._journal.in_memory(index) or self._found.get(index)
        if found is not None:
            return found
        if self._error is not None and self._error[0] == index:
            raise self._error[1]
        if not self.is_reading:
            self.is_reading = True
            last = min(last, self._journal.first_in_memory - 1)
            read = partial(_read, self._journal, index, last, min(max_bytes, READ_BYTES))
            done = partial(self._done, index)
            self._reads.ask(self._group, read, done, lambda: not self._is_closed)
        return self._found.get(index)  # there, if reads end at once

    def step_ends(self) -> None:
        """What was offered in it and not taken is dropped."""
        if self._found:
            self._found = {}
        self._error = None

    def close(self) -> None:
        """Nobody waits any more."""
        self._is_closed = True
        self._found = {}

    def _done(self, first: int, outcome: list[Entry] | StorageError) -> None:
        self.is_reading = False
        if self._is_closed:
            return
        if isinstance(outcome, StorageError):
            self._error = first, outcome
        else:
            self._found = dict(enumerate(outcome, first))


def _read(journal: Journal, first: int, last: int, max_bytes: int) -> list[Entry]:
    """Entries from `first` on, for any thread. Raises storage.StorageError if it gets none."""
    out: list[Entry] = []
    size = 0
    for index in range(first, min(last, first + READ_ENTRIES - 1) + 1):
        try:
            data = journal.stored(index)
        except StorageError:
            if not out:
                raise
            break
        out.append((data, crc32c(data)))
        size += len(data)
        if size >= max_bytes:
            break
    return out
