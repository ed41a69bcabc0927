"""Classic groups of Kafka's protocol in the partitions of `__offsets` led here.

    kafka/groups --a member's call--> ClassicCalls --> RunningClassicGroup --> ClassicCoordinator
    entries <--a finished rebalance-- RunningClassicGroup --answers--> the calls that wait

A RunningClassicGroup lives for one term of its partition's leader. Its waiting calls then fail with
NOT_LEADER, and the members continue with the next leader in the same generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from cluster.consensus.proposals import Applied, Outcome
from cluster.errors import ClusterError
from cluster.features import KAFKA
from cluster.groups.classic import (
    NEVER,
    ClassicCoordinator,
    ClassicJoin,
    ClassicRoom,
    Joined,
    Synced,
)
from cluster.groups.classic_table import UNKNOWN_MEMBER
from cluster.partition.group_offsets import pack_command
from cluster.partition.replica import Partition
from cluster.services.context import NodeContext
from cluster.services.groups.next_look import NextLook
from cluster.v1 import offsets_pb2 as internal

RETRY = 1.0  # seconds after an entry that this leader could not write
T = TypeVar("T")


class RunningClassicGroup:
    """One classic group in one term of its partition's leader."""

    def __init__(
        self,
        name: str,
        replica: Partition,
        initial_delay: float,
        room: Callable[[], ClassicRoom],
        on_idle: Callable[[str], None],
    ) -> None:
        self.name = name
        self._replica = replica
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._next_look = NextLook(self.advance)
        self.closed = False
        self.rebalances = 0  # of this term
        table = replica.group_offsets
        assert table is not None
        self.coordinator = ClassicCoordinator(
            name, lambda: table.classic(name), initial_delay, room, self._loop.time()
        )

    @property
    def size(self) -> int:
        """Count the members."""
        return self.coordinator.size

    @property
    def idle(self) -> float:
        """Return 0: Kafka's clients do not say when they last came back for records."""
        return 0.0

    # -- calls --------------------------------------------------------------------------

    async def join(self, request: ClassicJoin) -> Joined:
        """Return when the rebalance has its members. Raises ClusterError."""
        future = self._ticket()
        self.coordinator.join(self._loop.time(), future, request)
        answer = await self._answered(future)
        assert isinstance(answer, Joined)
        return answer

    async def sync(
        self,
        caller: internal.ClassicCaller,
        protocols: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """Return when the rebalance is in the log. Raises ClusterError."""
        future = self._ticket()
        self.coordinator.sync(self._loop.time(), future, caller, protocols, assignments)
        answer = await self._answered(future)
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(self, caller: internal.ClassicCaller) -> str:
        return self.coordinator.heartbeat(self._loop.time(), caller)

    def commits(self, caller: internal.ClassicCaller) -> str:
        return self.coordinator.commits(self._loop.time(), caller)

    def leave(self, member: str, instance: str) -> str:
        refused = self.coordinator.leave(self._loop.time(), member, instance)
        if not refused:  # a call may name any number of members, and a look is at all there are
            self.advance()
        return refused

    # -- events -------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """Do nothing: the members themselves watch the topics."""

    def advance(self) -> None:
        """Apply the consequences of all input so far, and plan the next look."""
        if self.closed:
            return
        ready = self.coordinator.advance(self._loop.time())
        for ticket, answer in ready.answers:
            assert isinstance(ticket, asyncio.Future)
            if not ticket.done():
                ticket.set_result(answer)
        if ready.proposal is not None:
            self._propose(ready.proposal)
        self._next_look.at(self.coordinator.next_due())
        if self.coordinator.is_idle:
            self._on_idle(self.name)

    def close(self, error: ClusterError) -> None:
        """End the group with its term."""
        self.closed = True
        self._next_look.at(NEVER)
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)

    # -- parts --------------------------------------------------------------------------

    def _ticket(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(future)
        return future

    async def _answered(self, future: asyncio.Future[Any]) -> Joined | Synced:
        try:
            self.advance()
            answer: Joined | Synced = await future
            return answer
        finally:
            self._waiting.discard(future)

    def _propose(self, record: internal.ClassicGroup) -> None:
        self.rebalances += 1
        command = internal.OffsetsCommand(rebalance=record)
        refused = self._replica.propose(pack_command(command), self._done)
        if refused is not None:
            # The refusal passes: the clock, a full disk, or a term that is about to end.
            self._loop.call_later(RETRY, self._stored, None)

    def _done(self, outcome: Outcome) -> None:
        """Called in a round of the driver; consequences follow after it."""
        done = bool(outcome.result) if isinstance(outcome, Applied) else None
        self._loop.call_soon(self._stored, done)

    def _stored(self, done: bool | None) -> None:
        if not self.closed:
            self.coordinator.stored(self._loop.time(), done)
            self.advance()


class ClassicCalls:
    """Calls of classic groups' members, for one node.

    replica_of: returns the group's partition, if this node leads it.
    running: the classic group there; None: it has no members.
    begun:  the same, begun if it has none. Raises GroupHasMembersError for one of other clients.
    """

    def __init__(
        self,
        node: NodeContext,
        replica_of: Callable[[str], Awaitable[Partition]],
        running: Callable[[Partition, str], RunningClassicGroup | None],
        begun: Callable[[Partition, str], RunningClassicGroup],
    ) -> None:
        self._node = node
        self._replica_of = replica_of
        self._running = running
        self._begun = begun

    async def join(self, group: str, request: ClassicJoin) -> Joined:
        """Raises ClusterError, OncelogError, as the others do."""
        self._node.metadata.features.require(KAFKA)
        replica = await self._replica_of(group)
        if request.member and self._running(replica, group) is None:
            return Joined(UNKNOWN_MEMBER, request.member)
        return await self._begun(replica, group).join(request)

    async def sync(
        self,
        group: str,
        caller: internal.ClassicCaller,
        protocols: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        running = self._running(await self._replica_of(group), group)
        if running is None:
            return Synced(UNKNOWN_MEMBER)
        return await running.sync(caller, protocols, assignments)

    async def heartbeat(self, group: str, caller: internal.ClassicCaller) -> str:
        running = self._running(await self._replica_of(group), group)
        return UNKNOWN_MEMBER if running is None else running.heartbeat(caller)

    async def commits(self, group: str, caller: internal.ClassicCaller) -> str:
        """Keep the session of a member that commits; returns why it cannot."""
        running = self._running(await self._replica_of(group), group)
        return UNKNOWN_MEMBER if running is None else running.commits(caller)

    async def leave(self, group: str, member: str, instance: str) -> str:
        running = self._running(await self._replica_of(group), group)
        return UNKNOWN_MEMBER if running is None else running.leave(member, instance)
