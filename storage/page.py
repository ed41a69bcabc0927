"""Pages of a scan of RocksDB, with a cursor that does not outlive its page.

A cursor keeps the whole RocksDB open, and a suspended generator would keep the cursor; so scans go
page by page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocksdict import Rdict, ReadOptions

from storage.errors import StorageError, from_engine
from storage.kv import Family

#: A key and its value in RocksDB.
KeyRow = tuple[bytes, bytes]
PAGE_ROWS = 512
PAGE_BYTES = 1024 * 1024


def read_page(
    family: Rdict, begin: bytes, end: bytes, *, rows: int, reverse: bool
) -> tuple[list[KeyRow], bool]:
    """Reads up to `rows` rows or PAGE_BYTES of begin <= key < end; tells if there may be more."""
    page: list[KeyRow] = []
    size = 0
    # The upper bound keeps the cursor from loading a value past the end.
    # There is no lower one: the binding's setter sets the upper bound too.
    bounded = ReadOptions()
    bounded.set_iterate_upper_bound(end)
    cursor = family.iter(bounded)
    if reverse:
        cursor.seek_to_last()
    else:
        cursor.seek(begin)
    while cursor.valid():
        key = cursor.key()
        if key < begin:
            return page, False
        value = cursor.value()
        page.append((key, value))
        size += len(value)
        if len(page) >= rows or size >= PAGE_BYTES:
            return page, True
        if reverse:
            cursor.prev()
        else:
            cursor.next()
    cursor.status()
    return page, False


def paged(
    page_of: Callable[[bytes, bytes, int], tuple[list[KeyRow], bool]],
    begin: bytes,
    end: bytes,
    *,
    limit: int | None,
    reverse: bool,
) -> Iterator[KeyRow]:
    """Yields rows of begin <= key < end, at most `limit`, from as many pages as needed."""
    left = sys.maxsize if limit is None else limit
    while left > 0 and begin < end:
        page, more = page_of(begin, end, min(PAGE_ROWS, left))
        yield from page
        if not more:
            return
        left -= len(page)
        last = page[-1][0]
        begin, end = (begin, last) if reverse else (last + b"\x00", end)


def page_rows(family: Rdict, begin: bytes, end: bytes, rows: int = PAGE_ROWS) -> list[KeyRow]:
    """Returns the first rows of begin <= key < end."""
    return read_page(family, begin, end, rows=rows, reverse=False)[0] if begin < end else []


@contextmanager
def reading(family: Family) -> Iterator[None]:
    """Translates RocksDB's errors inside into ours."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        raise from_engine(error, f"read {family.value}") from error
