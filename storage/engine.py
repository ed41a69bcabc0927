"""The store of a node: RocksDB behind the `KeyValue` protocol.

    write(batch)  --> WAL (page cache) and memtable     holds the interpreter's lock, short
    sync()        --> fsync of the WAL, then the mark   frees the lock, call it from a thread
    background    --> blob files and tables, compaction

Faults. After a write or sync that failed the engine refuses every further
write; reads go on. What then helps depends on what was not yet synced:

- The disk is full and all earlier writes had been synced: only the refused
  batch is undone. `write` may be called with it again and again; once there is
  space it opens the store anew and goes on (`recoverable_in_place`).
- The disk is full and something was not synced: it may be gone or not.
  `recover()` opens the store anew, and everybody who holds state in memory
  loads it again; or the process starts again.
- Any other fault: an fsync that failed once may report success the second time
  although the pages are lost. Only a restart of the process helps, and it
  checks what it finds.

Threads: any method from any thread; `close` and `recover` wait for calls in
flight. Nothing of RocksDB is handed out, so nothing keeps it open.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocksdict import ColumnFamily, Rdict, ReadOptions, WriteOptions

from storage.batch import Batch
from storage.errors import CorruptionError, StorageError, StorageFullError, from_engine
from storage.gate import Gate
from storage.identity import sync_directory
from storage.kv import Family, WriteBatch
from storage.metrics import EngineStats, measure, number
from storage.options import EngineOptions, database_options, family_options, unchecked_reads
from storage.page import PAGE_ROWS, read_page
from storage.reclaim import reclaim
from storage.wal import keep_wal, mend_wal, wal_bytes
from storage.watermark import Watermark

log = logging.getLogger(__name__)

# A read of a memtable with many range marks sorts them anew after each new one.
MAX_RANGE_DELETES = 1000
# RocksDB offers nothing to wait on for the end of a stall.
_STALL_POLL_S = 0.002
_STALL_TEXT = "Write stall"


class Engine:
    """One open RocksDB. Made by `Engine.open`."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        self.path = path
        self.options = options
        self._db: Rdict | None = None
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        self._unchecked_reads = unchecked_reads()
        self._mark: Watermark | None = None
        self._failure: StorageError | None = None
        self._gate = Gate()
        self._errors_seen = 0
        # Batches written, and how many of them the last sync made durable.
        self._written = 0
        self._synced = 0
        # Range deletes in each family's memtable, roughly.
        self._range_deletes = dict.fromkeys(Family, 0)
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True

    # -- open and close ---------------------------------------------------------

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, options: EngineOptions | None = None) -> Engine:
        """Opens or creates the store in a directory of its own.

        Replays at most `max_wal_bytes`. Raises CorruptionError when stored
        data is damaged or synced writes are missing (the WAL files as found are
        then kept in `wal-found/`), LockedError, StorageFullError, StorageError.
        """
        engine = cls(Path(path), options or EngineOptions())
        try:
            (engine.path / "rocksdb").mkdir(parents=True, exist_ok=True)
            engine._mark = Watermark(engine.path / "synced")
            sync_directory(engine.path)
        except OSError as error:
            raise from_engine(error, f"open {engine.path}") from error
        try:
            engine._open_database()
        except BaseException:
            engine._mark.close()
            raise
        return engine

    def close(self) -> None:
        """Syncs, writes out memtables so that the next start is quick, closes.

        May be called more than once. Raises StorageError when the last sync fails.
        """
        try:
            if self._db is not None and self._failure is None:
                self.sync()
        finally:
            with self._exclusive():
                self._close_database()
            if self._mark is not None:
                self._mark.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def recover(self) -> None:
        """Opens the store anew after a StorageFullError, once there is space.

        Writes that were not synced before the fault may be gone or not: the
        caller loads again whatever it holds in memory. Until then reads of
        other threads fail with StorageError. Does nothing when nothing failed.
        Raises StorageFullError while there is too little space (reads go on),
        and the first error again when that was not a full disk.
        """
        with self._exclusive():
            if self._failure is None:
                return
            if not isinstance(self._failure, StorageFullError):
                raise self._failure
            failure = self._failure
            needed = self.options.min_free_bytes + wal_bytes(self.path / "rocksdb")
            free = self._free_bytes()
            if free < needed:
                raise failure.again(f"{self.path}: {free} bytes free, recovery needs {needed}")
            self._close_database()
            try:
                self._open_database()
            except StorageFullError as error:
                raise failure.again(str(error)) from error
            except StorageError as error:
                self._failure = error
                raise
            self._failure = None
            self._written = self._synced
            log.warning("store %s recovered after a full disk", self.path)

    def _open_database(self) -> None:
        """Opens RocksDB and checks it against the mark. Leaves nothing open on failure."""
        assert self._mark is not None
        database = self.path / "rocksdb"
        found = self.path / "wal-found"
        columns = {f.value: each for f, each in family_options(self.options).items()}
        try:
            keep_wal(database, found)
            mend_wal(database)
            options = database_options(self.options, new=self._mark.sequence == 0)
            self._db = db = Rdict(str(database), options, columns)
            for family in Family:
                self._families[family] = db.get_column_family(family.value)
                self._handles[family] = db.get_column_family_handle(family.value)
        except Exception as error:
            self._close_database()
            raise from_engine(error, f"open {database}") from error
        self._errors_seen = 0
        reached = db.latest_sequence_number()
        if reached < self._mark.sequence:
            self._close_database()
            raise CorruptionError(
                f"{database}: {self._mark.sequence - reached} synced writes are missing "
                f"(found up to {reached}, synced up to {self._mark.sequence}); "
                f"the WAL files as found are in {found}"
            )
        shutil.rmtree(found, ignore_errors=True)

    def _close_database(self) -> None:
        # Handles first: each keeps RocksDB open.
        self._handles.clear()
        for each in [*self._families.values(), self._db]:
            if each is not None:
                try:
                    each.close()
                except Exception as error:  # noqa: BLE001
                    # Closing writes out memtables, which cannot work after a fault. What
                    # counts was synced before, and the fault has been raised where it was.
                    log.warning("closing %s: %s", self.path, error)
        self._families.clear()
        self._db = None

    # -- writing ------------------------------------------------------------------

    def batch(self) -> Batch:
        return Batch()

    def write(self, batch: WriteBatch) -> None:
        """See `KeyValue.write`. Raises StorageFullError and StorageError.

        Waits when RocksDB cannot take more (memtables not yet written out);
        `sync` normally takes that wait before, in its own thread.
        """
        assert isinstance(batch, Batch), batch
        if not batch.operations:
            return
        failure = self._failure
        if isinstance(failure, StorageFullError) and failure.recoverable_in_place:
            self.recover()
        self._refuse_if_failed()
        self._refuse_if_full(batch)
        waited = 0.0
        while True:
            with self._shared() as db:
                try:
                    db.write(batch.for_rocksdb(self._handles), self._write_options)
                    self._written += 1
                    break
                except Exception as error:
                    if _STALL_TEXT not in str(error):
                        raise self._fail(error, "write") from error
            time.sleep(_STALL_POLL_S)  # no event: RocksDB tells nobody that a flush ended
            waited += _STALL_POLL_S
            if waited >= 10.0:
                log.warning("store %s takes no writes: flushes do not keep up", self.path)
                waited = 0.0
        if batch.deletes_range:
            for family, _, _, is_range in batch.operations:
                self._range_deletes[family] += is_range

    def sync(self) -> None:
        """See `KeyValue.sync`. One fsync for everything written so far by all groups.

        Also where backpressure is felt: returns only when RocksDB can take the
        next batch without making `write` wait.
        """
        self._refuse_if_failed()
        with self._shared() as db:
            written, sequence = self._written, db.latest_sequence_number()
            try:
                db.flush_wal(True)
                assert self._mark is not None
                self._mark.advance(sequence)
                self._synced = written
                self._flush_range_deletes()
            except Exception as error:
                raise self._fail(error, "sync") from error
            self._wait_for_room(db)

    def _flush_range_deletes(self) -> None:
        for family, count in self._range_deletes.items():
            if count >= MAX_RANGE_DELETES:
                self._range_deletes[family] = 0
                self._families[family].flush(False)

    def _wait_for_room(self, db: Rdict) -> None:
        entries = self._families[Family.ENTRIES]
        most = self.options.entries_memtables - 1
        while number(entries, "rocksdb.num-immutable-mem-table") >= most:
            errors = number(db, "rocksdb.background-errors")
            if errors != self._errors_seen:
                # A flush failed, so the wait may have no end. What failed is
                # the answer to the next write, unless RocksDB recovers before.
                self._errors_seen = errors
                return
            time.sleep(_STALL_POLL_S)  # no event: RocksDB tells nobody that a flush ended

    # -- faults -------------------------------------------------------------------

    @property
    def failure(self) -> StorageError | None:
        """Why writes are refused until `recover()` or a restart, or None."""
        return self._failure

    def _fail(self, error: Exception, action: str) -> StorageError:
        """Remembers the first fault; it is what all later writes are refused with."""
        failure = from_engine(error, f"{action} {self.path}")
        if isinstance(failure, StorageFullError):
            # Then opening the store anew loses nothing that anybody counts on.
            failure.recoverable_in_place = self._synced == self._written
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

    # -- reading ------------------------------------------------------------------

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._get(family, key, None)

    def get_unchecked(self, family: Family, key: bytes) -> bytes | None:
        """See `KeyValue.get_unchecked`. RocksDB's check of a large value takes 1 ms for 1 MB."""
        return self._get(family, key, self._unchecked_reads)

    def _get(self, family: Family, key: bytes, reads: ReadOptions | None) -> bytes | None:
        with self._shared():
            try:
                value: bytes | None = self._families[family].get(key, read_opt=reads)
            except Exception as error:
                raise from_engine(error, f"read {family.value}") from error
            return value

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `KeyValue.get_many`. Frees the interpreter's lock while it reads."""
        with self._shared():
            try:
                values: list[bytes | None] = self._families[family].get(list(keys))  # type: ignore[assignment]
            except Exception as error:
                raise from_engine(error, f"read {family.value}") from error
            return values

    def scan(
        self,
        family: Family,
        begin: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """See `KeyValue.scan`. Reads pages; holds nothing of RocksDB between them."""
        left = limit if limit is not None else -1
        while left != 0 and begin < end:
            rows = PAGE_ROWS if left < 0 else min(PAGE_ROWS, left)
            with self._shared():
                try:
                    page, more = read_page(
                        self._families[family], begin, end, rows=rows, reverse=reverse
                    )
                except Exception as error:
                    raise from_engine(error, f"scan {family.value}") from error
            yield from page
            if not more:
                return
            left -= len(page) if left > 0 else 0
            if reverse:
                end = page[-1][0]
            else:
                begin = page[-1][0] + b"\x00"

    # -- space and figures ----------------------------------------------------------

    def stats(self) -> EngineStats:
        """Figures for metrics. Lists the directory: for every few seconds, not for every batch."""
        with self._shared() as db:
            return measure(self.path, db, self._families)

    def reclaim(self) -> None:
        """Gives trimmed entries' space back now; blocks, for an executor thread.

        Trims are only marks until a compaction meets them, and an idle node
        has none. Also moves what is still alive out of blob files that are
        mostly garbage (one slow group among many).
        """
        self._refuse_if_failed()
        with self._shared():
            try:
                room = self._free_bytes() - self.options.min_free_bytes
                reclaim(self._families[Family.ENTRIES], room)
            except Exception as error:
                raise self._fail(error, "reclaim") from error

    # -- who is inside ----------------------------------------------------------------

    @contextmanager
    def _shared(self) -> Iterator[Rdict]:
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
