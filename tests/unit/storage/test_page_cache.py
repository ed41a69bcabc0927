"""The log's share of the system's page cache: the limit, and that it holds for real files."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from storage.commitlog.log import BEGIN, CommitLog, Pointer
from storage.commitlog.page_cache import PIECE_BYTES, PageCache
from storage.commitlog.record import encode
from storage.commitlog.segment import path_of
from storage.kv import Family
from storage.watermark import Watermark

MIB = 1024 * 1024
FAR = (10**6, 0)  # everything is durable


def fill(cache: PageCache, segment: int, count: int) -> None:
    """Pieces 0..count-1 of the segment, each in four appends."""
    step = PIECE_BYTES // 4
    for number in range(4 * count):
        cache.wrote(segment, number * step, (number + 1) * step)


def test_without_a_limit_nothing_is_given_back() -> None:
    cache = PageCache(0)
    fill(cache, 1, 1000)
    cache.read(1, 0, 100 * PIECE_BYTES)
    assert cache.excess(*FAR) == []


def test_the_oldest_written_pieces_are_given_back_once() -> None:
    cache = PageCache(8 * PIECE_BYTES)  # six for written data
    fill(cache, 1, 4)
    fill(cache, 2, 2)
    assert cache.excess(*FAR) == []
    cache.wrote(2, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 1)
    assert cache.excess(*FAR) == [(1, 0)]
    assert cache.excess(*FAR) == []
    fill(cache, 3, 2)
    assert cache.excess(*FAR) == [(1, 1), (1, 2)]


def test_what_may_not_be_durable_stays() -> None:
    cache = PageCache(4 * PIECE_BYTES)  # three for written data
    fill(cache, 1, 8)
    assert cache.excess(1, 2 * PIECE_BYTES - 1) == [(1, 0)]
    assert cache.excess(1, 2 * PIECE_BYTES) == [(1, 1)]
    assert cache.excess(1, 2 * PIECE_BYTES + 1) == []
    assert cache.excess(2, 0) == [(1, 2), (1, 3), (1, 4)]


def test_who_reads_old_pieces_does_not_cost_the_new_ones() -> None:
    cache = PageCache(8 * PIECE_BYTES)  # six written, two read
    fill(cache, 9, 6)
    given = []
    for piece in range(20):
        cache.read(1, piece * PIECE_BYTES, (piece + 1) * PIECE_BYTES)
        given += cache.excess(*FAR)
    assert given == [(1, piece) for piece in range(18)]
    cache.read(1, 18 * PIECE_BYTES, 18 * PIECE_BYTES + 1)  # read again: 19 is the older one
    cache.read(1, 0, 1)
    assert cache.excess(*FAR) == [(1, 19)]
    cache.read(9, 0, 6 * PIECE_BYTES)  # still there
    assert cache.excess(*FAR) == []


def test_a_record_across_a_boundary_counts_in_both_pieces() -> None:
    cache = PageCache(4 * PIECE_BYTES)
    cache.read(1, PIECE_BYTES - 1, PIECE_BYTES + 1)
    assert cache.excess(*FAR) == [(1, 0)]
    cache.read(1, 2 * PIECE_BYTES, 2 * PIECE_BYTES)  # of no bytes
    assert cache.excess(*FAR) == [(1, 1)]


def test_segments_that_are_gone_are_forgotten() -> None:
    cache = PageCache(8 * PIECE_BYTES)
    fill(cache, 1, 6)
    cache.read(2, 0, 2 * PIECE_BYTES)
    cache.forget([1, 2])
    fill(cache, 3, 6)
    cache.read(4, 0, 2 * PIECE_BYTES)
    assert cache.excess(*FAR) == []


# -- real files -----------------------------------------------------------------------


def cached_bytes(file: Path) -> int:
    """Number of the file's bytes that are in the page cache: mincore(2)."""
    size = file.stat().st_size
    if not size:
        return 0
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), size) as mapped:
        states = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), states)
        del start
        assert not failed, ctypes.get_errno()
        return sum(state & 1 for state in states) * mmap.PAGESIZE


def written(directory: Path, mib: int, limit: int) -> tuple[CommitLog, list[Pointer]]:
    """A log of that size in segments of 16 MiB, synced at every 2 MiB."""
    mark = Watermark(directory / "synced")
    log = CommitLog(directory, BEGIN, mark, open_segments=2, page_cache_bytes=limit)
    pointers = []
    for number in range(1, mib + 1):
        value = number.to_bytes(4) * (MIB // 4)
        encoded = encode([(Family.ENTRIES, b"%08d" % number, value, False)])
        place = log.append(encoded)
        log.accept()
        at, size, crc = encoded.places[0]
        pointers.append(Pointer(place.segment, place.position + at, size, crc))
        if number % 2 == 0:
            log.sync()
        if number % 16 == 0:
            log.roll(log.following())
    log.sync()
    return log, pointers


def in_cache(directory: Path) -> int:
    return sum(cached_bytes(file) for file in directory.glob("*.log"))


def refuse_file_systems_in_memory(directory: Path) -> None:
    file = directory / "probe"
    file.write_bytes(b"x" * MIB)
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, MIB, os.POSIX_FADV_DONTNEED)
    if cached_bytes(file):
        pytest.skip(f"{directory} is on a file system that lives in the page cache")


@pytest.mark.parametrize("limit", [0, 32 * MIB])
def test_a_log_of_128_mib_leaves_what_the_limit_says(tmp_path: Path, limit: int) -> None:
    refuse_file_systems_in_memory(tmp_path)
    log, pointers = written(tmp_path, 128, limit)
    if limit == 0:
        # The system keeps it all, unless it is short of memory: then the test can show nothing.
        assert in_cache(tmp_path) > 100 * MIB
        return
    slack = 4 * PIECE_BYTES  # the end of each segment, and unsynced bytes
    assert in_cache(tmp_path) <= limit + slack
    assert cached_bytes(path_of(tmp_path, 1)) == 0
    newest = path_of(tmp_path, pointers[-1].segment)
    assert cached_bytes(newest) >= newest.stat().st_size - mmap.PAGESIZE
    for number, pointer in enumerate(pointers, 1):  # from disk, for the most part
        assert log.read(pointer)[:4] == number.to_bytes(4)
    # Reading ahead brings in up to 8 MiB that nobody asked for yet.
    assert in_cache(tmp_path) <= limit + slack + 8 * MIB
