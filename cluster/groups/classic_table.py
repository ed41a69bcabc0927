"""Classic groups of one partition of `__offsets`: each group's newest generation. Pure.

    ClassicCoordinator --finished rebalance--> entry --apply--> ClassicTable
    OffsetCommit, TxnOffsetCommit --ClassicCaller--> refusal --> stored, or refused for good

A commit is checked against the newest generation when it is applied. So once a new generation is
in the log, a member of an older one commits nothing, under any leader and however late it comes.
A group without members is not kept here: member ids are never used again, so a member of an
earlier life of the group is unknown to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cluster.groups.consumer_protocol import CONSUMER, subscribed_topics
from cluster.groups.ownership import GROUP_HAS_MEMBERS
from cluster.groups.table import MAX_GROUPS_WITH_MEMBERS
from cluster.v1 import offsets_pb2 as pb

MAX_CLASSIC_BYTES = 64 * 1024 * 1024  # of all classic groups in one partition of __offsets

UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
FENCED_INSTANCE = "FENCED_INSTANCE"


def caller_refusal(
    caller: pb.ClassicCaller,
    members: Collection[str],
    instances: Mapping[str, str],
    generation: int,
) -> str:
    """Return why the caller is no member of the generation; "" if it is.

    instances: instance id -> member id.
    """
    refused = member_refusal(caller.member, caller.instance, members, instances)
    if refused:
        return refused
    return "" if caller.generation == generation else ILLEGAL_GENERATION


def member_refusal(
    member: str, instance: str, members: Collection[str], instances: Mapping[str, str]
) -> str:
    """Return why there is no such member; "" if there is."""
    if instance and instance in instances and instances[instance] != member:
        return FENCED_INSTANCE
    known = member in members and (not instance or instance in instances)
    return "" if known else UNKNOWN_MEMBER


class ClassicFacts:
    """The newest generation of one group. record: read only."""

    __slots__ = ("_instances", "_members", "data", "record")

    def __init__(self, record: pb.ClassicGroup) -> None:
        self.record = record
        self.data = record.SerializeToString(deterministic=True)
        self._members = frozenset(one.member for one in record.members)
        self._instances = {one.instance: one.member for one in record.members if one.instance}

    def refusal(self, caller: pb.ClassicCaller) -> str:
        """Return why the caller must not commit; "" if it may."""
        return caller_refusal(caller, self._members, self._instances, self.record.generation)

    def topics(self) -> frozenset[str]:
        """Return the topics that members have subscribed to, as far as their bytes can be read."""
        if self.record.protocol_type != CONSUMER:
            return frozenset()
        topics = (subscribed_topics(one.metadata) or () for one in self.record.members)
        return frozenset().union(*topics)


class ClassicTable:
    """Classic groups by name. It holds only groups with members."""

    def __init__(self) -> None:
        self._groups: dict[str, ClassicFacts] = {}
        self._bytes = 0

    def of(self, group: str) -> ClassicFacts | None:
        return self._groups.get(group)

    def names(self) -> list[str]:
        return sorted(self._groups)

    @property
    def size(self) -> int:
        """Count the bytes of all groups' entries."""
        return self._bytes

    def refusal(self, group: str, caller: pb.ClassicCaller | None, *, staged: bool = False) -> str:
        """Return why a commit must not be stored; "" if it may. Changes nothing.

        caller: None for a commit by hand, which needs a group without members.
        staged: the commit belongs to a transaction. A producer that names neither member nor
                generation (before KIP-447) is fenced by its epoch alone, as in Kafka.
        """
        facts = self._groups.get(group)
        if caller is None:
            return "" if facts is None else GROUP_HAS_MEMBERS
        if staged and not caller.member and not caller.instance and caller.generation < 0:
            return ""
        return UNKNOWN_MEMBER if facts is None else facts.refusal(caller)

    # -- apply ------------------------------------------------------------------------

    def rebalance(self, record: pb.ClassicGroup) -> bool:
        """Replace a group's generation; returns whether there is room for it."""
        facts, known = ClassicFacts(record), self._groups.get(record.group)
        grown = len(facts.data) - (0 if known is None else len(known.data))
        if not record.members:
            if known is not None:
                self._bytes -= len(self._groups.pop(record.group).data)
            return True
        if known is None and len(self._groups) >= MAX_GROUPS_WITH_MEMBERS:
            return False
        if grown > 0 and self._bytes + grown > MAX_CLASSIC_BYTES:
            return False
        self._groups[record.group] = facts
        self._bytes += grown
        return True

    # -- snapshots ----------------------------------------------------------------------

    def records(self) -> Iterator[bytes]:
        """Yield each group's record as bytes, by name; equal states give equal bytes."""
        for _, facts in sorted(self._groups.items()):
            yield facts.data

    def load(self, records: Iterable[pb.ClassicGroup]) -> None:
        for record in records:
            facts = self._groups[record.group] = ClassicFacts(record)
            self._bytes += len(facts.data)
