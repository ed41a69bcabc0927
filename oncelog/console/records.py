"""Search of records, bounded in time, bytes and rows; and one record as a whole.

A request reads for at most a few seconds and tells how far it came. A link goes on from there: the
console keeps nothing between two requests, and a closed page ends the search. The reading runs in
threads of its own, because decoding takes the processor.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass

from oncelog import Consumer, Record, StoredBatch, TopicPartition
from oncelog.console.masks import Change, Masks
from oncelog.console.pages import number, partition_of
from oncelog.console.parts import Facts, Field, Filter, Link, Links, Notes, Page, Part, Table, path
from oncelog.console.search_threads import SearchThreads
from oncelog.console.sessions import BrowserSession
from oncelog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
)
from oncelog.settings import ClientSettings
from oncelog.views.record_choice import choice, parse_start, seek
from oncelog.views.words import grouped, when

MAX_ROWS = 500
DEFAULT_ROWS = 50
MAX_BYTES = 64 * 1024 * 1024  # that one request reads
MAX_S = 5.0
MAX_PARTITIONS = 64  # in one search
SHOWN_CHARS = 200  # of a value in a row
RECORD_CHARS = 64 * 1024  # of a value on its own page
HEX_BYTES = 1024
_POLL_MS = 200


@dataclass(frozen=True, slots=True)
class Search:
    """A search in some partitions. at: where each goes on; empty: `start` says where it begins."""

    topic: str
    partitions: tuple[int, ...]
    start: str
    at: Mapping[int, int]
    limit: int
    key: str | None
    header: str
    contains: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Chosen records. at: positions to go on from; empty: all was read."""

    records: list[Record]
    read: int
    read_bytes: int
    at: Mapping[int, int]


class RecordReader:
    """Runs searches in its threads."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._threads = SearchThreads()

    def close(self) -> None:
        self._threads.close()

    async def search(self, session: BrowserSession, query: Mapping[str, str], topic: str) -> Page:
        """Return the page of a search; a wrong value gets its error beside the form.

        Raises OncelogError.
        """
        info = await session.admin.describe_topic(topic)
        try:
            wanted = _parse(query, topic, info.partition_count)
            found = await self._threads.run(
                session, _search, session.settings, wanted, self._masks.of_topic(topic)
            )
        except InvalidRequestError as error:
            problem = Notes("Problem", [error.message], "problem")
            form = _form(query, topic, query.get("from", ""), query.get("limit", ""))
            command = shlex.join(["oncelog", "topic", "consume", topic])
            return Page(f"Records of {topic}", [problem, form], command, "topics", status=400)
        return _page(query, wanted, found)

    async def record(
        self, session: BrowserSession, topic: str, partition: int, offset: int
    ) -> Page:
        """Return the page of one record. Raises OncelogError."""
        tp = TopicPartition(topic, partition)
        found = await self._threads.run(session, _one, session.settings, tp, offset)
        batch, record = found
        hide = self._masks.of_topic(topic)
        return _record_page(tp, offset, batch, hide(record) if hide else record)


# --- searching ---------------------------------------------------------------------------


def _parse(query: Mapping[str, str], topic: str, count: int) -> Search:
    one = partition_of(query, topic, count)
    partitions = tuple(range(count)) if one is None else (one,)
    if len(partitions) > MAX_PARTITIONS:
        text = (
            f"partition: the topic has {count}; name one, a search reads at most {MAX_PARTITIONS}"
        )
        raise InvalidRequestError(text, field="partition", limit=str(MAX_PARTITIONS))
    limit = min(max(1, number(query, "limit", DEFAULT_ROWS)), MAX_ROWS)
    at = positions_of(query.get("at", ""))
    if not at.keys() <= set(partitions):
        raise InvalidRequestError(f"at: {query['at'][:80]!r} names other partitions", field="at")
    return Search(
        topic, tuple(at) or partitions, query.get("from", "").strip() or f"-{limit}", at, limit,
        query.get("key") or None, query.get("header", ""), query.get("contains", ""),
    )  # fmt: skip


def positions_of(given: str) -> dict[int, int]:
    """Parse `0:17,1:5`. Raises InvalidRequestError."""
    if not given:
        return {}
    if not re.fullmatch(r"\d{1,10}:\d{1,18}(,\d{1,10}:\d{1,18}){0,63}", given, re.ASCII):
        raise InvalidRequestError("at: it must be partition:offset,...", field="at")
    return {int(p): int(o) for p, _, o in (one.partition(":") for one in given.split(","))}


def _search(settings: ClientSettings, wanted: Search, hide: Change | None) -> Findings:
    """Read until a bound is reached. Runs in a thread of the reader.

    hide: masks each record before it is chosen, so that no filter finds what is hidden.
    """
    chosen = choice(
        wanted.key, (wanted.header,) if wanted.header else (),
        re.escape(wanted.contains) if wanted.contains else None, None, None,
    )  # fmt: skip
    late = time.monotonic() + MAX_S
    tps = [TopicPartition(wanted.topic, partition) for partition in wanted.partitions]
    found, read, size = list[Record](), 0, 0
    with Consumer(
        **settings, auto_offset_reset="earliest", fetch_max_bytes=4 * 1024 * 1024,
        max_partition_fetch_bytes=1024 * 1024,
    ) as consumer:  # fmt: skip
        ends = consumer.end_offsets(tps)
        positions = _begin(consumer, wanted, ends)
        behind = {tp for tp in tps if positions[tp] < ends[tp]}
        while behind and len(found) < wanted.limit and size < MAX_BYTES:
            left = late - time.monotonic()
            if left <= 0:
                break
            batch = consumer.stored_batch(timeout_ms=min(_POLL_MS, int(left * 1000) + 1))
            if batch is None:
                continue
            tp = TopicPartition(batch.topic, batch.partition)
            # One batch at a time: a few kilobytes may have been compressed from 64 MiB.
            for record in batch.records():
                if record.offset >= ends[tp] or len(found) >= wanted.limit or size >= MAX_BYTES:
                    break
                positions[tp] = record.offset + 1
                read += 1
                size += size_of(record)
                shown_record = hide(record) if hide else record
                if chosen(shown_record):
                    found.append(shown_record)
            else:
                positions[tp] = min(batch.last_offset + 1, ends[tp])
            if positions[tp] >= ends[tp]:
                behind.discard(tp)
                consumer.pause(tp)
    return Findings(found, read, size, {tp.partition: positions[tp] for tp in sorted(behind)})


def size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def _begin(
    consumer: Consumer, wanted: Search, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Seek in each partition; return the positions. Raises InvalidRequestError."""
    consumer.assign(ends)
    if not wanted.at:
        start = parse_start(wanted.start, time.time_ns() // 1_000_000, "from")
        return seek(consumer, start, ends)
    positions = {tp: wanted.at[tp.partition] for tp in ends}
    for tp, at in positions.items():
        consumer.seek(tp, at)
    return positions


def _form(query: Mapping[str, str], topic: str, start: str, limit: str) -> Filter:
    return Filter(
        "Choose records", path("topics", topic, "records"),
        (
            Field("partition", "Partition", query.get("partition", ""), hint="empty: all"),
            Field("from", "From", start,
                  hint="-50: the newest 50 of each partition; an offset; 2h; start; a time"),
            Field("key", "Key", query.get("key", "")),
            Field("header", "Header", query.get("header", ""), hint="NAME=VALUE"),
            Field("contains", "Value contains", query.get("contains", "")),
            Field("limit", "At most", limit),
        ),
        "Search",
    )  # fmt: skip


def _page(query: Mapping[str, str], wanted: Search, found: Findings) -> Page:
    form = _form(query, wanted.topic, wanted.start, str(wanted.limit))
    rows = [
        (
            record.partition,
            Link(str(record.offset), path("topics", wanted.topic, "records", record.partition,
                                          record.offset)),
            when(record.timestamp), shown(record.key), shown(record.value), len(record.headers),
        )
        for record in found.records
    ]  # fmt: skip
    columns = ("partition", "offset", "time", "key", "value", "headers")
    parts: list[Part] = [form, Table("Records", columns, rows, empty="No record matches.")]
    ended = "the end of each partition" if not found.at else "a bound of this page"
    parts.append(
        Notes(
            "Search",
            [
                f"Read {grouped(found.read)} records and {grouped(found.read_bytes)} bytes, up to "
                f"{ended}."
            ],
        )
    )
    if found.at:
        at = ",".join(f"{partition}:{offset}" for partition, offset in found.at.items())
        more = {name: value for name, value in query.items() if name != "at"}
        parts.append(
            Links(
                "More",
                [Link("Go on from there", path("topics", wanted.topic, "records", at=at, **more))],
            )
        )
    return Page(f"Records of {wanted.topic}", parts, _command(query, wanted), "topics")


def _command(query: Mapping[str, str], wanted: Search) -> str:
    flags = {
        "-p": query.get("partition", ""), "--from": wanted.start, "--key": wanted.key,
        "--header": wanted.header, "--grep": wanted.contains,
    }  # fmt: skip
    given = [word for name, value in flags.items() if value for word in (name, value)]
    return shlex.join(["oncelog", "topic", "consume", wanted.topic, *given])


def shown(data: bytes | None, most: int = SHOWN_CHARS) -> str | None:
    """Return bytes as text, cut, with escapes for everything but UTF-8; None for null."""
    if data is None:
        return None
    text = bytes(data[: 4 * most]).decode("utf-8", errors="backslashreplace")
    return text if len(text) <= most and len(data) <= 4 * most else text[:most] + "…"


# --- one record --------------------------------------------------------------------------


def _one(settings: ClientSettings, tp: TopicPartition, offset: int) -> tuple[StoredBatch, Record]:
    """Read a record with its batch. Raises OncelogError."""
    with Consumer(**settings, auto_offset_reset="none", max_partition_fetch_bytes=1) as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        if offset < end:
            consumer.seek(tp, offset)
            batch = consumer.stored_batch(timeout_ms=int(MAX_S * 1000))
            if batch is None:
                raise RequestTimeoutError(f"{tp} was not read at offset {offset} in {MAX_S:.0f} s")
            record = next(iter(batch.records()), None)
            if record is not None and record.offset == offset:
                return batch, record
        start = consumer.beginning_offsets([tp])[tp]
    raise OffsetOutOfRangeError(
        f"{tp} has no record at offset {offset}; it has the offsets {start} to {end - 1}",
        topic=tp.topic, partition=tp.partition, offset=offset, log_start_offset=start,
        high_watermark=end,
    )  # fmt: skip


def _record_page(tp: TopicPartition, offset: int, batch: StoredBatch, record: Record) -> Page:
    facts: list[tuple[str, str | int | Link | None]] = [
        ("time", when(record.timestamp)),
        ("stored", when(batch.append_time_ms)),
        ("key", shown(record.key, RECORD_CHARS)),
        ("size of the value", None if record.value is None else len(record.value)),
    ]
    if batch.producer_id:
        sequence = batch.last_sequence
        if batch.last_sequence - batch.base_sequence + 1 == batch.record_count:
            sequence = batch.base_sequence + offset - batch.base_offset
        life = path(
            "life", topic=tp.topic, partition=tp.partition, producer=batch.producer_id,
            sequence=sequence, epoch=batch.epoch,
        )  # fmt: skip
        facts += [
            ("producer", batch.producer_id), ("epoch", batch.epoch),
            ("sequence", Link(f"{sequence}: its life", life)),
        ]  # fmt: skip
    headers = [(name, shown(value)) for name, value in record.headers]
    parts: list[Part] = [Facts("Record", facts)]
    if headers:
        parts.append(Table("Headers", ("name", "value"), headers))
    near = [
        Link("Records from here", path("topics", tp.topic, "records", partition=tp.partition,
                                       **{"from": offset})),
    ]  # fmt: skip
    parts.append(Links("More", near))
    value = record.value
    return Page(
        f"{tp} at {offset}", parts,
        f"oncelog topic consume {tp.topic} -p {tp.partition} --from {offset} -n 1", "topics",
        template="record.html",
        extra={
            "value": shown(value, RECORD_CHARS),
            "hex": None if value is None else value[:HEX_BYTES].hex(" ", 4),
            "hex_of": 0 if value is None else min(len(value), HEX_BYTES),
        },
    )  # fmt: skip


__all__ = ["MAX_PARTITIONS", "RecordReader", "Search", "positions_of"]
