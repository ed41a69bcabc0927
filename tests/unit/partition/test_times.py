"""Searches by time in a replica: against a list, in steps, and where rows are missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.entries import LogStartEntry, pack_log_start
from cluster.partition.reader import LATEST, SEARCH_ROWS, MissingRowError
from tests.sim.disk import Batch
from tests.unit.partition.test_staged_partition import Replica


def filled(batches: list[tuple[int, int]]) -> Replica:
    """A replica with batches of so many records, each with its highest timestamp."""
    replica, first = Replica(), 0
    for count, timestamp_us in batches:
        replica.batch(first, count, timestamp_us=timestamp_us)
        first += count
    return replica


@given(
    batches=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50).map(lambda n: n * 100))),
    timestamp_us=st.integers(0, 51).map(lambda n: n * 100),
    start=st.integers(0, 20),
)
def test_searches_by_time_against_a_list(
    batches: list[tuple[int, int]], timestamp_us: int, start: int
) -> None:
    replica, base, rows = filled(batches), 0, list[tuple[int, int, int]]()
    for count, stamp in batches:
        rows.append((base, base + count, stamp))
        base += count
    later = [base for base, end, stamp in rows if end > start and stamp >= timestamp_us]
    assert list(replica.part.offset_at(timestamp_us, start)) == [*later, -1][:1]
    latest = sorted(rows, key=lambda row: (-(row[2] // 1000), row[0]))[:LATEST]
    assert list(replica.part.latest()) == [[(base, stamp) for base, _, stamp in latest]]


def test_a_search_by_time_goes_in_steps() -> None:
    """Millions of small batches must not stop a node while they are looked at."""
    count = 2 * SEARCH_ROWS + 10
    part = filled([(1, 1000 * number) for number in range(count)]).part
    assert list(part.offset_at(1000 * (count - 1))) == [None, None, count - 1]
    assert list(part.offset_at(1000 * count)) == [None, None, -1]
    newest = [(number, 1000 * number) for number in reversed(range(count - LATEST, count))]
    assert list(part.latest()) == [None, None, newest]


def test_a_search_that_lacks_the_newest_rows_finds_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full disk they wait: a reader that began at the end would miss these records."""
    replica, writes = filled([(1, 100)]), list[Batch]()
    with monkeypatch.context() as full:
        full.setattr(replica.disk, "write", writes.append)
        replica.batch(1, timestamp_us=300)
        assert list(replica.part.offset_at(100)) == [0]
        for search in (replica.part.offset_at(200), replica.part.latest()):
            with pytest.raises(MissingRowError):
                next(search)
    for batch in writes:
        replica.disk.write(batch)
    assert list(replica.part.offset_at(200)) == [1]


def test_a_search_is_of_the_records_that_there_are_when_it_begins() -> None:
    """Retention may delete some before its thread looks, and others may be applied."""
    replica = filled([(1, 100), (1, 300)])
    early, none = replica.part.offset_at(100), replica.part.offset_at(400)
    replica.put(pack_log_start(LogStartEntry(0, 1, 0, 1)))
    replica.batch(2, timestamp_us=400)
    assert (list(early), list(none)) == ([1], [-1])
