"""Stage without chance: schedules that a test writes down, step by step.

Nothing happens outside the schedule: no faults are drawn, it names the winner of each election, and
it lets held messages go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from cluster.consensus.group import Group
from cluster.dedup.verdict import Kind
from cluster.partition.replica import Answer
from tests.sim.checker import Violation
from tests.sim.client import Sent
from tests.sim.cluster import Cluster
from tests.sim.node import Node, Settings

GID = 16
Match = Callable[[int, int, Any], bool]


class _Reply:
    """An answer that the schedule looks at later."""

    def __init__(self, stage: Stage, batch: Sent, was_head: bool) -> None:
        self.stage, self.batch, self.was_head = stage, batch, was_head
        self.answer: Answer | None = None

    def check(self, answer: Answer) -> None:
        self.stage.cluster.checker.answered(GID, self.batch, was_head=self.was_head, answer=answer)
        self.answer = answer

    def arrive(self, answer: Answer | None) -> None:
        """Does nothing: clients of a schedule do nothing by themselves."""

    @property
    def kind(self) -> Kind | None:
        return None if self.answer is None else self.answer.verdict.kind


class _OpenReply:
    """The answer to an open, to be looked at later."""

    def __init__(self, stage: Stage, pid: int, epoch: int) -> None:
        self.stage, self.pid, self.epoch = stage, pid, epoch
        self.answer: Answer | None = None

    def check(self, answer: Answer) -> None:
        self.stage.cluster.checker.opened(GID, self.pid, self.epoch, answer)
        self.answer = answer

    def arrive(self, answer: Answer | None) -> None:
        """Does nothing: clients of a schedule do nothing by themselves."""

    @property
    def kind(self) -> Kind | None:
        return None if self.answer is None else self.answer.verdict.kind


class Stage:
    """One group (GID) on nodes 1..n; datagrams, so that messages can be held and let go."""

    def __init__(self, nodes: int = 3, **settings: Any) -> None:
        self.cluster = self.make_cluster(Settings(nodes=nodes, **settings))
        self.free = False  # elections happen by themselves
        self.held: list[tuple[int, int, Any]] = []
        self._holding: list[Match] = []
        self._sequences: dict[tuple[int, int], int] = {}
        self._records = 0
        self.cluster.network.tap = self._tap
        self.cluster.start()
        self.nobody_stands()
        self.run(0.5)

    def make_cluster(self, settings: Settings) -> Cluster:
        return Cluster(settings, seed=1)

    # -- time and leadership ----------------------------------------------------------------

    def run(self, seconds: float) -> None:
        scheduler = self.cluster.scheduler
        end = scheduler.now + seconds
        while scheduler.now < end:
            if not self.free:
                self.nobody_stands()
            scheduler.run_until(min(end, scheduler.now + 0.25))

    def node(self, node_id: int) -> Node:
        return self.cluster.nodes[node_id]

    def group(self, node_id: int) -> Group:
        found = self.node(node_id).partitions[GID].group
        assert found is not None
        return found

    def nobody_stands(self) -> None:
        for node in self.cluster.live():
            group = self.group(node.id)
            if not group.core.is_leader:
                group.core.election_deadline = node.clock() + 1e6

    def elect(self, node_id: int, timeout: float = 12.0) -> None:
        """Has `node_id` stand until it leads; nobody else does."""
        end = self.cluster.scheduler.now + timeout
        while not self.group(node_id).core.is_leader:
            if self.cluster.scheduler.now > end:
                raise Violation(f"node {node_id} is not elected")
            self.campaign(node_id)

    def campaign(self, node_id: int) -> None:
        """Has `node_id` stand once."""
        self.nobody_stands()
        self.group(node_id).campaign()
        self.node(node_id).driver.touch(GID)
        for _ in range(4):  # shorter steps than an eager candidate waits for its next attempt
            self.cluster.scheduler.run_until(self.cluster.scheduler.now + 0.05)
            self.nobody_stands()

    def transfer(self, source: int, target: int) -> None:
        self.group(source).transfer(target)
        self.node(source).driver.touch(GID)
        self.run(0.3)
        assert self.group(target).is_ready

    # -- network and processes ----------------------------------------------------------------

    def _tap(self, sender: int, receiver: int, message: Any) -> bool:
        if any(match(sender, receiver, message) for match in self._holding):
            self.held.append((sender, receiver, message))
            return True
        return False

    def hold(self, match: Match) -> None:
        """Keeps matching messages back from now on."""
        self._holding.append(match)

    def release(self) -> None:
        """Delivers all held messages now, in order; nothing is held any more."""
        self._holding.clear()
        held, self.held = self.held, []
        for sender, receiver, message in held:
            self.node(receiver).receive(sender, [message])

    def deliver(self, sender: int, receiver: int, *messages: Any) -> None:
        """Delivers these messages now, even if others are held."""
        self.node(receiver).receive(sender, list(messages))
        self.run(0.05)

    def drop(self) -> None:
        """Drops all held messages; nothing is held any more."""
        self._holding.clear()
        self.held.clear()

    def isolate(self, *nodes: int) -> None:
        self.hold(lambda sender, receiver, message: (sender in nodes) != (receiver in nodes))

    def crash(self, *nodes: int, keep: int = 0) -> None:
        """Crashes nodes; the first `keep` unsynced writes survive."""
        for node_id in nodes:
            node = self.node(node_id)
            while node.disk.unsynced > keep:
                node.disk.crash(keep)
            node.crash("schedule")

    def start(self, *nodes: int) -> None:
        for node_id in nodes:
            self.node(node_id).start()
        self.nobody_stands()
        self.run(0.5)

    def slow_disk(self, node_id: int, seconds: float = 1000.0) -> None:
        self.node(node_id).sync_time = seconds

    # -- clients --------------------------------------------------------------------------------

    def batch(self, pid: int = 1, epoch: int = 0, count: int = 1) -> Sent:
        """Builds the next batch of a producer."""
        if not self.cluster._issued and self.cluster._next_pid < pid:
            self.cluster._next_pid = pid
        first = self._sequences.get((pid, epoch), 0)
        self._sequences[pid, epoch] = first + count
        data = self.cluster.payload(1, self._records, count, 8)
        self._records += count
        last = first + count - 1
        return Sent(pid, epoch, first, last, first - 1, count, crc32c(data), data)

    def send(self, node_id: int, batch: Sent, *, head: bool = True) -> _Reply:
        """Sends a batch; `head`: all batches before it are stored."""
        reply = _Reply(self, batch, head)
        self.node(node_id).call(GID, [(batch.request(), reply)])
        return reply

    def send_open(self, node_id: int, pid: int, epoch: int) -> _OpenReply:
        """Sends an open of a producer."""
        reply = _OpenReply(self, pid, epoch)
        self.node(node_id).open(GID, pid, epoch, reply)
        return reply

    def produce(self, node_id: int, count: int = 1, pid: int = 1) -> list[_Reply]:
        """Sends batches, one after the other; each must be stored."""
        replies = []
        for _ in range(count):
            replies.append(self.send(node_id, self.batch(pid)))
            self.run(0.1)
            assert replies[-1].kind is Kind.APPENDED, replies[-1].answer
        return replies

    # -- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Heals, waits until all replicas are equal, checks everything."""
        self.drop()
        self.free = True
        self.cluster.heal()
        for node in self.cluster.live():
            group = self.group(node.id)
            group.core.election_deadline = min(
                group.core.election_deadline, node.clock() + 1.0 + node.id / 3
            )
            node.driver.touch(GID)
        end = self.cluster.scheduler.now + 40.0
        while not self.cluster.converged() and self.cluster.scheduler.now < end:
            self.run(0.5)
        if not self.cluster.converged():
            raise Violation("replicas do not converge")
        leader = self.cluster.leader(GID)
        assert leader is not None
        fresh = self.send(leader.id, self.batch(pid=99))
        self.run(2.0)
        if fresh.kind is not Kind.APPENDED:
            raise Violation(f"no progress after healing: {fresh.answer}")
        while not self.cluster.converged() and self.cluster.scheduler.now < end + 5:
            self.run(0.5)
        self.cluster.check_end()
