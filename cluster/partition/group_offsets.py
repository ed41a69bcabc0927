"""Committed offsets of groups: the state machine part of a partition of `__offsets`.

    GroupService --OffsetsCommand--> entry --apply--> OffsetsTable
    GroupService <------- reads, after a confirmation ------'

Deterministic over the log, in memory, bounded. An offset may carry the producer id, epoch and
sequence of its committer. The commit is then checked like a batch: an older epoch is FENCED, a
lower sequence refused, an equal one a duplicate. Sequences may skip, for each commit replaces the
one before. A commit without a producer id is not checked and leaves the producer's state as it is,
so that a seek by hand does not let a zombie in. Producer ids rise, so an id below the stored one is
a zombie, too. To go back to a lower id, delete the group first.

A group with members (cluster/groups) takes commits of the partitions' owners only, a classic one
those of its newest generation. A transaction's
marker stores the offsets that the transaction staged; until then nobody else commits them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from zlib import crc32

from cluster.dedup.verdict import MAX_INT64, Verdict
from cluster.entries import (
    CLASSIC_GROUPS,
    GROUP_MEMBERS,
    OFFSETS,
    STAGED_OFFSETS,
    CorruptEntryError,
    has_unknown_fields,
)
from cluster.groups.classic_table import (
    FENCED_INSTANCE,
    ILLEGAL_GENERATION,
    UNKNOWN_MEMBER,
    ClassicFacts,
    ClassicTable,
)
from cluster.groups.ownership import (
    FENCED_MEMBER,
    GROUP_HAS_MEMBERS,
    GroupOwnership,
    TopicIdPartition,
)
from cluster.groups.staged import MAX_STAGED, StagedOffsetsTable
from cluster.groups.table import OwnershipTable
from cluster.partition.group_state import (
    OUT_OF_ORDER,
    SEQUENCE_CONFLICT,
    CommitResult,
    GroupState,
    Key,
    OffsetState,
    judge_commit,
    offset_bytes,
    record_of,
    state_after,
)
from cluster.transactions.types import UNKNOWN_TOPIC_OR_PARTITION
from cluster.v1 import offsets_pb2 as pb
from oncelog.wire.varint import encode_varint

OFFSETS_PARTITIONS = 8
MAX_METADATA_BYTES = 4096
MAX_COMMITS = 1000  # offsets in one call
# In one partition of __offsets. Apply refuses more, so all replicas must agree on the limit.
MAX_GROUPS = 20_000
MAX_OFFSETS = 200_000
MAX_STATE_BYTES = 256 * 1024 * 1024  # names, topics and metadata

_GROUPS_TAG = bytes((pb.OffsetsSnapshot.GROUPS_FIELD_NUMBER << 3 | 2,))
_CLASSIC_TAG = bytes((pb.OffsetsSnapshot.CLASSIC_FIELD_NUMBER << 3 | 2,))
# Commands unknown to releases without group members.
_OF_MEMBERS = frozenset({"change_owners", "claim_instance", "remove_member"})
# Commands unknown to releases without Kafka's groups.
_OF_CLASSIC = frozenset({"rebalance", "delete_offsets"})

THROTTLED, TRANSACTION_CONFLICT = "THROTTLED", "TRANSACTION_CONFLICT"
GROUP_SUBSCRIBED = "GROUP_SUBSCRIBED"
_REASONS = {
    FENCED_MEMBER: "member_id: the partition is not part of this member's assignment",
    GROUP_HAS_MEMBERS: "member_id: the group has members, and only they commit",
    OUT_OF_ORDER: "commit_number: a newer commit of the member is stored",
    SEQUENCE_CONFLICT: "commit_number: it is stored with another offset or metadata",
    UNKNOWN_MEMBER: "member_id: the group has no such member",
    ILLEGAL_GENERATION: "generation: the group has a newer one",
    FENCED_INSTANCE: "group_instance_id: another member has it",
}


def partition_of(group: str, partitions: int) -> int:
    """Returns the partition of `__offsets` that holds a group. Never change it."""
    return crc32(group.encode()) % partitions


def pack_command(command: pb.OffsetsCommand) -> bytes:
    """Packs a command as a Raft entry: of the kind that comes with its feature."""
    return bytes((_kind_of(command),)) + command.SerializeToString()


def _kind_of(command: pb.OffsetsCommand) -> int:
    which = command.WhichOneof("command")
    of_caller = command.commit.HasField("classic") or command.stage.HasField("classic")
    if which in _OF_CLASSIC or of_caller:
        return CLASSIC_GROUPS
    if which in _OF_MEMBERS or command.commit.member:
        return GROUP_MEMBERS
    return STAGED_OFFSETS if which == "stage" else OFFSETS


class OffsetsTable:
    """Groups of one partition of `__offsets`. Times are the log's, in milliseconds."""

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
        self._classic = ClassicTable()
        self.staged = StagedOffsetsTable()  # read only
        # Groups with staged offsets and a change of owners since the last `overtaken`.
        self._moved: set[str] = set()
        self._clock_ms = 0
        self._offsets = 0
        self._bytes = 0

    # -- queries ----------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._groups)

    def group(self, name: str) -> GroupState | None:
        return self._groups.get(name)

    def ownership(self, group: str) -> GroupOwnership:
        """Returns the owners in a group; empty if the group has no members. Read only."""
        return self._ownerships.of(group)

    def with_members(self) -> list[str]:
        """Returns the names of groups that share out their partitions."""
        return self._ownerships.names()

    def classic(self, group: str) -> ClassicFacts | None:
        """Returns the newest generation of a classic group; None: it has no members."""
        return self._classic.of(group)

    def classic_groups(self) -> list[str]:
        """Returns the names of classic groups with members."""
        return self._classic.names()

    @property
    def classic_bytes(self) -> int:
        """The bytes of all classic groups' generations."""
        return self._classic.size

    def has_members(self, group: str) -> bool:
        """Whether only members commit in the group."""
        return self._ownerships.of(group).has_members or self._classic.of(group) is not None

    def groups(self, after: str, limit: int) -> list[tuple[str, GroupState]]:
        """Returns at most `limit` groups with names above `after`, by name."""
        groups = self._groups.copy()  # the metrics' thread asks, too
        names = sorted(groups)
        start = bisect_right(names, after) if after else 0
        return [(name, groups[name]) for name in names[start : start + limit]]

    def confirm(self, transaction_id: int, asked: Mapping[str, tuple[int, int]]) -> str:
        """Returns why a commit with these staged offsets cannot be decided; "": it can.

        asked: group -> (how many offsets, number of the last call).
        """
        staged = self.staged.of(transaction_id)
        if staged == asked:
            return ""
        text = f"offsets: the transaction has staged {staged} (offsets, last number by group)"
        return f"{text}, the commit says {dict(asked)}"

    def of_classic_members(self, transaction_id: int, group: str) -> bool:
        """Whether a member of a classic group's newest generation staged all of these offsets."""
        calls = self.staged.calls(transaction_id, group)
        return all(
            call.classic.member and not self._classic.refusal(group, call.classic) for call in calls
        )

    def overtaken(self) -> list[int]:
        """Returns transactions with staged offsets of partitions that have another owner now.

        They will have to be aborted: the new owner commits nothing before they have ended.
        """
        found = set()
        for group in list(self._moved):
            facts, holders = self._ownerships.of(group), self.staged.holders(group)
            lost = {
                number
                for number in set(holders.values())
                if any(_lost(facts, call) for call in self.staged.calls(number, group))
            }
            if not lost:
                self._moved.discard(group)
            found |= lost
        return sorted(found)

    # -- apply ------------------------------------------------------------------------

    def apply(
        self, index: int, data: bytes, over: Callable[[int], Verdict | None] = lambda _: None
    ) -> list[CommitResult] | CommitResult | bool | str:
        """Applies a serialized OffsetsCommand, the entry at `index`.

        over: why the transaction can stage nothing more in this partition; None: it may be open.
        Returns the result of each offset of a commit or a staging call. For a delete, returns
        whether the group was there, or why it stays; for other commands, whether they changed
        anything. Raises CorruptEntryError.
        """
        command = pb.OffsetsCommand.FromString(data)
        if has_unknown_fields(command):
            raise CorruptEntryError("an offsets command has fields unknown to this release")
        self._clock_ms = max(self._clock_ms, command.stamp_ms)
        match command.WhichOneof("command"):
            case "commit":
                return self._commit_all(command.commit)
            case "stage":
                return self._stage(command.stage, over(command.stage.transaction_id))
            case "delete":
                return self._delete(command.delete.group)
            case "delete_offsets":
                return self._delete_offsets(command.delete_offsets)
            case "rebalance":
                record = command.rebalance
                native = self._ownerships.of(record.group).has_members
                return not native and self._classic.rebalance(record)
        return self._change_members(index, command)

    def _change_members(self, index: int, command: pb.OffsetsCommand) -> bool:
        """Changes owners, instances or members of a group, unless it is a classic one."""
        which = command.WhichOneof("command")
        if which and self._classic.of(getattr(command, which).group) is not None:
            return False
        self._note_moved(command)
        match which:
            case "change_owners":
                return self._ownerships.change_owners(index, command.change_owners)
            case "claim_instance":
                return self._ownerships.claim_instance(index, command.claim_instance)
            case "remove_member":
                return self._ownerships.remove_member(command.remove_member)
        raise CorruptEntryError("an entry of __offsets holds no command")

    def _commit_all(self, commit: pb.CommitGroupOffsets) -> list[CommitResult]:
        caller = commit.classic if commit.HasField("classic") else None
        refused = "" if commit.member else self._classic.refusal(commit.group, caller)
        if refused:
            return [self._refused(commit.group, record, refused) for record in commit.offsets]
        native = self._ownerships.of(commit.group).has_members
        if caller is not None or not (commit.member or native):
            return [self._commit(commit.group, record) for record in commit.offsets]
        ownerships = commit.ownerships or [0] * len(commit.offsets)
        if len(ownerships) != len(commit.offsets):
            raise CorruptEntryError("a member's commit names no ownership")
        return [
            self._commit_owned(commit, record, ownership)
            for record, ownership in zip(commit.offsets, ownerships, strict=True)
        ]

    def _commit_owned(
        self, commit: pb.CommitGroupOffsets, record: pb.OffsetRecord, ownership: int
    ) -> CommitResult:
        """Commits an offset in a group with members, or for a committer that was one."""
        facts = self._ownerships.of(commit.group)
        part = TopicIdPartition(record.topic_id, record.partition)
        error = facts.check_commit(part, commit.member, ownership, commit.number)
        if error:
            return self._refused(commit.group, record, error)
        before = self._before(commit.group, record)
        if facts.is_repeat(part, commit.number) and before is not None:
            same = (before.offset, before.metadata) == (record.offset, record.metadata)
            error, text = ("", "") if same else (SEQUENCE_CONFLICT, _REASONS[SEQUENCE_CONFLICT])
            return CommitResult(error, text, same, before)
        result = self._commit(commit.group, record)
        if not result.error:
            facts.committed(part, commit.number)
        return result

    def _refused(self, group: str, record: pb.OffsetRecord, error: str) -> CommitResult:
        text = f"{record.topic}-{record.partition}: {_REASONS[error]}"
        return CommitResult(error, text, False, self._before(group, record))

    def _before(self, group: str, record: pb.OffsetRecord) -> OffsetState | None:
        """Returns the offset that is stored now."""
        state = self._groups.get(group)
        return None if state is None else state.get(_key(record))

    def _commit(self, group: str, record: pb.OffsetRecord) -> CommitResult:
        state, before = self._groups.get(group), self._before(group, record)
        if before is not None and before.topic_id < record.topic_id:
            before_valid = None  # of a topic that was deleted
        else:
            before_valid = before
        holder = self.staged.holders(group).get((record.topic, record.partition))
        if holder is not None:
            return CommitResult(TRANSACTION_CONFLICT, _held(record, holder), False, before_valid)
        refusal = judge_commit(before_valid, record)
        if refusal is not None:
            return refusal
        grown = offset_bytes(record.topic, record.metadata)
        if before is not None:
            grown -= offset_bytes(record.topic, before.metadata)
        new_group = 0 if state is not None else GroupState(group).bytes
        full = self._full(
            new_group=state is None, new_offset=before is None, grown=grown + new_group
        )
        if full:
            return CommitResult(THROTTLED, full, False, before_valid)
        return CommitResult("", "", False, self._store(group, record, before_valid))

    def _store(
        self, group: str, record: pb.OffsetRecord, before_valid: OffsetState | None
    ) -> OffsetState:
        state = self._groups.get(group)
        if state is None:
            state = self._groups[group] = GroupState(group)
            self._bytes += state.bytes
        before = state.get((record.topic, record.partition))
        grown = offset_bytes(record.topic, record.metadata)
        if before is not None:
            grown -= offset_bytes(record.topic, before.metadata)
        after = state_after(before_valid, record, self._clock_ms)
        state.put(record_of(record.topic, record.partition, after), grown)
        self._offsets += before is None
        self._bytes += grown
        return after

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
        if self.has_members(group):
            return GROUP_HAS_MEMBERS
        if self.staged.holders(group):
            return TRANSACTION_CONFLICT
        state = self._groups.pop(group, None)
        if state is None:
            return False
        self._offsets -= len(state)
        self._bytes -= state.bytes
        return True

    def _delete_offsets(self, command: pb.DeleteOffsets) -> list[CommitResult]:
        group = command.group
        state, facts = self._groups.get(group), self._classic.of(group)
        owned = {part.topic_id for part in self._ownerships.of(group).owners}
        read = frozenset[str]() if facts is None else facts.topics()
        results, gone = [], set[Key]()
        for wanted in command.offsets:
            key, where = (wanted.topic, wanted.partition), f"{wanted.topic}-{wanted.partition}"
            before = None if state is None else state.get(key)
            error, text = "", ""
            if wanted.topic in read or (before is not None and before.topic_id in owned):
                error, text = GROUP_SUBSCRIBED, f"{where}: a member of the group reads the topic"
            elif key in self.staged.holders(group):
                text = f"{where}: an open transaction has staged an offset of it"
                error = TRANSACTION_CONFLICT
            elif before is not None:
                gone.add(key)
            results.append(CommitResult(error, text, False, before if error else None))
        if state is not None and gone:
            self._bytes -= state.bytes
            self._offsets -= len(gone)
            state.remove(gone)
            self._bytes += state.bytes
            if not len(state):
                self._bytes -= self._groups.pop(group).bytes
        return results

    # -- offsets of transactions ----------------------------------------------------------

    def _stage(self, call: pb.StageOffsets, over: Verdict | None) -> CommitResult:
        """Stages all offsets of a call, or none."""
        if over is not None:
            return CommitResult(over.kind.name, over.message, False, None)
        if len(_ownerships(call)) != len(call.offsets):
            raise CorruptEntryError("a member's call names no ownership")
        known = self.staged.calls(call.transaction_id, call.group)
        if known and call == known[-1]:
            return CommitResult("", "", True, None)
        error, text = "", ""
        if known and call.number <= known[-1].number:
            error = OUT_OF_ORDER if call.number < known[-1].number else SEQUENCE_CONFLICT
            text = f"number: {known[-1].number} is staged"
        elif sum(len(one.offsets) for one in known) + len(call.offsets) > MAX_STAGED:
            error, text = THROTTLED, f"offsets: more than {MAX_STAGED} of one transaction"
        caller = call.classic if call.HasField("classic") else None
        if not (error or call.member):
            error = self._classic.refusal(call.group, caller, staged=True)
            text = _REASONS.get(error, "")
        for record, ownership in zip(call.offsets, _ownerships(call), strict=True):
            if not error:
                error, text = self._stage_refusal(call, record, ownership)
        if not error:
            text = self._full(
                new_group=call.group not in self._groups, new_offset=True, grown=_reserved(call)
            )
            error = THROTTLED if text else ""
        if error:
            return CommitResult(error, text, False, None)
        self._reserve(call)
        facts = self._ownerships.of(call.group)
        for record in call.offsets if call.member else ():
            facts.committed(TopicIdPartition(record.topic_id, record.partition), call.number)
        return CommitResult("", "", False, None)

    def _stage_refusal(
        self, call: pb.StageOffsets, record: pb.OffsetRecord, ownership: int
    ) -> tuple[str, str]:
        """Returns (reason, text) if an offset must not be staged."""
        where = f"{record.topic}-{record.partition}"
        facts = self._ownerships.of(call.group)
        part = TopicIdPartition(record.topic_id, record.partition)
        error = facts.check_commit(part, call.member, ownership, call.number)
        if not error and call.member and facts.is_repeat(part, call.number):
            error = OUT_OF_ORDER
        if error:
            return error, f"{where}: {_REASONS[error]}"
        holder = self.staged.holders(call.group).get((record.topic, record.partition))
        if holder not in (None, call.transaction_id):
            return TRANSACTION_CONFLICT, _held(record, holder)
        state = self._groups.get(call.group)
        before = None if state is None else state.get((record.topic, record.partition))
        if before is not None and record.topic_id < before.topic_id:
            return UNKNOWN_TOPIC_OR_PARTITION, f"{where}: there is a newer topic of that name"
        return "", ""

    def _reserve(self, call: pb.StageOffsets) -> None:
        """Reserves room for the marker's offsets, so that no limit can refuse them."""
        self.staged.add(call)
        self._offsets += len(call.offsets)
        self._bytes += _reserved(call)

    def end(self, transaction_id: int, stored: Mapping[str, int] | None, stamp_ms: int) -> bool:
        """Applies a marker: `stored` has the last valid call number of each group; None: aborted.

        A commit stores all offsets of Kafka's clients, as RunTable publishes their runs whole.
        Returns whether the transaction had staged offsets. Raises CorruptEntryError.
        """
        self._clock_ms = max(self._clock_ms, stamp_ms)
        groups = self.staged.end(transaction_id)
        for call in (call for calls in groups.values() for call in calls):
            self._offsets -= len(call.offsets)
            self._bytes -= _reserved(call)
        if stored is None:
            return bool(groups)
        for group, last in sorted(stored.items()):
            if not any(call.number == last for call in groups.get(group, [])):
                # The coordinator decides on offsets that the leader has confirmed, so they are
                # here.
                text = f"transaction {transaction_id}: offsets of {group!r} up to {last}"
                raise CorruptEntryError(f"{text} were decided, and are not staged")
        for group, calls in sorted(groups.items()):
            for record in _due(calls, stored.get(group, 0)):
                known = self._groups[group].get(_key(record)) if group in self._groups else None
                same = known is not None and known.topic_id == record.topic_id
                self._store(group, record, known if same else None)
        return bool(groups)

    def _note_moved(self, command: pb.OffsetsCommand) -> None:
        which = command.WhichOneof("command")
        group = getattr(command, which).group if which else ""
        if self.staged.holders(group):
            self._moved.add(group)

    # -- snapshots ----------------------------------------------------------------------

    def dump(self) -> bytes:
        """Returns the whole state: equal states give equal bytes."""
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes]:
        """Returns the bytes of `dump` in parts; the state must not change meanwhile."""
        yield pb.OffsetsSnapshot(clock_ms=self._clock_ms).SerializeToString(deterministic=True)
        for name in sorted(self._groups):
            group = self._groups[name].dump(name)
            yield b"".join((_GROUPS_TAG, encode_varint(len(group)), group))
        owners = pb.OffsetsSnapshot(
            ownerships=self._ownerships.records(), staged=self.staged.all_calls()
        )
        yield owners.SerializeToString(deterministic=True)
        for record in self._classic.records():
            yield b"".join((_CLASSIC_TAG, encode_varint(len(record)), record))

    @classmethod
    def load(cls, data: bytes) -> OffsetsTable:
        """Loads a table that `dump` wrote. Raises google's DecodeError if it is damaged."""
        snapshot = pb.OffsetsSnapshot.FromString(data)
        table = cls()
        table._clock_ms = snapshot.clock_ms
        for group in snapshot.groups:
            state = table._groups[group.group] = GroupState(group.group)
            for record in group.offsets:
                state.put(record, offset_bytes(record.topic, record.metadata))
            table._offsets += len(state)
            table._bytes += state.bytes
        table._ownerships.load(snapshot.ownerships)
        table._classic.load(snapshot.classic)
        for call in snapshot.staged:
            table._reserve(call)
            table._moved.add(call.group)
        return table


def _key(record: pb.OffsetRecord) -> Key:
    return record.topic, record.partition


def _due(calls: Iterable[pb.StageOffsets], last: int) -> Iterator[pb.OffsetRecord]:
    """Yields the offsets that a commit stores: those up to the call `last`, and all of Kafka's."""
    for call in calls:
        if call.number <= last or call.HasField("classic"):
            yield from call.offsets


def _ownerships(call: pb.StageOffsets) -> Sequence[int]:
    return call.ownerships or [0] * len(call.offsets)


def _lost(facts: GroupOwnership, call: pb.StageOffsets) -> bool:
    """Whether a partition of a staged call has another owner now."""
    return any(
        facts.check_commit(
            TopicIdPartition(record.topic_id, record.partition), call.member, ownership, MAX_INT64
        )
        for record, ownership in zip(call.offsets, _ownerships(call), strict=True)
    )


def _reserved(call: pb.StageOffsets) -> int:
    size = sum(offset_bytes(record.topic, record.metadata) for record in call.offsets)
    return size + GroupState(call.group).bytes


def _held(record: pb.OffsetRecord, holder: int) -> str:
    where = f"{record.topic}-{record.partition}"
    return f"{where}: transaction {holder} has staged an offset of it and has not ended"
