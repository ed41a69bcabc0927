"""Entries that are on the disk only: their reader waits for the disk, the loop does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.consensus import background_reads, read_ahead
from cluster.consensus.background_reads import AT_A_TIME, BackgroundReads, Done
from cluster.consensus.read_ahead import ReadAhead
from storage import keys
from storage.errors import CorruptionError
from storage.kv import Family
from tests.unit.consensus.raft_parts import GROUP, Parts

Started = tuple[Callable[[], Any], Done]


class Reads:
    """Reads that end when the test says so."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.touched: list[int] = []
        self.reads = BackgroundReads(lambda *one: self.started.append(one), self.touched.append)

    def end(self) -> None:
        read, done = self.started.pop(0)
        done(read())


def on_disk(last: int) -> Parts:
    """Entries 2..last, none of them in memory."""
    parts = Parts()
    parts.journal = parts.new_journal(tail_bytes=0)
    parts.fill(*[1] * (last - 1))
    parts.apply(last)
    parts.sync()
    assert parts.journal.in_memory(2) is None
    return parts


def data(found: tuple[bytes, int] | None) -> bytes | None:
    return None if found is None else found[0]


def test_it_is_there_when_the_read_has_ended() -> None:
    disk = Reads()
    ahead = ReadAhead(GROUP, on_disk(9).journal, disk.reads)
    assert ahead.entry(3, 6) is None
    assert ahead.entry(3, 6) is None and len(disk.started) == 1, "asked once"
    disk.end()
    assert disk.touched == [GROUP]
    assert [data(ahead.entry(index, 6)) for index in range(3, 7)] == [b"e3", b"e4", b"e5", b"e6"]
    assert ahead.entry(7, 9) is None
    disk.end()
    ahead.step_ends()
    assert ahead.entry(7, 9) is None, "what nobody took is dropped"


def test_it_reads_as_much_as_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Reads()
    journal = on_disk(9).journal
    for limit, wanted, there in ((4, 9, 2), (1, 9, 1), (1 << 20, 4, 3)):
        ahead = ReadAhead(GROUP, journal, disk.reads)
        ahead.entry(2, wanted, limit)
        disk.end()
        disk.reads.next_round()
        found = [data(ahead.entry(index, 9)) for index in range(2, 2 + there + 1)]
        assert found == [b"e%d" % index for index in range(2, 2 + there)] + [None]
        disk.end()
        disk.reads.next_round()


def test_what_cannot_be_read_is_said_to_who_needs_it() -> None:
    disk, parts = Reads(), on_disk(9)
    batch = parts.disk.batch()
    batch.delete(Family.ENTRIES, keys.numbered(GROUP, 5))
    parts.disk.write(batch)
    ahead = ReadAhead(GROUP, parts.journal, disk.reads)
    ahead.entry(4, 9)
    disk.end()
    assert data(ahead.entry(4, 9)) == b"e4", "it is sound"
    assert ahead.entry(5, 9) is None
    disk.end()
    with pytest.raises(CorruptionError, match="missing"):
        ahead.entry(5, 9)


def test_nothing_is_kept_or_read_for_one_that_is_closed() -> None:
    disk, journal = Reads(), on_disk(9).journal
    under_way = [ReadAhead(GROUP, journal, disk.reads) for _ in range(AT_A_TIME + 1)]
    for one in under_way:
        one.entry(2, 9)
        one.close()
    assert len(disk.started) == AT_A_TIME
    for _ in range(AT_A_TIME):
        disk.end()
    disk.reads.next_round()
    assert disk.started == [], "its turn came when nobody wanted it"
    assert under_way[0].entry(2, 9) is None


def test_few_are_under_way_and_wait_to_be_used_at_once() -> None:
    disk, journal = Reads(), on_disk(9).journal
    for _ in range(AT_A_TIME + 2):
        ReadAhead(GROUP, journal, disk.reads).entry(2, 9)
    assert len(disk.started) == AT_A_TIME
    disk.end()
    disk.end()
    assert len(disk.started) == AT_A_TIME - 2, "what was found waits in memory for a round"
    disk.reads.next_round()
    assert len(disk.started) == AT_A_TIME


def test_limits_fit_each_other() -> None:
    assert background_reads.AT_A_TIME * read_ahead.READ_BYTES <= 64 << 20


def test_a_read_that_ends_with_a_bug_takes_no_more_place() -> None:
    """Before, four of them ended all reads of the node: nobody was sent entries from the disk."""
    disk, found, bug = Reads(), list[object](), ValueError("a bug")

    def wrong() -> None:
        raise bug

    for _ in range(AT_A_TIME + 1):
        disk.reads.ask(GROUP, wrong, found.append)
        disk.end()
        disk.reads.next_round()
    assert disk.touched == [GROUP] * (AT_A_TIME + 1)
    disk.reads.ask(GROUP, lambda: 5, found.append)
    disk.end()
    assert found == [bug] * (AT_A_TIME + 1) + [5]


def test_who_needs_an_entry_hears_of_a_bug_in_its_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, they waited for it for ever."""
    disk, parts = Reads(), on_disk(9)
    ahead = ReadAhead(GROUP, parts.journal, disk.reads)
    with monkeypatch.context() as planted:
        planted.setattr(read_ahead, "crc32c", None)
        ahead.entry(4, 9)
        disk.end()
    with pytest.raises(TypeError):
        ahead.entry(4, 9)
    ahead.step_ends()
    assert ahead.entry(4, 9) is None
    disk.end()
    assert data(ahead.entry(4, 9)) == b"e4"
