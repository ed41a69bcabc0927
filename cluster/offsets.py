"""Committed offsets of groups: the state machine part of a partition of `__offsets`.

    GroupService --OffsetsCommand--> entry --apply--> OffsetsTable
    GroupService <------- reads, after a confirmation ------'

Deterministic over the log, in memory, bounded. An offset may carry the producer
id, epoch and sequence of whoever commits it. Then a commit is checked as a batch
is: an older epoch is FENCED, a lower sequence refused, the same one a duplicate.
Sequences may skip, for each commit replaces the one before. A commit without a
producer id is not checked and leaves the producer's state as it is, so that a
seek by hand does not let a zombie in. Producer ids rise, so a lower one than the
stored one is a zombie, too; who must go back to one deletes the group first.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from zlib import crc32

from cluster.entries import OFFSETS
from cluster.topics import UNKNOWN_TOPIC_OR_PARTITION
from cluster.v1 import offsets_pb2 as pb

OFFSETS_PARTITIONS = 8
MAX_GROUP_CHARS = 255
MAX_METADATA_BYTES = 4096
MAX_COMMITS = 1000  # offsets in one call
# Of one partition of __offsets. Apply refuses what goes beyond, so all replicas must agree.
MAX_GROUPS = 20_000
MAX_OFFSETS = 200_000
MAX_STATE_BYTES = 256 * 1024 * 1024  # names, topics and metadata
OFFSET_BYTES = 128  # counted for each offset beside its texts

FENCED, OUT_OF_ORDER, SEQUENCE_CONFLICT = "FENCED", "OUT_OF_ORDER", "SEQUENCE_CONFLICT"
THROTTLED = "THROTTLED"


def partition_of(group: str, partitions: int) -> int:
    """The partition of `__offsets` that holds a group. Never to be changed."""
    return crc32(group.encode()) % partitions


@dataclass(frozen=True, slots=True)
class OffsetState:
    """What a group has committed for one partition. `producer_id` 0: nobody with one."""

    topic_id: int
    offset: int
    metadata: str
    producer_id: int
    epoch: int
    sequence: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of one offset; `now` is what is stored after it."""

    error: str
    message: str
    duplicate: bool
    now: OffsetState | None


@dataclass(slots=True)
class GroupState:
    """One group's offsets, by (topic, partition)."""

    offsets: dict[tuple[str, int], OffsetState] = field(default_factory=dict)

    @property
    def last_commit_ms(self) -> int:
        return max((state.commit_ms for state in self.offsets.values()), default=0)


def pack_command(command: pb.OffsetsCommand) -> bytes:
    """A command as a Raft entry."""
    return bytes((OFFSETS,)) + command.SerializeToString()


class OffsetsTable:
    """All groups of one partition of `__offsets`. Times are the log's, in milliseconds."""

    def __init__(
        self,
        *,
        max_groups: int = MAX_GROUPS,
        max_offsets: int = MAX_OFFSETS,
        max_bytes: int = MAX_STATE_BYTES,
    ) -> None:
        self._limits = (max_groups, max_offsets, max_bytes)
        self._groups: dict[str, GroupState] = {}
        self._clock_ms = 0
        self._offsets = 0
        self._bytes = 0

    # -- queries ----------------------------------------------------------------------

    def group(self, name: str) -> GroupState | None:
        return self._groups.get(name)

    def groups(self, after: str, limit: int) -> list[tuple[str, GroupState]]:
        """At most `limit` groups with names above `after`, by name."""
        names = sorted(self._groups)
        start = bisect_right(names, after) if after else 0
        return [(name, self._groups[name]) for name in names[start : start + limit]]

    # -- apply ------------------------------------------------------------------------

    def apply(self, data: bytes) -> list[CommitResult] | bool:
        """Applies a serialized OffsetsCommand.

        Returns what became of each offset of a commit; of a delete, whether the
        group was there.
        """
        command = pb.OffsetsCommand.FromString(data)
        self._clock_ms = max(self._clock_ms, command.stamp_ms)
        match command.WhichOneof("command"):
            case "commit":
                group = command.commit.group
                return [self._commit(group, record) for record in command.commit.offsets]
            case "delete":
                return self._delete(command.delete.group)
        raise AssertionError("an entry of __offsets holds no command")

    def _commit(self, group: str, record: pb.OffsetRecord) -> CommitResult:
        state = self._groups.get(group)
        key = (record.topic, record.partition)
        before = None if state is None else state.offsets.get(key)
        if before is not None and before.topic_id < record.topic_id:
            before_valid = None  # of a topic that was deleted
        else:
            before_valid = before
        refusal = _judge(before_valid, record)
        if refusal is not None:
            return refusal
        after = _after(before_valid, record, self._clock_ms)
        grown = len(after.metadata.encode()) - (
            len(before.metadata.encode()) if before is not None else -_key_bytes(key)
        )
        if state is None:
            grown += len(group.encode()) + OFFSET_BYTES
        full = self._full(new_group=state is None, new_offset=before is None, grown=grown)
        if full:
            return CommitResult(THROTTLED, full, False, before_valid)
        if state is None:
            state = self._groups[group] = GroupState()
        state.offsets[key] = after
        self._offsets += before is None
        self._bytes += grown
        return CommitResult("", "", False, after)

    def _full(self, *, new_group: bool, new_offset: bool, grown: int) -> str:
        groups, offsets, size = self._limits
        where = "this partition of __offsets holds"
        if new_group and len(self._groups) >= groups:
            return f"group: {where} {groups} groups, its limit"
        if new_offset and self._offsets >= offsets:
            return f"offsets: {where} {offsets} offsets, its limit"
        if grown > 0 and self._bytes + grown > size:
            return f"offsets: {where} {size} bytes, its limit"
        return ""

    def _delete(self, group: str) -> bool:
        state = self._groups.pop(group, None)
        if state is None:
            return False
        self._offsets -= len(state.offsets)
        self._bytes -= _group_bytes(group, state)
        return True

    # -- snapshots ----------------------------------------------------------------------

    def dump(self) -> bytes:
        """The whole state: equal states give equal bytes."""
        snapshot = pb.OffsetsSnapshot(clock_ms=self._clock_ms)
        for name in sorted(self._groups):
            record = snapshot.groups.add(group=name)
            for (topic, partition), state in sorted(self._groups[name].offsets.items()):
                record.offsets.add(
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
        return snapshot.SerializeToString(deterministic=True)

    @classmethod
    def load(cls, data: bytes) -> OffsetsTable:
        """The table that `dump` wrote. Raises google's DecodeError if it is damaged."""
        snapshot = pb.OffsetsSnapshot.FromString(data)
        table = cls()
        table._clock_ms = snapshot.clock_ms
        for group in snapshot.groups:
            state = GroupState()
            for record in group.offsets:
                state.offsets[record.topic, record.partition] = _stored(record)
            table._groups[group.group] = state
            table._offsets += len(state.offsets)
            table._bytes += _group_bytes(group.group, state)
        return table


def _stored(record: pb.OffsetRecord) -> OffsetState:
    return OffsetState(
        record.topic_id,
        record.offset,
        record.metadata,
        record.producer_id,
        record.epoch,
        record.sequence,
        record.commit_ms,
    )


def _after(before: OffsetState | None, record: pb.OffsetRecord, now_ms: int) -> OffsetState:
    after = replace(_stored(record), commit_ms=now_ms)
    if record.producer_id or before is None:
        return after
    return replace(
        after, producer_id=before.producer_id, epoch=before.epoch, sequence=before.sequence
    )


def _judge(before: OffsetState | None, record: pb.OffsetRecord) -> CommitResult | None:
    """Why a commit is not stored; None if it is."""
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


def _key_bytes(key: tuple[str, int]) -> int:
    return len(key[0].encode()) + OFFSET_BYTES


def _group_bytes(group: str, state: GroupState) -> int:
    total = len(group.encode()) + OFFSET_BYTES
    for key, offset in state.offsets.items():
        total += _key_bytes(key) + len(offset.metadata.encode())
    return total
