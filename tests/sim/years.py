"""Runs of days and years: retention by time, leases and names, over the real metadata state.

    settle for seconds --> something goes wrong --> append, lease --> all machines sleep for days
            ^---------------------------------------------------------------------'

Wall clocks and steady clocks go on while the machines sleep, timers do not: so a year takes as
long as its waking hours. One node's wall clock may be wrong by up to years. Even so, deletion
and expiry follow the time that a majority shares:

    too early   a record, a lease or a name is gone before its time, by the true clock
    too late    it is still there when its time is over, and the nodes had time to notice
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from cluster.dedup.verdict import Kind
from cluster.metadata.tables import METADATA_GROUP
from cluster.partition.replica import Answer
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation, payload
from tests.sim.client import Sent
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.network import split
from tests.sim.node import Node, Settings
from tests.sim.schedules import schedule

GID = 16
DAY_MS = 24 * 3600 * 1000
STEPS = 25
SETTLE = 12.0  # seconds; by then another leads, clocks are compared, retention has looked
TRIES = 8


@dataclass(slots=True)
class Lease:
    """An id, whether a name holds it, and the true times between which it was given."""

    pid: int
    epoch: int
    name: str
    first_ms: int
    last_ms: int
    batches: int = 0


class Caller:
    """Waits for one answer."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def check(self, answer: Answer) -> None:
        self.answers.append(answer)

    def arrive(self, answer: Answer | None) -> None:
        """Takes an answer; only the node's word counts."""


class Years:
    """One run of days or years."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        days = rng.choice((1, 7, 30, 400))
        self.settings = Settings(
            metadata=True,
            leased=True,
            retention_ms=days * DAY_MS,
            retention_check=2.0,
            lease_ms=rng.choice((1, 7, 30)) * DAY_MS,
            name_expiry_ms=rng.choice((30, 365)) * DAY_MS,
            checkpoint_entries=rng.choice((8, 40)),
        )
        self.slack_ms = 2 * self.settings.clock_bound_ms
        self.cluster = Cluster(self.settings, rng.getrandbits(64))
        self.stored: list[tuple[int, int, int, int]] = []  # first offset, end, true times
        self.leases: list[Lease] = []
        self.names: dict[str, Lease] = {}
        self.deleted = self.expired = 0

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        cluster = self.cluster
        cluster.start()
        nodes = cluster.node_ids
        for command in (*map(register_node, nodes), create_topic("t16", [nodes], self.settings)):
            self._command(command)
        for _ in range(STEPS):
            self._fault()
            self._settle()
            self._check()
            self._check_old_is_gone()
            for _ in range(self.rng.randint(1, 4)):
                self.rng.choice((self._lease, self._lease_name, self._append, self._append))()
            self._check()
            self._sleep()
        self._heal()
        self._settle()
        self._append()
        self._settle()
        self._check()
        self._check_old_is_gone()
        cluster.check_end()

    def _settle(self) -> None:
        self.cluster.scheduler.run_until(self.cluster.scheduler.now + SETTLE)

    def _sleep(self) -> None:
        """Sleeps for minutes, days or, once in a while, a year."""
        longest = self.rng.choice((0.01, 1.0, 10.0, 40.0, 400.0))
        self.cluster.slept += 86_400 * longest * self.rng.random()

    def _fault(self) -> None:
        """Draws a fault. At most one node is faulty, so that a majority is sound."""
        self._heal()
        node = self.cluster.nodes[self.rng.choice(self.cluster.node_ids)]
        draw = self.rng.random()
        if draw < 0.3:
            self._jump(self.cluster.leader(GID) or node)
        elif draw < 0.45:
            self._jump(node)
        elif draw < 0.6:
            node.crash("years")
        elif draw < 0.8:
            others = [other for other in self.cluster.node_ids if other != node.id]
            self.cluster.network.block(split([node.id], others), noticed=self.rng.random() < 0.5)
            if self.rng.random() < 0.5:
                self._jump(node)
        elif draw < 0.9:
            node.compact()

    def _jump(self, node: Node) -> None:
        """Moves a node's clock by more than the bound, or by years."""
        node.wall_skew_ms = int(self.rng.choice((-1, 1)) * 10 ** self.rng.uniform(4.6, 10.6))

    def _heal(self) -> None:
        """Sets all clocks nearly right: each is off by up to a quarter of the bound."""
        off_ms = self.settings.clock_bound_ms // 4
        self.cluster.network.heal()
        for node in self.cluster.nodes.values():
            node.wall_skew_ms = self.rng.randint(-off_ms, off_ms)
            if not node.alive:
                node.start()

    # -- clients --------------------------------------------------------------------------------

    def _command(self, command: mpb.MetadataCommand) -> mpb.MetadataResult | None:
        """Runs a command; returns its result, or None if no leader took it in time."""
        results: list[bytes] = []
        scheduler = self.cluster.scheduler
        for _ in range(TRIES):
            self.cluster.command(command, results.append)
            scheduler.run_until(scheduler.now + 1.0)
            if results:
                return mpb.MetadataResult.FromString(results[0])
        return None

    def _lease(self) -> None:
        first_ms = self.cluster.true_ms
        result = self._command(
            mpb.MetadataCommand(allocate_producer_ids=mpb.AllocateProducerIds(node_id=1, count=1))
        )
        if result is not None and not result.error:
            pid = result.first_producer_id
            self.leases.append(Lease(pid, 0, "", first_ms, self.cluster.true_ms))

    def _lease_name(self) -> None:
        name = self.rng.choice(("a", "b", "c"))
        first_ms, known = self.cluster.true_ms, self.names.get(name)
        nonce = self.rng.getrandbits(60) + 1
        result = self._command(
            mpb.MetadataCommand(lease_name=mpb.LeaseName(name=name, nonce=nonce))
        )
        if result is None or result.error:
            self.names.pop(name, None)  # it may have been leased nevertheless
            return
        if known is not None:
            self._judge_expiry(
                f"name {name}", known, gone=result.producer_id != known.pid,
                lifetime_ms=self.settings.name_expiry_ms, asked_ms=first_ms,
            )  # fmt: skip
        self.names[name] = Lease(
            result.producer_id, result.epoch, name, first_ms, self.cluster.true_ms
        )

    def _append(self) -> None:
        """Appends a new id's first batch, or one more of an old one."""
        usable = [lease for lease in self.leases if lease.batches < 3]
        if not usable:
            return
        lease = self.rng.choice(usable)
        data, first = payload(lease.pid, lease.batches, 1, 8), lease.batches
        batch = Sent(lease.pid, lease.epoch, first, first, first - 1, 1, crc32c(data), data)
        asked_ms = self.cluster.true_ms
        answer = self._send(batch)
        if answer is None:
            self.leases.remove(lease)  # nobody knows whether it is stored
            return
        kind = answer.verdict.kind
        gone = kind in (Kind.PRODUCER_EXPIRED, Kind.UNKNOWN_PRODUCER)
        lifetime_ms = self.settings.lease_ms
        self._judge_expiry(f"{batch}", lease, gone=gone, lifetime_ms=lifetime_ms, asked_ms=asked_ms)
        if gone:
            self.leases.remove(lease)
            self.expired += 1
            return
        assert kind in (Kind.APPENDED, Kind.DUPLICATE), answer
        base = answer.verdict.base_offset
        self.stored.append((base, base + 1, asked_ms, self.cluster.true_ms))
        lease.batches += 1

    def _send(self, batch: Sent) -> Answer | None:
        scheduler = self.cluster.scheduler
        for _ in range(TRIES):
            leader = self.cluster.leader(GID)
            if leader is None:
                scheduler.run_until(scheduler.now + 1.0)
                continue
            caller = Caller()
            leader.call(GID, [(batch.request(), caller)])
            scheduler.run_until(scheduler.now + 1.0)
            if caller.answers and int(caller.answers[0].verdict.kind) < 30:
                return caller.answers[0]
        return None

    # -- the checks -----------------------------------------------------------------------------

    def _judge_expiry(
        self, what: str, lease: Lease, *, gone: bool, lifetime_ms: int, asked_ms: int
    ) -> None:
        """asked_ms: the true time before the question."""
        youngest, oldest = asked_ms - lease.last_ms, self.cluster.true_ms - lease.first_ms
        if gone and oldest < lifetime_ms - self.slack_ms:
            raise Violation(f"{what} is over after {oldest} ms of {lifetime_ms}")
        if not gone and youngest > lifetime_ms + self.slack_ms:
            raise Violation(f"{what} goes on after {youngest} ms of {lifetime_ms}")

    def _check(self) -> None:
        for node in self.cluster.live():
            partition = node.partitions.get(GID)
            if partition is not None:
                self._check_retained(node, partition.log_start_offset)
        leader = self.cluster.leader(METADATA_GROUP)
        for name, lease in self.names.items() if leader is not None else ():
            state: Any = leader.running.state.name(name)  # type: ignore[union-attr]
            young = self.cluster.true_ms - lease.first_ms < (
                self.settings.name_expiry_ms - self.slack_ms
            )
            if young and (state is None or state.tombstone):
                raise Violation(f"name {name} was given up before its time")

    def _check_retained(self, node: Node, start: int) -> None:
        keep_ms, now_ms = self.settings.retention_ms, self.cluster.true_ms
        for first, end, asked_ms, _ in self.stored:
            age_ms = now_ms - asked_ms
            if end <= start and age_ms < keep_ms - self.slack_ms:
                raise Violation(f"node {node.id} dropped offset {first} after {age_ms} ms")
        self.deleted = max(self.deleted, start)

    def _check_old_is_gone(self) -> None:
        """Checks that nothing is kept much longer than its topic says: leaders had time to look."""
        leader = self.cluster.leader(GID)
        if leader is None or not leader.running.clocks.agreed:
            return
        start = leader.partitions[GID].log_start_offset
        now_ms = self.cluster.true_ms
        for first, _, _, stored_ms in self.stored:
            age_ms = now_ms - stored_ms
            limit_ms = self.settings.retention_ms + self.slack_ms + int(SETTLE * 1000)
            if first >= start and age_ms > limit_ms:
                raise Violation(f"offset {first} is still there after {age_ms} ms")


def run_years(seed: int) -> Years:
    """Runs one seed. Raises any violation."""
    years = Years(seed)
    years.run()
    return years


@schedule
def years_pass_with_a_wrong_clock_here_and_there() -> None:
    run_years(0)
