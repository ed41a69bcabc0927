"""Life of a sequence: asks the nodes, and reads the batches around it.

Place in the flow: `app` --question--> `ask` --> `oncelog.views.life` --> the page. Each source may
fail alone, for instance for a missing permission: the page names it, and shows the rest.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from oncelog import EventFilter, NodeEvent, ProducerName, ResolvedSequence, TopicPartition
from oncelog.aio import Admin, Consumer
from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.console.errors import status_of
from oncelog.console.pages import is_number, number
from oncelog.console.parts import Page, path
from oncelog.console.picture import draw
from oncelog.console.sessions import BrowserSession
from oncelog.errors import InvalidRequestError, OncelogError
from oncelog.views.life import (
    BatchSpan,
    LifeFacts,
    LifeView,
    SequenceQuestion,
    life_view,
    read_question,
)

T = TypeVar("T")

MAX_ERROR_CHARS = 8000  # of a pasted error
MAX_EVENTS = 1000
# Stored batches around the record: a look, not a search.
MAX_BATCHES = 200
MAX_BATCH_BYTES = 16 * 1024 * 1024
FETCH_BYTES = 1024 * 1024
READ_S = 3.0
BEFORE = 500  # records before the one that is asked for


async def page(session: BrowserSession, query: Mapping[str, str]) -> Page | str:
    """Return the page of a question, or the address of the question in a pasted error.

    A wrong question gets its error beside the form.
    """
    values: dict[str, object] = {"view": None, "picture": None}
    command, status, problem = "oncelog producer resolve", 200, ""
    try:
        if query.get("error", "").strip():
            return pasted(query)
        if query.get("producer") and query.get("sequence"):
            view = await ask(session, query)
            command = _command(view)
            values = {"view": view, "picture": draw(view)}
    except OncelogError as error:
        status, problem = status_of(error), error.message
    fields = ("topic", "partition", "producer", "sequence", "epoch", "error")
    values |= {"problem": problem, "given": {name: query.get(name, "") for name in fields}}
    return Page(
        "Did my record get in, once?", (), command, "life", template="life.html", status=status,
        extra=values,
    )  # fmt: skip


def pasted(query: Mapping[str, str]) -> str:
    """Return the address of the life that a pasted error asks for. Raises InvalidRequestError."""
    text = query["error"]
    if len(text) > MAX_ERROR_CHARS:
        raise InvalidRequestError(
            f"error: {len(text)} characters, at most {MAX_ERROR_CHARS}; paste one error",
            field="error", limit=str(MAX_ERROR_CHARS),
        )  # fmt: skip
    found = read_question(text)
    if found is None:
        raise InvalidRequestError(
            "error: the text names no batch. An error with an unknown outcome has a part such as "
            "'orders-3 producer 17 epoch 2 sequences 4711..4740'; its fields topic, partition, "
            "producer_id and sequence do as well",
            field="error",
        )  # fmt: skip
    return path(
        "life", topic=found.tp.topic, partition=found.tp.partition, producer=found.producer_id,
        sequence=found.sequence, epoch=found.epoch,
    )  # fmt: skip


async def ask(session: BrowserSession, query: Mapping[str, str]) -> LifeView:
    """Answer the question of an address. Raises OncelogError."""
    admin = session.admin
    topic, producer = query.get("topic", "").strip(), query.get("producer", "").strip()
    if not topic or not producer:
        raise InvalidRequestError("topic and producer must not be empty", field="topic")
    tp = TopicPartition(topic, number(query, "partition", 0, MAX_INT32))
    gaps: list[str] = []
    names = await _or_gap(admin.list_producer_names(), "names", gaps, [])
    epoch = number(query, "epoch", 0, MAX_INT32) if query.get("epoch") else None
    question = SequenceQuestion(
        tp, _producer_id(producer, names, gaps), number(query, "sequence", 0, MAX_INT64), epoch
    )
    resolved = await admin.resolve_sequence(
        *tp, question.producer_id, question.epoch, question.sequence
    )
    states, events, (start, batches) = await asyncio.gather(
        _or_gap(admin.describe_producers(*tp, question.producer_id), "producer's state", gaps, []),
        _or_gap(_events(admin, question, names, gaps), "events", gaps, []),
        _or_gap(_batches(session, tp, resolved, gaps), "stored batches", gaps, (-1, [])),
    )
    return life_view(
        LifeFacts(question, resolved, names, states, events, batches, start, tuple(gaps))
    )


def _producer_id(given: str, names: Sequence[ProducerName], gaps: list[str]) -> int:
    """Return the id of a producer that is given by id or by name. Raises InvalidRequestError.

    Digits are an id, as in a logged error, also if they are the name of another producer.
    """
    named = next((one.producer_id for one in names if one.name == given), 0)
    if is_number(given) and int(given):
        if named not in (0, int(given)):
            gaps.append(f"names: {given} is taken as an id; the producer of this name is {named}")
        return int(given)
    if named:
        return named
    raise InvalidRequestError(
        f"producer: {given[:80]!r} is neither a producer id nor a producer name that you may "
        f"describe",
        field="producer",
    )


async def _or_gap(call: Coroutine[Any, Any, T], source: str, gaps: list[str], other: T) -> T:
    try:
        return await call
    except OncelogError as error:
        gaps.append(f"{source}: {error.message}")
        return other


async def _events(
    admin: Admin, question: SequenceQuestion, names: Sequence[ProducerName], gaps: list[str]
) -> list[NodeEvent]:
    """Return events of the partition's leaders, and of the producer, oldest first."""
    leaders, own = await asyncio.gather(
        admin.list_events(EventFilter(("leader",), "topic", question.tp.topic, limit=MAX_EVENTS)),
        admin.list_events(EventFilter(producer_id=question.producer_id, limit=MAX_EVENTS)),
    )
    gaps += [f"events of node {node}: {text}" for node, text in own.problems.items()]
    found = [e for e in leaders.events if e.partition == question.tp.partition]
    found += [e for e in own.events if e.partition in (question.tp.partition, -1)]
    return sorted(found, key=lambda event: event.last_ms)


async def _batches(
    session: BrowserSession, tp: TopicPartition, resolved: ResolvedSequence, gaps: list[str]
) -> tuple[int, list[BatchSpan]]:
    """Return the log's start, and batches around the record, or the newest ones."""
    spans: list[BatchSpan] = []
    async with Consumer(
        **session.settings, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES
    ) as consumer:
        start = (await consumer.beginning_offsets([tp]))[tp]
        end = (await consumer.end_offsets([tp]))[tp]
        about = resolved.offset if resolved.offset >= 0 else end
        at = max(start, about - BEFORE)
        if about < start or at >= end:
            return start, spans
        await consumer.assign([tp])
        consumer.seek(tp, at)
        size, late = 0, asyncio.get_running_loop().time() + READ_S
        while at < end and len(spans) < MAX_BATCHES and size < MAX_BATCH_BYTES:
            left = late - asyncio.get_running_loop().time()
            batch = await consumer.stored_batch(timeout_ms=max(0, int(left * 1000)))
            if batch is None:
                gaps.append(f"stored batches: not all near it were read in {READ_S:.0f} s")
                break
            size += len(batch.payload)
            at = batch.last_offset + 1
            spans.append(
                BatchSpan(
                    batch.base_offset, batch.record_count, batch.producer_id, batch.epoch,
                    batch.base_sequence, batch.last_sequence, batch.append_time_ms,
                )
            )  # fmt: skip
    return start, spans


def _command(view: LifeView) -> str:
    question = view.question
    words = ["oncelog", "producer", "resolve", *map(str, question.tp)]
    words += [str(question.producer_id), str(question.sequence)]
    if question.epoch is not None:
        words += ["--epoch", str(question.epoch)]
    return shlex.join(words)


__all__ = ["ask", "page"]
