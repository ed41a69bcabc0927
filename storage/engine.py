"""The store of a node: a commit log and RocksDB behind the `KeyValue` protocol.

    write(batch)  --> a record of the commit log (page cache), rows in RocksDB's memory
    sync()        --> fdatasync of the commit log, then the mark; call it from a thread
    get(entry)    --> its row in RocksDB says where in the commit log it stands

Faults. What then helps depends on what failed:

- There is no space for a record: the batch is refused and nothing else is harmed. `write`
  may be called with it again and again, until there is space.
- RocksDB cannot write its tables, the disk being full: the commit log has everything, so
  `write` opens RocksDB anew once there is space, and goes on.
- Any other fault: every further write is refused, reads go on. An fsync that failed once
  may report success the second time although the pages are lost. Only a restart of the
  process helps, and it checks what it finds.

Threads: any method from any thread; `close` waits for calls in flight. Nothing of RocksDB
is handed out, so nothing keeps it open.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from storage.batch import Batch
from storage.commitlog.log import CommitLog, Pointer
from storage.commitlog.record import Change, encode
from storage.commitlog.replay import Replay
from storage.commitlog.usage import Usage
from storage.database import Database, Row
from storage.errors import StorageError, StorageFullError, from_engine
from storage.flush_cycle import FlushCycle, stored_place, usage_key
from storage.gate import Gate
from storage.identity import sync_directory
from storage.kv import Family, WriteBatch
from storage.metrics import EngineStats, measure
from storage.options import EngineOptions
from storage.page import KeyRow, paged, read_page, reading
from storage.reclaim import Moved, Reclaimer
from storage.upkeep import Upkeep
from storage.watermark import Watermark

log = logging.getLogger(__name__)

# RocksDB offers nothing to wait on for the end of a stall.
_STALL_POLL_S = 0.002
_STALL_TEXT = "Write stall"
# Rows of a replay that are given to RocksDB at once.
_REPLAYED_BYTES = 1024 * 1024


class Engine:
    """One open store. Made by `Engine.open`."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        self.path = path
        self.options = options
        self._db: Database | None = None
        self._log: CommitLog
        self._mark: Watermark
        self._cycle: FlushCycle
        self._reclaimer: Reclaimer
        self._failure: StorageError | None = None
        self._closed = False
        self._gate = Gate()
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._upkeep: Upkeep

    # -- open and close ---------------------------------------------------------

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, options: EngineOptions | None = None) -> Engine:
        """Opens or creates the store in a directory of its own.

        Replays about `max_replay_bytes` of the commit log. Raises CorruptionError when
        stored data is damaged or synced writes are missing, and changes nothing then;
        LockedError, StorageFullError, StorageError.
        """
        engine = cls(Path(path), options or EngineOptions())
        try:
            (engine.path / "rocksdb").mkdir(parents=True, exist_ok=True)
            (engine.path / "log").mkdir(exist_ok=True)
            engine._mark = Watermark(engine.path / "synced")
            sync_directory(engine.path)
        except OSError as error:
            raise from_engine(error, f"open {engine.path}") from error
        try:
            engine._open_database()
        except BaseException:
            engine._mark.close()
            raise
        engine._upkeep = Upkeep(engine._keep_up)
        return engine

    def _open_database(self) -> None:
        """Opens RocksDB and replays the log. Leaves nothing open on failure."""
        synced, directory = self._mark.sequence, self.path / "log"
        db = Database(self.path / "rocksdb", self.options, new=synced == 0)
        replay = None
        try:
            done = stored_place(db)
            usages = {done.segment: Usage.unpack(db.noted(usage_key(done.segment)) or b"")}
            replay = Replay(directory, done, synced)
            self._replay(db, replay, usages)
            replay.settle()
            options = self.options
            self._log = CommitLog(
                directory, replay.end,
                open_segments=options.max_open_segments, page_cache_bytes=options.page_cache_bytes,
            )  # fmt: skip
            self._mark.advance(replay.end.number)
        except BaseException as error:
            # What no sync covered must not get into tables.
            if replay is None or replay.end.number <= synced:
                db.close()
            else:
                db.abandon()
            if isinstance(error, OSError):
                raise from_engine(error, f"open {directory}") from error
            raise
        sync, lock = self._sync_log, self._write_lock
        self._cycle = cycle = FlushCycle(db, self._log, options, done, usages, sync, lock)
        self._reclaimer = Reclaimer(db, self._log, cycle, sync, self._move)
        self._db = db

    @staticmethod
    def _replay(db: Database, replay: Replay, usages: dict[int, Usage]) -> None:
        rows: list[Row] = []
        rows_bytes = 0
        for place, operations in replay.records():
            for (family, key, end, at, size, crc), value in operations:
                if family is Family.ENTRIES and at:
                    value = Pointer(place.segment, place.position + at, size, crc).pack()
                    usages.setdefault(place.segment, Usage()).note(key, size)
                rows.append((family, key, value if end is None else end, end is not None))
                rows_bytes += len(key) + len(value or b"")
            if rows_bytes >= _REPLAYED_BYTES:
                db.write(rows)
                rows, rows_bytes = [], 0
        if rows:
            db.write(rows)

    def close(self) -> None:
        """Syncs, writes out memtables so that the next start is quick, closes.

        May be called more than once. Raises StorageError when the last sync fails.
        """
        try:
            if self._db is not None and self._failure is None:
                self.sync()
        finally:
            self._upkeep.stop()
            with self._exclusive():
                self._closed = True
                if self._db is not None:
                    self._close_database(self._db)
                self._mark.close()

    def _close_database(self, db: Database) -> None:
        self._db = None
        if self._failure is None:
            try:
                self._cycle.run()
            except Exception as error:  # noqa: BLE001
                # The next start replays more. What counts is in the commit log.
                log.warning("closing %s: %s", self.path, error)
            db.close()
        else:
            db.abandon()
        self._log.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing ------------------------------------------------------------------

    def batch(self) -> Batch:
        return Batch()

    def write(self, batch: WriteBatch) -> None:
        """See `KeyValue.write`. Raises StorageFullError and StorageError.

        Waits when the tables are far behind what was written.
        """
        assert isinstance(batch, Batch), batch
        if not batch.operations:
            return
        if isinstance(self._failure, StorageFullError):
            self._reopen()
        self._refuse_if_failed()
        self._refuse_if_full(batch)
        with self._shared() as db:
            if self._cycle.must_wait():
                self._guarded("write", self._cycle.run)
            with self._write_lock:
                self._append(db, batch.operations)

    def _append(self, db: Database, changes: Sequence[Change]) -> None:
        """One record, and its rows. Holds the write lock."""
        if self._log.end.position >= 2 * self.options.segment_bytes:
            self._guarded("write", lambda: self._log.roll(self._log.following()))
        encoded = encode(changes, self._log.end.number + 1)
        try:
            begin = self._log.append(encoded)
        except OSError as error:
            raise self._fail(error, "write") from error
        rows: list[Row] = []
        usage = self._cycle.usages.setdefault(begin.segment, Usage())
        places = iter(encoded.places)
        for change in changes:
            family, key, value, is_range = change
            if value is None or is_range:
                rows.append(change)
                continue
            at, size, crc = next(places)
            if family is Family.ENTRIES:
                usage.note(key, size)
                value = Pointer(begin.segment, begin.position + at, size, crc).pack()
            rows.append((family, key, value, False))
        try:
            self._write_rows(db, rows)
        except Exception as error:
            self._guarded("write", self._log.take_back)
            raise self._fail(error, "write") from error
        self._log.accept()

    def _write_rows(self, db: Database, rows: Sequence[Row]) -> None:
        waited = 0.0
        while True:
            try:
                return db.write(rows)
            except Exception as error:
                if _STALL_TEXT not in str(error):
                    raise
            time.sleep(_STALL_POLL_S)  # no event: RocksDB tells nobody that a flush ended
            waited += _STALL_POLL_S
            if waited >= 10.0:
                log.warning("store %s takes no writes: flushes do not keep up", self.path)
                waited = 0.0

    def sync(self) -> None:
        """See `KeyValue.sync`. One fdatasync for everything written so far by all groups."""
        if not isinstance(self._failure, StorageFullError):  # the commit log is sound then
            self._refuse_if_failed()
        with self._shared():
            self._guarded("sync", self._sync_log)
            if self._is_full() or self._cycle.is_due():
                self._upkeep.wake()

    def _is_full(self) -> bool:
        return self._log.end.position >= self.options.segment_bytes

    def _keep_up(self) -> None:
        """The next segment when it is time, and the tables behind the log."""
        if self._failure is not None or not self._gate.enter():
            return
        try:
            if self._db is not None and self._is_full():
                following = self._log.following()
                with self._write_lock:
                    self._log.roll(following)
            if self._db is not None and self._cycle.is_due():
                self._cycle.run()
        except Exception as error:  # noqa: BLE001
            # What was synced is; the next write is refused with this.
            self._fail(error, "flush")
        finally:
            self._gate.leave()

    def _sync_log(self) -> None:
        with self._sync_lock:
            self._mark.advance(self._log.sync())

    # -- faults -------------------------------------------------------------------

    @property
    def failure(self) -> StorageError | None:
        """Why writes are refused until there is space again, or until a restart; or None."""
        return self._failure

    def _guarded(self, action: str, step: Callable[[], None]) -> None:
        """Runs a step after whose failure nothing may be written any more."""
        try:
            step()
        except StorageError:
            raise  # known already, or none of the store itself
        except Exception as error:
            raise self._fail(error, action) from error

    def _fail(self, error: Exception, action: str) -> StorageError:
        """Remembers the first fault; it is what all later writes are refused with."""
        failure = from_engine(error, f"{action} {self.path}")
        if isinstance(failure, StorageFullError):
            if isinstance(error, OSError):
                # Of the commit log itself, where a sync failed: nobody knows what is left.
                failure = StorageError(str(failure))
            else:
                failure.recoverable_in_place = True
        if self._failure is None:
            self._failure = failure
            log.error("store %s refuses further writes: %s", self.path, failure)
        return failure

    def _refuse_if_failed(self) -> None:
        failure = self._failure
        if isinstance(failure, StorageFullError):
            raise failure.again(f"refused since an earlier fault: {failure}")
        if failure is not None:
            raise type(failure)(f"refused since an earlier fault: {failure}")

    def _refuse_if_full(self, batch: Batch) -> None:
        free, reserve = self._free_bytes(), self.options.min_free_bytes
        if not batch.fits(free, reserve):
            raise StorageFullError(
                f"{self.path}: {free} bytes free, writes need min_free_bytes = {reserve}",
                recoverable_in_place=True,
            )

    def _free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def _reopen(self) -> None:
        """Opens RocksDB anew after a full disk, once there is space for its tables.

        Raises StorageFullError while there is too little space (reads go on).
        """
        with self._exclusive():
            failure = self._failure
            if not isinstance(failure, StorageFullError) or self._closed:
                return
            db = self._db
            needed = self.options.min_free_bytes + (2 * db.unflushed_bytes if db else 0)
            free = self._free_bytes()
            if free < needed:
                raise failure.again(f"{self.path}: {free} bytes free, recovery needs {needed}")
            if db is not None:
                self._guarded("sync", self._sync_log)  # closing writes out what is in memory
                self._db = None
                db.close()
                self._log.close()
            try:
                self._open_database()
            except StorageFullError as error:
                raise failure.again(str(error)) from error
            except StorageError as error:
                self._failure = error
                raise
            self._failure = None
            log.warning("store %s recovered after a full disk", self.path)

    # -- reading ------------------------------------------------------------------

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._get(family, key, checked=True)

    def get_unchecked(self, family: Family, key: bytes) -> bytes | None:
        """See `KeyValue.get_unchecked`."""
        return self._get(family, key, checked=False)

    def _get(self, family: Family, key: bytes, *, checked: bool) -> bytes | None:
        with self._shared() as db:
            with reading(family):
                row: bytes | None = db.families[family].get(key)
            if row is None or family is not Family.ENTRIES:
                return row
            return self._entry(db, key, row, checked=checked)

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `KeyValue.get_many`. Frees the interpreter's lock while it reads."""
        with self._shared() as db:
            with reading(family):
                rows: list[bytes | None] = db.families[family].get(list(keys))  # type: ignore[assignment]
            if family is not Family.ENTRIES:
                return rows
            return [
                None if row is None else self._entry(db, key, row)
                for key, row in zip(keys, rows, strict=True)
            ]

    def _entry(self, db: Database, key: bytes, row: bytes, *, checked: bool = True) -> bytes | None:
        """What the row points to. None: it was dropped, or moved and dropped, meanwhile."""
        while True:
            pointer = Pointer.unpack(row)
            try:
                return (self._log.read if checked else self._log.read_unchecked)(pointer)
            except StorageError:
                with reading(Family.ENTRIES):
                    now: bytes | None = db.families[Family.ENTRIES].get(key)
                if now == row:
                    raise
                if now is None:
                    return None
                row = now
            except OSError as error:
                raise from_engine(error, "read entries") from error

    def scan(
        self, family: Family, begin: bytes, end: bytes, *,
        limit: int | None = None, reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:  # fmt: skip
        """See `KeyValue.scan`. Reads pages; holds nothing of RocksDB between them."""
        for key, row in self._rows(family, begin, end, limit, reverse):
            value: bytes | None = row
            if family is Family.ENTRIES:
                with self._shared() as db:
                    value = self._entry(db, key, row)
            if value is not None:
                yield key, value

    def scan_keys(
        self, family: Family, begin: bytes, end: bytes, *,
        limit: int | None = None, reverse: bool = False,
    ) -> Iterator[bytes]:  # fmt: skip
        """See `KeyValue.scan_keys`. Does not read the commit log."""
        return (key for key, _ in self._rows(family, begin, end, limit, reverse))

    def _rows(
        self, family: Family, begin: bytes, end: bytes, limit: int | None, reverse: bool
    ) -> Iterator[KeyRow]:
        def page(begin: bytes, end: bytes, rows: int) -> tuple[list[KeyRow], bool]:
            with self._shared() as db, reading(family):
                return read_page(db.families[family], begin, end, rows=rows, reverse=reverse)

        return paged(page, begin, end, limit=limit, reverse=reverse)

    # -- space and figures ----------------------------------------------------------

    def stats(self) -> EngineStats:
        """Figures for metrics. Lists the directory: for every few seconds, not for every batch."""
        with self._shared() as db:
            return measure(
                self.path,
                db.families,
                db.default,
                replay_bytes=self._cycle.replay_bytes,
                garbage=self._reclaimer.garbage_bytes,
            )

    def reclaim(self) -> None:
        """Gives trimmed entries' space back now; blocks, for an executor thread.

        Deletes segments of the commit log that no group needs, and moves what is
        still alive out of those that are mostly garbage (one slow group among many).
        """
        self._refuse_if_failed()
        with self._shared():
            room = self._free_bytes() - self.options.min_free_bytes
            self._guarded("reclaim", lambda: self._reclaimer.run(room))

    def _move(self, entries: list[Moved]) -> None:
        """Appends entries anew, as far as they still stand where they stood."""
        values = [self._log.read(pointer) for _, pointer in entries]
        batch = Batch()
        with self._shared() as db:
            with self._write_lock:
                family = db.families[Family.ENTRIES]
                for (key, pointer), value in zip(entries, values, strict=True):
                    if family.get(key) == pointer.pack():
                        batch.put(Family.ENTRIES, key, value)
                if batch.operations:
                    self._append(db, batch.operations)
        self.sync()

    # -- who is inside ----------------------------------------------------------------

    @contextmanager
    def _shared(self) -> Iterator[Database]:
        """Inside, RocksDB stays open."""
        if not self._gate.enter():
            raise StorageError(f"store {self.path} is being closed")
        try:
            if self._db is None:
                raise StorageError(f"store {self.path} is closed")
            yield self._db
        finally:
            self._gate.leave()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Inside, nobody else uses RocksDB."""
        if not self._gate.shut():
            raise StorageError(f"store {self.path} is being closed")
        try:
            yield
        finally:
            self._gate.open()
