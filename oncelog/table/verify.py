"""Comparison of a table with its topic: each record of the table, and those that both have.

Place in the flow: `oncelog table verify` prints the findings. Reads one version of the table, and
the topic as a consumer without a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncelog._engine.net import runtime
from oncelog.admin import Admin
from oncelog.config import bootstrap_of
from oncelog.consumer import Consumer
from oncelog.errors import CorruptLogError
from oncelog.table.files import TablePartition, TopicTable, owner_of
from oncelog.table.formats import TablePlace
from oncelog.table.layout import PAYLOAD_COLUMNS, checked_slices, file_schema, rows_of
from oncelog.types import TopicPartition
from oncelog.wire.arrow import import_pyarrow, rows_between
from oncelog.wire.stored import StoredBatch

_WAIT_MS = 30_000


@dataclass(slots=True)
class Finding:
    """A partition of a table, compared with the topic.

    `begin`, `end`: the offsets of the table, of which `compared` records are in the topic as well.
    """

    topic_id: int
    partition: int
    begin: int
    end: int
    records: int = 0
    compared: int = 0
    faults: list[str] = field(default_factory=list)


def verify(
    topic: str,
    to: str,
    *,
    bootstrap_servers: str | Sequence[str] | None = None,
    name: str | None = None,
    table_format: str = "delta",
    catalog: str | None = None,
) -> list[Finding]:
    """Compare the table of a topic with the topic; one Finding for each partition of the table."""
    bootstrap = bootstrap_of(bootstrap_servers)
    location = TablePlace(to, table_format, catalog)
    location.check()
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer,
    ):
        owner = owner_of(admin.describe_cluster())
        table = location.open(name or topic, owner, topic)
        topic_id = admin.describe_topic(topic).topic_id
        findings = []
        for place in table.places():
            tp = TopicPartition(topic, place.partition)
            reader = _Topic(consumer, tp) if place.topic_id == topic_id else None
            findings.append(_partition(table, place, reader))
        return findings


class _Topic:
    """Rows of the topic, from the first offset that it has.

    deleted: the end of the deleted records; compaction may have left a hole behind them.
    """

    def __init__(self, consumer: Consumer, tp: TopicPartition) -> None:
        (self.begin,) = consumer.beginning_offsets([tp]).values()
        query = consumer._fetcher.positions.list_offsets({tp: "deleted"})
        self.deleted = runtime.run(query)[tp]
        (self.end,) = consumer.end_offsets([tp]).values()
        self._consumer = consumer
        self._tp = tp
        self._batch: StoredBatch | None = None
        self._rows: Any = None

    def seek(self, offset: int) -> None:
        self._consumer.assign([self._tp])
        self._consumer.seek(self._tp, offset)

    def take(self, begin: int, end: int) -> tuple[Any, int, bool]:
        """Return rows from offset `begin` on, their end, at most `end`, and whether compaction has
        removed some.
        """
        if self._batch is None or self._batch.last_offset < begin:
            self._batch = self._consumer.stored_batch(timeout_ms=_WAIT_MS)
            if self._batch is None:
                raise CorruptLogError(f"{self._tp}: no record from {begin} in {_WAIT_MS} ms")
            self._rows = rows_of(self._batch, begin)
        end = min(end, self._batch.last_offset + 1)
        return rows_between(self._rows, begin, end), end, self._batch.carried


def _partition(table: TopicTable, place: TablePartition, reader: _Topic | None) -> Finding:
    files = table.files(place)
    begin = files[0].first if files else table.position(place) or 0
    found = Finding(place.topic_id, place.partition, begin, table.position(place) or 0)
    common = range(0)
    if reader is not None:
        common = range(max(reader.begin, begin), min(reader.end, found.end))
        if reader.end < found.end:
            found.faults.append(f"the topic ends at {reader.end}, before the table")
        if found.end < reader.deleted:
            found.faults.append(
                f"records of the topic from {found.end} to {reader.deleted - 1} are deleted, and "
                "the table lacks them"
            )
        if common:
            reader.seek(common.start)
    at = common.start
    try:
        for rows, end in _rows(table, place, found):
            if reader is not None and at < min(end, common.stop):
                at = _compare(rows, reader, range(at, min(end, common.stop)), found)
    except CorruptLogError as error:
        found.faults.append(error.message)
    if not found.faults and at < common.stop:
        found.faults.append(f"records of the topic from {at} to {common.stop - 1} are missing")
    return found


def _rows(table: TopicTable, place: TablePartition, found: Finding) -> Iterator[tuple[Any, int]]:
    """Yield the table's rows, and the offset behind them. Raises CorruptLogError at a fault."""
    pa = import_pyarrow()
    at = found.begin
    for file in table.files(place):
        if file.first != at:
            raise CorruptLogError(f"offset {at} should follow, and {file.path} begins elsewhere")
        records = 0
        for rows in checked_slices(table.get(file.path), file.path):
            if not _rises_from(rows["offset"], at):
                raise CorruptLogError(f"offset {at} should follow in {file.path}")
            at = rows["offset"][-1].as_py() + 1
            records += rows.num_rows
            yield rows, at
        # Rows that rise, and are as many as there are offsets, have no hole.
        if records != file.records or at > file.end or (at < file.end and not file.blanks):
            raise CorruptLogError(
                f"{file.path} has {records} records up to {at}, the table says {file.records} up "
                f"to {file.end}"
            )
        found.records += records
        at = file.end
        if file.blanks:
            yield pa.RecordBatch.from_pylist([], schema=file_schema()), at
    if at != found.end:
        raise CorruptLogError(f"the files end at {at}, the table's position is {found.end}")


def _rises_from(offsets: Any, begin: int) -> bool:
    import pyarrow.compute as pc

    rises = pc.all(pc.greater(offsets[1:], offsets[:-1])).as_py() is not False
    return rises and offsets[0].as_py() >= begin


def _compare(rows: Any, reader: _Topic, wanted: range, found: Finding) -> int:
    """Compare the table's rows of these offsets with the topic's; return the end."""
    at = wanted.start
    while at < wanted.stop:
        other, end, carried = reader.take(at, wanted.stop)
        mine = rows_between(rows, at, end)
        if carried:
            mine, other = _still_there(mine, other)
        if not mine.equals(other):
            offset, column = _difference(mine, other)
            raise CorruptLogError(f"offset {offset}: {column} differs from the topic's")
        found.compared += other.num_rows
        at = end
    return at


def _still_there(mine: Any, other: Any) -> tuple[Any, Any]:
    """Return the rows that compaction has left in the topic, by what it leaves of each.

    The table may have been written before.
    """
    import pyarrow.compute as pc

    left = mine.filter(pc.is_in(mine["offset"], value_set=other["offset"]))
    columns = ["offset", *PAYLOAD_COLUMNS]
    return left.select(columns), other.select(columns)


def _difference(mine: Any, other: Any) -> tuple[int, str]:
    for row in range(min(mine.num_rows, other.num_rows)):
        for column in mine.schema.names:
            if mine[column][row] != other[column][row]:
                return min(mine["offset"][row].as_py(), other["offset"][row].as_py()), column
    longer = max(mine, other, key=lambda rows: rows.num_rows)
    return longer["offset"][min(mine.num_rows, other.num_rows)].as_py(), "offset"
