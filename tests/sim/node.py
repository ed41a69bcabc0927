"""A simulated node: the real driver, groups and partitions over a disk of ours.

    Network --messages--> Node.receive --> Driver.begin .. fsync takes a while .. finish
    clients --batches--> Node.call --> Partition.append --> answers

A node does what `cluster.node.node` and `cluster.node.driver_loop` do around the driver, in
virtual time: one round after the other, installs between rounds, a failed fsync
or a broken install ends the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.consensus.driver import Driver
from cluster.consensus.environment import Environment, GroupConfig
from cluster.consensus.group import Group
from cluster.consensus.message import Snapshot
from cluster.consensus.replay_budget import ReplayBudget
from cluster.partition.replica import Answer, AppendRequest, Policy
from cluster.partition.types import NodeView
from storage.checkpoints import CheckpointStore
from storage.errors import StorageError
from storage.offset_index import OffsetIndex
from storage.raft_log import RaftLogStore
from tests.sim.checker import Violation
from tests.sim.clock import EPOCH_MS, NEVER
from tests.sim.disk import Disk, PowerLoss
from tests.sim.watched import METADATA_GROUP, Machine, Names, WatchedMetadata, WatchedPartition

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

KEEP_METADATA = 5  # entries; the node keeps many more
ROUND = 0.001  # seconds from a wake-up to the round that it causes
FULL_DISK_WAIT = 0.25
TICK = 0.0001  # a timer never comes early
CONNECTION_REFUSED = 0.02


@dataclass(slots=True)
class Settings:
    """What is fixed for a run. Times in seconds, *_ms in milliseconds."""

    nodes: int = 3
    groups: int = 1
    streams: bool = False
    election_timeout: float = 1.5
    heartbeat: float = 0.4
    checkpoint_entries: int = 40
    checkpoint_node_bytes: int = 1 << 40
    tail_bytes: int = 4096
    retention_bytes: int = -1
    retention_check: float = 0.0  # 0: never
    lease_ms: int = 0  # 0: nothing expires
    sync_time: float = 0.002
    metadata: bool = False  # whether there is a metadata group, too


class Call:
    """A batch that a node has to answer exactly once, while it lives."""

    __slots__ = ("answered", "node", "reply", "what")

    def __init__(self, node: Node, what: str, reply: Any) -> None:
        self.node, self.what, self.reply, self.answered = node, what, reply, False
        node.open_calls[id(self)] = self

    def answer(self, answer: Answer) -> None:
        if self.answered:
            raise Violation(f"{self.what} was answered twice by node {self.node.id}")
        self.answered = True
        self.node.open_calls.pop(id(self), None)
        self.node.cluster.answer(self.reply, answer)


class Node:
    """One process and its disk."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster, self.id = cluster, node_id
        self.disk = Disk()
        self.alive = False
        self.incarnation = 0
        self.unsynced_survives = False  # all of it, in a crash; else how much is drawn
        self.rate = 1.0  # of its monotonic clock
        self.wall_skew_ms = 0
        self.sync_time = cluster.settings.sync_time
        self.paused_until = 0.0
        self.names = Names(cluster, 1.5 * cluster.rng.random())
        self.partitions: dict[int, WatchedPartition] = {}
        self.machines: dict[int, Machine] = {}  # the partitions, and the metadata
        self.open_calls: dict[int, Call] = {}
        self.driver: Driver = None  # type: ignore[assignment]  # set by start

    # -- process ------------------------------------------------------------------------

    def start(self) -> None:
        """Opens the node from its disk."""
        assert not self.alive
        self.alive = True
        self.incarnation += 1
        self._syncing = self._step_planned = False
        self._timer_at = NEVER
        self._between: list[Callable[[], None]] = []
        self.sending: set[tuple[int, int]] = set()
        self._believed: dict[tuple[int, int, int], int] = {}
        scheduler, rate = self.cluster.scheduler, self.rate
        self.clock = lambda: scheduler.now * rate
        replay = ReplayBudget(self.cluster.settings.checkpoint_node_bytes)
        self.driver = Driver(self.disk, self.clock, self._send, self._wake, replay)
        self.partitions = {gid: self._open(gid) for gid in self.cluster.groups}
        self.machines = dict(self.partitions)
        if self.cluster.settings.metadata:
            metadata = self.machines[METADATA_GROUP] = WatchedMetadata(self)
            metadata.group = self._new_group(METADATA_GROUP, metadata)
        self.cluster.network.node_up(self.id)
        self.duties()

    def _open(self, gid: int) -> WatchedPartition:
        cluster, driver = self.cluster, self.driver
        settings = cluster.settings
        policy = Policy(
            retention_ms=-1,
            retention_bytes=settings.retention_bytes,
            lease_lifetime_ms=settings.lease_ms or 10**12,
            expired_below=lambda: cluster.expired_below(self),
            names=self.names,
        )
        return WatchedPartition(
            self,
            gid,
            f"t{gid}",
            0,
            OffsetIndex(self.disk, gid),
            policy,
            NodeView(self.now_ms, lambda: driver.touch(gid), lambda: driver.storage_full),
            lambda machine: self._new_group(gid, machine),
        )

    def _new_group(self, gid: int, machine: Any) -> Group:
        cluster, driver = self.cluster, self.driver
        settings = cluster.settings
        group = Group(
            GroupConfig(
                group=gid,
                node_id=self.id,
                peers=tuple(peer for peer in cluster.node_ids if peer != self.id),
                election_timeout=settings.election_timeout,
                heartbeat=settings.heartbeat,
                checkpoint_entries=settings.checkpoint_entries,
                name=f"t{gid}",
            ),
            RaftLogStore(self.disk, gid),
            CheckpointStore(self.disk, gid),
            machine,
            Environment(
                clock=self.clock,
                rng=cluster.rng,
                batch=lambda: driver.batch,
                tail_bytes=lambda: settings.tail_bytes,
                replay=driver.replay,
            ),
        )
        driver.add(group)
        return group

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.cluster.scheduler.now * 1000) + self.wall_skew_ms

    def crash(self, why: str) -> None:
        """The process is gone, and with it what the disk had not synced."""
        assert self.alive
        cluster = self.cluster
        unsynced = self.disk.unsynced
        keep = unsynced if self.unsynced_survives else cluster.rng.randint(0, unsynced)
        cluster.trace("node %d dies: %s; %d of %d unsynced writes survive", self.id, why, keep,
                      self.disk.unsynced)  # fmt: skip
        self.alive = False
        self.incarnation += 1
        cluster.crashes += 1
        self.disk.crash(keep)
        calls, self.open_calls = self.open_calls, {}
        for call in calls.values():
            cluster.answer(call.reply, None)
        self.partitions, self.machines = {}, {}
        cluster.network.node_down(self.id)

    # -- the driver's rounds --------------------------------------------------------------

    def _send(self, peer: int, messages: list[Any]) -> None:
        for message in messages:
            self.cluster.checker.sends(self.id, peer, message)
        self.cluster.network.send(self.id, peer, messages)

    def _wake(self) -> None:
        if not self._step_planned and not self._syncing:
            self._step_planned = True
            self.cluster.scheduler.after(ROUND, self._step, self.incarnation)

    def _paused(self, again: Callable[[int], None]) -> bool:
        scheduler = self.cluster.scheduler
        if scheduler.now >= self.paused_until:
            return False
        scheduler.at(self.paused_until, again, self.incarnation)
        return True

    def _step(self, incarnation: int) -> None:
        if incarnation != self.incarnation or self._paused(self._step):
            return
        self._step_planned = False
        if self._syncing:
            return
        try:
            while self._between:
                self._between.pop(0)()
            must_sync = self.driver.begin()
        except PowerLoss:
            self.crash("power lost in a write")
            return
        except StorageError as error:
            self._ended(error)
            return
        self._look()
        if must_sync:
            self._syncing = True
            cluster = self.cluster
            delay = self.sync_time * (0.5 + cluster.rng.random())
            cluster.scheduler.after(delay, self._synced, self.incarnation)
        else:
            self._plan()

    def _synced(self, incarnation: int) -> None:
        if incarnation != self.incarnation or self._paused(self._synced):
            return
        try:
            self.driver.sync()
        except PowerLoss:
            self.crash("power lost in an fsync")
            return
        except StorageError as error:
            self._ended(error)
            return
        self._syncing = False
        self.driver.finish()
        self._plan()

    def _ended(self, error: StorageError) -> None:
        """The process ends itself; a supervisor starts it again."""
        self.crash(f"storage: {error}")
        self.cluster.scheduler.after(1.0, self.restart)

    def restart(self) -> None:
        if not self.alive:
            self.cluster.trace("node %d starts", self.id)
            self.start()

    def _plan(self) -> None:
        """Plans the next round."""
        scheduler = self.cluster.scheduler
        if self.driver.storage_full:
            self._plan_timer(scheduler.now + FULL_DISK_WAIT)
            return
        due = self.driver.next_due()
        if due <= self.clock() or self._between:
            self._wake()
        elif due < NEVER:
            self._plan_timer(due / self.rate + TICK)

    def _plan_timer(self, at: float) -> None:
        if at < self._timer_at:
            self._timer_at = at
            self.cluster.scheduler.at(at, self._on_timer, self.incarnation)

    def _on_timer(self, incarnation: int) -> None:
        if incarnation == self.incarnation and self.cluster.scheduler.now >= self._timer_at:
            self._timer_at = NEVER
            if not self._step_planned:
                self._step(incarnation)

    def _look(self) -> None:
        """What a round may have brought."""
        for gid, machine in self.machines.items():
            group = machine.group
            assert group is not None
            if group.failed is not None:
                raise Violation(f"node {self.id}, group {gid} stopped") from group.failed
            self.cluster.checker.stands(self.id, gid, group.term, group.journal.last_index)
            if group.progress:
                self._look_at_followers(gid, group)
            if group.snapshots_due:
                while group.snapshots_due:
                    self.cluster.send_snapshot(self, gid, group.snapshots_due.pop())

    def _look_at_followers(self, gid: int, group: Group) -> None:
        """Each acknowledgement that was counted is compared with the follower's disk."""
        for peer, progress in group.progress.items():
            key, match = (gid, group.term, peer), progress.match
            if match == self._believed.get(key, 0) or match <= group.journal.base_index:
                continue
            self._believed[key] = match
            follower = self.cluster.nodes[peer]
            if follower.alive:
                theirs = follower.machines[gid].group
                assert theirs is not None
                if theirs.term == group.term:
                    data = group.journal.entry(match)
                    self.cluster.checker.believes(self.id, peer, gid, match, data)

    # -- what comes in --------------------------------------------------------------------

    def receive(self, sender: int, messages: list[Any]) -> None:
        if self.alive:
            self.driver.receive(sender, messages)

    def call(self, gid: int, calls: list[tuple[AppendRequest, Any]]) -> None:
        """Batches of one client, in its order."""
        cluster = self.cluster
        if not self.alive:
            for _, reply in calls:
                cluster.scheduler.after(CONNECTION_REFUSED, reply.arrive, None)
            return
        if cluster.scheduler.now < self.paused_until:
            cluster.scheduler.at(self.paused_until, self.call, gid, calls)
            return
        for request, reply in calls:
            if not self.names.is_issued(request.meta.producer_id):
                self.names.follow(all_of_it=True)  # the service asks the metadata leader
            call = Call(self, f"group {gid}: {request.meta}", reply)
            self.partitions[gid].append(request, call.answer)

    def open(self, gid: int, pid: int, epoch: int, reply: Any) -> None:
        """A client opens a producer in a partition."""
        scheduler = self.cluster.scheduler
        if not self.alive:
            scheduler.after(CONNECTION_REFUSED, reply.arrive, None)
        elif scheduler.now < self.paused_until:
            scheduler.at(self.paused_until, self.open, gid, pid, epoch, reply)
        else:
            self.names.follow(all_of_it=True)
            call = Call(self, f"group {gid}: open of {pid}/{epoch}", reply)
            self.partitions[gid].open_producer(pid, epoch, call.answer)

    def duties(self) -> None:
        """Retention, as often as the settings say."""
        period = self.cluster.settings.retention_check
        if period:
            delay = period * (0.5 + self.cluster.rng.random())
            self.cluster.scheduler.after(delay, self._retain, self.incarnation)

    def _retain(self, incarnation: int) -> None:
        if incarnation != self.incarnation or self._paused(self._retain):
            return
        self.compact()
        self.duties()

    def compact(self) -> None:
        """One round of retention, as the leader and for this node's own log."""
        try:
            for partition in self.partitions.values():
                assert partition.group is not None
                partition.retain()
                partition.compact()
            metadata = self.machines.get(METADATA_GROUP)
            if metadata is not None and metadata.group is not None:
                metadata.group.checkpoint()
                metadata.group.compact(metadata.group.applied_index - KEEP_METADATA)
        except PowerLoss:
            self.crash("power lost in a compaction")

    def checkpoint(self) -> None:
        try:
            for machine in self.machines.values():
                assert machine.group is not None
                machine.group.checkpoint()
        except PowerLoss:
            self.crash("power lost in a checkpoint")

    # -- snapshots --------------------------------------------------------------------------

    def install(self, sender: int, snapshot: Snapshot, reply: Callable[[bool], None]) -> None:
        """Takes a leader's snapshot between two rounds."""

        def now() -> None:
            if self.driver.storage_full:
                reply(False)
                return
            group = self.machines[snapshot.group].group
            assert group is not None
            journal = group.journal
            taken = self.driver.install(sender, snapshot)
            if group.journal is not journal:
                what = (self.id, snapshot.group, snapshot.index)
                self.cluster.trace("node %d installs %d/%d", *what)
                self.cluster.installs += 1
            reply(taken)

        if self.alive:
            self._between.append(now)
            self._wake()
