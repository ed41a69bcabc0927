"""Older records of a topic, from its table (`oncelog table run`): where they begin, and their rows.

Place in the flow: `planning` asks for the first offsets on the driver; `tasks` reads a range's rows
below the table's position here, and those above from the topic. A record at an offset is the same
in both, so a stream may read a range anew after the table has moved on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oncelog.spark.source.offsets import OffsetRange, Offsets
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.reading import join, read_range
from oncelog.table.delta import DeltaTopic
from oncelog.table.files import TablePartition
from oncelog.table.layout import checked_slices
from oncelog.wire.arrow import rows_between


def first_offsets(
    options: SourceOptions, cluster: str, topic_id: int, log: Offsets, deleted: Offsets
) -> Offsets:
    """Return where each partition begins: in the table, unless records between it and the log are
    deleted.

    log: starts of the log. deleted: the ends of the deleted records.
    """
    (topic,) = options.selection.topics
    table = DeltaTopic.open(options.table, cluster, topic)
    found = {}
    for tp, begin in log.items():
        place = TablePartition(topic_id, tp.partition)
        files = table.files(place)
        has_all = bool(files) and (table.position(place) or 0) >= deleted[tp]
        found[tp] = min(begin, files[0].first) if has_all else begin
    return found


def read_both(
    options: SourceOptions, one: OffsetRange, topic_id: int, columns: Sequence[str]
) -> Iterator[Any]:
    """Yield a range's records as pyarrow.RecordBatches: from the table, then from the topic."""
    table = DeltaTopic.open(options.table, None, one.tp.topic)
    end = min(one.end, table.position(TablePartition(topic_id, one.tp.partition)) or 0)
    if one.start < end:
        yield from join(_rows(table, one._replace(end=end), topic_id, columns))
    if one.end > end:
        yield from read_range(options, one._replace(start=max(one.start, end)), columns)


def _rows(
    table: DeltaTopic, one: OffsetRange, topic_id: int, columns: Sequence[str]
) -> Iterator[Any]:
    import pyarrow as pa

    for file in table.files(TablePartition(topic_id, one.tp.partition)):
        if file.end <= one.start or file.first >= one.end:
            continue
        for rows in checked_slices(table.get(file.path), file.path):
            rows = rows_between(rows, one.start, one.end)
            if rows.num_rows:
                place = {
                    "topic": pa.repeat(one.tp.topic, rows.num_rows),
                    "partition": pa.repeat(pa.scalar(one.tp.partition, pa.int32()), rows.num_rows),
                }
                yield pa.RecordBatch.from_arrays(
                    [place[name] if name in place else rows[name] for name in columns],
                    names=list(columns),
                )
