"""Life of a producer's sequence: one sentence that answers, and the events around it as rows.

Place in the flow: the console gathers a `LifeFacts` with calls of Admin and Consumer, `life_view`
turns it into a `LifeView`, which its page shows. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oncelog.events import NodeEvent
from oncelog.types import ProducerName, ProducerState, Resolution, ResolvedSequence, TopicPartition
from oncelog.views.words import grouped, plural, when

MAX_ROWS = 500
# `orders-3 producer 17 epoch 2 sequences 4711..4740`, of an error's text or of an event's line.
_SENTENCE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10}) (?:[A-Z_]+ )?"
    r"producer (?P<producer_id>\d{1,19}) epoch (?P<epoch>\d{1,10}) "
    r"sequences? (?:\d{1,19}\.\.)?(?P<sequence>\d{1,19})"
)
# `producer_id=17`, `"producer_id": 17`: the error's fields in a structured log.
_FIELD = re.compile(
    r"""\b(topic|partition|producer_id|epoch|sequence)["']?\s{0,4}[=:]\s{0,4}["']?([\w.-]{1,249})"""
)
_TERM = re.compile(r"\bterm=(\d+)")


@dataclass(frozen=True, slots=True)
class SequenceQuestion:
    """The record that is asked for. epoch None: of any epoch."""

    tp: TopicPartition
    producer_id: int
    sequence: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A stored batch, without its records."""

    base_offset: int
    record_count: int
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    append_time_ms: int


@dataclass(frozen=True, slots=True)
class LifeFacts:
    """Answers about a sequence. gaps: sources that did not answer, with the reason.

    log_start: the partition's first stored offset; -1: not known.
    """

    question: SequenceQuestion
    resolved: ResolvedSequence
    names: Sequence[ProducerName] = ()
    states: Sequence[ProducerState] = ()
    events: Sequence[NodeEvent] = ()
    batches: Sequence[BatchSpan] = ()
    log_start: int = -1
    gaps: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LifeRow:
    """Something that happened to the producer in the partition.

    kind: stored, duplicate, refused, fence or leader. hits: it may be about the asked sequence.
    """

    kind: str
    first_ms: int
    last_ms: int
    text: str
    first_sequence: int = -1
    last_sequence: int = -1
    epoch: int = -1
    offset: int = -1
    count: int = 1
    node_id: int = 0
    hits: bool = False


@dataclass(frozen=True, slots=True)
class LifeView:
    """answer: yes, no, not yet or not known. details: further sentences."""

    question: SequenceQuestion
    answer: str
    sentence: str
    details: tuple[str, ...]
    rows: tuple[LifeRow, ...]
    gaps: tuple[str, ...]


def read_question(text: str) -> SequenceQuestion | None:
    """Find the batch that a logged error, or an event's line, names; None: it names none.

    A batch is stored whole or not at all, so the question is about its last record.
    """
    found = _SENTENCE.search(text)
    fields = dict(found.groupdict() if found else _FIELD.findall(text))
    numbers = {name: fields.get(name, "") for name in ("partition", "producer_id", "sequence")}
    if not fields.get("topic") or not all(value.isdecimal() for value in numbers.values()):
        return None
    epoch = fields.get("epoch", "")
    return SequenceQuestion(
        TopicPartition(fields["topic"], int(numbers["partition"])),
        int(numbers["producer_id"]),
        int(numbers["sequence"]),
        int(epoch) if epoch.isdecimal() else None,
    )


def life_view(facts: LifeFacts) -> LifeView:
    rows = sorted(_rows(facts), key=lambda row: (row.first_ms, row.last_ms))[-MAX_ROWS:]
    answer, sentence = _answer(facts, rows)
    return LifeView(
        facts.question, answer, sentence, tuple(_details(facts, rows)), tuple(rows),
        tuple(facts.gaps),
    )  # fmt: skip


# --- sentences ---------------------------------------------------------------------------


def _answer(facts: LifeFacts, rows: Sequence[LifeRow]) -> tuple[str, str]:
    """Return the answer in a word or two, and as a sentence."""
    found, subject, tp = facts.resolved, _subject(facts), facts.question.tp
    if found.resolution is Resolution.COMMITTED:
        return "yes", _stored(facts, rows, subject)
    if found.resolution is Resolution.NEVER:
        return "no", f"{subject} is not in {tp}, and never will be{_reason(facts, rows)}."
    if found.resolution is Resolution.NOT_YET:
        text = (
            f"{subject} is not in {tp} yet. A retry that is still on its way, or the commit of its "
            f"transaction, may store it; the last stored sequence is {_last(found.last_sequence)}."
        )
        return "not yet", text
    text = (
        f"{subject} may have been stored in {tp}: retention or compaction has deleted the "
        f"evidence. It cannot be stored any more, unless the producer is a Kafka client."
    )
    return "not known", text


def _subject(facts: LifeFacts) -> str:
    question, found = facts.question, facts.resolved
    epoch = found.epoch if found.epoch >= 0 else question.epoch
    name = next((n.name for n in facts.names if n.producer_id == question.producer_id), "")
    marks = [f'"{name}"'] if name else []
    if epoch is not None:
        marks.append(f"epoch {epoch}")
    known = f" ({', '.join(marks)})" if marks else ""
    return f"Sequence {grouped(question.sequence)} of producer {question.producer_id}{known}"


def _stored(facts: LifeFacts, rows: Sequence[LifeRow], subject: str) -> str:
    found, tp = facts.resolved, facts.question.tp
    if found.offset < 0:
        return (
            f"{subject} was stored in {tp} once; its offset is no longer known, so retention may "
            f"have deleted it."
        )
    stored = _stored_row(rows)
    if facts.log_start < 0 and stored is None:
        return (
            f"{subject} was stored in {tp} once, at offset {grouped(found.offset)}. Whether "
            f"retention has deleted it since is not known."
        )
    if found.offset < facts.log_start:
        return (
            f"{subject} was stored in {tp} once, at offset {grouped(found.offset)}. Retention has "
            f"deleted it since: the log starts at {grouped(facts.log_start)}."
        )
    since = f", since {when(stored.first_ms)}" if stored else ""
    term = _term_at(facts.events, stored.first_ms) if stored else None
    under = f", in term {term}" if term else ""
    return f"{subject} is in {tp} once, at offset {grouped(found.offset)}{since}{under}."


def _stored_row(rows: Iterable[LifeRow]) -> LifeRow | None:
    return next((row for row in rows if row.kind == "stored" and row.hits), None)


def _reason(facts: LifeFacts, rows: Sequence[LifeRow]) -> str:
    """Return why a sequence was never stored, as far as it is known."""
    found = facts.resolved
    epoch = found.epoch if facts.question.epoch is None else facts.question.epoch
    fences = [row for row in rows if row.kind == "fence" and row.epoch > epoch]
    if fences:
        return f": epoch {fences[0].epoch} fenced it at {when(fences[0].first_ms)}"
    if found.current_epoch > epoch >= 0:
        return f": epoch {found.current_epoch} fenced it"
    refused = [row for row in rows if row.kind == "refused" and row.hits]
    if refused:
        return f": a node answered {refused[-1].text} at {when(refused[-1].last_ms)}"
    return f"; the last stored sequence of its epoch is {_last(found.last_sequence)}"


def _last(sequence: int) -> str:
    return "none" if sequence < 0 else grouped(sequence)


def _details(facts: LifeFacts, rows: Sequence[LifeRow]) -> Iterable[str]:
    """Yield sentences about repeats, refusals, leaders, and the producer's state."""
    if facts.question.epoch is None and facts.resolved.resolution is Resolution.COMMITTED:
        yield (
            f"No epoch was asked for. Epoch {facts.resolved.epoch} is the newest that stored this "
            f"sequence; in another epoch it is another record."
        )
    stored = _stored_row(rows)
    exact = [row for row in rows if stored is not None and _repeats(row, stored)]
    if stored is not None and exact:
        count = sum(row.count for row in exact)
        yield (
            f"Its batch came {_times(count + 1)}: {plural(count, 'repeat')} got the offset that it "
            f"already had{_lost_leader(rows, stored, exact[-1])}."
        )
    for row in rows:
        if not row.hits or row.kind not in ("duplicate", "refused") or row in exact:
            continue
        span = f"{grouped(row.first_sequence)} to {grouped(row.last_sequence)}"
        if row.kind == "refused":
            yield f"Sequences {span} were refused {_times(row.count)}: {row.text}."
        else:
            yield (
                f"Repeats with sequences {span} were answered as duplicates {_times(row.count)}; "
                f"it may be one of them."
            )
    for state in facts.states:
        yield (
            f"The partition knows the producer in epoch {state.epoch}, up to sequence "
            f"{_last(state.last_sequence)}, since {when(state.last_append_ms)}."
        )


def _repeats(row: LifeRow, stored: LifeRow) -> bool:
    """Tell whether all repeats of a row are of the stored batch."""
    span = (row.first_sequence, row.last_sequence)
    return (
        row.kind == "duplicate"
        and row.hits
        and span == (stored.first_sequence, stored.last_sequence)
    )


def _lost_leader(rows: Iterable[LifeRow], stored: LifeRow, repeat: LifeRow) -> str:
    """Name the change of leader between a batch and its repeat."""
    between = [
        row
        for row in rows
        if row.kind == "leader" and stored.first_ms <= row.first_ms <= repeat.last_ms
    ]
    return f", after node {between[-1].node_id} became leader" if between else ""


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{grouped(count)} times")


def _term_at(events: Iterable[NodeEvent], time_ms: int) -> int | None:
    """Return the term at a time, if the next known leader has the following one.

    Otherwise there may have been a leader in between whose node has ended, and its events with it.
    """
    terms = sorted(
        (int(found.group(1)), event.first_ms)
        for event in events
        if event.kind == "leader" and event.text.startswith("leads ")
        if (found := _TERM.search(event.text))
    )
    for (term, begin_ms), (following, end_ms) in pairwise(terms):
        if begin_ms <= time_ms < end_ms and following == term + 1:
            return term
    return None


# --- rows --------------------------------------------------------------------------------


def _rows(facts: LifeFacts) -> Iterable[LifeRow]:
    question = facts.question
    for batch in facts.batches:
        if batch.producer_id == question.producer_id:
            yield _batch_row(batch, facts)
    for event in facts.events:
        if (event.name, event.partition) == tuple(question.tp) or event.kind == "producer":
            if event.kind == "leader" and event.text.startswith("leads "):
                yield _event_row("leader", event, f"node {event.node_id} became leader")
            elif event.producer_id != question.producer_id:
                continue
            elif event.kind == "producer":
                yield _event_row("fence", event, event.text)
            elif event.kind == "verdict":
                kind = "duplicate" if event.verdict == "DUPLICATE" else "refused"
                text = f"{event.verdict}: {event.text}" if event.text else event.verdict
                yield _event_row(kind, event, text, hits=_hits(event, facts))


def _batch_row(batch: BatchSpan, facts: LifeFacts) -> LifeRow:
    found = facts.resolved
    last = batch.base_offset + batch.record_count - 1
    hits = found.resolution is Resolution.COMMITTED and batch.base_offset <= found.offset <= last
    return LifeRow(
        "stored", batch.append_time_ms, batch.append_time_ms,
        f"stored {plural(batch.record_count, 'record')}", batch.first_sequence,
        batch.last_sequence, batch.epoch, batch.base_offset, hits=hits,
    )  # fmt: skip


def _hits(event: NodeEvent, facts: LifeFacts) -> bool:
    asked, found = facts.question, facts.resolved
    epoch = found.epoch if asked.epoch is None and found.epoch >= 0 else asked.epoch
    if epoch is not None and event.epoch != epoch:
        return False
    return event.first_sequence <= asked.sequence <= event.last_sequence


def _event_row(kind: str, event: NodeEvent, text: str, hits: bool = False) -> LifeRow:
    spans = kind in ("duplicate", "refused")
    return LifeRow(
        kind, event.first_ms, event.last_ms, " ".join(text.split()),
        event.first_sequence if spans else -1, event.last_sequence if spans else -1,
        event.epoch, event.offset, event.count, event.node_id, hits,
    )  # fmt: skip
