"""One classic group in virtual time: a replicated log, coordinators, members, a bad network.

    Member --join, sync, heartbeat, commit--> Node (ClassicCoordinator) --entry--> Log --> facts

The product's own pure machines run in it: ClassicCoordinator and ClassicTable. The log is the
simplest thing that a Raft group promises: entries in one order, those in flight at a fail-over
kept or lost. A deposed leader goes on for a while with the facts that it knew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cluster.groups.classic import (
    STABLE,
    ClassicCoordinator,
    ClassicJoin,
    ClassicRoom,
    Joined,
    Synced,
)
from cluster.groups.classic_table import ClassicTable
from cluster.v1 import offsets_pb2 as pb
from tests.sim import reloading
from tests.sim.classic.checker import Checker, Violation, parts_of
from tests.sim.clock import NEVER, Scheduler

GROUP = "g"
SESSION, REBALANCE, INITIAL_DELAY = 10.0, 6.0, 1.0
ROOM = 1024 * 1024  # bytes; no run reaches them
COMMIT_WAIT = 0.3  # seconds until an entry is committed and applied
HEARTBEAT, REQUEST_TIMEOUT = 3.0, 9.0
NOT_COORDINATOR = "NOT_COORDINATOR"


class Node:
    """A leader of the group's partition of __offsets, in one term."""

    def __init__(self, world: World, table: ClassicTable) -> None:
        self.world, self.table = world, table
        self.deposed = self.closed = False
        self.coordinator = ClassicCoordinator(
            GROUP,
            lambda: self.table.of(GROUP),
            INITIAL_DELAY,
            lambda: ClassicRoom(ROOM, ROOM),
            world.scheduler.now,
        )
        self._waiting: dict[object, Callable[[Any], None]] = {}
        self._proposes_at: dict[str, float] = {}
        self._look_at = NEVER
        self.advance()

    def advance(self) -> None:
        if self.closed:
            return
        now = self.world.scheduler.now
        ready = self.coordinator.advance(now)
        if ready.proposal is not None and not self.deposed:
            self.world.propose(self, ready.proposal)
        for ticket, answer in ready.answers:
            then = self._waiting.pop(ticket, None)
            if then is not None:
                then(answer)
        due = self.coordinator.next_due()
        if due < self._look_at or self._look_at <= now:
            self._look_at = due
            if due < NEVER:
                self.world.scheduler.at(max(due, now + 0.01), self._look)

    def _look(self) -> None:
        if self.world.scheduler.now >= self._look_at:
            self._look_at = NEVER
            self.advance()

    def receive(self, then: Callable[[Any], None], method: str, *args: Any) -> None:
        """Takes a request. `then` sends its answer, now or later."""
        now = self.world.scheduler.now
        if method == "join" and not self.closed:
            self.world.claimed(args[0])
        if self.closed:
            then(NOT_COORDINATOR)
        elif method in ("join", "sync"):
            ticket = object()
            self._waiting[ticket] = then
            getattr(self.coordinator, method)(now, ticket, *args)
            self.advance()
        elif method == "commit":
            caller, part, span = args
            refused = self.coordinator.commits(now, caller)
            if refused:
                then(refused)
            else:
                # It takes its time until the entry is proposed; a member's commits stay in order.
                at = max(self._proposes_at.get(caller.member, 0.0), now + self.world.pause())
                self._proposes_at[caller.member] = at
                self.world.scheduler.at(at, self.world.commit, self, caller, part, span, then)
            self.advance()
        else:
            answer = getattr(self.coordinator, method)(now, *args)
            self.advance()
            then(answer)

    def stored(self, done: bool) -> None:
        self.coordinator.stored(self.world.scheduler.now, done)
        self.advance()

    def close(self) -> None:
        """It has noticed that it does not lead any more."""
        self.closed = True
        for then in self._waiting.values():
            then(NOT_COORDINATOR)
        self._waiting.clear()


class World:
    """Everything of one run; a function of its seed."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.rng, self.scheduler = random.Random(seed), Scheduler()
        self.partitions = [f"p{number}" for number in range(partitions)]
        self.table = ClassicTable()
        self.committed: dict[str, int] = {}
        self.claims: dict[str, str] = {}  # instance -> member id of the newest claim
        self.checker = Checker()
        self.delay, self.drop, self.late = 0.05, 0.0, 0.0
        self.members: list[Member] = []
        self._in_flight: list[tuple[Node | None, Callable[[], None]]] = []
        self.node = Node(self, self.table)

    # -- fences -------------------------------------------------------------------------

    def claimed(self, request: ClassicJoin) -> None:
        """Notes a process that asks for an instance id, which fences the one before it."""
        if request.instance and not request.member:
            self.claims[request.instance] = request.new_id

    def refused(self, member: Member, request: Any, node: Node, error: str) -> None:
        """Raises Violation if a member of the newest generation is refused without cause.

        request: a ClassicJoin, or the ClassicCaller of another call.
        """
        if error == "FENCED_INSTANCE" and self.claims[member.instance] == request.member:
            raise Violation(f"{member.name} is fenced, and nobody asked for its instance since")
        if error not in ("UNKNOWN_MEMBER", "ILLEGAL_GENERATION") or node.deposed:
            return
        newest, at_rest = self.checker.generation, node.coordinator.state == STABLE
        given = getattr(request, "generation", newest)
        if at_rest and given == newest == node.coordinator.generation:
            if request.member in self.checker.shares:
                raise Violation(f"{member.name} is told {error} in its generation {newest}")

    # -- the log ------------------------------------------------------------------------

    def propose(self, node: Node, record: pb.ClassicGroup) -> None:
        def apply() -> None:
            done = self.table.rebalance(record)
            reloading.classic(self.table)
            self.checker.applied(record)
            if not node.deposed:
                node.stored(done)

        self._log(node, apply)

    def pause(self) -> float:
        """How long a request takes on its way through a node."""
        return 3 * self.rng.random() if self.rng.random() < self.late else 0.01

    def commit(
        self,
        node: Node,
        caller: pb.ClassicCaller,
        part: str,
        span: tuple[int, int],
        then: Callable[[Any], None],
    ) -> None:
        if node.deposed:
            return

        def apply() -> None:
            refused = self.table.refusal(GROUP, caller)
            if not refused:
                stored = self.committed.get(part, 0)
                self.checker.committed(part, caller.member, caller.generation, span, stored)
                self.committed[part] = span[1]
            if not node.deposed:
                then(refused)

        self._log(node, apply)

    def _log(self, node: Node, apply: Callable[[], None]) -> None:
        """Commits entries in their order, each some time after it was proposed."""
        planned = (node, apply)
        self._in_flight.append(planned)
        self.scheduler.after(COMMIT_WAIT * (0.2 + self.rng.random()), self._commit, planned)

    def _commit(self, planned: Any) -> None:
        if planned not in self._in_flight:
            return
        while True:  # those before it come first
            first = self._in_flight.pop(0)
            first[1]()
            if first is planned:
                return

    def fail_over(self) -> None:
        """Elects another leader; the entries in flight are committed before, up to one of them."""
        old, kept = self.node, self.rng.randint(0, len(self._in_flight))
        old.deposed = True
        lost = self._in_flight[kept:]
        for _, apply in self._in_flight[:kept]:
            apply()
        self._in_flight.clear()
        assert all(node is old for node, _ in lost)
        old.table = ClassicTable()
        old.table.load([facts.record for facts in [self.table.of(GROUP)] if facts is not None])
        self.scheduler.after(3 * self.rng.random(), old.close)
        self.node = Node(self, self.table)

    def latency(self) -> float:
        slow = 40 * self.delay if self.rng.random() < self.late else self.delay
        return slow * (0.2 + self.rng.random())


class Member:
    """A consumer process of the classic protocol, as Kafka's clients have it."""

    def __init__(self, world: World, instance: str = "") -> None:
        self.world, self.instance = world, instance
        self.name = f"m{len(world.members)}"
        self.alive, self.stopped_until = True, 0.0
        self.rejected = ""  # for good
        self.member, self.generation, self.joins = "", -1, 0
        self.has_share = False
        self.wishes = 0  # how often its metadata changed
        # Committed when it began, committed since, read.
        self.positions: dict[str, tuple[int, int, int]] = {}
        self._connection = 0
        self._busy = False  # joins, or waits for its assignment
        world.members.append(self)
        self.connect()
        self.join()
        world.scheduler.after(HEARTBEAT * world.rng.random(), self._beat)
        world.scheduler.after(world.rng.random(), self._work)

    @property
    def is_live(self) -> bool:
        return self.alive and not self.rejected

    # -- its connection -----------------------------------------------------------------

    def connect(self) -> None:
        """Finds the coordinator; requests of the connection before are lost."""
        self.node = self.world.node
        self._connection += 1
        self._sent_at = self._arrives_at = 0.0

    def _ask(self, then: Callable[[Any], None], method: str, *args: Any) -> None:
        """Sends a request in order; a lost request or answer takes the connection with it."""
        world, node = self.world, self.node
        connection, is_answered, joins = self._connection, [False], self.joins

        def take(answer: Any) -> None:
            if is_answered[0] or connection != self._connection or not self.is_live:
                return
            if world.scheduler.now < self.stopped_until:
                world.scheduler.at(self.stopped_until, take, answer)
                return
            is_answered[0] = True
            if answer == NOT_COORDINATOR:
                self.connect()
                if self._busy:
                    self.join()  # its request went with the connection
            elif joins == self.joins:  # else it has begun to join meanwhile
                then(answer)

        def arrive() -> None:
            # Kafka's protocol has no number in a commit: one that is read from a given-up
            # connection after a newer one counts, there as here.
            if connection == self._connection or method != "commit":
                node.receive(answered, method, *args)

        def answered(answer: Any) -> None:
            is_awaited = connection == self._connection and joins == self.joins
            if is_awaited and method != "leave":
                error = answer.error if isinstance(answer, Joined | Synced) else answer
                world.refused(self, args[0], node, error)
            if world.rng.random() < world.drop:
                world.scheduler.after(0.5 + world.rng.random(), take, NOT_COORDINATOR)
                return
            self._arrives_at = max(self._arrives_at, world.scheduler.now + world.latency())
            world.scheduler.at(self._arrives_at, take, answer)

        if world.rng.random() < world.drop:
            world.scheduler.after(0.5 + world.rng.random(), take, NOT_COORDINATOR)
            return
        self._sent_at = max(self._sent_at, world.scheduler.now + world.latency())
        world.scheduler.at(self._sent_at, arrive)
        world.scheduler.after(REQUEST_TIMEOUT, take, NOT_COORDINATOR)

    def _caller(self) -> pb.ClassicCaller:
        return pb.ClassicCaller(
            member=self.member, instance=self.instance, generation=self.generation
        )

    # -- rebalances ---------------------------------------------------------------------

    def join(self) -> None:
        self.positions.clear()
        self.has_share, self._busy = False, True
        self.joins += 1
        request = ClassicJoin(
            self.member, self.instance, f"{self.name}-{self.joins}", self.name, "", SESSION,
            REBALANCE, "test", (("shares", b"%d" % self.wishes),), returns=True,
        )  # fmt: skip
        self._ask(self._joined, "join", request)

    def _failed(self, error: str) -> None:
        """A call says that the member is not in its generation any more."""
        if error == "FENCED_INSTANCE":
            self.rejected = error
            self.positions.clear()
            return
        if error == "UNKNOWN_MEMBER":
            self.member, self.generation = "", -1
        self.join()

    def _joined(self, answer: Joined) -> None:
        if answer.error == "MEMBER_ID_REQUIRED":
            self.member = answer.member
            self.join()
        elif answer.error:
            self._failed(answer.error)
        else:
            self.member, self.generation = answer.member, answer.generation
            shares: dict[str, bytes] = {}
            if answer.leader == answer.member:
                names = sorted(name for name, _, _ in answer.members)
                for place, name in enumerate(names):
                    shares[name] = ",".join(self.world.partitions[place :: len(names)]).encode()
            self._ask(self._synced, "sync", self._caller(), ("test", None), shares)

    def _synced(self, answer: Synced) -> None:
        if answer.error:
            self._failed(answer.error)
        else:
            self._busy, self.has_share = False, True
            for part in parts_of(answer.assignment):
                # Fetches the committed offset.
                done = self.world.committed.get(part, 0)
                self.positions[part] = (done, done, done)

    def _beat(self) -> None:
        if not self.is_live:
            return
        if not self._busy and self.world.scheduler.now >= self.stopped_until:
            self._ask(self._told, "heartbeat", self._caller())
        self.world.scheduler.after(HEARTBEAT, self._beat)

    def _told(self, error: str) -> None:
        if not error:
            return
        if error == "REBALANCING":
            for part in list(self.positions):
                self._commit(part)
        self._failed(error)

    # -- its work -----------------------------------------------------------------------

    def _work(self) -> None:
        if not self.is_live:
            return
        rng = self.world.rng
        if self.world.scheduler.now >= self.stopped_until:
            for part, (start, done, at) in list(self.positions.items()):
                self.positions[part] = (start, done, at + rng.randint(0, 3))
                if rng.random() < 0.3:
                    self._commit(part)
        self.world.scheduler.after(0.5 + rng.random(), self._work)

    def _commit(self, part: str) -> None:
        start, done, at = self.positions[part]
        if done != at:
            self.positions[part] = (start, at, at)
            self._ask(self._told, "commit", self._caller(), part, (start, at))

    def change(self) -> None:
        """Joins again with other metadata, as after `subscribe`."""
        self.wishes += 1
        self.join()

    def kill(self) -> None:
        self.alive = False

    def leave(self) -> None:
        if self.is_live and not self._busy:
            self._ask(lambda _: None, "leave", self.member, self.instance)
        self.alive = False


def check_rest(world: World) -> None:
    """Checks that every member has its share, views agree, and nothing moves any more."""
    live = {one.member: one for one in world.members if one.is_live}
    shares = world.checker.shares
    if set(shares) != set(live):
        raise Violation(f"members are {sorted(shares)}, alive {sorted(live)}")
    given = sorted(part for parts in shares.values() for part in parts)
    if live and given != sorted(world.partitions):
        raise Violation(f"given are {given}")
    for name, one in live.items():
        if one.generation != world.checker.generation or set(one.positions) != set(shares[name]):
            raise Violation(f"{name} has {sorted(one.positions)}, the log says {shares[name]}")
    rebalances, commits = world.checker.rebalances, world.checker.commits
    world.scheduler.run_until(world.scheduler.now + 30)
    if world.checker.rebalances != rebalances:
        raise Violation(f"{world.checker.rebalances - rebalances} rebalances at rest")
    if live and world.checker.commits == commits:
        raise Violation("nobody commits at rest")
