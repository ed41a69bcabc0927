"""A node's disk in memory: unsynced writes may be gone after a crash.

    write  visible at once; kept as an undo record until the next sync
    sync   the undo records are dropped: these writes survive
    crash  undoes the newest unsynced writes, down to a prefix that the caller draws

A batch is one WAL record, so a torn record is a batch that is not there.

Faults, set by the run's driver:

    full             writes raise StorageFullError, nothing is written
    fail_next_sync   the next sync raises; as on Linux the dirty pages are gone
                     then, and a later sync that succeeds does not bring them back
    power_off_after  the n-th write or sync from now on raises PowerLoss
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from storage.errors import CorruptionError, StorageError, StorageFullError
from storage.kv import Family, WriteBatch

_PUT, _DELETE, _DELETE_RANGE = 0, 1, 2

Table = dict[bytes, bytes]
Undo = list[tuple[Table, bytes, bytes | None]]


class PlantedDamage(CorruptionError):
    """Damage by a fault or a schedule, so that one replica stops."""


class PowerLoss(BaseException):
    """The machine went off inside a disk operation. No code above may catch it."""


class Batch:
    """A write batch: the operations, in order."""

    __slots__ = ("ops",)

    def __init__(self) -> None:
        self.ops: list[tuple[int, Family, bytes, bytes]] = []

    def put(self, family: Family, key: bytes, value: bytes, checksum: int | None = None) -> None:
        self.ops.append((_PUT, family, key, value))

    def delete(self, family: Family, key: bytes) -> None:
        self.ops.append((_DELETE, family, key, b""))

    def delete_range(self, family: Family, begin: bytes, end: bytes) -> None:
        assert begin <= end, (begin, end)
        self.ops.append((_DELETE_RANGE, family, begin, end))

    def __len__(self) -> int:
        return len(self.ops)


class Disk:
    """KeyValue over dicts. One disk outlives all incarnations of its node."""

    def __init__(self) -> None:
        self._tables: dict[Family, Table] = {family: {} for family in Family}
        self._sorted: dict[Family, list[bytes] | None] = dict.fromkeys(Family)
        self._unsynced: list[Undo] = []
        self._lost = False
        self.loop_waits = False  # while it does, no entry may be read that all groups wait for
        self.full = False
        self.fail_next_sync = False
        self.power_off_after = 0
        self.writes = self.syncs = 0

    # -- KeyValue -----------------------------------------------------------------

    def batch(self) -> Batch:
        return Batch()

    def write(self, batch: WriteBatch) -> None:
        assert isinstance(batch, Batch)
        if self.full:
            raise StorageFullError("write: no space left (simulated)", recoverable_in_place=True)
        if self.power_off_after:
            self._count_down()
        self.writes += 1
        undo: Undo = []
        tables, in_order = self._tables, self._sorted
        for kind, family, key, value in batch.ops:
            table = tables[family]
            if kind == _PUT:
                old = table.get(key)
                undo.append((table, key, old))
                table[key] = value
                if old is None:
                    in_order[family] = None
            elif kind == _DELETE:
                if key in table:
                    undo.append((table, key, table.pop(key)))
                    in_order[family] = None
            else:
                gone = [found for found in table if key <= found < value]
                for found in gone:
                    undo.append((table, found, table.pop(found)))
                if gone:
                    in_order[family] = None
        self._unsynced.append(undo)

    def sync(self) -> None:
        if self.power_off_after:
            self._count_down()
        if self.fail_next_sync:
            self.fail_next_sync = False
            self._lost = True
            raise StorageError("fsync: Input/output error (simulated)")
        self.syncs += 1
        if not self._lost:
            self._unsynced.clear()

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._tables[family].get(key)

    def get_unchecked(
        self, family: Family, key: bytes, *, cached_only: bool = False
    ) -> bytes | None:
        return self.get(family, key)

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if family is Family.ENTRIES and self.loop_waits:
            raise AssertionError("the node's loop waits for the disk")
        table = self._tables[family]
        return [table.get(key) for key in keys]

    def scan(
        self,
        family: Family,
        begin: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        table = self._tables[family]
        found = self.scan_keys(family, begin, end, limit=limit, reverse=reverse)
        return iter([(key, table[key]) for key in found])

    def scan_keys(
        self,
        family: Family,
        begin: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[bytes]:
        table = self._tables[family]
        in_order = self._sorted[family]
        if in_order is None:
            in_order = self._sorted[family] = sorted(table)
        low, high = bisect_left(in_order, begin), bisect_left(in_order, end)
        if reverse:
            keys = in_order[low:high] if limit is None else in_order[max(low, high - limit) : high]
            keys.reverse()
        else:
            keys = in_order[low : high if limit is None else min(high, low + limit)]
        return iter(keys)

    # -- the run's actions on it ------------------------------------------------------

    @property
    def unsynced(self) -> int:
        """Number of writes that a crash may undo."""
        return len(self._unsynced)

    def crash(self, keep: int) -> None:
        """Fails the power: the first `keep` of the unsynced writes survive."""
        keep = 0 if self._lost else keep
        assert 0 <= keep <= len(self._unsynced)
        for undo in reversed(self._unsynced[keep:]):
            for table, key, old in reversed(undo):
                if old is None:
                    table.pop(key, None)
                else:
                    table[key] = old
        self._unsynced.clear()
        self._sorted = dict.fromkeys(Family)
        self._lost = self.fail_next_sync = False
        self.power_off_after = 0

    def durable(self, family: Family, key: bytes) -> bytes | None:
        """Value of `key` if the power fails now and nothing unsynced survives."""
        table = self._tables[family]
        for undo in self._unsynced:
            for changed, changed_key, old in undo:
                if changed is table and changed_key == key:
                    return old
        return table.get(key)

    def _count_down(self) -> None:
        self.power_off_after -= 1
        if not self.power_off_after:
            raise PowerLoss
