"""Archiver: reads topics as a member of a group, writes them into tables, each record once.

Place in the flow: Consumer.stored_batch -> rows of a partition's open file -> whole file, stored in
the background -> a commit of all files and positions. `oncelog table run` is a thin layer over it.

The table alone says how far it is. A partition begins at its position in the table, whoever wrote
there before; the group's offsets are committed for `oncelog group describe` only. So a second
instance, a former owner or a restart may do anything twice, except for the commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Final

from oncelog._engine.net import runtime
from oncelog.admin import Admin
from oncelog.config import bootstrap_of
from oncelog.consumer import Consumer
from oncelog.errors import ConfigError, CorruptLogError, OncelogError
from oncelog.table.files import (
    CommitUnknownError,
    TableError,
    TableFile,
    TablePartition,
    TopicTable,
    owner_of,
)
from oncelog.table.formats import TablePlace
from oncelog.table.layout import FileBuilder, rows_of
from oncelog.table.merge import due, merge
from oncelog.types import TopicPartition
from oncelog.wire.stored import StoredBatch

log = logging.getLogger("oncelog.table")

MIB: Final = 1024 * 1024
_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Sizes in bytes of a Parquet file, times in milliseconds."""

    roll_bytes: int = 128 * MIB
    roll_ms: int = 900_000
    commit_ms: int = 60_000
    merge_below: int = 32 * MIB
    memory_bytes: int = 512 * MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = LIMITS[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise ConfigError(f"{field.name}: {value} is not in {low}..{high}", field.name)
        if self.merge_below > self.roll_bytes:
            text = f"merge_below: {self.merge_below} is above roll_bytes, {self.roll_bytes}"
            raise ConfigError(text, "merge_below", "roll_bytes")


# Files are stored by one request each, which object stores limit.
LIMITS: Final[dict[str, tuple[int, int]]] = {
    "roll_bytes": (4096, 512 * MIB),
    "roll_ms": (10, 86_400_000),
    "commit_ms": (10, 3_600_000),
    "merge_below": (0, 512 * MIB),
    "memory_bytes": (32 * MIB, 1 << 40),
}


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a topic's table."""

    topic: str
    version: int
    files: int
    records: int
    payload_bytes: int
    file_bytes: int
    merged: int = 0  # files that became fewer


class _OpenPartition:
    """Records of an owned partition that are not in the table yet."""

    def __init__(self, table: TopicTable, place: TablePartition, next_offset: int | None) -> None:
        self.table = table
        self.place = place
        self.next = next_offset  # of the topic; None: the table is empty, begin anywhere
        self.builder: FileBuilder | None = None
        self.opened_at = 0.0
        self.stored: list[tuple[Future[TableFile], int]] = []  # and their payload bytes

    @property
    def memory_bytes(self) -> int:
        return 0 if self.builder is None else self.builder.memory_bytes

    @property
    def begin(self) -> int | None:
        """Offset of the first record that is not in the table."""
        if self.stored:
            return self.stored[0][0].result().first
        return self.next if self.builder is None else self.builder.first

    def drop_below(self, offset: int) -> bool:
        """Drop the files that end there, or all records if none does. Return False if all went."""
        ends = [upload.result().end for upload, _ in self.stored]
        if offset in ends:
            del self.stored[: ends.index(offset) + 1]
            return True
        self.stored = []
        self.builder = None
        self.next = offset
        return False


class Archiver:
    """One run of the archiver. `run` may be called once.

    `to`: path or URL; the table of a topic is below it, with the topic's name or `name`.
    `table_format`: delta or iceberg. `catalog`: of Iceberg tables, in pyiceberg's configuration.
    `group_id`: by default made of `to`. `on_commit`: called after each commit.
    `step`: called with the name of each step, for tests that end the process there.
    """

    def __init__(
        self,
        topics: Sequence[str],
        to: str,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        name: str | None = None,
        table_format: str = "delta",
        catalog: str | None = None,
        group_id: str | None = None,
        settings: TableSettings = TableSettings(),  # frozen
        on_commit: Callable[[Commit], None] = lambda commit: None,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        place = TablePlace(to, table_format, catalog)
        place.check()
        if not topics or (name is not None and len(topics) > 1):
            raise ConfigError("name: it names the table of one topic; omit it", "name")
        if len({place.url(name or topic) for topic in topics}) < len(topics):
            raise ConfigError(f"topics: two of {', '.join(topics)} have one table", "topics")
        self._bootstrap = bootstrap_of(bootstrap_servers)
        self._settings = settings
        self._on_commit = on_commit
        self._step = step
        self._stopped = False
        self._parts: dict[TopicPartition, _OpenPartition] = {}
        self._uploads = ThreadPoolExecutor(2, "oncelog-table")
        self._waiting: list[tuple[Future[TableFile], int]] = []  # files in memory, and their bytes
        self._commit_at = time.monotonic() + settings.commit_ms / 1000
        self._admin = Admin(bootstrap_servers=self._bootstrap)
        try:
            self._owner = owner_of(self._admin.describe_cluster())
            self._topic_ids = {one: self._admin.describe_topic(one).topic_id for one in topics}
            self._tables = {
                topic: place.open(name or topic, self._owner, topic, create=True)
                for topic in topics
            }
            self._consumer = Consumer(
                bootstrap_servers=self._bootstrap,
                group_id=group_id or place.group(name),
                auto_offset_reset="earliest",
                on_assigned=self._assigned,
                on_revoked=lambda tps, deadline: self._give_back(tps),
                on_lost=self._give_back,
            )
        except BaseException:
            self._admin.close()
            raise

    def stop(self) -> None:
        """Have `run` commit its records and return; may be called by a signal handler."""
        self._stopped = True

    def run(self, *, exit_at_end: bool = False) -> None:
        """Archive until `stop`, or until the tables have the topics' present records."""
        try:
            with self._consumer as consumer, self._uploads:
                ends = self._ends() if exit_at_end else None
                consumer.subscribe(self._tables)
                try:
                    while not self._stopped and (ends is None or not self._is_at(ends)):
                        if not self._turn(consumer) and ends is not None:
                            ends = self._with_starts({tp: end for tp, (_, end) in ends.items()})
                    consumer.unsubscribe()  # commits
                except BaseException:
                    self._parts.clear()
                    raise
        finally:
            self._admin.close()

    def _turn(self, consumer: Consumer) -> bool:
        """Tell whether the topics had a batch."""
        until = min([self._commit_at, *map(self._roll_at, self._parts.values())])
        wait_ms = min(_POLL_MS, int((until - time.monotonic()) * 1000) + 1)
        batch = consumer.stored_batch(timeout_ms=max(0, wait_ms))
        if batch is not None:
            self._take(batch)
        now = time.monotonic()
        for part in self._parts.values():
            if now >= self._roll_at(part):
                self._roll(part)
        if now >= self._commit_at:
            self._commit(list(self._parts))
            self._commit_at = time.monotonic() + self._settings.commit_ms / 1000
        return batch is not None

    def _roll_at(self, part: _OpenPartition) -> float:
        if part.builder is None:
            return float("inf")
        return part.opened_at + self._settings.roll_ms / 1000

    # --- reading ---------------------------------------------------------------------

    def _assigned(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            topic_id = self._admin.describe_topic(tp.topic).topic_id
            self._begin(tp, TablePartition(topic_id, tp.partition))

    def _begin(self, tp: TopicPartition, place: TablePartition) -> None:
        """Read a partition from its position in the table on."""
        table = self._tables[tp.topic]
        table.refresh()
        part = self._parts[tp] = _OpenPartition(table, place, table.position(place))
        if part.next is None:
            self._consumer.seek_to_beginning(tp)
        else:
            self._consumer.seek(tp, part.next)

    def _check_gap(self, tp: TopicPartition, begin: int) -> None:
        """Raises TableError if records from `begin` on are deleted, not only blanks."""
        query = self._consumer._fetcher.positions.list_offsets({tp: "deleted"})
        if begin < (end := runtime.run(query)[tp]):
            self._flush(list(self._parts))  # the topics may not have these records any more
            raise TableError(
                f"{tp}: records from {begin} to {end - 1} are deleted, and the table has none of "
                "them; choose another --name for a new table"
            )

    def _take(self, batch: StoredBatch) -> None:
        tp = TopicPartition(batch.topic, batch.partition)
        part = self._parts[tp]
        if batch.topic_id not in (0, part.place.topic_id):
            log.warning("%s: the topic was deleted and created again", tp)
            self._flush([tp])
            self._begin(tp, TablePartition(batch.topic_id, tp.partition))
            return
        begin = batch.base_offset + batch.skip
        if part.next is None:
            part.next = begin
        if begin > part.next:
            self._check_gap(tp, part.next)
        if begin < part.next:
            raise TableError(
                f"{tp}: the topic has no offset {part.next}, where the table ends; "
                "choose another --name for a new table"
            )
        rows = rows_of(batch, begin)
        if part.builder is None:
            part.builder = FileBuilder(self._origin(tp.topic, part.place), part.next)
            part.opened_at = time.monotonic()
        if rows.num_rows:
            part.builder.add(rows, rows.select(["key", "value", "headers"]).nbytes)
        part.next = batch.last_offset + 1
        part.builder.pass_to(part.next)
        if part.builder.file_bytes >= self._settings.roll_bytes:
            self._roll(part)
        self._make_room()

    def _origin(self, topic: str, place: TablePartition) -> dict[str, str | int]:
        return {"cluster": self._owner, "topic": topic, "topic_id": place.topic_id}

    # --- files -----------------------------------------------------------------------

    def _make_room(self) -> None:
        """Keep the files in memory below the limit."""
        self._waiting = [one for one in self._waiting if not one[0].done()]
        limit = self._settings.memory_bytes
        used = sum(size for _, size in self._waiting)
        open_bytes = sum(part.memory_bytes for part in self._parts.values())
        if open_bytes > limit // 2:
            self._roll(max(self._parts.values(), key=lambda part: part.memory_bytes))
        if used + open_bytes > limit and self._waiting:
            self._waiting.pop(0)[0].result()

    def _roll(self, part: _OpenPartition) -> None:
        """Close the open file; it is stored in the background."""
        builder, part.builder = part.builder, None
        if builder is not None:
            payload_bytes, memory_bytes = builder.payload_bytes, builder.memory_bytes
            upload = self._uploads.submit(self._store, part, builder)
            part.stored.append((upload, payload_bytes))
            self._waiting.append((upload, memory_bytes))

    def _store(self, part: _OpenPartition, builder: FileBuilder) -> TableFile:
        built = builder.finish()
        self._step("put")
        file = part.table.put(part.place, built)
        self._step("stored")
        return file

    # --- commits ---------------------------------------------------------------------

    def _give_back(self, tps: Iterable[TopicPartition]) -> None:
        known = [tp for tp in tps if tp in self._parts]
        self._flush(known)
        for tp in known:
            del self._parts[tp]

    def _flush(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._roll(self._parts[tp])
        self._commit(tps)

    def _commit(self, tps: Iterable[TopicPartition]) -> None:
        for topic, table in self._tables.items():
            parts = {tp: self._parts[tp] for tp in tps if tp.topic == topic}
            while self._commit_once(topic, table, parts):
                pass
            if self._settings.merge_below and table.merges:
                for part in parts.values():
                    self._merge(topic, table, part.place)

    def _commit_once(
        self, topic: str, table: TopicTable, parts: dict[TopicPartition, _OpenPartition]
    ) -> bool:
        """Commit the stored files. Return True if it is to be called again."""
        self._settle(table, parts)
        files = [
            (part.place, upload.result()) for part in parts.values() for upload, _ in part.stored
        ]
        if not files:
            return False
        payload_bytes = sum(size for part in parts.values() for _, size in part.stored)
        state = table.state
        self._step("commit")
        try:
            table.commit(files)
        except CommitUnknownError as error:
            table.refresh()
            if table.state == state:  # nobody else was first
                raise TableError(str(error)) from error
            log.info("%s", error)
            return True
        self._step("committed")
        for part in parts.values():
            part.stored = []
        table.refresh()
        self._on_commit(
            Commit(
                topic,
                table.version,
                len(files),
                sum(file.records for _, file in files),
                payload_bytes,
                sum(file.size for _, file in files),
            )
        )
        self._commit_group(table, parts)
        return False

    def _settle(self, table: TopicTable, parts: dict[TopicPartition, _OpenPartition]) -> None:
        """Drop records that the table has: by a commit without an answer, or of another owner."""
        for tp, part in parts.items():
            at, begin = table.position(part.place), part.begin
            if at in (None, begin) or begin is None:
                continue
            if at < begin:
                raise TableError(
                    f"{tp}: the table's position went back from {begin} to {at}; was it restored? "
                    "Start `oncelog table run` again to go on there"
                )
            if not part.drop_below(at):
                self._consumer.seek(tp, at)

    def _commit_group(self, table: TopicTable, parts: dict[TopicPartition, _OpenPartition]) -> None:
        positions = {tp: table.position(part.place) for tp, part in parts.items()}
        try:
            self._consumer.commit({tp: at for tp, at in positions.items() if at is not None})
        except OncelogError as error:
            log.info("the group's offsets, which only show the lag, are not committed: %s", error)

    def _merge(self, topic: str, table: TopicTable, place: TablePartition) -> None:
        settings = self._settings
        old = due(table.files(place), settings.merge_below, settings.roll_bytes)
        if not old:
            return
        self._step("merge")
        try:
            merge(table, place, old, self._origin(topic, place))
        except CommitUnknownError as error:
            log.info("a merge is left to a later commit: %s", error)
            table.refresh()
            return
        except CorruptLogError as error:
            log.warning("files are not merged; run `oncelog table verify`: %s", error)
            return
        self._step("merged")
        table.refresh()
        records, size = sum(file.records for file in old), sum(file.size for file in old)
        self._on_commit(Commit(topic, table.version, 0, records, 0, size, len(old)))

    # --- the end ---------------------------------------------------------------------

    def _ends(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the present start and end of each partition."""
        tps = [
            TopicPartition(topic, one.partition)
            for topic in self._tables
            for one in self._admin.describe_topic(topic).partitions
        ]
        return self._with_starts(self._consumer.end_offsets(tps))

    def _with_starts(
        self, ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the present starts too: retention may delete the rest, and no batch follows."""
        starts = self._consumer.beginning_offsets(ends)
        return {tp: (starts[tp], end) for tp, end in ends.items()}

    def _is_at(self, ends: dict[TopicPartition, tuple[int, int]]) -> bool:
        """Tell whether the tables have all records up to these ends, also of other owners."""
        for tp, part in self._parts.items():
            start, end = ends.get(tp, (0, 0))
            if part.next is not None and part.next < min(start, end) and self._is_same(tp, part):
                self._check_gap(tp, part.next)
            if max(start, part.next or 0) < end and self._is_same(tp, part):
                return False
        if not self._parts and not self._consumer.metrics()["rebalances"]:
            return False
        self._flush(list(self._parts))
        for table in self._tables.values():
            table.refresh()
        return all(max(start, self._position(tp)) >= end for tp, (start, end) in ends.items())

    def _is_same(self, tp: TopicPartition, part: _OpenPartition) -> bool:
        return part.place.topic_id == self._topic_ids[tp.topic]

    def _position(self, tp: TopicPartition) -> int:
        place = TablePartition(self._topic_ids[tp.topic], tp.partition)
        return self._tables[tp.topic].position(place) or 0
