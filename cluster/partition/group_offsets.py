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

A group with members (cluster/groups) takes commits of the partitions' owners only.

An offset is kept as the bytes that a snapshot holds, made once when it is committed:
a checkpoint is written between two rounds of the node's loop, so it must only join them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from zlib import crc32

from cluster.entries import GROUP_MEMBERS, OFFSETS, CorruptEntryError, has_unknown_fields
from cluster.groups.ownership import (
    FENCED_MEMBER,
    GROUP_HAS_MEMBERS,
    OUT_OF_ORDER,
    GroupOwnership,
    TopicPartition,
)
from cluster.groups.table import OwnershipTable
from cluster.metadata.topics import UNKNOWN_TOPIC_OR_PARTITION
from cluster.v1 import offsets_pb2 as pb
from oncelog.wire.varint import encode_varint

OFFSETS_PARTITIONS = 8
MAX_GROUP_CHARS = 255
MAX_METADATA_BYTES = 4096
MAX_COMMITS = 1000  # offsets in one call
# Of one partition of __offsets. Apply refuses what goes beyond, so all replicas must agree.
MAX_GROUPS = 20_000
MAX_OFFSETS = 200_000
MAX_STATE_BYTES = 256 * 1024 * 1024  # names, topics and metadata
OFFSET_BYTES = 128  # counted for each offset beside its texts

_GROUPS_TAG = bytes((pb.OffsetsSnapshot.GROUPS_FIELD_NUMBER << 3 | 2,))
# Commands that releases without groups with members do not know.
_OF_MEMBERS = frozenset({"change_owners", "claim_instance", "remove_member"})

FENCED, SEQUENCE_CONFLICT = "FENCED", "SEQUENCE_CONFLICT"
THROTTLED = "THROTTLED"
_REASONS = {
    FENCED_MEMBER: "member_id: the partition is not this member's, or not under this ownership",
    GROUP_HAS_MEMBERS: "member_id: the group has members, and only they commit",
    OUT_OF_ORDER: "commit_number: a newer commit of the member is stored",
    SEQUENCE_CONFLICT: "commit_number: it is stored with another offset or metadata",
}


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


Key = tuple[str, int]  # topic, partition


class GroupState:
    """One group's offsets. `last_commit_ms`, `bytes` (its share of the limit): of all of them."""

    __slots__ = ("_records", "bytes", "last_commit_ms")

    def __init__(self, name: str) -> None:
        # Each as a GroupRecord with that one offset, by topic and partition.
        self._records: dict[Key, bytes] = {}
        self.bytes = len(name.encode()) + OFFSET_BYTES
        self.last_commit_ms = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> OffsetState | None:
        found = self._records.get(key)
        return None if found is None else _stored(pb.GroupRecord.FromString(found).offsets[0])

    def items(self) -> Iterator[tuple[Key, OffsetState]]:
        """By topic and partition; as they are now, whatever thread asks."""
        for key, record in list(self._records.items()):
            yield key, _stored(pb.GroupRecord.FromString(record).offsets[0])

    def put(self, record: pb.OffsetRecord, grown: int) -> None:
        """`grown`: how much its share of the limit grows by it."""
        key = (record.topic, record.partition)
        in_order = key in self._records or not self._records or key > next(reversed(self._records))
        self._records[key] = pb.GroupRecord(offsets=[record]).SerializeToString(deterministic=True)
        if not in_order:
            self._records = dict(sorted(self._records.items()))
        self.bytes += grown
        self.last_commit_ms = max(self.last_commit_ms, record.commit_ms)

    def dump(self, name: str) -> bytes:
        """A GroupRecord. Serialized messages that follow each other are one message."""
        head = pb.GroupRecord(group=name).SerializeToString(deterministic=True)
        return b"".join((head, *self._records.values()))


def pack_command(command: pb.OffsetsCommand) -> bytes:
    """A command as a Raft entry: of a kind of its own if it is about members (feature groups)."""
    of_members = command.WhichOneof("command") in _OF_MEMBERS or bool(command.commit.member)
    kind = GROUP_MEMBERS if of_members else OFFSETS
    return bytes((kind,)) + command.SerializeToString()


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
        self._ownerships = OwnershipTable()
        self._clock_ms = 0
        self._offsets = 0
        self._bytes = 0

    # -- queries ----------------------------------------------------------------------

    def group(self, name: str) -> GroupState | None:
        return self._groups.get(name)

    def ownership(self, group: str) -> GroupOwnership:
        """Who owns what in a group; empty if the group has no members. Read only."""
        return self._ownerships.of(group)

    def with_members(self) -> list[str]:
        """Groups whose partitions are shared out, by name."""
        return self._ownerships.names()

    def groups(self, after: str, limit: int) -> list[tuple[str, GroupState]]:
        """At most `limit` groups with names above `after`, by name."""
        names = sorted(self._groups)
        start = bisect_right(names, after) if after else 0
        return [(name, self._groups[name]) for name in names[start : start + limit]]

    # -- apply ------------------------------------------------------------------------

    def apply(self, index: int, data: bytes) -> list[CommitResult] | bool | str:
        """Applies a serialized OffsetsCommand, the entry at `index`.

        Returns what became of each offset of a commit; of a delete, whether the
        group was there, or why it stays; of the others, whether they did anything.
        Raises CorruptEntryError.
        """
        command = pb.OffsetsCommand.FromString(data)
        if has_unknown_fields(command):
            raise CorruptEntryError("an offsets command holds what this release does not know")
        self._clock_ms = max(self._clock_ms, command.stamp_ms)
        match command.WhichOneof("command"):
            case "commit":
                return self._commit_all(command.commit)
            case "delete":
                return self._delete(command.delete.group)
            case "change_owners":
                return self._ownerships.change_owners(index, command.change_owners)
            case "claim_instance":
                return self._ownerships.claim_instance(index, command.claim_instance)
            case "remove_member":
                return self._ownerships.remove_member(command.remove_member)
        raise CorruptEntryError("an entry of __offsets holds no command")

    def _commit_all(self, commit: pb.CommitGroupOffsets) -> list[CommitResult]:
        if not commit.member and not self._ownerships.of(commit.group).has_members:
            return [self._commit(commit.group, record) for record in commit.offsets]
        ownerships = commit.ownerships or [0] * len(commit.offsets)
        if len(ownerships) != len(commit.offsets):
            raise CorruptEntryError("a commit of a member does not say what it owns")
        return [
            self._commit_owned(commit, record, ownership)
            for record, ownership in zip(commit.offsets, ownerships, strict=True)
        ]

    def _commit_owned(
        self, commit: pb.CommitGroupOffsets, record: pb.OffsetRecord, ownership: int
    ) -> CommitResult:
        """One offset of a commit in a group with members, or by somebody who is none any more."""
        facts = self._ownerships.of(commit.group)
        part = TopicPartition(record.topic_id, record.partition)
        error = facts.check_commit(part, commit.member, ownership, commit.number)
        state = self._groups.get(commit.group)
        before = None if state is None else state.get((record.topic, record.partition))
        if error:
            text = f"{record.topic}-{record.partition}: {_REASONS[error]}"
            return CommitResult(error, text, False, before)
        if facts.is_repeat(part, commit.number) and before is not None:
            same = (before.offset, before.metadata) == (record.offset, record.metadata)
            error, text = ("", "") if same else (SEQUENCE_CONFLICT, _REASONS[SEQUENCE_CONFLICT])
            return CommitResult(error, text, same, before)
        result = self._commit(commit.group, record)
        if not result.error:
            facts.committed(part, commit.number)
        return result

    def _commit(self, group: str, record: pb.OffsetRecord) -> CommitResult:
        state = self._groups.get(group)
        before = None if state is None else state.get((record.topic, record.partition))
        if before is not None and before.topic_id < record.topic_id:
            before_valid = None  # of a topic that was deleted
        else:
            before_valid = before
        refusal = _judge(before_valid, record)
        if refusal is not None:
            return refusal
        after = _after(before_valid, record, self._clock_ms)
        grown = _offset_bytes(record.topic, after.metadata)
        if before is not None:
            grown -= _offset_bytes(record.topic, before.metadata)
        new_group = 0 if state is not None else GroupState(group).bytes
        full = self._full(
            new_group=state is None, new_offset=before is None, grown=grown + new_group
        )
        if full:
            return CommitResult(THROTTLED, full, False, before_valid)
        if state is None:
            state = self._groups[group] = GroupState(group)
        state.put(_record(record.topic, record.partition, after), grown)
        self._offsets += before is None
        self._bytes += grown + new_group
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

    def _delete(self, group: str) -> bool | str:
        if self._ownerships.of(group).has_members:
            return GROUP_HAS_MEMBERS
        state = self._groups.pop(group, None)
        if state is None:
            return False
        self._offsets -= len(state)
        self._bytes -= state.bytes
        return True

    # -- snapshots ----------------------------------------------------------------------

    def dump(self) -> bytes:
        """The whole state: equal states give equal bytes."""
        parts = [pb.OffsetsSnapshot(clock_ms=self._clock_ms).SerializeToString(deterministic=True)]
        for name in sorted(self._groups):
            group = self._groups[name].dump(name)
            parts += (_GROUPS_TAG, encode_varint(len(group)), group)
        owners = pb.OffsetsSnapshot(ownerships=self._ownerships.records())
        return b"".join((*parts, owners.SerializeToString(deterministic=True)))

    @classmethod
    def load(cls, data: bytes) -> OffsetsTable:
        """The table that `dump` wrote. Raises google's DecodeError if it is damaged."""
        snapshot = pb.OffsetsSnapshot.FromString(data)
        table = cls()
        table._clock_ms = snapshot.clock_ms
        for group in snapshot.groups:
            state = table._groups[group.group] = GroupState(group.group)
            for record in group.offsets:
                state.put(record, _offset_bytes(record.topic, record.metadata))
            table._offsets += len(state)
            table._bytes += state.bytes
        table._ownerships.load(snapshot.ownerships)
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


def _record(topic: str, partition: int, state: OffsetState) -> pb.OffsetRecord:
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


def _offset_bytes(topic: str, metadata: str) -> int:
    return len(topic.encode()) + len(metadata.encode()) + OFFSET_BYTES
