"""Table of producer ids, sorted, with a packed fixed-size record each.

It is the storage of `cluster.dedup.last_seen`; only that module knows the content of a record. Rows
lie in chunks of at most 512, and a chunk is three columns: producer ids, times of last use and
records, so a row costs its bytes and one more. Producer ids rise, so new rows go to the end and old
ones leave from the front; a row in the middle costs one chunk's move. Look-up is two bisections,
and a small cache in front keeps the producers that write now as cheap in a table of a million as in
a table of ten.

Idle rows are found without a queue: each chunk carries a lower bound of its
times, and only when the lowest bound of all falls due is that chunk looked at.
Using a row never touches a bound; a bound that was too low is raised when it
falls due, at most once per chunk and lifetime. Pinned rows never fall due.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

CHUNK_ROWS = 512
_CACHE_ROWS = 512
# Bounds of chunks: nothing in it can fall due / it is no longer in the table.
_NEVER = 1 << 63
_GONE = -1


class PidChunk:
    """Rows with neighbouring producer ids. Rows move: (chunk, row) is good for one call."""

    __slots__ = ("bound", "pids", "records", "serial", "times")

    def __init__(self, serial: int, pids: array[int], times: array[int], records: bytearray):
        self.serial = serial
        self.pids = pids
        self.times = times
        self.records = records
        self.bound = _NEVER


class PidTable:
    """Sorted table: producer id -> (time, record); times in ms, records of `record_size` bytes.

    A record is pinned if its byte at `flags_at` has a bit of `pin_mask`.
    """

    def __init__(self, record_size: int, *, flags_at: int, pin_mask: int) -> None:
        self._size = record_size
        self._flags_at = flags_at
        self._pin_mask = pin_mask
        self._serial = 0
        self._rows = 0
        self._due: list[tuple[int, int, PidChunk]] = []
        self.oldest = _NEVER
        """No row that is not pinned was last used before this time."""
        self._cache: dict[int, tuple[PidChunk, int]] = {}
        self._chunks = [self._chunk(array("q"), array("q"), bytearray())]
        # A lower bound of each chunk's ids, above all ids of the chunk before it.
        self._firsts = [0]

    def __len__(self) -> int:
        return self._rows

    def find(self, pid: int) -> tuple[PidChunk, int] | None:
        """Returns the place of `pid`: a chunk and the row in it."""
        # A cached place proves itself: rows move, but a wrong place holds another id.
        place = self._cache.get(pid)
        if place is not None:
            pids = place[0].pids
            at = place[1]
            if at < len(pids) and pids[at] == pid:
                return place
        chunk = self._chunks[bisect_right(self._firsts, pid) - 1]
        pids = chunk.pids
        at = bisect_left(pids, pid)
        if at == len(pids) or pids[at] != pid:
            return None
        if len(self._cache) >= _CACHE_ROWS:
            self._cache.clear()
        place = self._cache[pid] = (chunk, at)
        return place

    def insert(self, pid: int, time: int, record: bytes) -> None:
        """Add a row; `pid` must be positive and not in the table."""
        assert pid > 0 and len(record) == self._size
        index = bisect_right(self._firsts, pid) - 1
        if len(self._chunks[index].pids) >= CHUNK_ROWS:
            self._split(index)
            index = bisect_right(self._firsts, pid) - 1
        chunk = self._chunks[index]
        at = bisect_left(chunk.pids, pid)
        assert at == len(chunk.pids) or chunk.pids[at] != pid
        if index == len(self._chunks) - 1:
            chunk.pids.insert(at, pid)
            chunk.times.insert(at, time)
            chunk.records[at * self._size : at * self._size] = record
        else:
            # Growing in place over-allocates, which only the last chunk will fill.
            self._keep(chunk, [(0, at), (at, len(chunk.pids))], (pid, time, record))
        self._rows += 1
        if not record[self._flags_at] & self._pin_mask:
            self.lower_bound(chunk, time)

    def lower_bound(self, chunk: PidChunk, time: int) -> None:
        """Notes that an unpinned row of `chunk` may have been last used at `time`."""
        if time < chunk.bound:
            self._set_bound(chunk, time)

    def rows(self, after: int) -> Iterator[tuple[PidChunk, int]]:
        """The places of all ids above `after`, rising; the table must not change meanwhile."""
        for chunk in self._chunks[bisect_right(self._firsts, after) - 1 :]:
            for at in range(bisect_right(chunk.pids, after), len(chunk.pids)):
                yield chunk, at

    def pinned_ids(self) -> Iterator[int]:
        """The ids of pinned rows, rising; the table must not change meanwhile."""
        pinned = bytes(1 if flags & self._pin_mask else 0 for flags in range(256))
        for chunk in self._chunks:
            marks = chunk.records[self._flags_at :: self._size].translate(pinned)
            at = marks.find(1)
            while at >= 0:
                yield chunk.pids[at]
                at = marks.find(1, at + 1)

    def drop(self, pid: int) -> None:
        """Remove the row of `pid`, which must be there."""
        place = self.find(pid)
        assert place is not None
        self._drop(place[0], [place[1]])
        self._mend([place[0]])

    def drop_range(self, start: int, end: int) -> int:
        """Removes the unpinned rows with start <= id < end; returns how many there were."""
        low = bisect_right(self._firsts, start) - 1
        chunks = self._chunks[low : bisect_left(self._firsts, end, low)]
        dropped = 0
        for chunk in chunks:
            rows = range(bisect_left(chunk.pids, start), bisect_left(chunk.pids, end))
            if rows:
                dropped += self._drop(chunk, [at for at in rows if not self._is_pinned(chunk, at)])
        self._mend(chunks)
        return dropped

    def drop_idle(self, before: int) -> array[int]:
        """Removes the unpinned rows last used before that time; returns their ids, rising."""
        dropped = array("q")
        touched = []
        while self.oldest < before:
            chunk = self._pop_due()
            late = [at for at, time in enumerate(chunk.times) if time < before]
            due = [at for at in late if not self._is_pinned(chunk, at)]
            dropped.extend(chunk.pids[at] for at in due)
            self._drop(chunk, due)
            self._refresh_bound(chunk)
            touched.append(chunk)
        self._mend(touched)
        return array("q", sorted(dropped))

    def columns(self) -> Iterator[tuple[array[int], array[int], bytearray]]:
        """Yields (ids, times, records) of consecutive runs of rows, to be copied at once."""
        for chunk in self._chunks:
            yield chunk.pids, chunk.times, chunk.records

    def fill(self, pids: array[int], times: array[int], records: memoryview) -> None:
        """Take over all rows at once; ids must rise. Only for an empty table."""
        assert not self._rows and len(pids) == len(times) == len(records) // self._size
        self._chunks.clear()
        self._firsts.clear()
        for start in range(0, max(len(pids), 1), CHUNK_ROWS):
            end = start + CHUNK_ROWS
            chunk = self._chunk(
                pids[start:end],
                times[start:end],
                bytearray(records[start * self._size : end * self._size]),
            )
            self._chunks.append(chunk)
            self._firsts.append(chunk.pids[0] if start else 0)
            self._refresh_bound(chunk)
        self._rows = len(pids)

    def memory_bytes(self) -> int:
        """The table's size in memory, its fixed parts included."""
        size = sys.getsizeof
        total = size(self._chunks) + size(self._firsts) + size(self._cache) + size(self._due)
        total += len(self._cache) * size((0, 0)) + len(self._firsts) * size(1 << 40)
        total += sum(size(item) + 2 * size(item[0]) for item in self._due)
        for chunk in self._chunks:
            total += size(chunk) + size(chunk.pids) + size(chunk.times) + size(chunk.records)
        return total

    # --- chunks

    def _chunk(self, pids: array[int], times: array[int], records: bytearray) -> PidChunk:
        self._serial += 1
        return PidChunk(self._serial, pids, times, records)

    def _is_pinned(self, chunk: PidChunk, at: int) -> int:
        return chunk.records[at * self._size + self._flags_at] & self._pin_mask

    def _keep(
        self,
        chunk: PidChunk,
        runs: list[tuple[int, int]],
        between: tuple[int, int, bytes] | None = None,
    ) -> None:
        """Keep the rows of `runs`, in columns of exact size; a new row may follow the first run."""
        size = self._size
        pids, times = array("q"), array("q")
        records: list[bytes | bytearray] = []
        for start, end in runs:
            pids += chunk.pids[start:end]
            times += chunk.times[start:end]
            records.append(chunk.records[start * size : end * size])
            if between is not None:
                pids.append(between[0])
                times.append(between[1])
                records.append(between[2])
                between = None
        chunk.pids, chunk.times = pids[:], times[:]
        chunk.records = bytearray(b"".join(records))

    def _drop(self, chunk: PidChunk, rows: list[int]) -> int:
        if rows:
            runs = []
            start = 0
            for at in rows:
                if at > start:
                    runs.append((start, at))
                start = at + 1
            runs.append((start, len(chunk.pids)))
            self._keep(chunk, runs)
            self._rows -= len(rows)
        return len(rows)

    def _split(self, index: int) -> None:
        """Make room in a full chunk; the last one stays nearly full, for ids mostly rise."""
        chunk = self._chunks[index]
        rows = len(chunk.pids)
        at = rows * 7 // 8 if index == len(self._chunks) - 1 else rows // 2
        right = self._chunk(
            chunk.pids[at:], chunk.times[at:], bytearray(chunk.records[at * self._size :])
        )
        self._keep(chunk, [(0, at)])
        self._chunks.insert(index + 1, right)
        self._firsts.insert(index + 1, right.pids[0])
        self._refresh_bound(right)

    def _mend(self, touched: list[PidChunk]) -> None:
        """Remove empty chunks and join small ones with a neighbour."""
        for chunk in touched:
            if chunk.bound == _GONE or len(chunk.pids) >= CHUNK_ROWS // 4:
                continue
            if not chunk.pids:
                self._remove(self._index(chunk))
                continue
            index = self._index(chunk)
            for left in (index - 1, index):
                if 0 <= left < len(self._chunks) - 1 and self._join(left):
                    break

    def _index(self, chunk: PidChunk) -> int:
        if not chunk.pids:
            return self._chunks.index(chunk)
        return bisect_right(self._firsts, chunk.pids[0]) - 1

    def _join(self, index: int) -> bool:
        left, right = self._chunks[index], self._chunks[index + 1]
        if len(left.pids) + len(right.pids) > CHUNK_ROWS * 3 // 4:
            return False
        left.pids = left.pids + right.pids
        left.times = left.times + right.times
        left.records = bytearray(b"".join((left.records, right.records)))
        self.lower_bound(left, right.bound)
        self._remove(index + 1)
        return True

    def _remove(self, index: int) -> None:
        if len(self._chunks) == 1:
            self._set_bound(self._chunks[0], _NEVER)
            return
        chunk = self._chunks.pop(index)
        del self._firsts[index]
        self._firsts[0] = 0
        chunk.pids = array("q")  # so that cached places in it fail
        self._set_bound(chunk, _GONE)

    # --- bounds

    def _refresh_bound(self, chunk: PidChunk) -> None:
        """Raise a chunk's bound to the exact one."""
        mask = self._pin_mask
        flags = chunk.records[self._flags_at :: self._size]
        times = [t for t, flag in zip(chunk.times, flags, strict=True) if not flag & mask]
        self._set_bound(chunk, min(times, default=_NEVER))

    def _set_bound(self, chunk: PidChunk, bound: int) -> None:
        if bound != chunk.bound:
            chunk.bound = bound
            if 0 <= bound < _NEVER:
                heapq.heappush(self._due, (bound, chunk.serial, chunk))
            if len(self._due) > 4 * len(self._chunks) + 64:
                self._due = [(c.bound, c.serial, c) for c in self._chunks if c.bound < _NEVER]
                heapq.heapify(self._due)
        due = self._due
        while due and due[0][0] != due[0][2].bound:
            heapq.heappop(due)
        self.oldest = due[0][0] if due else _NEVER

    def _pop_due(self) -> PidChunk:
        return heapq.heappop(self._due)[2]
