"""Merge of small files: neighbours of one partition become one file with the same rows.

Place in the flow: `run` calls it after a commit, for the partitions that it owns. Offsets and order
stay; the table's version says that no data changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.table.files import TableFile, TablePartition, TopicTable
from oncelog.table.layout import PAYLOAD_COLUMNS, FileBuilder, checked_slices

MANY: Final = 16  # small neighbours that are merged, however small they are


def due(files: Sequence[TableFile], below: int, largest: int) -> list[TableFile]:
    """Return the first neighbours, in offset order, to be merged; empty: none are.

    Neighbours smaller than `below` are merged once they reach it together, or are many. A file that
    is larger than all small files after it waits for more of them: so a row is copied a few times,
    by the logarithm of the file's growth.
    """
    run: list[TableFile] = []
    for file in [*files, None]:
        if file is not None and file.size < below and (not run or run[-1].end == file.first):
            run.append(file)
            if sum(one.size for one in run) <= largest:
                continue
            run.pop()  # it begins the next run
        while run and run[0].size > sum(one.size for one in run[1:]):
            del run[0]
        if len(run) >= MANY or sum(one.size for one in run) >= below:
            return run
        run = [file] if file is not None and file.size < below else []
    return []


def merge(
    table: TopicTable, place: TablePartition, old: Sequence[TableFile], origin: dict[str, str | int]
) -> None:
    """Put one file in the place of neighbours. Raises CommitUnknownError, CorruptLogError."""
    builder = FileBuilder(origin, old[0].first)
    for file in old:
        for rows in checked_slices(table.get(file.path), f"{table.url}/{file.path}"):
            builder.add(rows, rows.select(PAYLOAD_COLUMNS).nbytes)
        builder.pass_to(file.end)
    table.replace(place, old, table.put(place, builder.finish()))
