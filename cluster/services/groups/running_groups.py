"""Groups with members in the partitions of `__offsets` led here: connects streams to coordinators.

    GroupService --requests of a member--> GroupMembers --> RunningGroup --> GroupCoordinator
    entries <--proposals-- RunningGroup --pushes--> MemberConnection --> the member's stream

A RunningGroup lives for one term of its partition's leader. Its streams then break with
NOT_LEADER, and the members continue with the next leader within their sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cluster.consensus.proposals import Outcome
from cluster.errors import ClusterError, NotLeaderError
from cluster.groups.classic import NEVER, ClassicRoom
from cluster.groups.classic_table import MAX_CLASSIC_BYTES
from cluster.groups.coordinator import (
    Assignment,
    Fenced,
    GroupCoordinator,
    Hello,
    InstanceClaim,
    InstanceHeld,
    OwnerChanges,
    Proposal,
    Push,
)
from cluster.groups.ownership import GroupOwnership, GroupSettings
from cluster.groups.table import MAX_GROUPS_WITH_MEMBERS, terms_of
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import OFFSETS_TOPIC, is_internal
from cluster.partition.group_offsets import OffsetsTable, pack_command
from cluster.partition.replica import Partition
from cluster.services.context import NodeContext
from cluster.services.groups.classic_groups import RunningClassicGroup
from cluster.services.groups.next_look import NextLook
from cluster.services.groups.subscriptions import Subscription
from cluster.services.routing import leading
from cluster.v1 import offsets_pb2 as internal
from oncelog.errors import GroupHasMembersError, ThrottledError

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds after a proposal that this leader could not make

Message = Assignment | Fenced | InstanceHeld


class MemberConnection:
    """A member's connection, with the messages to send next.

    Only the newest assignment counts, so there is never more than one message of each kind.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.newest: Message | None = None
        self._pending: Message | None = None
        self._error: ClusterError | None = None
        self._news = asyncio.Event()

    def push(self, message: Message) -> None:
        self.newest = self._pending = message
        self._news.set()

    def end(self, error: ClusterError) -> None:
        self._error = error
        self._news.set()

    async def next(self) -> Message:
        """Return the newest message not taken yet. Raises ClusterError."""
        while self._pending is None and self._error is None:
            self._news.clear()
            await self._news.wait()
        message, self._pending = self._pending, None
        if message is not None:
            return message
        assert self._error is not None
        raise self._error


class _RunningMember(NamedTuple):
    connection: MemberConnection
    subscription: Subscription
    host: str


class RunningGroup:
    """One group in one term of its partition's leader."""

    def __init__(
        self,
        name: str,
        replica: Partition,
        metadata: MetadataState,
        settings: GroupSettings,
        on_idle: Callable[[str], None],
    ) -> None:
        self._on_idle = on_idle
        self.name = name
        self._replica = replica
        self._metadata = metadata
        self._loop = asyncio.get_running_loop()
        self._topic_names: Mapping[int, str] = {}
        self._members: dict[str, _RunningMember] = {}
        self._next_look = NextLook(self.advance)
        self._outcomes_due = 0
        self.closed = False
        self.rebalances = 0  # of this term
        table = replica.group_offsets
        assert table is not None
        self._table: OffsetsTable = table
        self.coordinator = GroupCoordinator(self.facts, settings, self._topics(), self._loop.time())

    def facts(self) -> GroupOwnership:
        return self._table.ownership(self.name)

    def topic_name(self, topic_id: int) -> str:
        """Return the name; empty if the topic is gone."""
        return self._topic_names.get(topic_id, "")

    def connection(self, member: str, number: int) -> MemberConnection | None:
        """Return the member's connection of this number, if it is the newest."""
        known = self._members.get(member)
        return known.connection if known and known.connection.number == number else None

    def host(self, member: str) -> str:
        """Return the member's host; empty until it has come back to this leader."""
        return self._members[member].host if member in self._members else ""

    @property
    def size(self) -> int:
        """Count the members."""
        return len(self.coordinator.members())

    @property
    def idle(self) -> float:
        """Return the longest time since a member last came back for records, in seconds."""
        return max((view.idle for view in self.coordinator.members()), default=0.0)

    # -- events -------------------------------------------------------------------------

    def hello(self, hello: Hello, subscription: Subscription, host: str) -> MemberConnection:
        """Begin a member's connection; its older one ends."""
        before = self._members.get(hello.member)
        if before is not None and before.connection.number > hello.connection:
            raise NotLeaderError("the member has a newer connection", 0)
        connection = MemberConnection(hello.connection)
        if before is not None:
            before.connection.end(NotLeaderError("the member has a newer connection", 0))
        self._members[hello.member] = _RunningMember(connection, subscription, host)
        topics = subscription.topic_ids(self._topic_names)
        self.coordinator.hello(self._loop.time(), hello._replace(topics=topics))
        self.advance()
        return connection

    def metadata_changed(self) -> None:
        """Look again after topics came, went or grew."""
        self.coordinator.topics_changed(self._topics())
        for member, known in self._members.items():
            topics = known.subscription.topic_ids(self._topic_names)
            self.coordinator.subscribe(member, topics)
        self.advance()

    def advance(self) -> None:
        """Apply the consequences of all input so far, and plan the next look."""
        if self.closed:
            return
        ready = self.coordinator.advance(self._loop.time())
        for push in ready.pushes:
            self._push(push)
        self._outcomes_due += len(ready.proposals)
        for proposal in ready.proposals:
            self._propose(proposal)
        self._next_look.at(self.coordinator.next_due())
        if self.coordinator.is_idle:
            self._on_idle(self.name)

    def close(self, error: ClusterError) -> None:
        """End the group with its term."""
        self.closed = True
        self._next_look.at(NEVER)
        for member in self._members.values():
            member.connection.end(error)

    # -- parts --------------------------------------------------------------------------

    def _push(self, push: Push) -> None:
        member, number, message = push
        connection = self.connection(member, number)
        if isinstance(message, Fenced):
            log.info("lost member group=%s member=%s: %s", self.name, member, message.reason)
        if connection is not None:
            connection.push(message)

    def _propose(self, proposal: Proposal) -> None:
        refused = self._replica.propose(pack_command(self._command(proposal)), self._done)
        if refused is not None:
            # The refusal passes: the clock, a full disk, or a term that is about to end.
            self._loop.call_later(RETRY, self._ended)

    def _done(self, outcome: Outcome) -> None:
        """Called in a round of the driver; consequences follow after it."""
        self._loop.call_soon(self._ended)

    def _ended(self) -> None:
        self._outcomes_due -= 1
        if not self._outcomes_due and not self.closed:
            self.coordinator.applied()
            self.advance()

    def _command(self, proposal: Proposal) -> internal.OffsetsCommand:
        if isinstance(proposal, OwnerChanges):
            self.rebalances += 1
            changes = [
                internal.OwnerChange(
                    topic_id=part.topic_id, partition=part.partition, expected=expected, member=to
                )
                for part, expected, to in proposal.changes
            ]
            change = internal.ChangeOwners(
                group=self.name,
                epoch=proposal.epoch,
                changes=changes,
                terms=terms_of(self.coordinator.settings),
            )
            return internal.OffsetsCommand(change_owners=change)
        if isinstance(proposal, InstanceClaim):
            claim = internal.ClaimInstance(
                group=self.name,
                instance=proposal.instance,
                expected=proposal.expected,
                member=proposal.member,
            )
            return internal.OffsetsCommand(claim_instance=claim)
        remove = internal.RemoveMember(group=self.name, member=proposal.member)
        return internal.OffsetsCommand(remove_member=remove)

    def _topics(self) -> dict[int, int]:
        """Map topic ids to partition counts, of all topics that clients may read."""
        topics = [topic for topic in self._metadata.topics() if not is_internal(topic.name)]
        self._topic_names = {topic.topic_id: topic.name for topic in topics}
        return {topic.topic_id: len(topic.partitions) for topic in topics}


# A group is of one kind while it has members.
AnyGroup = RunningGroup | RunningClassicGroup


class _Term:
    """The groups of one partition of `__offsets` while this node leads it."""

    def __init__(self, replica: Partition, number: int) -> None:
        self.replica = replica
        self.number = number
        self.groups: dict[str, AnyGroup] = {}

    def begin(self, group: str, metadata: MetadataState, settings: GroupSettings) -> RunningGroup:
        self._check_room()
        running = RunningGroup(group, self.replica, metadata, settings, self._forget)
        self.groups[group] = running
        return running

    def begin_classic(self, group: str, initial_delay: float) -> RunningClassicGroup:
        self._check_room()
        running = RunningClassicGroup(
            group, self.replica, initial_delay, self.classic_room, self._forget
        )
        self.groups[group] = running
        return running

    def _check_room(self) -> None:
        if len(self.groups) >= 2 * MAX_GROUPS_WITH_MEMBERS:
            text = f"group: this partition of __offsets has {len(self.groups)} with members"
            raise ThrottledError(text)

    def classic_room(self) -> ClassicRoom:
        """Return the bytes that groups of Kafka's clients may still take; negative: none.

        An eighth of the entries is for the groups that are there, whose assignments change: one
        that finds no room there is balanced again and again.
        """
        table = self.replica.group_offsets
        assert table is not None, "a partition of __offsets"
        groups = [
            one.coordinator for one in self.groups.values() if isinstance(one, RunningClassicGroup)
        ]
        held = sum(one.held_bytes for one in groups)
        assigned = sum(one.assigned_bytes for one in groups)
        entries = table.classic_bytes + MAX_CLASSIC_BYTES // 8
        return ClassicRoom(MAX_CLASSIC_BYTES - max(held, entries), MAX_CLASSIC_BYTES - assigned)

    def _forget(self, group: str) -> None:
        """Drop a group without members."""
        self.groups.pop(group).close(NotLeaderError("the group has no members", 0))


class GroupMembers:
    """All running groups of one node. The node reports changes of roles and topics."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._terms: dict[int, _Term] = {}  # by the partition's index

    def of(self, replica: Partition, group: str) -> AnyGroup | None:
        """Return the group if it has members, of a partition that this node leads."""
        return self._term(replica).groups.get(group)

    def with_members(self, replica: Partition) -> Mapping[str, AnyGroup]:
        """Return the groups with members of a partition that this node leads."""
        return self._term(replica).groups

    def running(self, replica: Partition, group: str) -> RunningGroup | None:
        """Return the group if it has members, and its partitions are assigned here."""
        found = self.of(replica, group)
        return found if isinstance(found, RunningGroup) else None

    def classic(self, replica: Partition, group: str) -> RunningClassicGroup | None:
        """Return the group if it has members that are Kafka's clients."""
        found = self.of(replica, group)
        return found if isinstance(found, RunningClassicGroup) else None

    def begun(self, replica: Partition, group: str, settings: GroupSettings) -> RunningGroup:
        """Return the group, created with the first member's settings."""
        found = self.of(replica, group)
        if isinstance(found, RunningClassicGroup):
            text = f"group {group} has members that are Kafka's clients: stop them, or take another"
            raise GroupHasMembersError(f"{text} group")
        if found is not None:
            return found
        return self._term(replica).begin(group, self._node.metadata, settings)

    def begun_classic(self, replica: Partition, group: str) -> RunningClassicGroup:
        """Return the group of Kafka's clients, created if it has no members."""
        found = self.of(replica, group)
        if isinstance(found, RunningGroup):
            text = f"group {group} has members that are not Kafka's clients"
            raise GroupHasMembersError(text)
        return found or self._term(replica).begin_classic(group, self._initial_delay)

    @property
    def _initial_delay(self) -> float:
        return self._node.config.kafka_initial_rebalance_delay_ms / 1000

    def metadata_changed(self) -> None:
        for term in self._terms.values():
            for group in list(term.groups.values()):
                group.metadata_changed()

    def led(self) -> list[tuple[Partition, dict[str, AnyGroup]]]:
        """Return the partitions of `__offsets` led here, with their groups; any thread may call."""
        return [(term.replica, dict(term.groups)) for term in list(self._terms.values())]

    def role_changed(self) -> None:
        """Follow changed leaders: end the groups no longer led here, begin the others.

        The leader waits for the members in the log from now on, whether they return or not.
        """
        topic = self._node.metadata.topic(OFFSETS_TOPIC)
        for index in range(0 if topic is None else len(topic.partitions)):
            try:
                replica = leading(self._node, OFFSETS_TOPIC, index)
            except ClusterError as error:
                self._end(index, error)
            else:
                self._term(replica)

    def close(self) -> None:
        """End all groups because the node stops."""
        for index in list(self._terms):
            self._end(index, NotLeaderError("the node stops", 0))

    def _term(self, replica: Partition) -> _Term:
        known, number = self._terms.get(replica.index), replica.group.term
        if known is None or known.replica is not replica or known.number != number:
            self._end(replica.index, NotLeaderError("another term has begun", 0))
            known = self._terms[replica.index] = _Term(replica, number)
            table = replica.group_offsets
            assert table is not None
            for group in table.with_members():
                settings = table.ownership(group).settings
                known.begin(group, self._node.metadata, settings).advance()
            for group in table.classic_groups():
                known.begin_classic(group, self._initial_delay).advance()
        return known

    def _end(self, index: int, error: ClusterError) -> None:
        term = self._terms.pop(index, None)
        for group in () if term is None else term.groups.values():
            group.close(error)
