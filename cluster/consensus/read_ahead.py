"""Read-ahead of log entries that have left memory, for one consumer that takes them in order.

    apply, a follower that is behind --entry(index)--> Journal's memory, else entries read
                                           '--not there--> BackgroundReads --> there

The consumer goes on when the replica is touched, if it got None. Entries are kept until the end of
the step that offers them; entries not taken then are dropped, to free their memory.
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
    """Entries for one consumer: committed, or of the leader that it works for."""

    def __init__(self, group: int, journal: Journal, reads: BackgroundReads) -> None:
        self._group = group
        self._journal = journal
        self._reads = reads
        self._found: dict[int, Entry] = {}
        self._error: tuple[int, Exception] | None = None
        self.is_reading = self._is_closed = False

    def entry(self, index: int, last: int, max_bytes: int = READ_BYTES) -> Entry | None:
        """Returns an entry, or None while it and those after it are read.

        The read goes up to `last` or about `max_bytes`. Raises its error: storage.StorageError, or
        a bug's.
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
        return self._found.get(index)  # available now if the read ended at once

    def step_ends(self) -> None:
        """Drops entries that the step offered and the consumer did not take."""
        if self._found:
            self._found = {}
        self._error = None

    def close(self) -> None:
        """Ends the waiting."""
        self._is_closed = True
        self._found = {}

    def _done(self, first: int, outcome: list[Entry] | Exception) -> None:
        self.is_reading = False
        if self._is_closed:
            return
        if isinstance(outcome, Exception):
            self._error = first, outcome
        else:
            self._found = dict(enumerate(outcome, first))


def _read(journal: Journal, first: int, last: int, max_bytes: int) -> list[Entry]:
    """Reads entries from `first` on, in any thread. Raises storage.StorageError if it gets none."""
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
