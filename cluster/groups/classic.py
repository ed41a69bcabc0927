"""Coordinator of one classic group, in one term of its `__offsets` partition's leader. Pure.

    JoinGroup, SyncGroup, Heartbeat, LeaveGroup --> ClassicCoordinator --Ready--> entry, answers
    facts (ClassicFacts, applied) -----------------------^

Kafka's classic protocol, as its coordinator has it: all members join, one of them assigns, all of
them get the assignment. A new generation is one entry, and its members are answered when it is
applied. So the next leader continues with it: the members heartbeat and commit there, and nobody
joins again.

A request that must wait has a ticket. Its answer is made when the rebalance completes, and comes
out of `advance` with the ticket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cluster.groups.classic_table import (
    FENCED_INSTANCE,
    UNKNOWN_MEMBER,
    ClassicFacts,
    caller_refusal,
    member_refusal,
)
from cluster.groups.consumer_protocol import CONSUMER, subscribed_topics
from cluster.groups.coordinator import GROUP_FULL
from cluster.groups.ownership import MAX_MEMBERS
from cluster.v1 import offsets_pb2 as pb

MAX_GROUP_METADATA_BYTES = 1024 * 1024  # of all members' protocols
MAX_ASSIGNMENT_BYTES = 1024 * 1024  # of all members
MEMBER_BYTES = 1024  # of memory that a member takes beside its metadata
MAX_PROTOCOLS, MAX_TYPE_CHARS = 32, 255  # of a member; memory of either is not counted
SHORTEST_REBALANCE = 1.0  # seconds: a rebalance timeout of 0 would be over at once, for ever

# States, by Kafka's names.
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
)
REBALANCING, INCONSISTENT_PROTOCOL, MEMBER_ID_REQUIRED = (
    "REBALANCING",
    "INCONSISTENT_PROTOCOL",
    "MEMBER_ID_REQUIRED",
)
NOT_STORED, ASSIGNMENT_TOO_LARGE, NO_ROOM = "NOT_STORED", "ASSIGNMENT_TOO_LARGE", "NO_ROOM"

NEVER = float("inf")
Protocols = tuple[tuple[str, bytes], ...]  # name, metadata; the member's favourite first


class ClassicJoin(NamedTuple):
    """A request to join. Times in seconds.

    member:  empty: none yet, and `new_id` is its id if it is let in.
    returns: a new member without an instance id first gets its id, and comes again (KIP-394).
    """

    member: str
    instance: str
    new_id: str
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    returns: bool


class Joined(NamedTuple):
    """Answer to a request to join. members: (id, instance id, metadata), for the leader alone."""

    error: str
    member: str
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, str, bytes], ...] = ()


class Synced(NamedTuple):
    """Answer to a request for the assignment."""

    error: str
    protocol_type: str = ""
    protocol: str = ""
    assignment: bytes = b""


class ClassicRoom(NamedTuple):
    """Bytes that all groups of a partition leave, for members and for assignments."""

    members: int
    assignments: int


class ClassicReady(NamedTuple):
    """Work to do now: the entry to write, and the answers of waiting requests."""

    proposal: pb.ClassicGroup | None
    answers: list[tuple[object, Joined | Synced]]


@dataclass(slots=True)
class _ClassicMember:
    member: str
    instance: str
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    deadline: float  # of its session; none while a request of it waits
    assignment: bytes = b""
    joining: object | None = None  # the ticket of the waiting request
    syncing: object | None = None

    def metadata(self, protocol: str) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def size(self) -> int:
        return sum(len(name) + len(data) for name, data in self.protocols)


class ClassicCoordinator:
    """One group in one term of the leader.

    facts: the applied state now; None: the group has no members. After the entry that `advance`
           gave is applied, call `stored`.
    initial_delay: seconds that an empty group waits for more members (Kafka's
           group.initial.rebalance.delay.ms).
    room:  bytes of memory that all groups of its partition leave. Joins and assignments that add
           none go on without room: else one group could stop the members of all others.
    now:   in each call, seconds of one clock that does not go back.
    """

    def __init__(
        self,
        group: str,
        facts: Callable[[], ClassicFacts | None],
        initial_delay: float,
        room: Callable[[], ClassicRoom],
        now: float,
    ) -> None:
        self.group = group
        self._facts = facts
        self._room = room
        self._initial_delay = initial_delay
        self.state = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.metadata_bytes = 0  # of all members' protocols
        self.assigned_bytes = 0  # of all members' assignments
        self._members: dict[str, _ClassicMember] = {}
        self._instances: dict[str, str] = {}  # instance id -> member id
        self._supported = Counter[str]()  # protocol -> how many members know it
        self._pending: dict[str, float] = {}  # ids given to new members -> until when
        # Members that took over an instance id, and the leader that their answer names.
        self._replaced: dict[str, str] = {}
        self._deadline = NEVER  # of the rebalance
        self._settles_at = -NEVER  # an empty group's first rebalance completes then
        self._has_grown = False  # since the last delay
        self._is_assigned = False  # the leader has assigned this generation
        self._must_store = False
        self._must_claim = False  # the log's generation names older holders of instance ids
        self._is_claiming = False  # the entry in flight names the new ones
        self._in_flight: pb.ClassicGroup | None = None
        self._answers: list[tuple[object, Joined | Synced]] = []
        known = facts()
        if known is not None:
            self._continue(known.record, now)

    def _continue(self, record: pb.ClassicGroup, now: float) -> None:
        """Take over the generation in the log; its members' sessions begin."""
        self.state = STABLE
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol = record.protocol
        self.leader = record.leader
        for one in record.members:
            session = one.session_timeout_ms / 1000
            self._insert(
                _ClassicMember(
                    one.member,
                    one.instance,
                    one.client_id,
                    one.client_host,
                    session,
                    one.rebalance_timeout_ms / 1000,
                    ((record.protocol, one.metadata),),
                    now + session,
                    one.assignment,
                )
            )

    @property
    def is_idle(self) -> bool:
        """Return whether there is no member, here or in the facts: the group may be dropped."""
        busy = self._members or self._pending or self._in_flight is not None or self._answers
        return self.state == EMPTY and not busy and self._facts() is None

    @property
    def size(self) -> int:
        """Count the members."""
        return len(self._members)

    @property
    def held_bytes(self) -> int:
        """Return about how much memory the members take, without entry and assignments."""
        return self.metadata_bytes + MEMBER_BYTES * (len(self._members) + len(self._pending))

    def members(self) -> list[pb.ClassicMember]:
        """Describe the members for people, by id."""
        return list(self._record().members)

    # -- requests -----------------------------------------------------------------------

    def join(self, now: float, ticket: object, request: ClassicJoin) -> None:
        """Let a member join. Its answer comes out of `advance`."""
        if not self._supports(request):
            self._answers.append((ticket, Joined(INCONSISTENT_PROTOCOL, request.member)))
        elif request.member in self._pending and not request.instance:
            del self._pending[request.member]
            self._add(now, ticket, request.member, request)
        elif request.member:
            self._join_again(now, ticket, request)
        elif request.instance in self._instances:
            self._replace(now, ticket, self._instances[request.instance], request)
        elif request.returns and not request.instance:
            full = len(self._pending) >= MAX_MEMBERS
            refused = GROUP_FULL if full else self._has_no_room(request, None)
            if refused:
                self._answers.append((ticket, Joined(refused, "")))
                return
            self._pending[request.new_id] = now + request.session_timeout
            self._answers.append((ticket, Joined(MEMBER_ID_REQUIRED, request.new_id)))
        else:
            self._add(now, ticket, request.new_id, request)

    def sync(
        self,
        now: float,
        ticket: object,
        caller: pb.ClassicCaller,
        protocols: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> None:
        """Give a member its assignment, and take all of them from the leader.

        protocols: the type and the name that the member knows; None: it does not say.
        """
        refused = self._refusal(caller)
        theirs = zip(protocols, (self.protocol_type, self.protocol), strict=True)
        if not refused and any(given not in (None, ours) for given, ours in theirs):
            refused = INCONSISTENT_PROTOCOL
        if not refused and self.state == PREPARING:
            refused = REBALANCING
        if refused:
            self._answers.append((ticket, Synced(refused)))
            return
        member = self._members[caller.member]
        member.deadline = now + member.session_timeout
        if self.state == STABLE:
            self._answers.append((ticket, self._assignment_of(member)))
            return
        self._answer(member, REBALANCING)  # an older request of its
        member.syncing = ticket
        if member.member == self.leader and not self._is_assigned:
            self._assign(now, assignments)

    def heartbeat(self, now: float, caller: pb.ClassicCaller) -> str:
        """Keep a member's session; returns why it cannot go on, or ""."""
        refused = self._refusal(caller)
        if refused:
            return refused
        member = self._members[caller.member]
        member.deadline = now + member.session_timeout
        return REBALANCING if self.state == PREPARING else ""

    def commits(self, now: float, caller: pb.ClassicCaller) -> str:
        """Keep the session of a member that commits; returns why it cannot, or "".

        Whether the commit counts is decided when it is applied.
        """
        refused = self.heartbeat(now, caller)
        if not refused and self.state == COMPLETING:
            return REBALANCING  # it has not got its assignment yet
        return "" if refused == REBALANCING else refused

    def leave(self, now: float, member: str, instance: str) -> str:
        """Remove a member that has finished; returns why there is none, or "".

        An admin names a static member by its instance id alone.
        """
        if member in self._pending:
            del self._pending[member]
            return ""
        if instance and not member:
            member = self._instances.get(instance, "")
        refused = member_refusal(member, instance, self._members, self._instances)
        if not refused:
            self._remove(now, member)
        return refused

    # -- other events -------------------------------------------------------------------

    def stored(self, now: float, done: bool | None) -> None:
        """Note the outcome of the entry. False: there is no room; None: it must be tried again."""
        record, self._in_flight = self._in_flight, None
        assert record is not None, "one entry at a time"
        if self._is_claiming:
            self._is_claiming = False
            self._must_claim = self._must_claim or done is None
            return
        if record.generation != self.generation or self.state == PREPARING:
            return  # a later rebalance has begun
        if done is None:
            self._must_store = True
        elif not done:
            self._prepare(now, NOT_STORED)
        elif self.state == COMPLETING:
            self.state = STABLE
            self._deadline = NEVER
            for member in self._members.values():
                if member.syncing is not None:
                    self._answers.append((member.syncing, self._assignment_of(member)))
                    self._begin_session(now, member)
        elif not self._must_store:
            self._answer_replaced(now)

    def next_due(self) -> float:
        """Return when `advance` must be called at the latest; infinity: never."""
        due = [*self._pending.values()]
        due += [one.deadline for one in self._members.values() if not _waits(one)]
        if self._must_claim or self._is_claiming:
            pass  # the entry's outcome comes first
        elif self.state == PREPARING and self._settles_at > -NEVER:
            due.append(self._settles_at)
        elif self.state == PREPARING or (self.state == COMPLETING and not self._is_assigned):
            due.append(self._deadline)
        return min(due, default=NEVER)

    def advance(self, now: float) -> ClassicReady:
        """Return the consequences of all input. To be called after each event."""
        self._expire(now)
        proposal = None
        if self._must_claim and self._in_flight is None:
            self._must_claim = False
            proposal = self._in_flight = self._claim()
            self._is_claiming = proposal is not None
        if self.state == PREPARING and self._is_complete(now):
            self._complete(now)
        if self._must_store and self._in_flight is None:
            self._must_store = False
            proposal = self._in_flight = self._record()
        answers, self._answers = self._answers, []
        return ClassicReady(proposal, answers)

    # -- members ------------------------------------------------------------------------

    def _refusal(self, caller: pb.ClassicCaller) -> str:
        return caller_refusal(caller, self._members.keys(), self._instances, self.generation)

    def _supports(self, request: ClassicJoin) -> bool:
        """Return whether the member shares a protocol with all others."""
        if not 1 <= len(request.protocol_type) <= MAX_TYPE_CHARS:
            return False
        if not 1 <= len(request.protocols) <= MAX_PROTOCOLS:
            return False
        if not self._members:
            return True
        count = len(self._members)
        return request.protocol_type == self.protocol_type and any(
            self._supported[name] == count for name, _ in request.protocols
        )

    def _has_no_room(self, request: ClassicJoin, known: _ClassicMember | None) -> str:
        """Return why a member cannot join for its memory; "" if it can, or adds none."""
        size = sum(len(name) + len(data) for name, data in request.protocols)
        size -= 0 if known is None else known.size
        if known is None and len(self._members) >= MAX_MEMBERS:
            return GROUP_FULL
        if size > 0 and self.metadata_bytes + size > MAX_GROUP_METADATA_BYTES:
            return GROUP_FULL
        size += MEMBER_BYTES if known is None else 0
        return NO_ROOM if size > 0 and size > self._room().members else ""

    def _add(self, now: float, ticket: object, member: str, request: ClassicJoin) -> None:
        refused = self._has_no_room(request, None)
        if refused:
            self._answers.append((ticket, Joined(refused, member)))
            return
        if not self._members:
            self.protocol_type = request.protocol_type
        self._insert(
            _ClassicMember(
                member,
                request.instance,
                request.client_id,
                request.client_host,
                request.session_timeout,
                request.rebalance_timeout,
                request.protocols,
                now + request.session_timeout,
                joining=ticket,
            )
        )
        self._has_grown = True
        self._prepare(now)
        self._must_claim |= bool(request.instance)  # the log may still name a removed member

    def _join_again(self, now: float, ticket: object, request: ClassicJoin) -> None:
        refused = member_refusal(
            request.member, request.instance, self._members.keys(), self._instances
        )
        member = self._members.get(request.member)
        refused = refused or self._has_no_room(request, member)
        if refused or member is None:
            self._answers.append((ticket, Joined(refused, request.member)))
            return
        is_repeat = member.protocols == request.protocols and (
            self.state == COMPLETING or (self.state == STABLE and member.member != self.leader)
        )
        if is_repeat:
            # The answer was lost: the member has not noticed that it is in the generation.
            member.deadline = now + member.session_timeout
            self._answers.append((ticket, self._joined(member, self.leader)))
            return
        self._update(member, request)
        self._answer(member, REBALANCING)
        self._prepare(now)
        member.joining = ticket

    def _replace(self, now: float, ticket: object, old: str, request: ClassicJoin) -> None:
        """Give an instance id to a new process. Without other topics nobody else notices."""
        member = self._members[old]
        refused = self._has_no_room(request, member)
        if refused:
            self._answers.append((ticket, Joined(refused, "")))
            return
        self._answer(member, FENCED_INSTANCE)
        before, shown = member.metadata(self.protocol), self.leader
        self._delete(old)
        member.member = request.new_id
        self._insert(member)
        self._update(member, request)
        self._replaced.pop(old, None)
        if self.leader == old:
            self.leader = request.new_id
        keeps = self.state == STABLE and self._elected() == self.protocol
        if keeps and self.protocol_type == CONSUMER:
            after = member.metadata(self.protocol)
            keeps = subscribed_topics(before) == subscribed_topics(after)
        if not keeps:
            self._prepare(now)
            # Before it is answered: else the next leader would fence it for the older process.
            self._must_claim = True
        else:
            # It is told of the leader's old id, so that it does not begin to assign.
            self._replaced[member.member] = shown
            self._must_store = True
        member.joining = ticket

    def _insert(self, member: _ClassicMember) -> None:
        self._members[member.member] = member
        if member.instance:
            self._instances[member.instance] = member.member
        self._supported.update(name for name, _ in member.protocols)
        self.metadata_bytes += member.size
        self.assigned_bytes += len(member.assignment)

    def _delete(self, member: str) -> None:
        known = self._members.pop(member)
        if known.instance:
            del self._instances[known.instance]
        self._supported.subtract(name for name, _ in known.protocols)
        self.metadata_bytes -= known.size
        self.assigned_bytes -= len(known.assignment)

    def _update(self, member: _ClassicMember, request: ClassicJoin) -> None:
        self._delete(member.member)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.session_timeout = request.session_timeout
        member.rebalance_timeout = request.rebalance_timeout
        member.protocols = request.protocols
        self._insert(member)

    def _remove(self, now: float, member: str) -> None:
        self._answer(self._members[member], UNKNOWN_MEMBER)
        self._delete(member)
        self._replaced.pop(member, None)
        self._prepare(now)

    def _answer(self, member: _ClassicMember, error: str) -> None:
        """End the member's waiting requests."""
        if member.joining is not None:
            self._answers.append((member.joining, Joined(error, member.member)))
        if member.syncing is not None:
            self._answers.append((member.syncing, Synced(error)))
        member.joining = member.syncing = None

    def _begin_session(self, now: float, member: _ClassicMember) -> None:
        """Begin the session of a member whose request has been answered."""
        member.joining = member.syncing = None
        member.deadline = now + member.session_timeout

    def _expire(self, now: float) -> None:
        for member, until in list(self._pending.items()):
            if now >= until:
                del self._pending[member]
        late = [
            one.member
            for one in self._members.values()
            if not _waits(one) and (now >= one.deadline or self._misses_sync(now))
        ]
        for member in late:
            self._remove(now, member)

    def _misses_sync(self, now: float) -> bool:
        return self.state == COMPLETING and not self._is_assigned and now >= self._deadline

    # -- rebalances ---------------------------------------------------------------------

    def _prepare(self, now: float, reason: str = REBALANCING) -> None:
        """Begin a rebalance, if none has begun: all members must join again."""
        if self.state == PREPARING:
            return
        for member in self._members.values():
            if member.syncing is not None:
                self._answers.append((member.syncing, Synced(reason)))
                self._begin_session(now, member)
        if self.state == COMPLETING:
            self._unassign()  # nobody gets them any more
        # A member that took over an instance id is answered when the rebalance completes.
        self._must_claim |= bool(self._replaced)
        self._replaced.clear()
        self._must_store = False
        self._deadline = now + self._longest()
        self._settles_at = -NEVER
        if self.state == EMPTY and self._members:
            self._settles_at = min(now + self._initial_delay, self._deadline)
            self._has_grown = False
        self.state = PREPARING

    def _is_complete(self, now: float) -> bool:
        """Return whether the rebalance has all members that it will get."""
        if self._must_claim or self._is_claiming:
            return False
        if self._settles_at > -NEVER:
            while self._has_grown and self._settles_at <= min(now, self._deadline - 0.001):
                self._has_grown = False
                later = self._settles_at + max(self._initial_delay, 0.001)
                self._settles_at = min(later, self._deadline)
            return now >= self._settles_at
        if now >= self._deadline:
            return True
        return not self._pending and all(one.joining for one in self._members.values())

    def _complete(self, now: float) -> None:
        """Begin the next generation with the members that have joined, and the static ones."""
        for one in list(self._members.values()):
            if one.joining is None and not one.instance:
                self._delete(one.member)
        joined = [one for one in self._members.values() if one.joining is not None]
        if self._members and not joined:
            self._deadline = now + self._longest()  # static members, whose sessions will end
            return
        self.generation += 1
        self._settles_at = -NEVER
        if not self._members:
            self.state = EMPTY
            self.protocol = ""
            self.leader = ""
            self._deadline = NEVER
            self._must_store = self._facts() is not None or self._in_flight is not None
            return
        if self.leader not in {one.member for one in joined}:
            self.leader = joined[0].member
        self.protocol = self._elected()
        self.state = COMPLETING
        self._deadline = now + self._longest()
        self._is_assigned = False
        self._unassign()
        for member in joined:
            self._answers.append((member.joining, self._joined(member, self.leader)))
            self._begin_session(now, member)

    def _longest(self) -> float:
        """Return how long a rebalance waits for its members."""
        timeouts = (one.rebalance_timeout for one in self._members.values())
        return max((SHORTEST_REBALANCE, *timeouts)) if self._members else 0.0

    def _elected(self) -> str:
        """Return the protocol that most members prefer, of those that all know."""
        count, votes = len(self._members), Counter[str]()
        for one in self._members.values():
            known = (name for name, _ in one.protocols if self._supported[name] == count)
            votes.update([next(known, "")])
        return votes.most_common(1)[0][0]

    def _joined(self, member: _ClassicMember, leader: str) -> Joined:
        members: tuple[tuple[str, str, bytes], ...] = ()
        if member.member == leader:
            members = tuple(
                (one.member, one.instance, one.metadata(self.protocol))
                for one in self._members.values()
            )
        return Joined(
            "", member.member, self.generation, self.protocol_type, self.protocol, leader, members
        )

    def _assign(self, now: float, assignments: Mapping[str, bytes]) -> None:
        given = {one: assignments.get(one, b"") for one in self._members}
        size, known = sum(map(len, given.values())), self._facts()
        if size > MAX_ASSIGNMENT_BYTES:
            self._prepare(now, ASSIGNMENT_TOO_LARGE)
            return
        stored = () if known is None else known.record.members
        if size > max(self._room().assignments, sum(len(one.assignment) for one in stored)):
            self._prepare(now, NOT_STORED)
            return
        for member in self._members.values():
            member.assignment = given[member.member]
        self.assigned_bytes = size
        self._is_assigned = self._must_store = True

    def _unassign(self) -> None:
        for member in self._members.values():
            member.assignment = b""
        self.assigned_bytes = 0

    def _answer_replaced(self, now: float) -> None:
        for name, leader in self._replaced.items():
            member = self._members[name]
            self._answers.append((member.joining, self._joined(member, leader)))
            self._begin_session(now, member)
        self._replaced.clear()

    def _assignment_of(self, member: _ClassicMember) -> Synced:
        return Synced("", self.protocol_type, self.protocol, member.assignment)

    def _claim(self) -> pb.ClassicGroup | None:
        """Return the generation in the log with the holders of its instance ids now."""
        known = self._facts()
        if known is None:
            return None
        record = pb.ClassicGroup.FromString(known.data)
        for one in record.members:
            holder = self._instances.get(one.instance, one.member)
            if record.leader == one.member:
                record.leader = holder
            one.member = holder
        record.members.sort(key=lambda one: one.member)
        return None if record == known.record else record

    def _record(self) -> pb.ClassicGroup:
        return pb.ClassicGroup(
            group=self.group,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=[
                pb.ClassicMember(
                    member=one.member,
                    instance=one.instance,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    session_timeout_ms=round(one.session_timeout * 1000),
                    rebalance_timeout_ms=round(one.rebalance_timeout * 1000),
                    metadata=one.metadata(self.protocol),
                    assignment=one.assignment,
                )
                for _, one in sorted(self._members.items())
            ],
        )


def _waits(member: _ClassicMember) -> bool:
    return member.joining is not None or member.syncing is not None
