"""Coordinator of one group's members, in one term of its `__offsets` partition's leader. Pure.

    streams --hello, owned, ping, leave--> GroupCoordinator --Ready--> entries, pushes
    facts (GroupOwnership, applied) ------------^                 |
    sessions, revocations: deadlines in seconds of one clock -----'

KIP-848's state machine with two differences: assignments are pushed, and each change of an
owner is an entry. A partition gets a new owner only after its owner gave it back, or after the
owner's session ended. No member waits for another that has nothing to give back.

The state here ends with the term. A new leader knows the owners from the facts, and waits one
session for these members to come back before it assigns anything: a fail-over moves no
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.groups.assignor import assign
from cluster.groups.ownership import (
    MAX_CHANGES,
    MAX_MEMBERS,
    MAX_OWNED,
    GroupOwnership,
    GroupSettings,
    OwnerChange,
    TopicIdPartition,
)

SESSION_ENDED, REVOKE_TIMEOUT, PROCESSING_TIMEOUT, INSTANCE_TAKEN, GROUP_FULL = (
    "SESSION_ENDED",
    "REVOKE_TIMEOUT",
    "PROCESSING_TIMEOUT",
    "INSTANCE_TAKEN",
    "GROUP_FULL",
)


class Hello(NamedTuple):
    """A member's first message on a connection.

    connection: rises with each connection of the member, so that a late one is noticed.
    epoch:      of the last assignment it got; 0: it has just begun, or was fenced.
    claim:      the number of the claim it was told to take over; 0: none.
    owned:      the partitions it holds. Its other partitions by the facts were given back, or it
                never heard of them. They are assigned anew, under another number: an earlier
                commit may still be on its way, and must not count among later ones.
    """

    member: str
    connection: int
    topics: frozenset[int]
    instance: str = ""
    epoch: int = 0
    claim: int = 0
    owned: frozenset[TopicIdPartition] = frozenset()


class Assignment(NamedTuple):
    """All partitions of a member, the number of each ownership, and the partitions to give back."""

    epoch: int
    partitions: dict[TopicIdPartition, int]
    revoke: tuple[TopicIdPartition, ...]


class Fenced(NamedTuple):
    """The session is over. The member may begin anew, except after INSTANCE_TAKEN."""

    reason: str


class InstanceHeld(NamedTuple):
    """Another member has that instance id: say hello again with this claim to take over."""

    claim: int


Push = tuple[str, int, Assignment | Fenced | InstanceHeld]  # member, connection, message


class OwnerChanges(NamedTuple):
    epoch: int
    changes: tuple[OwnerChange, ...]


class InstanceClaim(NamedTuple):
    instance: str
    expected: int
    member: str


class Remove(NamedTuple):
    member: str


Proposal = OwnerChanges | InstanceClaim | Remove


class MemberView(NamedTuple):
    """One member as `describe` shows it. idle: seconds since it last came back for records."""

    member: str
    instance: str
    revoking: tuple[TopicIdPartition, ...]
    idle: float


class Ready(NamedTuple):
    """Work to do now: entries in this order, and then messages to members."""

    proposals: list[Proposal]
    pushes: list[Push]


class _Revocation(NamedTuple):
    number: int  # of the ownership to give back
    epoch: int  # of the assignment that asked for it
    deadline: float


@dataclass
class _ConnectedMember:
    hello: Hello
    deadline: float
    revoking: dict[TopicIdPartition, _Revocation] = field(default_factory=dict)
    released: dict[TopicIdPartition, int] = field(default_factory=dict)  # ownership given back
    sent: Assignment | None = None  # the last one on this connection
    retiring: bool = False  # it makes no progress: all its partitions are asked back
    idle: float = 0.0


class GroupCoordinator:
    """One group in one term of the leader.

    settings: of the group's first member; written with each change of owners.
    facts:  the applied state now; read only. After entries are applied, call `applied`.
    topics: topic id -> how many partitions, of all that exist.
    now:    in each call, seconds of one clock that does not go back.
    """

    def __init__(
        self,
        facts: Callable[[], GroupOwnership],
        settings: GroupSettings,
        topics: Mapping[int, int],
        now: float,
    ) -> None:
        self._read_facts = facts
        self.settings = settings
        self._topics = dict(topics)
        self._members: dict[str, _ConnectedMember] = {}
        # They wait for an entry: their claim of an instance id, or the end of their last session.
        self._joining: dict[str, Hello] = {}
        self._dropped: set[str] = set()  # still in the facts
        self._pushes: list[Push] = []
        self._in_flight = False
        self._target: dict[TopicIdPartition, str] = {}
        self._stale = True  # of the target
        self.epoch = self._facts.epoch
        self._awaited = dict.fromkeys(self._facts.members(), now + settings.session_timeout)

    @property
    def _facts(self) -> GroupOwnership:
        return self._read_facts()

    @property
    def is_idle(self) -> bool:
        """Return whether there is no member, here or in the facts: the group may be dropped."""
        return not (self._members or self._joining or self._awaited or self._facts.has_members)

    def members(self) -> list[MemberView]:
        """Describe the members for people, by name."""
        return [
            MemberView(member, known.hello.instance, tuple(sorted(known.revoking)), known.idle)
            for member, known in sorted(self._members.items())
        ]

    # -- members' messages --------------------------------------------------------------

    def hello(self, now: float, hello: Hello) -> None:
        """Begin a session, or continue it over a new connection."""
        known = self._members.get(hello.member)
        newest = self._joining.get(hello.member) if known is None else known.hello
        if newest is not None and hello.connection < newest.connection:
            return  # a late message of a connection that was given up
        if known is None and hello.member not in self._awaited:
            self._begin(now, hello)
            return
        self._join(now, hello)
        known = self._members.get(hello.member)
        if known is not None:
            self._take_back(known)

    def owned(
        self,
        now: float,
        member: str,
        connection: int,
        epoch: int,
        partitions: Collection[TopicIdPartition],
    ) -> None:
        """Note that the member has handled the assignment `epoch`, and still holds these
        partitions.

        It gives back only partitions asked for by that assignment or an earlier one: an
        answer to an older assignment says nothing about a partition that came later.
        """
        known = self._live(now, member, connection)
        if known is None:
            return
        for partition, asked in list(known.revoking.items()):
            if asked.epoch <= epoch and partition not in partitions:
                del known.revoking[partition]
                known.released[partition] = asked.number

    def ping(self, now: float, member: str, connection: int, idle: float = 0.0) -> bool:
        """Keep the member's session. `idle`: seconds since it last came back for fetched records.

        Returns whether the ping changes anything: most do not, and pings are many.
        """
        known = self._live(now, member, connection)
        if known is None:
            return False
        retiring = idle > self.settings.processing_timeout
        changed = retiring != known.retiring
        self._stale |= changed
        known.retiring, known.idle = retiring, idle
        return changed

    def leave(self, member: str, connection: int) -> None:
        """End a member that has finished its work; its partitions are free at once."""
        known = self._members.get(member)
        if known is not None and known.hello.connection == connection:
            self._drop(member, "")

    # -- other events -------------------------------------------------------------------

    def subscribe(self, member: str, topics: frozenset[int]) -> None:
        """Note a change in the topics that a member's names and patterns match."""
        known = self._members.get(member)
        if known is not None and known.hello.topics != topics:
            known.hello = known.hello._replace(topics=topics)
            self._stale = True
        elif member in self._joining:
            self._joining[member] = self._joining[member]._replace(topics=topics)

    def topics_changed(self, topics: Mapping[int, int]) -> None:
        if dict(topics) != self._topics:
            self._topics = dict(topics)
            self._stale = True

    def applied(self) -> None:
        """Note that the last proposal is applied, or will not be: now the facts count."""
        self._in_flight = False

    def next_due(self) -> float:
        """Return when `advance` must be called at the latest; infinity: never."""
        due = [*self._awaited.values()]
        for member in self._members.values():
            due.append(member.deadline)
            due += [asked.deadline for asked in member.revoking.values()]
        return min(due, default=float("inf"))

    def advance(self, now: float) -> Ready:
        """Return the consequences of all input. To be called after each event."""
        self._expire(now)
        self._finish_joining(now)
        proposals: list[Proposal] = []
        if not self._in_flight:
            proposals = self._propose(now)
            self._in_flight = bool(proposals)
        self._push_assignments()
        pushes, self._pushes = self._pushes, []
        return Ready(proposals, pushes)

    # -- members ------------------------------------------------------------------------

    def _live(self, now: float, member: str, connection: int) -> _ConnectedMember | None:
        known = self._members.get(member)
        if known is None or known.hello.connection != connection:
            return None
        known.deadline = now + self.settings.session_timeout
        return known

    def _join(self, now: float, hello: Hello) -> None:
        known = self._members.get(hello.member)
        if known is None and len(self._members) >= MAX_MEMBERS:
            self._push(hello, Fenced(GROUP_FULL))
            return
        deadline = now + self.settings.session_timeout
        if known is None:
            self._members[hello.member] = _ConnectedMember(hello, deadline)
            self._stale = True
        else:
            self._stale |= known.hello.topics != hello.topics
            known.hello, known.deadline, known.sent = hello, deadline, None
        self._awaited.pop(hello.member, None)

    def _take_back(self, known: _ConnectedMember) -> None:
        """Take back the member's partitions in the facts that it does not hold."""
        for partition, number in self._facts.partitions_of(known.hello.member).items():
            if partition not in known.hello.owned:
                known.revoking.pop(partition, None)
                known.released[partition] = number

    def _begin(self, now: float, hello: Hello) -> None:
        """Begin a member without a session here: it may have to wait for an entry first."""
        claim = self._facts.instances.get(hello.instance)
        if hello.member in self._dropped:
            # Its old partitions are freed first, so that new ownerships get other numbers.
            self._joining[hello.member] = hello
        elif not hello.instance or (claim is not None and claim.member == hello.member):
            self._join(now, hello)
        elif claim is not None and hello.epoch:
            self._push(hello, Fenced(INSTANCE_TAKEN))
        elif claim is not None and hello.claim != claim.number:
            self._push(hello, InstanceHeld(claim.number))
        elif claim is None and len(self._facts.instances) >= MAX_MEMBERS:
            self._push(hello, Fenced(GROUP_FULL))
        else:
            self._joining[hello.member] = hello

    def _finish_joining(self, now: float) -> None:
        """Continue after applied entries: some members waited for them, some end by them."""
        facts = self._facts
        self._dropped.intersection_update(facts.members())
        waiting, self._joining = self._joining, {}
        for hello in waiting.values():
            self._begin(now, hello)
        for member, known in list(self._members.items()):
            claim = facts.instances.get(known.hello.instance)
            if known.hello.instance and claim is not None and claim.member != member:
                self._drop(member, INSTANCE_TAKEN)

    def _drop(self, member: str, reason: str) -> None:
        if reason:
            self._push(self._members[member].hello, Fenced(reason))
        self._forget(member)

    def _forget(self, member: str) -> None:
        """End the session. The facts may name the member until `Remove` is applied."""
        self._members.pop(member, None)
        self._awaited.pop(member, None)
        self._dropped.add(member)
        self._stale = True

    def _expire(self, now: float) -> None:
        for member, deadline in list(self._awaited.items()):
            if now >= deadline:
                self._forget(member)
        for member, known in list(self._members.items()):
            if now >= known.deadline:
                self._drop(member, SESSION_ENDED)
            elif any(now >= asked.deadline for asked in known.revoking.values()):
                self._drop(member, PROCESSING_TIMEOUT if known.retiring else REVOKE_TIMEOUT)

    # -- assignment ---------------------------------------------------------------------

    def _propose(self, now: float) -> list[Proposal]:
        facts = self._facts
        proposals: list[Proposal] = [
            Remove(member)
            for member in facts.members()
            if member not in self._members and member not in self._awaited
        ]
        proposals += [
            InstanceClaim(
                hello.instance, hello.claim if hello.instance in facts.instances else 0, member
            )
            for member, hello in sorted(self._joining.items())
            if member not in self._dropped
        ]
        proposals += [
            InstanceClaim(known.hello.instance, 0, member)
            for member, known in sorted(self._members.items())
            if known.hello.instance and known.hello.instance not in facts.instances
        ]
        if not proposals and not self._awaited:
            changes = self._changes(now)
            if changes:
                proposals.append(OwnerChanges(self.epoch, tuple(changes[:MAX_CHANGES])))
        return proposals

    def _changes(self, now: float) -> list[OwnerChange]:
        """Give free partitions to their wanted owners; ask for the others back."""
        self._forget_moved()
        if self._stale:
            self._find_target()
        changes: list[OwnerChange] = []
        room = MAX_OWNED - len(self._facts.owners)
        asked: list[tuple[_ConnectedMember, TopicIdPartition, int]] = []
        for partition in sorted(self._target.keys() | self._facts.owners.keys()):
            wanted = self._target.get(partition, "")
            owner = self._facts.owners.get(partition)
            if owner is None:
                if room > 0:
                    changes.append(OwnerChange(partition, 0, wanted))
                room -= 1
                continue
            known = self._members[owner.member]  # non-members were removed before
            if partition in known.released or not self._exists(partition):
                changes.append(OwnerChange(partition, owner.number, wanted))
            elif wanted != owner.member and partition not in known.revoking:
                asked.append((known, partition, owner.number))
        if asked:
            self.epoch += 1
            deadline = now + self.settings.revoke_timeout
            for known, partition, number in asked:
                known.revoking[partition] = _Revocation(number, self.epoch, deadline)
        return changes

    def _find_target(self) -> None:
        """Assign all partitions. Those already being given back count as free."""
        self._stale = False
        self.epoch += 1
        members = {
            member: known.hello.topics & self._topics.keys()
            for member, known in self._members.items()
            if not known.retiring
        }
        busy = {
            partition: owner.member
            for partition, owner in self._facts.owners.items()
            if not self._is_coming_back(partition, owner.member)
        }
        self._target = assign(self.settings.assignor, self._topics, members, busy)

    def _is_coming_back(self, partition: TopicIdPartition, member: str) -> bool:
        known = self._members.get(member)
        return known is not None and (partition in known.revoking or partition in known.released)

    def _exists(self, partition: TopicIdPartition) -> bool:
        return partition.partition < self._topics.get(partition.topic_id, 0)

    def _forget_moved(self) -> None:
        """Drop revocations of ownerships that have ended since."""
        for member, known in self._members.items():
            if not (known.revoking or known.released):
                continue
            numbers = self._facts.partitions_of(member)
            known.revoking = {
                partition: asked
                for partition, asked in known.revoking.items()
                if numbers.get(partition) == asked.number
            }
            known.released = {
                partition: number
                for partition, number in known.released.items()
                if numbers.get(partition) == number
            }

    # -- pushes -------------------------------------------------------------------------

    def _push(self, hello: Hello, message: Assignment | Fenced | InstanceHeld) -> None:
        self._pushes.append((hello.member, hello.connection, message))

    def _push_assignments(self) -> None:
        by_member: dict[str, dict[TopicIdPartition, int]] = {member: {} for member in self._members}
        for partition, owner in self._facts.owners.items():
            if owner.member in by_member:
                by_member[owner.member][partition] = owner.number
        for member, owns in by_member.items():
            self._push_assignment(self._members[member], owns)

    def _push_assignment(
        self, known: _ConnectedMember, owns: Mapping[TopicIdPartition, int]
    ) -> None:
        gone = known.revoking.keys() | known.released.keys()
        keeps = {partition: number for partition, number in owns.items() if partition not in gone}
        revoke = tuple(sorted(partition for partition in known.revoking if partition in owns))
        sent = known.sent
        if sent is None or (sent.partitions, sent.revoke) != (keeps, revoke):
            known.sent = Assignment(self.epoch, keeps, revoke)
            self._push(known.hello, known.sent)
