"""Replicated logs, messages and processes, driven by one seed: the ground for transactions.

    processes --Call--> messages (lost, late, twice, in any order) --> a group's leader
    leader --propose--> pending --commit--> log --apply--> each replica's machine

The machines and what leads are the product's; `Loop` runs its tasks.

Raft itself is the other simulator's matter. Here a log keeps committed entries, a new
leader has all of it, and a prefix of the pending entries may survive without anybody knowing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from cluster.consensus.port import NO_OP
from cluster.consensus.proposals import Abandoned, Applied, Done
from cluster.errors import ClusterError
from cluster.kafka.sent import DelayedCallError
from cluster.metadata.topics import Rejected
from cluster.transactions.types import Refused
from cluster.transport.calls import PeerCallError
from oncelog.errors import OncelogError
from tests.sim import reloading
from tests.sim.disk import Disk
from tests.sim.transactions.loop import Loop


class Violation(AssertionError):
    """A promise was broken."""


class Call(NamedTuple):
    """A message to a group's leader that expects an answer."""

    group: int
    method: str
    arguments: dict[str, Any]


class Lost:
    """A call's missing answer: it may have been done, now or later."""

    def __repr__(self) -> str:
        return "LOST"


LOST = Lost()
METADATA = 0
GONE = "GONE"  # the group was deleted
REPLICAS = 2
EXPECTED = (ClusterError, DelayedCallError, OncelogError, PeerCallError, Rejected, Refused)
# A connection brings no call twice. It matters where a call names no transaction.
ONCE = frozenset({"kafka_end", "kafka_offsets"})
EVERY = 4 * reloading.EVERY
QUIET = 3  # moments in which nothing is said

Process = Generator[Any, Any, Any]
Reply = Callable[[Any], None]


# Rows are not kept.
ROWS = Disk().batch()


@dataclass
class Faults:
    """Chances of each message fault, and the steps of the world."""

    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0


class Seat:
    """One replica's view of its group, as cluster.consensus.group.Group gives it to a node."""

    failed = None

    def __init__(self, group: Group, replica: int) -> None:
        self.of, self._replica = group, replica
        self.config = SimpleNamespace(group=group.number)
        self.leader_id = group.number

    @property
    def is_leader(self) -> bool:
        return self.of.lead == self._replica and not self.of.gone

    is_ready = is_leader

    @property
    def applied_index(self) -> int:
        return self.of.applied[self._replica]

    def propose(self, data: bytes, done: Done, *, outlives_term: bool = False) -> None:
        if self.is_leader:
            self.of.pending.append((data, done))
        else:
            done(Abandoned(self.leader_id, "not the leader", lost=True))

    def confirm(self, done: Done) -> None:
        self.propose(NO_OP, done)


class Group:
    """One replicated log with its replicas; `lead` is the one that leads."""

    def __init__(
        self,
        world: World,
        number: int,
        make_machine: Callable[[Seat], Any],
        make_leader: Callable[[Group], Any],
    ) -> None:
        self.world, self.number = world, number
        self._make_machine, self._make_leader = make_machine, make_leader
        self.log: list[bytes] = []
        self.results: list[Any] = []
        self.pending: list[tuple[bytes, Done]] = []
        self.lead, self.term, self.gone = 0, 1, False
        self.leader: Any = None
        self.applied = [0] * REPLICAS
        self.seats = [Seat(self, replica) for replica in range(REPLICAS)]
        self.machines = list(map(make_machine, self.seats))
        self.saved: list[tuple[int, bytes]] = [(0, m.dump()) for m in self.machines]
        self._begin()

    def _begin(self) -> None:
        self.machine.on_role(leader=True, ready=True, term=self.term)
        self.leader = self._make_leader(self)

    @property
    def machine(self) -> Any:
        return self.machines[self.lead]

    def commit(self, count: int = 1) -> None:
        """The oldest pending entries are on a majority; the leader applies them."""
        for _ in range(min(count, len(self.pending))):
            entry, done = self.pending.pop(0)
            self.log.append(entry)
            result = self._apply(self.lead)
            done(Applied(len(self.log), result))
        self.world.loop.run()

    def follow(self, replica: int) -> None:
        """Has a replica apply all committed entries."""
        while self.applied[replica] < len(self.log):
            self._apply(replica)

    def _apply(self, replica: int) -> Any:
        index = self.applied[replica]
        assert index < len(self.log)
        entry = self.log[index]
        machine = self.machines[replica]
        result = None if entry == NO_OP else machine.apply(index + 1, self.term, entry, ROWS)
        self.applied[replica] = index + 1
        if index == len(self.results):
            self.results.append(result)
            if not index % EVERY:
                saved = self.machines[replica].dump()
                reloading.check(saved, self._again, f"group {self.number} at {index}")
            self.world.observe(self, index, entry, result)
        elif result != self.results[index]:
            raise Violation(f"group {self.number}: replicas disagree on {entry!r}")
        return result

    def _again(self, saved: bytes) -> bytes:
        machine = self._make_machine(Seat(self, REPLICAS))
        machine.restore(machine.load(saved), 0)
        return bytes(machine.dump())

    def change_leader(self, survivors: int) -> None:
        """Makes another replica lead; so many pending entries survive, and nobody hears which."""
        before = self.machine
        pending, self.pending = self.pending, []
        self.log += [entry for entry, _ in pending[:survivors]]
        self.leader.end()
        self.lead = (self.lead + 1) % REPLICAS
        self.term += 1
        for _, done in pending:
            done(Abandoned(0, "deposed"))
        before.on_role(leader=False, ready=False, term=self.term)
        self.follow(self.lead)
        self._begin()
        self.world.loop.run()

    def save(self, replica: int) -> None:
        self.saved[replica] = (self.applied[replica], self.machines[replica].dump())

    def restart(self, replica: int) -> None:
        """Restarts a replica from its checkpoint."""
        if replica == self.lead:
            self.change_leader(len(self.pending))
        index, data = self.saved[replica]
        machine = self.machines[replica]
        machine.restore(machine.load(data), index)
        self.applied[replica] = index
        self.follow(replica)

    def install(self, replica: int) -> None:
        """Installs the leader's checkpoint in a replica."""
        if replica != self.lead:
            self.saved[replica] = (self.applied[self.lead], self.machine.dump())
            self.restart(replica)

    def close(self) -> None:
        pending, self.pending = self.pending, []
        self.gone = True
        self.leader.end()
        for _, done in pending:
            done(Abandoned(0, "deleted"))


@dataclass
class World:
    """The whole simulation. Calm by default: in order, nothing lost."""

    rng: random.Random
    observe: Callable[[Group, int, Any, Any], None]
    answered: Callable[[Call, Any], None] = lambda call, answer: None
    faults: Faults = field(default_factory=Faults)
    groups: dict[int, Group] = field(default_factory=dict)
    queue: list[Callable[[], None]] = field(default_factory=list)
    late: list[Callable[[], None]] = field(default_factory=list)
    held: list[tuple[Call, Callable[[], None]]] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    hold: Callable[[Call], bool] = lambda call: False
    shuffled: bool = False
    loop: Loop = field(default_factory=lambda: Loop(EXPECTED))
    wall_ms: int = 1  # of the nodes, which agree

    @property
    def now(self) -> float:
        return self.loop.now

    @now.setter
    def now(self, seconds: float) -> None:
        self.loop.now = seconds
        self.loop.run()

    # -- processes ------------------------------------------------------------------------

    def spawn(self, process: Process, done: Reply = lambda result: None) -> None:
        """Runs a process: it yields a Call, a list of them, or None to wait a while."""
        self._resume(process, None, done)

    def _resume(self, process: Process, value: Any, done: Reply) -> None:
        try:
            asked = process.send(value)
        except StopIteration as end:
            done(end.value)
            return
        if asked is None:
            self.waiting.append(lambda: self._resume(process, None, done))
        elif isinstance(asked, Call):
            self.call(asked, lambda answer: self._resume(process, answer, done))
        else:
            self._gather(process, asked, done)

    def _gather(self, process: Process, calls: list[Call], done: Reply) -> None:
        answers: list[Any] = [None] * len(calls)
        left = len(calls)

        def answered(position: int, answer: Any) -> None:
            nonlocal left
            answers[position] = answer
            left -= 1
            if not left:
                self._resume(process, answers, done)

        for position, asked in enumerate(calls):
            self.call(asked, partial(answered, position))

    # -- messages -------------------------------------------------------------------------

    def call(self, call: Call, done: Reply) -> None:
        """Sends a message; `done` is called once, with the answer or LOST."""
        answered = False

        def once(answer: Any) -> None:
            nonlocal answered
            if not answered:
                answered = True
                done(answer)

        def back(answer: Any) -> None:
            self.answered(call, answer)
            if self.rng.random() < self.faults.lost:
                self.queue.append(lambda: once(LOST))
            else:
                self.queue.append(lambda: once(answer))

        def deliver() -> None:
            self._deliver(call, back)

        if self.hold(call):
            self.held.append((call, deliver))
            return
        chance = self.rng.random() if self.faults.lost or self.faults.late else 1.0
        if chance < self.faults.lost:
            self.queue.append(lambda: once(LOST))
            return
        often = 4 if call.method in ONCE else 1  # they are few
        if chance < self.faults.lost + often * self.faults.late:
            self.queue.append(lambda: once(LOST))
            self.late.append(deliver)
            return
        self.queue.append(deliver)
        if call.method in ONCE:
            return
        if self.faults.twice and self.rng.random() < self.faults.twice:
            self.late.append(deliver)

    def _deliver(self, call: Call, back: Reply) -> None:
        group = self.groups[call.group]
        if group.gone:
            back(GONE)
            return
        getattr(group.leader, call.method)(back, **call.arguments)

    # -- steps ----------------------------------------------------------------------------

    def deliver_one(self) -> bool:
        if not self.queue:
            return False
        position = self.rng.randrange(len(self.queue)) if self.shuffled else 0
        self.queue.pop(position)()
        self.loop.run()
        return True

    def deliver_late(self) -> None:
        if self.late:
            self.late.pop(self.rng.randrange(len(self.late)))()
            self.loop.run()

    def wake(self) -> None:
        """Has waiting processes look again, and lets a moment pass."""
        self.loop.tick()
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()

    def settle(self, limit: int = 20_000) -> None:
        """Delivers and commits until nothing is left to do but to wait."""
        idle = 0
        for _ in range(limit):
            busy = self.deliver_one()
            for group in list(self.groups.values()):
                if group.pending:
                    group.commit(len(group.pending))
                    busy = True
            if not busy:
                if idle == QUIET:
                    return
                self.wake()
            idle = 0 if busy else idle + 1
        raise Violation("the world does not come to rest")

    def release(self) -> None:
        """Delivers the held messages after all."""
        held, self.held = self.held, []
        self.hold = lambda call: False
        for _, deliver in held:
            self.queue.append(deliver)
