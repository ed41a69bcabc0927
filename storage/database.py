"""RocksDB for the engine: tables in memory and in files, without a log of its own.

The commit log is the only log, so RocksDB must never put rows into a file before they are durable
there: after a power loss nobody could take them back. Therefore nothing here flushes by itself
(memtables are larger than they ever get), and only `flush_cycle` calls `flush`, after it synced the
commit log.

The default family holds the bookkeeping: the place up to which tables hold the commit log, and the
groups in each of its segments.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocksdict import ColumnFamily, Rdict, WriteOptions
from rocksdict import WriteBatch as RocksBatch

from storage.errors import from_engine
from storage.kv import Family
from storage.metrics import number
from storage.options import EngineOptions, database_options, family_options

log = logging.getLogger(__name__)

#: as `Batch.operations`, but an entry's value is its place in the commit log
Row = tuple[Family, bytes, bytes | None, bool]

# About the memory of a row in a memtable besides its key and value.
_ROW_OVERHEAD = 64


class Database:
    """One open RocksDB.

    families: to read from. unflushed_bytes, unflushed_range_deletes: of rows written since
    the last `flush_families`, about.
    """

    def __init__(self, path: Path, options: EngineOptions, *, new: bool) -> None:
        """Opens RocksDB. new: it may not exist yet.

        Raises CorruptionError, LockedError, StorageError.
        """
        self.families: dict[Family, Rdict] = {}
        self.unflushed_bytes = 0
        self.unflushed_range_deletes = 0
        self._handles: dict[Family, ColumnFamily] = {}
        self._db: Rdict | None = None
        self._writes = WriteOptions()
        self._writes.disable_wal = True  # type: ignore[assignment, method-assign]  # wrong stub
        self._writes.no_slowdown = True
        columns = {f.value: each for f, each in family_options(options).items()}
        try:
            self._db = Rdict(str(path), database_options(options, new=new), columns)
            for family in Family:
                self.families[family] = self._db.get_column_family(family.value)
                self._handles[family] = self._db.get_column_family_handle(family.value)
        except Exception as error:
            self.close()
            raise from_engine(error, f"open {path}") from error

    @property
    def default(self) -> Rdict:
        assert self._db is not None, "closed"
        return self._db

    # -- rows ---------------------------------------------------------------------

    def write(self, rows: Sequence[Row]) -> None:
        """Writes rows into memory only. Raises RocksDB's own error."""
        batch = RocksBatch(raw_mode=True)
        size = range_deletes = 0
        for family, key, value, is_range in rows:
            size += len(key) + _ROW_OVERHEAD
            if value is None:
                batch.delete(key, self._handles[family])
                continue
            size += len(value)
            if is_range:
                range_deletes += 1
                batch.delete_range(key, value, self._handles[family])
            else:
                batch.put(key, value, self._handles[family])
        self.default.write(batch, self._writes)
        self.unflushed_bytes += size
        self.unflushed_range_deletes += range_deletes

    def note(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """Writes bookkeeping rows, all or none of them, into memory."""
        batch = RocksBatch(raw_mode=True)
        for key, value in puts.items():
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        self.default.write(batch, self._writes)

    def noted(self, key: bytes) -> bytes | None:
        """Returns a bookkeeping row. Raises CorruptionError, StorageError."""
        try:
            value: bytes | None = self.default.get(key)
        except Exception as error:
            raise from_engine(error, "read bookkeeping") from error
        return value

    # -- flushing -----------------------------------------------------------------

    def flush_families(self) -> None:
        """Begins to write all present rows into files; later rows are not among them."""
        for family in self.families.values():
            family.flush(False)
        self.unflushed_bytes = self.unflushed_range_deletes = 0

    def flush_notes(self) -> None:
        self.default.flush(False)

    def is_flushing(self) -> bool:
        return any(
            number(each, "rocksdb.num-immutable-mem-table")
            for each in (self.default, *self.families.values())
        )

    @property
    def background_errors(self) -> int:
        return number(self.default, "rocksdb.background-errors")

    # -- the end ------------------------------------------------------------------

    def close(self) -> None:
        """Flushes the rows in memory, so they must all be durable in the commit log."""
        # Handles first: each of them keeps RocksDB open.
        self._handles.clear()
        for each in [*self.families.values(), self._db]:
            if each is not None:
                try:
                    each.close()
                except Exception as error:  # noqa: BLE001
                    # After a fault it cannot flush. The commit log has all rows.
                    log.warning("closing RocksDB: %s", error)
        self.families.clear()
        self._db = None

    def abandon(self) -> None:
        """Leaves RocksDB open until the process ends.

        Closing would flush rows that the commit log may not have.
        """
        for each in [*self._handles.values(), *self.families.values(), self._db]:
            if each is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        self._handles.clear()
        self.families.clear()
        self._db = None
