"""A simulated node: the node's own driver, replicas and maintenance over a disk of ours.

    Network --messages--> Node.receive --> Driver.begin .. fsync takes a while .. finish
    clients --batches--> Node.call --> Partition.append --> answers
    scheduler --now and then--> Maintenance.look, Maintenance.retain

A node acts as `cluster.node.node` and `cluster.node.replicas.driver_loop` do around the driver, in
virtual time: one round after the other, installs between rounds, a failed fsync
or a broken install ends the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.consensus.background_reads import Done
from cluster.consensus.driver import MAX_SLICES
from cluster.consensus.group import Group
from cluster.consensus.message import (
    NODE_MESSAGES,
    ClockProbe,
    ClockReply,
    Snapshot,
    SnapshotError,
)
from cluster.consensus.replay_budget import ReplayBudget
from cluster.consensus.snapshots import Checked
from cluster.dedup.verdict import Kind, Verdict
from cluster.errors import ClusterError
from cluster.kafka.append import append as append_kafka
from cluster.kafka.append import meta_of
from cluster.kafka.records import read_batch
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.cleaning.cleaner import CleanerSettings
from cluster.node.health.sync_watch import HANG_TIMEOUTS, SyncWatch
from cluster.node.leadership.leaders import Leaders
from cluster.node.leadership.news import LeaderNews
from cluster.node.links.peers import Peers
from cluster.node.maintenance.duties import Maintenance, MaintenanceSettings, TransferDone
from cluster.node.replicas.changes import ReplicaChanges
from cluster.node.replicas.metadata_follower import MetadataFollower
from cluster.node.replicas.node_changes import NodeChanges
from cluster.node.replicas.repairs import Repairs
from cluster.node.replicas.replicas import (
    PlacementView,
    ReplicaContext,
    Replicas,
    ReplicaSettings,
)
from cluster.node.replicas.votes import MetadataVotes
from cluster.partition.replica import Answer, Partition
from storage.errors import StorageError
from tests.sim import releases
from tests.sim.checker import Violation, smallest_majority
from tests.sim.clock import NEVER
from tests.sim.compaction.worker import SimulatedWorker
from tests.sim.contacts import Contacts, failed
from tests.sim.disk import Disk, PlantedDamage, PowerLoss
from tests.sim.joining import Joining
from tests.sim.kafka.client import SECRET, KafkaRequest
from tests.sim.levelling import Levelling
from tests.sim.machines import Load, Volume, opens, varied
from tests.sim.news import OlderNews, clocks_of, news_of
from tests.sim.registering import Registering
from tests.sim.shadow import ShadowedDriver
from tests.sim.watched import (
    Call,
    Facts,
    Machine,
    Names,
    StrictCleaner,
    WatchedDriver,
    WatchedMetadata,
    WatchedPartition,
)

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

METADATA_ENTRIES = 5  # kept; the node keeps many more
LEASE_MS = 10**12  # where nothing expires
LOOK_PERIOD = 0.5
READ_TIME = 0.004  # seconds that a read of the disk takes, about
ROUND = 0.001  # seconds from a wake-up to the round that it causes
FULL_DISK_WAIT = 0.25
TICK = 0.0001  # a timer never comes early
CONNECTION_REFUSED = 0.02
CLEANER = CleanerSettings(bytes_per_s=20_000, memory_bytes=2500, min_dirty_bytes=0)


@dataclass(slots=True)
class Settings:
    """Fixed settings of a run. Times in seconds, *_ms in milliseconds."""

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
    preferred_leader_delay: float = NEVER
    lease_ms: int = 0  # 0: nothing expires
    clock_bound_ms: int = 10_000
    retention_ms: int = -1
    sync_time: float = 0.002
    metadata: bool = False  # whether topics come from a metadata group
    # Where members of groups may be changed: the smallest majority that a group has in the run.
    smallest_majority: int = 0
    metadata_entries: int = METADATA_ENTRIES
    # The cluster begins with so many nodes, and nodes meet as they really do; 0: with all.
    founding: int = 0
    leased: bool = False  # producers' ids come from that group, too, as their expiry does
    name_expiry_ms: int = 0  # 0: as the lease
    varied: bool = False  # whether each node has settings of its own
    round_cost: float = 0.0  # of a loop, for each message and each entry that it applies
    repair_after: float = 0.0  # that a damaged replica is left; 0: for ever
    voters: int = 9  # nodes that vote on the metadata at most
    silent: float = 3.0  # after which another node votes in place of one that does not answer
    registers: bool = False  # whether each start is registered
    releases: bool = False  # whether nodes begin with an older release, and are upgraded
    kafka: bool = False  # whether the topics take batches of Kafka's protocol, too
    compaction: bool = False  # whether cleaners replace stored batches
    keyed: bool = False  # whether records have keys, and nodes clean the topics by key
    worker_dies: float = 0.0  # chance of a cleaner's worker with each request
    news: bool = False  # whether nodes tell each other of leaders, which the checks do without
    hints: bool = False  # whether a node without the partition names its leader to a client


def _driver(node: Node, clock: Callable[[], float], replay: ReplayBudget) -> WatchedDriver:
    """Builds a driver with an oracle beside each replica, unless members may change."""
    if node.cluster.settings.smallest_majority:
        return WatchedDriver(node, clock, replay)
    return ShadowedDriver(node, clock, replay)


def _replica_settings(node: Node) -> ReplicaSettings:
    return ReplicaSettings(
        node_id=node.id,
        directory_id=node.joining.directory_id,
        election_timeout=node.settings.election_timeout,
        heartbeat=node.settings.heartbeat,
        checkpoint_bytes=1 << 26,
        checkpoint_entries=node.settings.checkpoint_entries,
        tail_cache_bytes=0,
        min_tail_bytes=node.settings.tail_bytes,
        max_batch_bytes=1 << 26,
        last_seen_capacity=1_000_000,
    )


class Process:
    """A node's memory: it begins with a start and ends with a crash."""

    def __init__(self, node: Node) -> None:
        cluster, settings = node.cluster, node.settings
        scheduler, rate = cluster.scheduler, node.rate
        self.clock = lambda: scheduler.now * rate
        self.syncing = self.step_planned = False
        self.syncs = self.slices = 0
        self.timer_at = NEVER
        self.between: list[Callable[[], None]] = []
        self.believed: dict[tuple[int, int, int], int] = {}
        self.open_calls: dict[int, Call] = {}
        self.peers = Peers(self.clock, node.linked, partial(failed, node))
        self.linked_since = self.peers.linked_since
        self.leaders: dict[int, tuple[int, int]] = {}  # group -> (leader, term) after a round
        self.leaders_notified = False
        self.news: LeaderNews | OlderNews | None = None
        self.looks_at_all = True  # after the next round
        self.watch = SyncWatch(
            self.clock, settings.heartbeat, HANG_TIMEOUTS * settings.election_timeout
        )
        self.driver = _driver(node, self.clock, ReplayBudget(settings.checkpoint_node_bytes))
        lease_ms = settings.lease_ms or LEASE_MS
        expiry_ms = settings.name_expiry_ms or lease_ms
        self.state = MetadataState(
            lease_lifetime_ms=lease_ms, name_expiry_ms=expiry_ms, release=node.release
        )
        self.known_leaders = Leaders(self.driver.groups)
        facts = self.state if settings.leased else Facts(node, self.state)
        self.clocks = clocks_of(node)
        self.replicas = Replicas(
            _replica_settings(node),
            ReplicaContext(
                kv=node.disk,
                driver=self.driver,
                clock=self.clock,
                clocks=self.clocks,
                rng=cluster.rng,
                metadata=facts,
                linked=self.linked_since,
                on_role=self._on_role,
                leader_changed=self._leader_changed,
                takes_part=node.registering.says_so,
            ),
            lambda gid: self._watched(node, gid),
        )
        callbacks = (lambda lifetime: None, node.note_version, self._layout_changed)
        parts = (self.state, self.replicas, self.driver, self.clock)
        self.follower = MetadataFollower(*parts, *callbacks)
        self.worker = SimulatedWorker(node, node.settings.worker_dies)
        self.cleaner = StrictCleaner(
            CLEANER, self.replicas.by_group, self.driver.reads, self.worker, node.later
        )
        self.maintenance = self._maintenance(node, facts)
        directory_of = self.state.directory_of if settings.founding else int
        self.changes = ReplicaChanges(
            self.driver, facts, directory_of, node.propose_metadata,
            MetadataVotes(self.clock, settings.voters, settings.silent),
        )  # fmt: skip
        self.node_changes = NodeChanges(self.driver, facts, node.propose_metadata)
        self.repairs = self._repairs(node, facts)
        self.levelling = Levelling(node, self.driver, facts)
        self.metadata = WatchedMetadata(node, self.state) if settings.metadata else None
        self.contacts: Contacts | None = None
        if settings.news:
            self.news = news_of(node, self)
        self._open_metadata(node)

    def _on_role(self, gid: int) -> None:
        self._leader_changed()
        group = self.driver.groups.get(gid)
        if self.news is not None and group is not None and group.is_leader:
            self.news.leads(gid)

    def _maintenance(self, node: Node, facts: PlacementView) -> Maintenance:
        delay, entries = node.settings.preferred_leader_delay, node.settings.metadata_entries
        return Maintenance(
            MaintenanceSettings(node.id, delay, entries),
            self.driver,
            self.replicas,
            facts,
            self.clock,
            self.linked_since,
            self.clocks,
            node.transfer,
            self.cleaner.look,
        )

    def _layout_changed(self) -> None:
        if self.contacts is not None:
            self.contacts.others.follow()

    def _repairs(self, node: Node, facts: PlacementView) -> Repairs:
        delay, propose = node.settings.repair_after, node.propose_metadata
        return Repairs(node.id, delay, self.replicas, facts, self.clock, propose)

    def _open_metadata(self, node: Node) -> None:
        cluster, instance = node.cluster, node.joining.instance
        if self.metadata is None:
            self.state.load(cluster.topics)
            return
        cluster.checker.begins(node.id, METADATA_GROUP, instance)
        group = self.replicas.open_metadata(cluster.founding, self.metadata, instance)
        self.metadata.group = group
        self.metadata.role_listener = lambda: self._on_role(METADATA_GROUP)
        if node.settings.founding:
            self.contacts = Contacts(node, self.state, self.peers, group)

    def _leader_changed(self) -> None:
        self.leaders_notified = True

    def _watched(self, node: Node, gid: int) -> Any:
        found = self.state.partition(gid)
        assert found is not None
        node.cluster.checker.begins(node.id, gid, found[2].instance_of(node.id))
        cluster = node.cluster
        # Topics that others make keep their replicas, but for `founding`.
        changing = found[0].name in {f"t{group}" for group in cluster.groups}
        smallest = cluster.settings.smallest_majority if changing else 0
        record = found[2]
        size = len(record.target or record.founding or record.replicas)
        if cluster.settings.founding:  # any topic's replicas may change
            lowest = cluster.settings.smallest_majority
            smallest = smallest or min(lowest, smallest_majority(size))
        cluster.checker.opens(gid, smallest or size // 2 + 1)
        return partial(WatchedPartition, node, gid)

    def follow(self) -> None:
        """Opens and closes replicas. No disk is damaged here, so all of them must open."""
        self.follower.follow()
        for gid, error in self.replicas.broken.items():
            raise Violation(f"group {gid} does not open") from error.error

    @property
    def partitions(self) -> dict[int, Partition]:
        return self.replicas.by_group

    def machines(self) -> dict[int, Machine]:
        if self.metadata is None:
            return dict(self.partitions)
        return {METADATA_GROUP: self.metadata, **self.partitions}


class Node:
    """One disk, and the process over it while it lives."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster, self.id = cluster, node_id
        self.settings = cluster.settings
        if cluster.settings.varied:
            self.settings = varied(cluster.settings, cluster.rng)
        self.volume = Volume(node_id)
        self.load = Load(cluster.settings.round_cost)
        self.process: Process | None = None
        self.incarnation = 0
        self.unsynced_survives = False  # all of it, in a crash; else how much is drawn
        self.rate = 1.0  # of its monotonic clock
        self.wall_skew_ms = 0
        self.sync_time, self.read_time = self.settings.sync_time, READ_TIME
        self.paused_until = 0.0
        self.names = Names(cluster, 1.5 * cluster.rng.random())
        self.release = releases.NEW
        self.cluster_version = 1  # as its directory says
        self.joining = Joining(self)
        self.registering = Registering(self)

    # -- process ------------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        """The volume that is mounted at the store's place."""
        return self.volume.disk

    @property
    def alive(self) -> bool:
        return self.process is not None

    @property
    def running(self) -> Process:
        assert self.process is not None, f"node {self.id} is dead"
        return self.process

    @property
    def driver(self) -> WatchedDriver:
        return self.running.driver

    @property
    def clock(self) -> Callable[[], float]:
        return self.running.clock

    @property
    def partitions(self) -> dict[int, Partition]:
        return {} if self.process is None else self.process.partitions

    @property
    def machines(self) -> dict[int, Machine]:
        """The machines of the partitions, and of the metadata."""
        return {} if self.process is None else self.process.machines()

    @property
    def open_calls(self) -> dict[int, Call]:
        return {} if self.process is None else self.process.open_calls

    def start(self) -> None:
        """Opens the node from its disk; without its store it ends at once."""
        assert not self.alive
        self.joining.start()
        if not self.joining.is_done:
            return
        if not opens(self):
            return
        self.incarnation += 1
        self.process = releases.opened(self, lambda: Process(self))
        self.process.follow()
        self.registering.started()
        self.wake()
        self.cluster.network.node_up(self.id)
        self._plan_look()
        self._plan_retention()

    def steady(self) -> float:
        """Seconds of a clock that goes on while the machine sleeps, unlike its monotonic clock."""
        return self.cluster.scheduler.now * self.rate + self.cluster.slept

    def note_version(self, version: int) -> None:
        """Notes the version that the cluster has agreed on in its directory."""
        self.cluster_version = version

    def wall_ms(self) -> int:
        return self.cluster.true_ms + self.wall_skew_ms

    def crash(self, why: str) -> None:
        """Ends the process; the disk loses its unsynced writes."""
        calls = self.running.open_calls
        cluster = self.cluster
        unsynced = self.disk.unsynced
        keep = unsynced if self.unsynced_survives else cluster.rng.randint(0, unsynced)
        cluster.trace("node %d dies: %s; %d of %d unsynced writes survive", self.id, why, keep,
                      self.disk.unsynced)  # fmt: skip
        self.process = None
        self.incarnation += 1
        cluster.crashes += 1
        self.disk.crash(keep)
        for call in calls.values():
            cluster.answer(call.reply, None)
        cluster.network.node_down(self.id)

    # -- the driver's rounds --------------------------------------------------------------

    def send(self, peer: int, messages: list[Any]) -> None:
        for message in messages:
            self.cluster.checker.sends(self.id, peer, message)
            self.cluster.shadow.sent(self.id, peer, message)
        self.cluster.network.send(self.id, peer, messages)

    def link_changed(self, peer: int, up: bool) -> None:
        self.running.peers._link_changed(peer, up)

    def linked(self, peer: int, up: bool) -> None:
        """Takes the state of a link."""
        self.running.clocks.linked(peer, up)
        self.running.driver.set_link(peer, up)
        if self.running.news is not None:
            self.running.news.linked(peer, up)

    def wake(self) -> None:
        process = self.process
        if process is not None and not process.step_planned and not process.syncing:
            process.step_planned = True
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
        process, disk = self.running, self.disk
        process.step_planned = False
        if process.syncing:
            return
        messages = len(process.driver._inbound)
        try:
            while process.between and not process.slices:
                process.between.pop(0)()
            disk.loop_waits = True
            must_sync = process.driver.begin()
        except PowerLoss:
            self.crash("power lost in a write")
            return
        except StorageError as error:
            self._ended(error)
            return
        finally:
            disk.loop_waits = False
        self._look(process)
        if self.load.seconds:
            busy_until = self.cluster.scheduler.now + self.load.of_round(self, messages)
            self.paused_until = max(self.paused_until, busy_until)
        process.slices += 1
        if process.driver.is_cut and process.slices < MAX_SLICES:
            self.wake()
            return
        process.slices = 0
        if must_sync:
            process.syncing = True
            process.syncs += 1
            cluster = self.cluster
            delay = self.sync_time * (0.5 + cluster.rng.random())
            cluster.scheduler.after(delay, self._synced, self.incarnation)
            process.watch.begin()
            cluster.scheduler.after(process.watch.period, self._watch, process, process.syncs)
        else:
            self._plan()

    def _watch(self, process: Process, number: int) -> None:
        """Acts while the node's fsync, `number`, is in progress."""
        if process is not self.process or not process.syncing or process.syncs != number:
            return
        scheduler = self.cluster.scheduler
        if scheduler.now >= self.paused_until:
            process.watch.look(process.driver)
        scheduler.after(process.watch.period, self._watch, process, number)

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
        self.running.syncing = False
        self.running.watch.end()
        self.driver.finish()
        self._plan()

    def _ended(self, error: StorageError) -> None:
        """Ends the process itself; a supervisor starts it again."""
        self.crash(f"storage: {error}")
        self.cluster.scheduler.after(1.0, self.restart)

    def restart(self) -> None:
        if not self.alive and not self.volume.is_lost:
            self.cluster.trace("node %d starts", self.id)
            self.start()

    def _plan(self) -> None:
        """Plans the next round."""
        scheduler = self.cluster.scheduler
        if self.driver.storage_full:
            self._plan_timer(scheduler.now + FULL_DISK_WAIT)
            return
        due = self.driver.next_due()
        if due <= self.clock() or self.running.between:
            self.wake()
        elif due < NEVER:
            self._plan_timer(due / self.rate + TICK)

    def _plan_timer(self, at: float) -> None:
        process = self.running
        if at < process.timer_at:
            process.timer_at = at
            self.cluster.scheduler.at(at, self._on_timer, self.incarnation)

    def _on_timer(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            return
        process = self.running
        if self.cluster.scheduler.now >= process.timer_at:
            process.timer_at = NEVER
            if not process.step_planned:
                self._step(incarnation)

    def _look(self, process: Process) -> None:
        """Looks at the changes that a round may have brought.

        A round moves only the groups that its driver names. The others are looked at, too, once in
        LOOK_PERIOD, and after a change of a leader or of the groups themselves.
        """
        changed = process.leaders.keys() != process.driver.groups.keys()
        if changed or process.leaders_notified or process.looks_at_all:
            for gone in process.leaders.keys() - self.machines.keys():
                del process.leaders[gone]
            for machine in self.machines.values():
                assert machine.group is not None
                self._look_at(process, machine.group)
        else:
            for group in process.driver.advanced:
                self._look_at(process, group)
        process.leaders_notified = process.looks_at_all = False

    def _look_at(self, process: Process, group: Group) -> None:
        gid = group.config.group
        checker = self.cluster.checker
        if group.failed is not None:
            planted = (self.id, gid) in checker.damaged or type(group.failed) is PlantedDamage
            if planted or releases.ends(self, group):
                return
            if gid not in checker.deleted:
                raise Violation(f"node {self.id}, group {gid} stopped") from group.failed
        stands = group.core.is_leader or group.core.is_candidate
        if stands and not (group.members.is_voter or group.is_transferring):
            raise Violation(f"node {self.id}, group {gid} leads, or stands, without a vote")
        term = group.term
        checker.stands(self.id, gid, term, group.journal.last_index)
        self._look_at_followers(gid, group)
        leader = (group.leader_id, term)
        known = process.leaders.get(gid)
        if known == leader:
            return
        if known is not None and not process.leaders_notified:
            if gid in process.driver._with_work:
                return  # its turn comes in another slice
            raise Violation(f"node {self.id}, group {gid}: nobody learns that {leader} leads")
        process.leaders[gid] = leader

    def _look_at_followers(self, gid: int, group: Group) -> None:
        """Compares each counted acknowledgement with the follower's disk."""
        believed = self.running.believed
        for peer, progress in group.progress.items():
            key, match = (gid, group.term, peer), progress.match
            if match == believed.get(key, 0) or match <= group.journal.base_index:
                continue
            believed[key] = match
            follower = self.cluster.nodes[peer].machines.get(gid)
            if follower is not None:
                theirs = follower.group
                assert theirs is not None
                if theirs.term == group.term:
                    data = group.journal.entry(match)
                    self.cluster.checker.believes(self.id, peer, gid, match, data)

    # -- metadata -------------------------------------------------------------------------

    def metadata_applied(self) -> None:
        """Opens and closes groups after this round: apply runs inside it."""
        self.cluster.scheduler.after(0.0, self._follow, self.incarnation)

    def _follow(self, incarnation: int) -> None:
        if incarnation != self.incarnation or self._paused(self._follow):
            return
        try:
            self.running.follow()
        except PowerLoss:
            self.crash("power lost while the metadata was followed")

    # -- reads of the disk ------------------------------------------------------------------

    def read(self, read: Callable[[], object], done: Done) -> None:
        """Reads in a thread while the driver goes on; it finds the state at the read's end."""
        delay = self.read_time * (0.5 + self.cluster.rng.random())
        self.cluster.scheduler.after(delay, self._read, self.incarnation, read, done)

    def _read(self, incarnation: int, read: Callable[[], object], done: Done) -> None:
        if incarnation != self.incarnation:
            return
        if self.cluster.scheduler.now < self.paused_until:
            self.cluster.scheduler.at(self.paused_until, self._read, incarnation, read, done)
            return
        self.cluster.reads += 1
        try:
            done(read())
        except PowerLoss:
            self.crash("power lost after a read")

    # -- calls and messages ---------------------------------------------------------------

    def receive(self, sender: int, messages: list[Any]) -> None:
        if not self.alive:
            return
        own = [message for message in messages if message.__class__ in NODE_MESSAGES]
        if own:
            messages = [message for message in messages if message.__class__ not in NODE_MESSAGES]
            self._receive_own(self.incarnation, sender, own)
        self.driver.receive(sender, messages)

    def _receive_own(self, incarnation: int, sender: int, messages: list[Any]) -> None:
        if incarnation != self.incarnation:
            return
        if self.cluster.scheduler.now < self.paused_until:
            again = (self._receive_own, incarnation, sender, messages)
            self.cluster.scheduler.at(self.paused_until, *again)
            return
        for message in messages:
            if isinstance(message, ClockProbe | ClockReply):
                self.running.clocks.receive(sender, message)
            elif self.running.news is not None:
                self.running.news.receive(sender, message)

    def call(self, gid: int, calls: list[tuple[Any, Any]]) -> None:
        """Takes batches of one client, in its order."""
        cluster = self.cluster
        if not self.alive:
            for _, reply in calls:
                cluster.scheduler.after(CONNECTION_REFUSED, reply.arrive, None)
            return
        if cluster.scheduler.now < self.paused_until:
            cluster.scheduler.at(self.paused_until, self.call, gid, calls)
            return
        for request, reply in calls:
            if isinstance(request, KafkaRequest):
                self._call_kafka(gid, request, reply)
                continue
            if not self.settings.leased and not self.names.is_issued(request.meta.producer_id):
                self.names.follow(all_of_it=True)  # the service asks the metadata leader
            call = Call(self, gid, request.meta, reply)
            partition = self.partitions.get(gid)
            if partition is None:
                call.answer(self._not_here(gid))
            else:
                partition.append(request, call.answer)

    def _call_kafka(self, gid: int, request: KafkaRequest, reply: Any) -> None:
        """Takes one partition's bytes of a Produce request."""
        call = Call(self, gid, f"Kafka batch of {request.producer_id:#x}", reply)
        partition, who = self.partitions.get(gid), request.principal
        if partition is None:
            call.answer(self._not_here(gid))
        else:
            batch = read_batch(memoryview(request.data))
            facts = meta_of(batch)
            append_kafka(partition, batch, facts, call.answer, secret=SECRET, principal=who)

    def open(self, gid: int, pid: int, epoch: int, reply: Any) -> None:
        """Opens a client's producer in a partition."""
        scheduler = self.cluster.scheduler
        if not self.alive:
            scheduler.after(CONNECTION_REFUSED, reply.arrive, None)
        elif scheduler.now < self.paused_until:
            scheduler.at(self.paused_until, self.open, gid, pid, epoch, reply)
        else:
            self.names.follow(all_of_it=True)
            call = Call(self, gid, f"open of {pid}/{epoch}", reply)
            partition = self.partitions.get(gid)
            if partition is None:
                call.answer(self._not_here(gid))
            else:
                partition.open_producer(pid, epoch, call.answer)

    def _not_here(self, gid: int) -> Answer:
        leader = self.running.known_leaders.leader_of(gid)[0] if self.settings.hints else 0
        return Answer(Verdict(Kind.NOT_LEADER), leader_id=leader)

    # -- maintenance ----------------------------------------------------------------------

    def _plan_look(self) -> None:
        self.cluster.scheduler.after(LOOK_PERIOD, self._maintain_leaders, self.incarnation)

    def _maintain_leaders(self, incarnation: int) -> None:
        if incarnation == self.incarnation and not self._paused(self._maintain_leaders):
            self.running.looks_at_all = True
            self.running.maintenance.look()
            if self.cluster.takes_steps:
                self.running.changes.look()
            self.running.node_changes.look()
            self.running.repairs.look()
            self.running.levelling.look()
            if self.running.news is not None:
                self.running.news.look()
            self._look_at_nodes()
            self._plan_look()

    def _look_at_nodes(self) -> None:
        contacts = self.running.contacts
        if contacts is not None:
            contacts.others.look()
            if contacts.others.is_lost(self.clock()):
                contacts.others.told(self.joining.ask_again())
            try:
                contacts.others.check_place(self.clock())
            except ClusterError as error:
                failed(self, error)

    def propose_metadata(self, command: Any, done: Callable[[], None]) -> None:
        """Proposes at the metadata's leader; the command may be lost."""
        if self.cluster.settings.metadata:
            self.cluster.command(command, lambda result: None)
        done()

    def _plan_retention(self) -> None:
        period = self.cluster.settings.retention_check
        if period:
            delay = period * (0.5 + self.cluster.rng.random())
            self.cluster.scheduler.after(delay, self._retain, self.incarnation)

    def _retain(self, incarnation: int) -> None:
        if incarnation == self.incarnation and not self._paused(self._retain):
            self._plan_retention()
            self.compact()

    def compact(self) -> None:
        """Runs one round of retention, as the leader and for this node's own logs."""
        try:
            self.running.maintenance.retain()
        except PowerLoss:
            self.crash("power lost in a compaction")

    def checkpoint(self) -> None:
        try:
            for machine in self.machines.values():
                assert machine.group is not None
                machine.group.checkpoints.save()
        except PowerLoss:
            self.crash("power lost in a checkpoint")

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls once in this process, if it lives so long."""
        self.cluster.scheduler.after(seconds, self._call_later, self.incarnation, call)

    def _call_later(self, incarnation: int, call: Callable[[], None]) -> None:
        if incarnation != self.incarnation or not self.alive:
            return
        scheduler = self.cluster.scheduler
        if scheduler.now < self.paused_until:
            scheduler.at(self.paused_until, self._call_later, incarnation, call)
            return
        try:
            call()
        except PowerLoss:
            self.crash("power lost in a cleaning")

    # -- snapshots --------------------------------------------------------------------------

    def transfer(self, peer: int, snapshot: Snapshot, done: TransferDone) -> None:
        self.cluster.transfer(self, peer, snapshot, done)

    def install(self, sender: int, snapshot: Snapshot, reply: Callable[[bool], None]) -> None:
        """Checks a leader's snapshot in a thread, then takes it between two rounds."""

        def now(checked: Checked) -> None:
            group = self.driver.groups.get(gid := snapshot.group)
            if group is None or self.driver.storage_full:
                reply(False)
                return
            journal = group.journal
            try:
                taken = self.driver.install(sender, checked)
            except SnapshotError:
                taken = False
            if group.journal is not journal:
                self.cluster.trace("node %d installs %s", self.id, (gid, snapshot.index))
                self.cluster.installs += 1
            reply(taken)

        def checked(found: Checked) -> None:
            self.running.between.append(partial(now, found))
            self.wake()

        if not self.alive:
            return
        if snapshot.group in self.driver.groups:
            self.driver.check(snapshot, checked)
        else:
            reply(False)
