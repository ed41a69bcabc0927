"""Comparison of a table with its topic: each record of the table, and those that both have.

Place in the flow: `oncelog table verify` prints the findings. Reads one version of the table, and
the topic as a consumer without a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncelog.admin import Admin
from oncelog.config import bootstrap_of
from oncelog.consumer import Consumer
from oncelog.errors import CorruptLogError
from oncelog.table.files import TablePartition, TopicTable, owner_of
from oncelog.table.formats import TablePlace
from oncelog.table.layout import checked_slices, file_schema, rows_of
from oncelog.types import TopicPartition

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
    """Rows of the topic, from the first offset that it has."""

    def __init__(self, consumer: Consumer, tp: TopicPartition) -> None:
        (self.begin,) = consumer.beginning_offsets([tp]).values()
        (self.end,) = consumer.end_offsets([tp]).values()
        self._consumer = consumer
        self._tp = tp
        self._rows: Any = None

    def seek(self, offset: int) -> None:
        self._consumer.assign([self._tp])
        self._consumer.seek(self._tp, offset)

    def take(self, begin: int, count: int) -> Any:
        """Return at most `count` rows from offset `begin` on."""
        while self._rows is None or not self._rows.num_rows:
            batch = self._consumer.stored_batch(timeout_ms=_WAIT_MS)
            if batch is None:
                raise CorruptLogError(f"{self._tp}: no record from {begin} in {_WAIT_MS} ms")
            self._rows = rows_of(batch, begin)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken


def _partition(table: TopicTable, place: TablePartition, reader: _Topic | None) -> Finding:
    files = table.files(place)
    begin = files[0].first if files else table.position(place) or 0
    found = Finding(place.topic_id, place.partition, begin, table.position(place) or 0)
    common = range(0)
    if reader is not None:
        common = range(max(reader.begin, begin), min(reader.end, found.end))
        if reader.end < found.end:
            found.faults.append(f"the topic ends at {reader.end}, before the table")
        if common:
            reader.seek(common.start)
    try:
        for rows in _rows(table, place, found):
            first = rows["offset"][0].as_py()
            skip = max(0, common.start - first)
            rows = rows.slice(skip, max(0, common.stop - first - skip))
            if reader is not None and rows.num_rows:
                _compare(rows, reader, found)
    except CorruptLogError as error:
        found.faults.append(error.message)
    if not found.faults and found.compared != len(common):
        found.faults.append(f"{len(common) - found.compared} records of the topic are missing")
    return found


def _rows(table: TopicTable, place: TablePartition, found: Finding) -> Iterator[Any]:
    """Yield the table's rows. Raises CorruptLogError at a fault."""
    at = found.begin
    for file in table.files(place):
        if file.first != at:
            raise CorruptLogError(f"offset {at} should follow, and {file.path} begins elsewhere")
        for rows in checked_slices(table.get(file.path), file.path):
            offsets = rows["offset"]
            if not _rises_from(offsets, at):
                raise CorruptLogError(f"offset {at} should follow in {file.path}")
            at += rows.num_rows
            found.records += rows.num_rows
            yield rows
        if at != file.end:
            raise CorruptLogError(f"{file.path} ends at {at}, the table says {file.end}")
    if at != found.end:
        raise CorruptLogError(f"the files end at {at}, the table's position is {found.end}")


def _rises_from(offsets: Any, begin: int) -> bool:
    import pyarrow as pa

    return bool(offsets.equals(pa.arange(begin, begin + len(offsets))))


def _compare(rows: Any, reader: _Topic, found: Finding) -> None:
    while rows.num_rows:
        first = rows["offset"][0].as_py()
        other = reader.take(first, rows.num_rows)
        mine, rows = rows.slice(0, other.num_rows), rows.slice(other.num_rows)
        if not mine.equals(other):
            offset, column = _difference(mine, other)
            raise CorruptLogError(f"offset {offset}: {column} differs from the topic's")
        found.compared += other.num_rows


def _difference(mine: Any, other: Any) -> tuple[int, str]:
    for row in range(mine.num_rows):
        for column in file_schema().names:
            if mine[column][row] != other[column][row]:
                return mine["offset"][row].as_py(), column
    raise AssertionError("the rows are equal")


__all__ = ["Finding", "verify"]
