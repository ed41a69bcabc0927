"""Refused heads of one ProduceStream, and the batches that the client sent behind them.

    Appender.append --answered--> RefusedHeads --reason--> the answers to batches behind it

A client pipelines. A node that is not ready refuses the first batch and may be ready for the
next ones. These lie behind a gap: OUT_OF_ORDER, or UNKNOWN_PRODUCER, which tells a sound
producer to stop. So a batch that builds on a refused head and fails for the gap gets the head's
reason, until something is sent again. A batch that fits is appended: the head was then stored
by another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.dedup.verdict import BatchMeta, Kind
from cluster.metadata.topics import MAX_TOPIC_NAME_CHARS
from cluster.partition.types import Answer

MAX_HEADS = 10_000  # of one stream; the oldest goes

# Nothing was stored, and it may be sent again.
_FOR_A_WHILE = (
    Kind.NOT_LEADER,
    Kind.NOT_READY,
    Kind.THROTTLED,
    Kind.STORAGE_FULL,
    Kind.UNKNOWN_TOPIC_OR_PARTITION,
)
_GAP = (Kind.OUT_OF_ORDER, Kind.UNKNOWN_PRODUCER)


Note = Callable[[str, int, BatchMeta, Answer], object]


@dataclass(slots=True)
class _Head:
    """The first refused batch, and the last sequence sent since."""

    first: int
    last: int
    answer: Answer


class RefusedHeads:
    """Map of one stream: (topic, partition, producer id, epoch) -> its refused head.

    note: is told each answer to a batch that was neither stored nor staged now.
    """

    def __init__(self, note: Note) -> None:
        self._note_answer = note
        self._heads: dict[tuple[str, int, int, int], _Head] = {}

    def __bool__(self) -> bool:
        return bool(self._heads)

    def reason(self, topic: str, partition: int, meta: BatchMeta) -> Answer | None:
        """Return the answer for a batch that comes now, should there be a gap before it."""
        key = (topic, partition, meta.producer_id, meta.epoch)
        head = self._heads.get(key)
        if head is None:
            return None
        if meta.prev >= head.first and meta.first > head.last:
            head.last = meta.last
            return head.answer
        del self._heads[key]  # sent again: its own answer counts
        return None

    def answered(
        self, topic: str, partition: int, meta: BatchMeta, answer: Answer, reason: Answer | None
    ) -> Answer:
        """Return the answer to a batch that is not stored now; `reason` as it was when it came."""
        kind = answer.verdict.kind
        if kind in _GAP and reason is not None:
            answer = reason
        self._note_answer(topic, partition, meta, answer)
        if kind in _FOR_A_WHILE and meta.producer_id and len(topic) <= MAX_TOPIC_NAME_CHARS:
            self._note((topic, partition, meta.producer_id, meta.epoch), meta, answer)
        return answer

    def _note(self, key: tuple[str, int, int, int], meta: BatchMeta, answer: Answer) -> None:
        head = self._heads.get(key)
        if head is not None and head.first <= meta.first:
            head.last = max(head.last, meta.last)
            return
        if head is None and len(self._heads) >= MAX_HEADS:
            del self._heads[next(iter(self._heads))]
        self._heads[key] = _Head(meta.first, meta.last, answer)
