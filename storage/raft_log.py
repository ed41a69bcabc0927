"""Log and hard state of one Raft group, typed, stateless over a `KeyValue`.

An entry's value is the data verbatim. Its term is not stored with it: terms
change rarely, so a small table of (first index, term) says them all, and no
entry is read to learn its term. Entries from the base up to the first row of
that table have the base's term.

    ENTRIES  group | index          -> data
    STATE    group | 1              -> term, voted for
             group | 2              -> base index, base term
             group | 3 | first      -> term of the entries from `first` on
             group | 4 | index      -> the configuration in the entry at `index`
             group | 5              -> an index up to which all is committed
             group | 6              -> the replica's instance; none: 0
             group | 7              -> of a replica that was removed: how; outlives `destroy`
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from storage import keys
from storage.errors import CorruptionError, StorageError
from storage.kv import Family, KeyValue, WriteBatch

_HARD_STATE = b"\x01"
_BASE = b"\x02"
_TERM_START = b"\x03"
_CONFIGURATION = b"\x04"
_COMMIT = b"\x05"
_INSTANCE = b"\x06"
_TOMBSTONE = b"\x07"
_PAIR = struct.Struct(">QQ")
_U64 = struct.Struct(">Q")

# Up to here a truncation is written as single deletes: a range tombstone costs
# every later read of the memtable something, a few point deletes cost nothing.
_POINT_DELETES = 256


@dataclass(slots=True)
class LogState:
    """State of a restarted replica's log, without any entry read.

    base_index, base_term: everything up to there is covered by a checkpoint.
    last_index: the last stored entry, base_index when there is none.
    term_starts: rising (first index, term). The first row is always (base_index, base_term), so
        that a bisection finds the term of every index from the base on.
    term, voted_for: hard state; voted_for 0 means no vote in that term.
    commit_index: all up to there is known to be committed; 0: nothing is.
    configurations: (index, stored bytes), rising.
    """

    base_index: int = 1
    base_term: int = 0
    last_index: int = 1
    term_starts: list[tuple[int, int]] = field(default_factory=list)
    term: int = 0
    voted_for: int = 0
    commit_index: int = 0
    configurations: list[tuple[int, bytes]] = field(default_factory=list)


class RaftLogStore:
    """Stored log of `group`. Writes go into the caller's batch."""

    def __init__(self, kv: KeyValue, group: int) -> None:
        self._kv = kv
        self._group = group
        self._prefix = keys.prefix(group)

    # -- reading --------------------------------------------------------------

    def load(self) -> LogState:
        """Loads the state of the log. Raises CorruptionError naming the group."""
        state = LogState()
        starts: list[tuple[int, int]] = []
        begin, end = keys.group_range(self._group)
        try:
            for key, value in self._kv.scan(Family.STATE, begin, end):
                kind = key[8:9]
                if kind == _HARD_STATE:
                    state.term, state.voted_for = _PAIR.unpack(value)
                elif kind == _BASE:
                    state.base_index, state.base_term = _PAIR.unpack(value)
                elif kind == _CONFIGURATION:
                    state.configurations.append((_U64.unpack_from(key, 9)[0], value))
                elif kind == _COMMIT:
                    (state.commit_index,) = _U64.unpack(value)
                elif kind == _TERM_START:
                    starts.append((_U64.unpack_from(key, 9)[0], _U64.unpack(value)[0]))
            if state.base_index >= keys.MAX_NUMBER:
                raise CorruptionError(f"log state: the base {state.base_index} is no index")
            state.last_index = self._last_index(state.base_index)
        except CorruptionError as error:
            raise CorruptionError(str(error), group=self._group) from error
        except struct.error as error:
            raise CorruptionError(f"log state: {error}", group=self._group) from error
        state.term_starts = [
            (state.base_index, state.base_term),
            *(row for row in starts if row[0] > state.base_index),
        ]
        return state

    def _last_index(self, base_index: int) -> int:
        begin = keys.numbered(self._group, base_index + 1)
        end = keys.group_range(self._group)[1]
        # Forward first: backward in an empty range meets another group's entry, which may be
        # damaged without harm to this group.
        if not any(True for _ in self._kv.scan_keys(Family.ENTRIES, begin, end, limit=1)):
            return base_index
        for key in self._kv.scan_keys(Family.ENTRIES, begin, end, limit=1, reverse=True):
            if len(key) != keys.NUMBERED_BYTES:
                raise CorruptionError(f"key of {len(key)} bytes among the entries")
            return keys.number_of(key)
        raise CorruptionError("the entries have a first one and no last one")

    def read(self, first: int, last: int) -> list[bytes]:
        """Reads data of the entries first..last, both included.

        Raises CorruptionError naming group and index when one is missing or damaged. The caller
        bounds the number of bytes it asks for.
        """
        assert 0 < first <= last, (first, last)
        wanted = [keys.numbered(self._group, index) for index in range(first, last + 1)]
        try:
            found = self._kv.get_many(Family.ENTRIES, wanted)
        except CorruptionError:
            found = [self._read_one(index) for index in range(first, last + 1)]
        entries = [data for data in found if data is not None]
        if len(entries) != len(found):
            raise CorruptionError(
                "entry is missing", group=self._group, index=first + found.index(None)
            )
        return entries

    def read_checked_by(
        self, index: int, is_intact: Callable[[bytes], bool], *, cached_only: bool = False
    ) -> bytes:
        """Reads one entry that the caller can check faster than the store does.

        Raises CorruptionError as `read` does, StorageError; NotCachedError with `cached_only`.
        """
        key = keys.numbered(self._group, index)
        try:
            data = self._kv.get_unchecked(Family.ENTRIES, key, cached_only=cached_only)
        except CorruptionError:
            data = None  # `read` reports the damage
        if data is not None and is_intact(data):
            return data
        self.read(index, index)
        raise CorruptionError("entry differs from its checksum", group=self._group, index=index)

    def _read_one(self, index: int) -> bytes | None:
        try:
            return self._kv.get(Family.ENTRIES, keys.numbered(self._group, index))
        except CorruptionError as error:
            raise CorruptionError(str(error), group=self._group, index=index) from error
        except StorageError as error:
            raise type(error)(f"group {self._group}, index {index}: {error}") from error

    # -- writing --------------------------------------------------------------

    def put_entry(
        self, batch: WriteBatch, index: int, data: bytes, checksum: int | None = None
    ) -> None:
        """Puts an entry. checksum: CRC-32C of `data`, if made before."""
        batch.put(Family.ENTRIES, keys.numbered(self._group, index), data, checksum)

    def put_term_start(self, batch: WriteBatch, first_index: int, term: int) -> None:
        """Records that entries from `first_index` on have `term`. Only needed for a new term."""
        batch.put(Family.STATE, self._start_key(first_index), _U64.pack(term))

    def put_hard_state(self, batch: WriteBatch, term: int, voted_for: int) -> None:
        batch.put(Family.STATE, self._prefix + _HARD_STATE, _PAIR.pack(term, voted_for))

    def put_commit(self, batch: WriteBatch, index: int) -> None:
        """Records that all up to `index` is committed, once `batch` is durable."""
        batch.put(Family.STATE, self._prefix + _COMMIT, _U64.pack(index))

    def put_instance(self, batch: WriteBatch, instance: int) -> None:
        batch.put(Family.STATE, self._prefix + _INSTANCE, _U64.pack(instance))

    def put_configuration(self, batch: WriteBatch, index: int, stored: bytes) -> None:
        """Records that the entry at `index` is a configuration."""
        batch.put(Family.STATE, self._configuration_key(index), stored)

    def drop_configurations(self, batch: WriteBatch, first: int, stop: int) -> None:
        """Drops the configurations of the entries first..stop-1."""
        begin, end = self._configuration_key(first), self._configuration_key(stop)
        batch.delete_range(Family.STATE, begin, end)

    def truncate_from(self, batch: WriteBatch, index: int, last_index: int) -> None:
        """Drops the entries index..last_index and the term starts from `index` on."""
        assert index > 0
        self._delete_entries(batch, index, last_index)
        batch.delete_range(
            Family.STATE, self._start_key(index), self._start_key(keys.MAX_NUMBER + 1)
        )

    def trim_to(self, batch: WriteBatch, base_index: int, base_term: int) -> None:
        """Drops the entries up to `base_index`, which becomes the base.

        Term starts up to there are dropped as well: later entries have the base's term until the
        next start.
        """
        batch.delete_range(
            Family.ENTRIES,
            keys.numbered(self._group, 0),
            keys.numbered(self._group, base_index + 1),
        )
        batch.delete_range(Family.STATE, self._start_key(0), self._start_key(base_index + 1))
        self._put_base(batch, base_index, base_term)

    def reset(self, batch: WriteBatch, base_index: int, base_term: int) -> None:
        """Restarts the log above an installed snapshot: all entries and term starts are dropped."""
        batch.delete_range(Family.ENTRIES, *keys.group_range(self._group))
        batch.delete_range(Family.STATE, self._start_key(0), self._start_key(keys.MAX_NUMBER + 1))
        self._put_base(batch, base_index, base_term)

    def destroy(self, batch: WriteBatch, tombstone: bytes = b"") -> None:
        """Drops everything of this group in all families, and leaves its tombstone."""
        begin, end = keys.group_range(self._group)
        for family in Family:
            batch.delete_range(family, begin, end)
        if tombstone:
            batch.put(Family.STATE, self._prefix + _TOMBSTONE, tombstone)

    def instance(self) -> int:
        """Returns the instance of this log's replica."""
        stored = self._kv.get(Family.STATE, self._prefix + _INSTANCE)
        return 0 if stored is None else int(_U64.unpack(stored)[0])

    def is_new(self) -> bool:
        """Whether the replica never took part: it has no term."""
        return self._kv.get(Family.STATE, self._prefix + _HARD_STATE) is None

    def tombstone(self) -> bytes:
        """Returns the tombstone that `destroy` left; empty if there is none."""
        return self._kv.get(Family.STATE, self._prefix + _TOMBSTONE) or b""

    def _delete_entries(self, batch: WriteBatch, first: int, last: int) -> None:
        if last - first < _POINT_DELETES:
            for index in range(first, last + 1):
                batch.delete(Family.ENTRIES, keys.numbered(self._group, index))
        else:
            batch.delete_range(
                Family.ENTRIES,
                keys.numbered(self._group, first),
                keys.numbered(self._group, last + 1),
            )

    def _put_base(self, batch: WriteBatch, index: int, term: int) -> None:
        batch.put(Family.STATE, self._prefix + _BASE, _PAIR.pack(index, term))

    def _configuration_key(self, index: int) -> bytes:
        return self._prefix + _CONFIGURATION + _U64.pack(index)

    def _start_key(self, first_index: int) -> bytes:
        return self._prefix + _TERM_START + _U64.pack(first_index)
