"""Flush cycle of the tables: they follow the commit log, and a start replays less.

    log synced, switch memtables    --> all rows up to a place are being written out
    wait until they are in files    --> note the place, and the usage of segments
    wait until that is in a file    --> a replay begins there

A writer may be the event loop, so no sync runs under the lock that a writer needs. Memtables are
switched at a moment when everything written is synced. Each round of a node's driver has such a
moment: after its sync, while it writes nothing.

The place is noted only after the tables below it are in files. So a crash between two steps only
means a longer replay: replaying rows that a table already holds ends in the same state.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from storage.commitlog.log import BEGIN, CommitLog, Place
from storage.commitlog.usage import SegmentUsage
from storage.database import Database
from storage.options import EngineOptions
from storage.system import System

REPLAY_KEY = b"replay"
_PROBE_KEY = b"probe"
_USAGE_KEY = struct.Struct(">5sxQ")
_POLL_S = 0.002
_TRIES = 20  # syncs that were each followed by a write at once
# Memory and log may exceed their targets by this factor; then a writer has to wait.
_SLACK = 4
# A read of a memtable with many range deletes sorts them again after each new one.
MAX_RANGE_DELETES = 1000


def usage_key(segment: int) -> bytes:
    return _USAGE_KEY.pack(b"usage", segment)


def stored_place(db: Database) -> Place:
    """Returns the place up to which the tables hold the log. Raises CorruptionError."""
    row = db.noted(REPLAY_KEY)
    return BEGIN if row is None else Place.unpack(row)


class FlushCycle:
    """Flush cycle of one open store.

    done: a replay begins here. usages: of segments without a complete noted usage.
    """

    def __init__(
        self,
        db: Database,
        log: CommitLog,
        options: EngineOptions,
        done: Place,
        usages: dict[int, SegmentUsage],
        write_lock: AbstractContextManager[object],
        system: System,
    ) -> None:
        """write_lock: held by every appender."""
        self.done = done
        self.usages = usages
        self._db = db
        self._log = log
        self._options = options
        self._write_lock = write_lock
        self._running = system.lock()
        self._wanted = False  # `run` waits for a switch of memtables
        self._switched: tuple[Place, dict[int, bytes]] = (done, {})  # its place and usages

    @property
    def replay_bytes(self) -> int:
        """About the bytes of the log that a start would replay."""
        segments = self._log.end.segment - self.done.segment
        return self._log.end.position - self.done.position + segments * self._options.segment_bytes

    def is_due(self) -> bool:
        return (
            self._db.unflushed_bytes >= self._options.memtable_bytes
            or self._db.unflushed_range_deletes >= MAX_RANGE_DELETES
            or self.replay_bytes >= self._options.max_replay_bytes
        )

    def must_wait(self) -> bool:
        """Whether the tables are too far behind for more writes."""
        return (
            self._db.unflushed_bytes >= _SLACK * self._options.memtable_bytes
            or self.replay_bytes >= _SLACK * self._options.max_replay_bytes
        )

    def run(self) -> None:
        """Runs a whole cycle: on return the tables hold everything written before.

        Raises RocksDB's own error when it cannot write, and the errors of `CommitLog.sync`.
        """
        with self._running:
            errors = self._db.background_errors
            self._wanted = True
            for _ in range(_TRIES):
                self._log.sync()
                if self.switch_if_synced():
                    break
            else:
                with self._write_lock:
                    self._log.sync()
                    self._switch()
            place, usages = self._switched
            self._wait(errors)
            self._log.refuse_if_failed()
            rows = {usage_key(number): row for number, row in usages.items()}
            self.note({**rows, REPLAY_KEY: place.pack()})
            self.done = place
            for number in usages:
                if number < place.segment:
                    del self.usages[number]

    @property
    def is_wanted(self) -> bool:
        """Whether the thread that syncs the log should call `switch_if_synced`."""
        return self._wanted

    def switch_if_synced(self) -> bool:
        """Switches memtables, if that is wanted and the whole log is synced.

        Returns whether it is done. Raises RocksDB's own error.
        """
        with self._write_lock:
            if self._wanted and self._log.is_synced:
                self._switch()
            return not self._wanted

    def _switch(self) -> None:
        """Switches memtables. Holds the write lock."""
        if not self._wanted:
            return  # another thread was faster
        usages = {number: usage.pack() for number, usage in self.usages.items()}
        self._switched = self._log.end, usages
        self._wanted = False
        self._db.flush_families()

    def note(self, rows: Mapping[bytes, bytes]) -> None:
        """Writes bookkeeping rows, in files on return. Raises RocksDB's own error."""
        errors = self._db.background_errors
        self._db.note(rows)
        self._db.flush_notes()
        self._wait(errors)

    def _wait(self, errors: int) -> None:
        """Waits until all rows are in files. errors: RocksDB's count before it began to write."""
        while self._db.is_flushing():
            if self._db.background_errors != errors:
                # Only a write reports the fault, and whether it persists.
                self._db.note({_PROBE_KEY: b""})
            time.sleep(_POLL_S)  # no event: RocksDB does not tell the end of a flush
