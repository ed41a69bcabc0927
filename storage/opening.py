"""Opening of a store: opens RocksDB, replays the log, and gets both ready to go on.

    open_store --> Database, Replay --> CommitLog, FlushCycle, Reclaimer: an OpenStore,
                   which lives until the store is closed, or reopened after a full disk

The directory's id is a row of RocksDB's bookkeeping and in the header of each file of the
log. A store of format 3 gets both here: the row, and a new file for further records.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from storage.commitlog.log import BEGIN, CommitLog, Place, Pointer
from storage.commitlog.replay import Replay
from storage.commitlog.usage import SegmentUsage
from storage.database import Database, Row
from storage.errors import CorruptionError, IdentityError, from_engine
from storage.flush_cycle import FlushCycle, stored_place, usage_key
from storage.identity import DirectoryLock, StoreState
from storage.kv import Family
from storage.options import EngineOptions
from storage.reclaim import Moved, Reclaimer
from storage.system import System
from storage.watermark import Watermark

log = logging.getLogger(__name__)

DIRECTORY_KEY = b"directory"
_U64 = struct.Struct(">Q")
# Replayed rows go to RocksDB in batches of this size.
_REPLAYED_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Parts of a store, from one opening to its end."""

    db: Database
    log: CommitLog
    cycle: FlushCycle
    reclaimer: Reclaimer

    def close(self, path: Path, *, is_sound: bool) -> None:
        """Writes out memtables, so that the next start is quick, if all is well."""
        if is_sound:
            try:
                self.cycle.run()
            except Exception as error:  # noqa: BLE001
                # The next start replays more. The commit log has everything.
                log.warning("closing %s: %s", path, error)
        if is_sound and self.log.failure is None:
            self.db.close()
        else:
            self.db.abandon()
        self.log.close()


@dataclass(frozen=True, slots=True)
class OpeningParameters:
    """Parameters of an opening.

    directory: the store's owner; None for a tool, which takes any store. write_lock, move: see
    FlushCycle, Reclaimer.
    """

    path: Path
    options: EngineOptions
    system: System
    directory: DirectoryLock | None
    mark: Watermark
    write_lock: AbstractContextManager[object]
    move: Callable[[list[Moved]], None]

    @property
    def is_made(self) -> bool:
        """Whether a store of the present format certainly exists."""
        return self.directory is not None and self.directory.store is StoreState.MADE


def open_store(setting: OpeningParameters) -> OpenStore:
    """Opens RocksDB and replays the log. Leaves nothing open on failure.

    Raises StorageError and its kinds.
    """
    synced, directory = setting.mark.sequence, setting.path / "log"
    db = Database(
        setting.path / "rocksdb", setting.options, new=synced == 0 and not setting.is_made
    )
    replay = None
    try:
        done = stored_place(db)
        replay = Replay(
            directory,
            done,
            synced,
            directory_id=_directory_id(setting, db, done),
            has_log=setting.is_made,
            system=setting.system,
        )
        usages = {done.segment: SegmentUsage.unpack(db.noted(usage_key(done.segment)) or b"")}
        _replay(db, replay, usages)
        replay.finish()
        return _open_at_end(setting, db, replay, done, usages)
    except BaseException as error:
        # Rows that no sync covered must not get into tables.
        if replay is None or replay.end.number <= replay.synced:
            db.close()
        else:
            db.abandon()
        if isinstance(error, OSError):
            raise from_engine(error, f"open {directory}") from error
        raise


def _open_at_end(
    setting: OpeningParameters,
    db: Database,
    replay: Replay,
    done: Place,
    usages: dict[int, SegmentUsage],
) -> OpenStore:
    options, directory_id = setting.options, replay.directory_id or 0
    commit_log = CommitLog(
        setting.path / "log",
        replay.log_end,
        setting.mark,
        directory_id=directory_id,
        open_segments=options.max_open_segments,
        page_cache_bytes=options.page_cache_bytes,
        system=setting.system,
    )
    setting.mark.advance(replay.end.number)
    cycle = FlushCycle(db, commit_log, options, done, usages, setting.write_lock, setting.system)
    if directory_id and db.noted(DIRECTORY_KEY) is None:
        row = {DIRECTORY_KEY: _U64.pack(directory_id)}
        if setting.directory is not None and setting.directory.store is StoreState.OLD:
            try:
                cycle.note(row)  # required from now on
            except Exception as error:
                raise from_engine(error, f"write {setting.path / 'rocksdb'}") from error
        else:
            db.note(row)  # in a file together with the first rows there
    return OpenStore(db, commit_log, cycle, Reclaimer(db, commit_log, cycle, setting.move))


def _directory_id(setting: OpeningParameters, db: Database, done: Place) -> int | None:
    """Returns the id that the log's headers must have, None for any.

    Raises IdentityError when RocksDB is another directory's, CorruptionError.
    """
    wanted = setting.directory.directory_id if setting.directory is not None else None
    row, path = db.noted(DIRECTORY_KEY), setting.path / "rocksdb"
    if row is None:
        # The id is in a file as soon as any row is. Before that, the log decides.
        if setting.is_made and done != BEGIN:
            raise CorruptionError(f"{path}: the id of the data directory is missing")
        return wanted
    if len(row) != _U64.size:
        raise CorruptionError(f"{path}: a data directory's id of {len(row)} bytes")
    found: int = _U64.unpack(row)[0]
    if wanted is not None and found != wanted:
        raise IdentityError(
            f"{path} belongs to the data directory with id {found}, here is {wanted}: "
            f"put back the files that belong together"
        )
    return found


def _replay(db: Database, replay: Replay, usages: dict[int, SegmentUsage]) -> None:
    rows: list[Row] = []
    rows_bytes = 0
    for place, operations in replay.records():
        for (family, key, end, at, size, crc), value in operations:
            if family is Family.ENTRIES and at:
                value = Pointer(place.segment, place.position + at, size, crc).pack()
                usages.setdefault(place.segment, SegmentUsage()).note(key, size)
            rows.append((family, key, value if end is None else end, end is not None))
            rows_bytes += len(key) + len(value or b"")
        if rows_bytes >= _REPLAYED_BYTES:
            db.write(rows)
            rows, rows_bytes = [], 0
    if rows:
        db.write(rows)
