"""Committed offsets of one group, and the verdict on a commit. Deterministic, pure.

    OffsetsTable --judge_commit, put--> GroupState

An offset is kept as the bytes that a snapshot holds, made once when it is committed:
a checkpoint is written between two rounds of the node's loop, so it must only join them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from cluster.transactions.types import UNKNOWN_TOPIC_OR_PARTITION
from cluster.v1 import offsets_pb2 as pb

OFFSET_BYTES = 128  # counted for each offset beside its texts
FENCED, OUT_OF_ORDER, SEQUENCE_CONFLICT = "FENCED", "OUT_OF_ORDER", "SEQUENCE_CONFLICT"


@dataclass(frozen=True, slots=True)
class OffsetState:
    """Committed offset of a group for one partition. `producer_id` 0: committed without one."""

    topic_id: int
    offset: int
    metadata: str
    producer_id: int
    epoch: int
    sequence: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Result of one offset's commit; `now` is stored after it."""

    error: str
    message: str
    duplicate: bool
    now: OffsetState | None


Key = tuple[str, int]  # topic, partition


class GroupState:
    """Offsets of one group. `last_commit_ms`, `bytes` (its share of the limit): of all of them."""

    __slots__ = ("_is_sorted", "_records", "bytes", "last_commit_ms")

    def __init__(self, name: str) -> None:
        # Each as a GroupRecord with that one offset. By topic and partition, once they are sorted.
        self._records: dict[Key, bytes] = {}
        self._is_sorted = True
        self.bytes = len(name.encode()) + OFFSET_BYTES
        self.last_commit_ms = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> OffsetState | None:
        found = self._records.get(key)
        return None if found is None else stored(pb.GroupRecord.FromString(found).offsets[0])

    def items(self) -> Iterator[tuple[Key, OffsetState]]:
        """Yields the offsets by topic and partition, as they are now; any thread may call it."""
        records = list(self._records.items())
        for key, record in sorted(records):
            yield key, stored(pb.GroupRecord.FromString(record).offsets[0])

    def put(self, record: pb.OffsetRecord, grown: int) -> None:
        """Stores an offset. `grown`: the growth of the group's share of the limit."""
        key = (record.topic, record.partition)
        in_order = key in self._records or not self._records or key > next(reversed(self._records))
        # Sorted once before they are dumped: each new offset would move all others here.
        self._is_sorted = self._is_sorted and in_order
        self._records[key] = pb.GroupRecord(offsets=[record]).SerializeToString(deterministic=True)
        self.bytes += grown
        self.last_commit_ms = max(self.last_commit_ms, record.commit_ms)

    def remove(self, keys: Collection[Key]) -> None:
        """Removes offsets that are there. With the newest one it reads all others, once."""
        newest = 0
        for key in keys:
            record = pb.GroupRecord.FromString(self._records.pop(key)).offsets[0]
            self.bytes -= offset_bytes(record.topic, record.metadata)
            newest = max(newest, record.commit_ms)
        if newest == self.last_commit_ms:
            self.last_commit_ms = max((one.commit_ms for _, one in self.items()), default=0)

    def dump(self, name: str) -> bytes:
        """Returns a GroupRecord: serialized messages that follow each other are one message."""
        if not self._is_sorted:
            self._records = dict(sorted(self._records.items()))
            self._is_sorted = True
        head = pb.GroupRecord(group=name).SerializeToString(deterministic=True)
        return b"".join((head, *self._records.values()))


def stored(record: pb.OffsetRecord) -> OffsetState:
    return OffsetState(
        record.topic_id,
        record.offset,
        record.metadata,
        record.producer_id,
        record.epoch,
        record.sequence,
        record.commit_ms,
    )


def record_of(topic: str, partition: int, state: OffsetState) -> pb.OffsetRecord:
    return pb.OffsetRecord(
        topic=topic,
        topic_id=state.topic_id,
        partition=partition,
        offset=state.offset,
        metadata=state.metadata,
        producer_id=state.producer_id,
        epoch=state.epoch,
        sequence=state.sequence,
        commit_ms=state.commit_ms,
    )


def state_after(before: OffsetState | None, record: pb.OffsetRecord, now_ms: int) -> OffsetState:
    after = replace(stored(record), commit_ms=now_ms)
    if record.producer_id or before is None:
        return after
    return replace(
        after, producer_id=before.producer_id, epoch=before.epoch, sequence=before.sequence
    )


def judge_commit(before: OffsetState | None, record: pb.OffsetRecord) -> CommitResult | None:
    """Returns why a commit is not stored; None if it is."""
    if before is None:
        return None
    if record.topic_id < before.topic_id:
        text = "topic: the leader does not know the newest topic of that name yet"
        return CommitResult(UNKNOWN_TOPIC_OR_PARTITION, text, False, before)
    mine = (record.producer_id, record.epoch)
    theirs = (before.producer_id, before.epoch)
    if not record.producer_id or not before.producer_id or mine > theirs:
        return None
    if mine < theirs:
        text = f"producer_id, epoch: {mine} were replaced by {theirs}"
        return CommitResult(FENCED, text, False, before)
    if record.sequence > before.sequence:
        return None
    if record.sequence < before.sequence:
        text = f"sequence: {record.sequence} is below the last one stored, {before.sequence}"
        return CommitResult(OUT_OF_ORDER, text, False, before)
    if (record.offset, record.metadata) == (before.offset, before.metadata):
        return CommitResult("", "", True, before)
    text = f"sequence: {record.sequence} is stored with another offset or metadata"
    return CommitResult(SEQUENCE_CONFLICT, text, False, before)


def offset_bytes(topic: str, metadata: str) -> int:
    return len(topic.encode()) + len(metadata.encode()) + OFFSET_BYTES
