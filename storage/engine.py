"""Engine of a node's store: a commit log and RocksDB behind the `KeyValue` protocol.

    write(batch)  --> a record of the commit log (page cache), rows in RocksDB's memory
    sync()        --> fdatasync of the commit log, then the mark; call it from a thread
    get(entry)    --> its row in RocksDB says where in the commit log it stands

Faults and their remedies:

- There is no space for a record: the batch is refused and nothing else is harmed. `write` may be
  called with it again and again, until there is space.
- RocksDB cannot write its tables, for lack of space or of open files: the commit log has
  everything, so `write` reopens RocksDB once there is both, and goes on.
- Any other fault: every further write is refused, reads go on. An fsync that failed once may report
  success the second time although the pages are lost. Only a restart of the process helps; it
  checks the stored data.

Threads: any method from any thread; `close` waits for calls in flight. Nothing of RocksDB
is handed out, so nothing keeps it open.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from storage.batch import Batch
from storage.commitlog.log import Pointer
from storage.commitlog.record import encode
from storage.commitlog.usage import SegmentUsage
from storage.database import Row
from storage.errors import NotCachedError, StorageError, StorageFullError, fault_of, from_engine
from storage.gate import ClosingGate
from storage.identity import DirectoryLock
from storage.kv import Family, WriteBatch
from storage.metrics import EngineStats, measure
from storage.opening import OpeningParameters, OpenStore, open_store
from storage.options import EngineOptions
from storage.page import KeyRow, paged, read_page, reading
from storage.reclaim import Moved
from storage.system import SYSTEM, System
from storage.upkeep import Upkeep
from storage.watermark import Watermark

log = logging.getLogger(__name__)

# RocksDB has no event for the end of a stall.
_STALL_POLL_S = 0.002
# Open files that a new RocksDB needs, beyond those of its tables.
_TO_REOPEN = 32
_STALL_TEXT = "Write stall"


class Engine:
    """One open store. Made by `Engine.open`."""

    def __init__(
        self,
        path: Path,
        options: EngineOptions,
        mark: Watermark,
        directory: DirectoryLock | None,
        system: System,
    ) -> None:
        self.path = path
        self.options = options
        self._mark = mark
        self._failure: StorageError | None = None
        self._closed = False
        self._gate = ClosingGate()
        self._write_lock = system.lock()
        self._setting = OpeningParameters(
            path, options, system, directory, mark, self._write_lock, self._move
        )
        self._store: OpenStore | None = open_store(self._setting)
        self._upkeep = Upkeep(self._keep_up)

    # -- open and close ---------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        options: EngineOptions | None = None,
        directory: DirectoryLock | None = None,
        system: System = SYSTEM,
    ) -> Engine:
        """Opens or creates the store in a folder of its own.

        directory: the data directory that it belongs to; None: no check of that. Replays about
        `max_replay_bytes` of the commit log. Raises CorruptionError when stored data is damaged or
        synced writes are missing, MissingStoreError and IdentityError when it is not the
        directory's, and changes nothing then; LockedError, StorageFullError, StorageError.
        """
        place = Path(path)
        if directory is not None:
            directory.check_store(place)
        try:
            for folder in (place / "rocksdb", place / "log"):
                system.make_directory(folder)
            mark = Watermark(place / "synced", system)
            # Also the names that were created just before a crash.
            system.sync_directory(place)
            system.sync_directory(place.parent)
        except OSError as error:
            raise from_engine(error, f"open {place}") from error
        try:
            engine = cls(place, options or EngineOptions(), mark, directory, system)
        except BaseException:
            mark.close()
            raise
        try:
            if directory is not None:
                directory.note_store()
        except OSError as error:
            engine.close()
            raise from_engine(error, f"open {place}") from error
        return engine

    def close(self) -> None:
        """Syncs, writes out memtables so that the next start is quick, closes.

        May be called more than once. Raises StorageError when the last sync fails.
        """
        try:
            if self._store is not None and self._failure is None:
                self.sync()
        finally:
            self._upkeep.stop()
            with self._exclusive():
                self._closed = True
                store, self._store = self._store, None
                if store is not None:
                    store.close(self.path, is_sound=self._failure is None)
                self._mark.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing ------------------------------------------------------------------

    def batch(self) -> Batch:
        return Batch()

    def write(self, batch: WriteBatch) -> None:
        """Writes a batch as `KeyValue.write`. Raises StorageFullError and StorageError.

        Waits when the tables are far behind the log.
        """
        assert isinstance(batch, Batch), batch
        if not batch.operations:
            return
        if isinstance(self._failure, StorageFullError):
            self._reopen()
        self._refuse_if_failed()
        self._refuse_if_full(batch)
        with self._shared() as store:
            self._catch_up(store)
            with self._write_lock:
                self._refuse_if_failed()  # another thread may have met a fault meanwhile
                self._append(store, batch)

    @property
    def is_behind(self) -> bool:
        """Whether `write` would wait for the tables: call `catch_up` from a thread before."""
        store = self._store
        return store is not None and store.cycle.must_wait() and self._failure is None

    def catch_up(self) -> None:
        """Waits until the tables hold everything written. Blocks. Raises StorageError.

        If the disk is full, the next `write` says so.
        """
        with suppress(StorageFullError), self._shared() as store:
            self._catch_up(store)

    def _catch_up(self, store: OpenStore) -> None:
        if store.cycle.must_wait():
            self._guarded("write", store.cycle.run)

    def _append(self, store: OpenStore, batch: Batch) -> None:
        """Appends one record, and writes its rows. Holds the write lock."""
        commit_log = store.log
        if commit_log.end.position >= 2 * self.options.segment_bytes:
            self._guarded("write", lambda: commit_log.roll(commit_log.following()))
        encoded = encode(batch.operations, batch.checksums)
        try:
            begin = commit_log.append(encoded)
        except OSError as error:
            raise self._fail(error, "write") from error
        rows: list[Row] = []
        usage = store.cycle.usages.setdefault(begin.segment, SegmentUsage())
        places = iter(encoded.places)
        for change in batch.operations:
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
            self._write_rows(store, rows)
        except Exception as error:
            self._guarded("write", commit_log.take_back)
            raise self._fail(error, "write") from error
        commit_log.accept()

    def _write_rows(self, store: OpenStore, rows: Sequence[Row]) -> None:
        waited = 0.0
        while True:
            try:
                return store.db.write(rows)
            except Exception as error:
                if _STALL_TEXT not in str(error):
                    raise
            time.sleep(_STALL_POLL_S)  # no event: RocksDB does not tell the end of a flush
            waited += _STALL_POLL_S
            if waited >= 10.0:
                log.warning("store %s takes no writes: flushes do not keep up", self.path)
                waited = 0.0

    def sync(self) -> None:
        """Syncs as `KeyValue.sync`: one fdatasync for all groups' writes so far."""
        if not isinstance(self._failure, StorageFullError):  # the commit log is sound then
            self._refuse_if_failed()
        with self._shared() as store:
            self._guarded("sync", store.log.sync)
            if store.cycle.is_wanted:
                self._guarded("flush", store.cycle.switch_if_synced)
            if self._is_full(store) or store.cycle.is_due():
                self._upkeep.wake()

    def _is_full(self, store: OpenStore) -> bool:
        return store.log.end.position >= self.options.segment_bytes

    def _keep_up(self) -> None:
        """Makes the next segment if one is due, and moves the tables on."""
        if self._failure is not None or not self._gate.enter():
            return
        try:
            store = self._store
            if store is not None and self._is_full(store):
                following = store.log.following()
                with self._write_lock:
                    store.log.roll(following)
            if store is not None and store.cycle.is_due():
                store.cycle.run()
        except StorageError:
            return  # the failed step has noted the fault
        except Exception as error:  # noqa: BLE001
            # Synced writes are safe; the next write is refused with this fault.
            self._fail(error, "flush")
        finally:
            self._gate.leave()

    # -- faults -------------------------------------------------------------------

    @property
    def failure(self) -> StorageError | None:
        """The reason for refused writes, until there is space again or a restart; or None."""
        return self._failure

    def _guarded(self, action: str, step: Callable[[], object]) -> None:
        """Runs a step; if it fails, no more writes are allowed."""
        try:
            step()
        except StorageError:
            raise  # known already, or not a fault of the store itself
        except Exception as error:
            raise self._fail(error, action) from error

    def _fail(self, error: Exception, action: str) -> StorageError:
        """Notes the first fault; all later writes are refused with it."""
        failure = fault_of(error, f"{action} {self.path}")
        if isinstance(failure, StorageFullError) and isinstance(error, OSError):
            return failure  # a file could not be opened: there is nothing to recover from
        # A full disk may get space again; a later fault may need a restart.
        if self._failure is None or (
            isinstance(self._failure, StorageFullError)
            and not isinstance(failure, StorageFullError)
        ):
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
        """Reopens RocksDB after a full disk, once there is space for its tables.

        Raises StorageFullError while there is too little space (reads go on).
        """
        with self._exclusive():
            failure = self._failure
            if not isinstance(failure, StorageFullError) or self._closed:
                return
            store = self._store
            needed = self.options.min_free_bytes
            needed += 2 * store.db.unflushed_bytes if store is not None else 0
            free = self._free_bytes()
            if free < needed:
                raise failure.again(f"{self.path}: {free} bytes free, recovery needs {needed}")
            if not self._setting.system.has_descriptors(_TO_REOPEN):
                raise failure.again(f"{self.path}: recovery needs {_TO_REOPEN} more open files")
            if store is not None:
                self._guarded("sync", store.log.sync)  # closing flushes the rows in memory
                self._store = None
                store.db.close()
                store.log.close()
            try:
                self._store = open_store(self._setting)
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

    def get_unchecked(
        self, family: Family, key: bytes, *, cached_only: bool = False
    ) -> bytes | None:
        """See `KeyValue.get_unchecked`. RocksDB's rows are small, and read as ever."""
        return self._get(family, key, checked=False, cached_only=cached_only)

    def _get(
        self, family: Family, key: bytes, *, checked: bool, cached_only: bool = False
    ) -> bytes | None:
        with self._shared() as store:
            with reading(family):
                row: bytes | None = store.db.families[family].get(key)
            if row is None or family is not Family.ENTRIES:
                return row
            return self._entry(store, key, row, checked=checked, cached_only=cached_only)

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `KeyValue.get_many`. Frees the interpreter's lock while it reads."""
        with self._shared() as store:
            with reading(family):
                rows: list[bytes | None] = store.db.families[family].get(list(keys))  # type: ignore[assignment]
            if family is not Family.ENTRIES:
                return rows
            return [
                None if row is None else self._entry(store, key, row)
                for key, row in zip(keys, rows, strict=True)
            ]

    def _entry(
        self,
        store: OpenStore,
        key: bytes,
        row: bytes,
        *,
        checked: bool = True,
        cached_only: bool = False,
    ) -> bytes | None:
        """Returns the entry at the row's place. None: dropped, or moved and dropped, meanwhile."""
        while True:
            pointer = Pointer.unpack(row)
            try:
                if cached_only and not store.log.is_cached(pointer):
                    raise NotCachedError(f"{pointer.size} bytes are on the disk only")
                return (store.log.read if checked else store.log.read_unchecked)(pointer)
            except NotCachedError:
                raise
            except StorageError:
                with reading(Family.ENTRIES):
                    now: bytes | None = store.db.families[Family.ENTRIES].get(key)
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
                with self._shared() as store:
                    value = self._entry(store, key, row)
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
            with self._shared() as store, reading(family):
                return read_page(store.db.families[family], begin, end, rows=rows, reverse=reverse)

        return paged(page, begin, end, limit=limit, reverse=reverse)

    # -- space and figures ----------------------------------------------------------

    def stats(self) -> EngineStats:
        """Returns figures for metrics. Lists the directory: not for every batch."""
        with self._shared() as store:
            return measure(
                self.path,
                store.db.families,
                store.db.default,
                replay_bytes=store.cycle.replay_bytes,
                garbage=store.reclaimer.garbage_bytes,
            )

    def reclaim(self) -> None:
        """Frees the space of trimmed entries now; blocks, for an executor thread.

        Deletes segments of the commit log that no group needs. Moves live entries out of segments
        that are mostly garbage (one slow group among many). The open segment is closed before, if
        it is mostly garbage.
        """
        self._refuse_if_failed()
        with self._shared() as store:
            room = self._free_bytes() - self.options.min_free_bytes
            self._guarded("reclaim", lambda: self._close_garbage(store))
            self._guarded("reclaim", lambda: store.reclaimer.run(room))

    def _close_garbage(self, store: OpenStore) -> None:
        with self._write_lock:
            end = store.log.end
            usage = store.cycle.usages.get(end.segment, SegmentUsage())
            spans = [(group, replace(span)) for group, span in usage.spans.items()]
        if store.reclaimer.is_mostly_garbage(spans, end.position):
            following = store.log.following()
            with self._write_lock:
                store.log.roll(following)

    def _move(self, entries: list[Moved]) -> None:
        """Appends entries again, if their place has not changed."""
        batch = Batch()
        with self._shared() as store:
            values = [store.log.read(pointer) for _, pointer in entries]
            with self._write_lock:
                self._refuse_if_failed()
                family = store.db.families[Family.ENTRIES]
                for (key, pointer), value in zip(entries, values, strict=True):
                    if family.get(key) == pointer.pack():
                        batch.put(Family.ENTRIES, key, value, pointer.crc)
                if batch.operations:
                    self._append(store, batch)
        self.sync()

    # -- access to RocksDB ------------------------------------------------------------

    @contextmanager
    def _shared(self) -> Iterator[OpenStore]:
        """Keeps RocksDB open inside."""
        if not self._gate.enter():
            raise StorageError(f"store {self.path} is being closed")
        try:
            if self._store is None:
                raise StorageError(f"store {self.path} is closed")
            yield self._store
        finally:
            self._gate.leave()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keeps all other users out of RocksDB inside."""
        if not self._gate.shut():
            raise StorageError(f"store {self.path} is being closed")
        try:
            yield
        finally:
            self._gate.open()
