"""One consumer group in virtual time: a replicated log, coordinators, members, a bad network.

    Member --hello, owned, ping, commit--> Node (coordinator) --proposals--> Log --apply--> facts

The product's own pure machines run in it: GroupOwnership, GroupCoordinator, MemberOwnerships. The
log is the simplest thing that a Raft group promises: entries in one order, each applied at
most once, those in flight at a fail-over kept or lost. A deposed leader goes on for a while
with the facts that it knew, as a leader that is cut off does.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from cluster.groups.coordinator import (
    Assignment,
    Fenced,
    GroupCoordinator,
    Hello,
    InstanceClaim,
    InstanceHeld,
    OwnerChanges,
    Proposal,
    Remove,
)
from cluster.groups.ownership import GroupOwnership, GroupSettings, TopicIdPartition
from oncelog._engine.consume.membership import MemberOwnerships
from tests.sim import reloading
from tests.sim.clock import NEVER, Scheduler
from tests.sim.groups.checker import Checker

SETTINGS = GroupSettings(session_timeout=10.0, revoke_timeout=6.0, processing_timeout=20.0)
COMMIT_WAIT = 0.3  # seconds until an entry is committed and applied
PING = 3.0


class Node:
    """A leader of the group's partition of __offsets, in one term."""

    def __init__(self, world: World, facts: GroupOwnership) -> None:
        self.world, self.facts = world, facts
        self.deposed = False
        self.coordinator = GroupCoordinator(
            lambda: self.facts, world.settings, world.topics, world.scheduler.now
        )
        self._look_at = NEVER
        self.advance()

    def advance(self) -> None:
        now = self.world.scheduler.now
        ready = self.coordinator.advance(now)
        if ready.proposals and not self.deposed:
            self.world.propose(self, ready.proposals)
        for member, connection, message in ready.pushes:
            self.world.push(self, member, connection, message)
        due = self.coordinator.next_due()
        if due < self._look_at or self._look_at <= now:
            self._look_at = due
            if due < NEVER:
                self.world.scheduler.at(max(due, now + 0.01), self._look)

    def _look(self) -> None:
        if self.world.scheduler.now >= self._look_at:
            self._look_at = NEVER
            self.advance()

    def receive(self, method: str, *args: Any) -> None:
        call: Callable[..., None] = getattr(self.coordinator, method)
        call(*args) if method == "leave" else call(self.world.scheduler.now, *args)
        self.advance()


class World:
    """Everything of one run; a function of its seed."""

    def __init__(self, seed: int, topics: dict[int, int]) -> None:
        self.rng, self.scheduler = random.Random(seed), Scheduler()
        self.settings, self.topics = SETTINGS, dict(topics)
        self.facts = GroupOwnership()
        self.committed: dict[TopicIdPartition, int] = {}
        self.checker = Checker()
        self.index = 0
        self.delay, self.drop, self.late = 0.05, 0.0, 0.0
        self.members: dict[str, Any] = {}
        self._in_flight: list[tuple[Node, list[Proposal]]] = []
        self.node = Node(self, self.facts)
        self.entries = 0

    # -- the log ------------------------------------------------------------------------

    def propose(self, node: Node, proposals: list[Proposal]) -> None:
        planned = (node, proposals)
        self._in_flight.append(planned)
        self.scheduler.after(COMMIT_WAIT * (0.2 + self.rng.random()), self._commit, planned)

    def _commit(self, planned: tuple[Node, list[Proposal]]) -> None:
        if planned not in self._in_flight:
            return
        self._in_flight.remove(planned)
        for proposal in planned[1]:
            self.apply(proposal)
        node = planned[0]
        if not node.deposed:
            node.coordinator.applied()
            node.advance()

    def apply(self, proposal: Proposal) -> None:
        self.index += 1
        self.entries += 1
        match proposal:
            case OwnerChanges(epoch, changes):
                self.facts.change(self.index, epoch, changes)
            case InstanceClaim(instance, expected, member):
                self.facts.claim(self.index, instance, expected, member)
            case Remove(member):
                self.facts.remove(member)
        reloading.ownership(self.facts)
        self.checker.applied(self.index, proposal)

    def fail_over(self) -> None:
        """Elects another leader; entries in flight are committed before, or lost."""
        old = self.node
        for planned in list(self._in_flight):
            if self.rng.random() < 0.5:
                self._in_flight.remove(planned)
            else:
                self._commit(planned)
        # The other entries are never committed; the deposed leader may think otherwise.
        self._in_flight.clear()
        old.deposed = True
        old.facts = copy.deepcopy(self.facts)
        self.node = Node(self, self.facts)

    def set_topics(self, topics: dict[int, int]) -> None:
        self.topics = dict(topics)
        self.node.coordinator.topics_changed(topics)
        self.node.advance()

    # -- the network --------------------------------------------------------------------

    def send(self, node: Node, method: str, *args: Any) -> None:
        """Sends a member's message to a coordinator; in order on a stream, or lost with it."""
        if self.rng.random() >= self.drop:
            self.scheduler.after(self._latency(), node.receive, method, *args)

    def push(self, node: Node, member: str, connection: int, message: Any) -> None:
        found = self.members.get(member)
        if found is not None:
            found.in_stream(node, connection, message)

    def _latency(self) -> float:
        slow = 40 * self.delay if self.rng.random() < self.late else self.delay
        return slow * (0.2 + self.rng.random())

    def commit(self, partition: TopicIdPartition, member: str, *rest: Any) -> None:
        """Delivers a CommitOffsets call: late, lost, or repeated; its answer is ignored."""
        if self.rng.random() < self.drop / 2:
            return
        for _ in range(2 if self.rng.random() < self.drop else 1):
            wait = self._latency() + COMMIT_WAIT * self.rng.random()
            self.scheduler.after(wait, self._apply_commit, partition, member, *rest)

    def _apply_commit(
        self,
        partition: TopicIdPartition,
        member: str,
        ownership: int,
        number: int,
        span: tuple[int, int],
    ) -> None:
        if not self.facts.check_commit(partition, member, ownership, number):
            if partition in self.facts.owners:  # else a planted weakness let it in
                if self.facts.is_repeat(partition, number):
                    return
                self.facts.committed(partition, number)
            self.checker.committed(partition, member, span, self.committed.get(partition, 0))
            self.committed[partition] = span[1]


class Member:
    """A consumer process: reads the partitions it owns, commits now and then."""

    def __init__(self, world: World, name: str, topics: set[int], instance: str = "") -> None:
        self.world, self.name, self.topics, self.instance = world, name, topics, instance
        self.membership: MemberOwnerships[tuple[int, int]] = MemberOwnerships()
        self.node: Node | None = None
        self.alive, self.stopped_until, self.stuck = True, 0.0, False
        self.fenced: list[str] = []
        self.rejected = ""  # for good
        self._unread: list[tuple[int, Any]] = []  # arrived: connection, message
        self._pushed: dict[int, Any] = {}  # connection -> the next message its stream will take
        # Committed when it began, committed since, read.
        self.positions: dict[TopicIdPartition, tuple[int, int, int]] = {}
        self.moves = 0
        world.members[name] = self
        self._claim = 0
        self.connect()
        world.scheduler.after(PING * world.rng.random(), self._ping)
        world.scheduler.after(world.rng.random(), self._work)

    # -- its stream ---------------------------------------------------------------------

    def connect(self) -> None:
        """Opens a new stream to the current leader."""
        if not self.alive or self.rejected:
            return
        self.node = self.world.node
        connection = self.membership.connect()
        self._sent_at = self._arrives_at = 0.0
        self._say(
            "hello",
            Hello(
                self.name,
                connection,
                frozenset(self.topics),
                self.instance,
                self.membership.epoch,
                self._claim,
                frozenset(TopicIdPartition(*part) for part in self.membership.owned),
            ),
        )

    def _say(self, method: str, *args: Any) -> None:
        """Sends in order on its stream; a lost message takes the stream with it."""
        world = self.world
        assert self.node is not None
        self._sent_at = max(self._sent_at, world.scheduler.now + world._latency())
        if world.rng.random() < world.drop:
            world.scheduler.after(0.5 + world.rng.random(), self.connect)
        else:
            world.scheduler.at(self._sent_at, self.node.receive, method, *args)

    def in_stream(self, node: Node, connection: int, message: Any) -> None:
        """Takes the coordinator's push. While its stream takes nothing, the newest counts."""
        waits = connection in self._pushed
        self._pushed[connection] = message
        if not waits:
            slow = 2.0 if self.world.rng.random() < self.world.late else 0.0
            self.world.scheduler.after(slow, self._write, node, connection)

    def _write(self, node: Node, connection: int) -> None:
        world, message = self.world, self._pushed.pop(connection)
        self._arrives_at = max(self._arrives_at, world.scheduler.now + world._latency())
        if world.rng.random() >= world.drop:
            world.scheduler.at(self._arrives_at, self._receive, connection, message)
        else:
            world.scheduler.after(0.5 + world.rng.random(), self.connect)

    def _receive(self, connection: int, message: Any) -> None:
        self._unread.append((connection, message))
        if len(self._unread) == 1:
            self._read()

    def _read(self) -> None:
        """Takes the arrived messages in their order; a stopped process reads later."""
        if self.world.scheduler.now < self.stopped_until:
            self.world.scheduler.at(self.stopped_until, self._read)
            return
        while self._unread:
            self._take(*self._unread.pop(0))

    def _take(self, connection: int, message: Any) -> None:
        if not self.alive or self.rejected or connection != self.membership.connection:
            return
        match message:
            case Assignment(epoch, partitions, revoke):
                numbers = {(part.topic_id, part.partition): n for part, n in partitions.items()}
                step = self.membership.assignment(connection, epoch, numbers, revoke)
                for part in step.lost:
                    self.positions.pop(TopicIdPartition(*part), None)
                for part in step.assigned:
                    if part not in self.positions:
                        self._start(TopicIdPartition(*part))
                if revoke:
                    wait = 2 * self.world.rng.random()
                    self.world.scheduler.after(wait, self._revoked, connection)
            case Fenced(reason):
                self.fenced.append(reason)
                self.membership.fenced()
                self.positions.clear()
                if reason == "INSTANCE_TAKEN":
                    self.rejected = reason
                else:
                    self.world.scheduler.after(self.world.rng.random(), self.connect)
            case InstanceHeld(claim):
                self._claim = claim
                self.connect()

    def _revoked(self, connection: int) -> None:
        """Commits the records read so far, then gives the partitions back."""
        if not self.alive or self.stuck or self.rejected:
            return
        now = self.world.scheduler.now
        if now < self.stopped_until:
            self.world.scheduler.at(self.stopped_until, self._revoked, connection)
            return
        back = [part for part in self.membership.owned if not self.membership.may_poll(part)]
        for part in back:
            self._commit(TopicIdPartition(*part))
        owned = self.membership.released(connection, back)
        if owned is not None:
            for part in back:
                self.positions.pop(TopicIdPartition(*part), None)
            held = {TopicIdPartition(*part) for part in owned.partitions}
            self._say("owned", self.name, owned.connection, owned.epoch, held)

    def _ping(self) -> None:
        if not self.alive or self.rejected:
            return
        if self.world.scheduler.now >= self.stopped_until:
            if self.node is not self.world.node:
                self.connect()
            else:
                idle = 30.0 if self.stuck else 0.0
                self._say("ping", self.name, self.membership.connection, idle)
        self.world.scheduler.after(PING, self._ping)

    # -- its work -----------------------------------------------------------------------

    def _start(self, partition: TopicIdPartition) -> None:
        """Fetches the committed offset: the owner entry is applied, so nobody changes it."""
        self.moves += 1
        committed = self.world.committed.get(partition, 0)
        self.positions[partition] = (committed, committed, committed)

    def _work(self) -> None:
        if not self.alive or self.rejected:
            return
        rng = self.world.rng
        if self.world.scheduler.now >= self.stopped_until and not self.stuck:
            for partition, (start, done, at) in list(self.positions.items()):
                if self.membership.may_poll(partition):
                    self.positions[partition] = (start, done, at + rng.randint(0, 3))
                    if rng.random() < 0.3:
                        self._commit(partition)
        self.world.scheduler.after(0.5 + rng.random(), self._work)

    def _commit(self, partition: TopicIdPartition) -> None:
        found = self.positions.get(partition)
        numbers = self.membership.next_commit(partition)
        if found is None or numbers is None or found[1] == found[2]:
            return
        start, _, at = found
        self.positions[partition] = (start, at, at)
        self.world.commit(partition, self.name, *numbers, (start, at))

    def kill(self) -> None:
        self.alive = False

    def leave(self) -> None:
        if self.alive and not self.rejected:
            self._say("leave", self.name, self.membership.connection)
        self.alive = False
