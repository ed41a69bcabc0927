"""One node: everything is created, wired, and shut down here.

    __main__ -> Node.start: directory lock, ports, engine, metadata group, replicas,
                            peer links, driver loop, servers, maintenance
             -> Node.stop:  the same backwards; each step of the start pushed its undoing

The services' view of the node is in `ports/service_context.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from functools import partial

from cluster.access.budget import Budget
from cluster.config.node_config import LARGEST_MESSAGE_BYTES, NodeConfig
from cluster.consensus.driver import Driver
from cluster.consensus.learner_rate import LearnerRate
from cluster.consensus.message import (
    NODE_MESSAGES,
    ClockProbe,
    ClockReply,
    Message,
    NewsMessage,
    Snapshot,
    SnapshotError,
)
from cluster.consensus.replay_budget import ReplayBudget
from cluster.consensus.snapshots import Checked
from cluster.errors import ClusterError, ConfigError
from cluster.events.log_lines import record_log
from cluster.events.recorder import SLOW
from cluster.features import (
    CLUSTER_VERSIONS,
    METADATA_LEARNERS,
    THIS_RELEASE,
    OlderReleaseError,
)
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.settings import LEARNER_RATE
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import OFFSETS_TOPIC
from cluster.metrics.http import serve_pages
from cluster.metrics.page import Metrics
from cluster.node.cleaning.process import Cleaning
from cluster.node.health.clocks import clocks_of
from cluster.node.health.descriptors import ConnectionWatch, Shares
from cluster.node.health.loop_watch import watch_loop
from cluster.node.health.memory_watch import client_memory, memory_budget, memory_room, watch_memory
from cluster.node.health.node_health import NodeHealth
from cluster.node.health.probes import Probes
from cluster.node.health.readiness import Readiness
from cluster.node.health.sync_watch import HANG_TIMEOUTS, SyncWatch
from cluster.node.leadership.handover import Leaderships
from cluster.node.leadership.leaders import Leaders
from cluster.node.leadership.news import LeaderNews
from cluster.node.links.addresses import identity_of, named
from cluster.node.links.peers import Peers
from cluster.node.logs.lines import log_families
from cluster.node.maintenance.duties import Maintenance, MaintenanceSettings
from cluster.node.maintenance.loop import SnapshotSender, start_maintenance
from cluster.node.membership.find_cluster import Admission, find_cluster
from cluster.node.membership.known_nodes import KnownNodes, OtherNodes
from cluster.node.membership.own_node import Opened, OwnPlace, bind
from cluster.node.membership.registration import Registering
from cluster.node.metadata.founding import Founding
from cluster.node.metadata.producer_id_blocks import ProducerIdBlocks, max_block_age_s
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.metadata.upgrades import Upgrades, keep_version
from cluster.node.metrics.cluster_figures import ClusterFigures
from cluster.node.metrics.group_lags import GroupLags
from cluster.node.metrics.sample import sample, transactions
from cluster.node.metrics.targets import scrape_targets
from cluster.node.ports.client_ports import ClientPorts
from cluster.node.ports.offered import gate_of
from cluster.node.ports.peer_requests import PeerRequests
from cluster.node.ports.security import Security, security_families
from cluster.node.ports.service_context import ServiceContext
from cluster.node.replicas.driver_loop import DriverLoop, save_checkpoints
from cluster.node.replicas.metadata_follower import MetadataFollower
from cluster.node.replicas.replicas import (
    ReplicaContext,
    Replicas,
    ReplicaSettings,
    prepare_metadata,
)
from cluster.node.replicas.reports import ReplicaDuties
from cluster.node.replicas.sizes import ReplicaSizes
from cluster.node.tasks import LOOK_PERIOD, Tasks, every
from cluster.node.transactions.transactions import Transactions
from cluster.services.fair_turns import Turns
from cluster.services.groups.metrics import group_samples, groups_left_out, shown
from cluster.services.groups.running_groups import GroupMembers
from cluster.transport.hellos import Acceptance, NodeIdentity
from cluster.transport.link import MAX_FRAME_BYTES, PeerLink
from cluster.transport.listener import PeerListener
from cluster.transport.versions import PeerVersions
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from storage.engine import Engine
from storage.identity import DirectoryLock, claim
from storage.options import EngineOptions
from storage.registrations import StoredRegistrations

log = logging.getLogger(__name__)

SLOW_SYNC_S = 0.5  # an fsync that takes longer is an event
STOP_TIMEOUT = 1.0  # seconds that running calls get when the server stops
MAX_BATCHES_UNDER_WAY = 2048  # then a client with more than its share waits
NO_REPLICA = "no replica of this group here"
METADATA_ENTRIES = 1000  # kept for followers that are a little behind


class Node:
    """A node. failure: its result says why the node must end."""

    def __init__(
        self,
        config: NodeConfig,
        engine: Engine,
        metrics: Metrics,
        memory: Budget,
        stack: contextlib.AsyncExitStack,
        lock: DirectoryLock,
        opened: Opened,
    ) -> None:
        """Open all replicas; nothing runs yet. `stack` undoes the start."""
        clock, rate = time.monotonic, LearnerRate(time.monotonic, self._learner_rate)
        self.config = config
        self.metrics = metrics
        self._engine = engine
        self._stack = stack
        self.request_timeout = config.request_timeout_ms / 1000
        self.metadata = MetadataState()
        self._memory = memory
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        peers = self._peers = Peers(clock, self._on_link, self._fail)
        timeout, heartbeat = config.election_timeout_ms / 1000, config.heartbeat_ms / 1000
        watch = metrics.sync_watch = SyncWatch(clock, heartbeat, HANG_TIMEOUTS * timeout)
        self._health = NodeHealth(clock, timeout, watch)
        self._clocks = clocks_of(config, self._peers.send, self._health)
        self._driver_loop = DriverLoop.of(config, clock, watch, engine, self._on_sync, self._fail)
        rounds, replay = self._driver_loop, ReplayBudget(config.checkpoint_node_bytes)
        self._driver = Driver(engine, clock, peers.send, rounds.wake, replay, rounds.read, rate)
        self._leaders = Leaders(self._driver.groups)
        self._news = self._open_news(opened.known.identity.incarnation)
        leading = (self._driver, self._leaders, self._clocks, self._health, self.metadata)
        self._leaderships = Leaderships(config, *leading)
        replicas = self._replicas = Replicas(
            ReplicaSettings.of(config, lock.directory_id),
            ReplicaContext(
                kv=engine,
                driver=self._driver,
                clock=clock,
                clocks=self._clocks,
                rng=random.Random(),
                metadata=self.metadata,
                linked=self._peers.linked_since,
                on_role=self._on_role,
                leader_changed=self._leaders.notify,
                takes_part=lambda: self.registering.takes_part,
            ),
        )
        auto_finalize = config.upgrade_auto_finalize_ms / 1000
        self.upgrades = Upgrades(config.node_id, self.metadata, self._peers, clock, auto_finalize)
        self._founding = Founding(config, self.metadata, self.upgrades)
        proposer = self._proposer = self._open_metadata(lock)
        own = (self.metadata, proposer, self._fail)
        place = self._place = OwnPlace(config, opened.listener, *own)
        self.others = OtherNodes(config, opened.known, peers, self.metadata, place)
        self.registering = Registering(config, opened.known.identity, opened.stored, *own)
        parts = (proposer, replicas, peers, self._leaders)
        transactions = self._transactions = Transactions(config, self.metadata, *parts, clock)
        sizes = self.sizes = self._open_sizes()
        self._producer_ids = self._open_producer_ids()
        self._duties = ReplicaDuties(config, self._driver, self.metadata, proposer, replicas, sizes)
        self._context = self._service_context(lock)
        self._group_members = GroupMembers(self._context)
        self._lags = self._open_lags()
        asked = (proposer, transactions, sizes, self._lags)
        self._cleaning = Cleaning(config, replicas.by_group, self._driver.reads)
        self._requests = PeerRequests(clock, memory, self._install, *asked)
        keep = partial(keep_version, lock)
        followed = (self.metadata, replicas, self._driver, clock)
        self._follower = MetadataFollower(*followed, self._on_lease_lifetime, keep, self._on_layout)
        self._follower.follow()

    def _open_news(self, process: int) -> LeaderNews:
        return LeaderNews(
            self.config.node_id,
            process,
            self._leaders,
            self._driver.groups,
            self._peers.linked_since.keys(),
            self.metadata.is_deleted,
            partial(self.metadata.features.is_on, METADATA_LEARNERS),
            self._peers.send,
            self._on_leadership,
            asyncio.get_running_loop().call_later,
        )

    def _open_producer_ids(self) -> ProducerIdBlocks:
        max_age = max_block_age_s(self.config.lease_lifetime_ms)
        size = self.config.pid_block_size
        return ProducerIdBlocks(
            self._allocate_producer_ids, size, max_age_s=max_age, clock=time.monotonic
        )

    def _open_sizes(self) -> ReplicaSizes:
        held = (self.config.node_id, self._replicas.by_group, self._peers)
        return ReplicaSizes(*held, self._waits, self._proposer.group)

    def _open_lags(self) -> GroupLags:
        return GroupLags(
            self.config.node_id,
            self.metadata,
            self._replicas.by_group,
            self._leaders,
            self._peers,
            partial(shown, self._group_members),
        )

    def _open_metadata(self, lock: DirectoryLock) -> MetadataProposer:
        machine = MetadataMachine(self.metadata, self._on_metadata_applied)
        group = self._replicas.open_metadata(lock.members, machine, lock.instance)
        machine.role_listener = lambda: self._on_role(METADATA_GROUP)
        self._clocks.compare_with(group.members.voters)
        touch, links = partial(self._driver.touch, METADATA_GROUP), self._peers.links
        known = (self._clocks, self._founding, self.metadata)
        return MetadataProposer(group, links, touch, *known)

    def _service_context(self, lock: DirectoryLock) -> ServiceContext:
        return ServiceContext(
            config=self.config,
            founding=lock.founding,
            metadata=self.metadata,
            metrics=self.metrics,
            upgrades=self.upgrades,
            sizes=self.sizes,
            memory=self._memory,
            batches_under_way=Budget(sys.maxsize, MAX_BATCHES_UNDER_WAY),
            turns=Turns(),
            proposer=self._proposer,
            producer_ids=self._producer_ids,
            leaders=self._leaders,
            leaderships=self._leaderships,
            peers=self._peers,
            place=self._place,
            clocks=self._clocks,
            driver_loop=self._driver_loop,
            replicas=self._replicas.by_group,
            why_waiting=self._waits,
        )

    # -- start and stop -----------------------------------------------------------------

    @classmethod
    async def start(cls, config: NodeConfig) -> Node:
        """Start a node. Raises storage.LockedError, storage.IdentityError, StorageError,
        ListenError.

        After an error, the steps already done are undone.
        """
        stack = contextlib.AsyncExitStack()
        try:
            node = await cls._open(config, stack)
        except BaseException:
            await stack.aclose()
            raise
        log.info(
            "node started cluster=%s node=%d listen=%s data=%s",
            config.cluster_id,
            config.node_id,
            config.listen,
            config.data_dir,
        )
        return node

    async def stop(self) -> None:
        """Hand leadership over, finish calls, save checkpoints, close."""
        await self._stack.aclose()
        log.info("node stopped node=%d", self.config.node_id)

    @classmethod
    async def _open(cls, config: NodeConfig, stack: contextlib.AsyncExitStack) -> Node:
        shares, probes = Shares.of(config), _serve_probes(config, stack)
        security = Security.of(config)
        lock = claim(config.data_dir, config.cluster_id, config.node_id)
        stack.callback(lock.release)
        lock.check_cluster_version(*CLUSTER_VERSIONS)
        if not lock.instance:
            lock.check_members(config.nodes)

        def identity_now() -> NodeIdentity:
            return identity_of(
                config,
                lock,
                PeerVersions(THIS_RELEASE, lambda: node.metadata.finalized),
                lambda hello: node.registering.write(hello),  # noqa: PLW0108 - made later
            )

        # The ports come before anything in the data directory is touched.
        admission = Admission(config, lock)
        listener = PeerListener(
            admission.acceptance(identity_now()),
            lambda peer, messages: node._receive(peer, messages),  # noqa: PLW0108 - made later
            lambda peer, request: node._requests.answer(peer, request),  # noqa: PLW0108
            LARGEST_MESSAGE_BYTES + MAX_FRAME_BYTES,
            security.peers,
            shares.part,
        )
        stack.callback(listener.stop)
        bind(config, listener)
        said = await find_cluster(admission, config, listener, security.peers)
        addresses, identity = {**said, **named(config)}, identity_now()
        acceptance = Acceptance(
            identity,
            addresses,
            lambda peer, at: node.metadata.directory_of(peer, at),  # noqa: PLW0108 - made later
            lambda join: node.others.welcome(join),  # noqa: PLW0108
            lambda hello: node.registering.refusal(hello),  # noqa: PLW0108
            lambda hello: node.others.heard_of(hello),  # noqa: PLW0108
        )
        metrics = _serve_metrics(config, stack, security)
        stack.callback(record_log(metrics.events))
        memory = memory_budget(client_memory(config, memory_room()), metrics)
        gate = gate_of(security, lambda: node.metadata, metrics)
        if security.audit is not None:
            stack.callback(security.audit.close)
        limits = (memory, shares.connections)
        server = ClientPorts(config, *limits, security.clients, gate, founding=lock.founding)
        server.bind()
        stack.push_async_callback(server.close)
        options = EngineOptions(
            page_cache_bytes=config.page_cache_bytes,
            max_open_segments=shares.part,
            max_open_files=shares.part,
            # Each process of the machine keeps room for itself on their one disk.
            min_free_bytes=EngineOptions().min_free_bytes * config.processes,
        )
        engine = Engine.open(config.data_dir / "db", options=options, directory=lock)
        stack.callback(engine.close)
        stored = StoredRegistrations(config.data_dir / "db" / "lives")
        stack.callback(stored.close)
        prepare_metadata(engine, lock.instance)
        opened = Opened(KnownNodes(identity, addresses, said, lock), listener, acceptance, stored)
        node = cls(config, engine, metrics, memory, stack, lock, opened)
        stack.callback(save_checkpoints, node._driver, engine)
        node._founding.check_own()
        members, transactions = node._group_members, node._transactions
        now_ms = node._context.agreed_now_ms
        server.offer(node._context, now_ms, members, transactions)
        await node._run(identity, opened, server, security, shares, probes)
        return node

    async def _run(
        self,
        identity: NodeIdentity,
        opened: Opened,
        server: ClientPorts,
        security: Security,
        shares: Shares,
        probes: Probes,
    ) -> None:
        stack, tasks, listener = self._stack, Tasks(), opened.listener
        self._fill_metrics(security)
        stack.push_async_callback(self._peers.close)
        self._peers.open(partial(PeerLink, identity, tls=security.peers))
        self.others.follow()
        stack.push_async_callback(self._producer_ids.close)
        stack.push_async_callback(self._driver_loop.stop)
        self._driver_loop.start(self._driver)
        stack.callback(listener.stop)
        stack.push_async_callback(self._place.close)
        listener.acceptance = opened.acceptance
        if listener.is_bound:
            await listener.start()
        stack.callback(self._group_members.close)
        # A client that comes now must not be told that a topic does not exist.
        metadata = self._driver.groups[METADATA_GROUP]
        await self._driver_loop.until(lambda: metadata.applied_index >= metadata.commit_index)
        stack.push_async_callback(server.stop, STOP_TIMEOUT)
        await server.start()
        stack.push_async_callback(self._leaderships.hand_over)
        stack.push_async_callback(server.grpc.leave)
        stack.push_async_callback(tasks.stop)
        config = self.config
        delay = config.preferred_leader_delay_ms / 1000
        maintenance = Maintenance(
            MaintenanceSettings(config.node_id, delay, METADATA_ENTRIES),
            self._driver,
            self._replicas,
            self.metadata,
            time.monotonic,
            self._peers.linked_since,
            self._clocks,
            SnapshotSender(self._peers.links, tasks, self._driver.windows.learners.sent).send,
            self._cleaning.cleaner.look,
        )
        stack.push_async_callback(self._cleaning.stop)
        retention_period = config.retention_check_ms / 1000
        start_maintenance(maintenance, tasks, retention_period, self._engine.reclaim)
        tasks.spawn(every(LOOK_PERIOD, self._news.look))
        stack.push_async_callback(self._duties.stop)
        self._duties.start()
        self._watch(tasks, server, shares, probes)
        stack.callback(probes.stop)
        tasks.spawn(self._register(server))
        tasks.spawn(self._place.watch(self.others, partial(server.stop, STOP_TIMEOUT)))
        stack.push_async_callback(self._transactions.markers.stop)
        tasks.spawn(self._transactions.run(tasks))
        tasks.spawn(self._founding.watch(self._proposer, self.request_timeout))

    def _fill_metrics(self, security: Security) -> None:
        self.metrics.source = lambda: sample(
            self._replicas.by_group.values(), self._peers.linked_since
        )
        self.metrics.groups = lambda: group_samples(
            self._lags.lags,
            self._group_members,
            int(time.time() * 1000),  # to ask the agreed clock changes it: not for this thread
        )
        self.metrics.groups_left_out = partial(groups_left_out, self._group_members)
        self.metrics.transactions = lambda: transactions(
            self.metadata.coordinator, int(time.time() * 1000), self._transactions.orphaned
        )
        self.metrics.storage = self._engine.stats
        self.metrics.clocks = self._clocks
        self.metrics.upgrades = self.upgrades
        figures = ClusterFigures(
            self.metadata,
            self._driver.groups,
            self._replicas.by_group,
            self._leaders,
            self._peers,
            self._clocks,
            self._duties.repairs,
            self.sizes.alive,
            self.config.last_seen_capacity,
        )
        self.metrics.parts += (
            self._cleaning.families,
            figures.families,
            partial(security_families, security, self.config.insecure),
        )

    def _watch(self, tasks: Tasks, server: ClientPorts, shares: Shares, probes: Probes) -> None:
        tasks.spawn(watch_memory(self._memory, server.numbers).run())
        connections = ConnectionWatch(shares, server.numbers)
        self.metrics.parts += (connections.families, log_families)
        tasks.spawn(connections.run())
        if self.config.metrics_listen:
            tasks.spawn(self._lags.run())
        probes.turned()
        probes.faults = Readiness(
            time.monotonic,
            server.grpc,
            self._clocks,
            self._driver,
            self._health.sync,
            self._driver.groups,
            self._replicas.broken,
        ).faults
        standstill = self.config.election_timeout_ms / 2000
        on_delay = self._health.watching(self.metrics.loop_delay.observe)

        def turned(delay: float) -> None:
            probes.turned()
            on_delay(delay)

        tasks.spawn(watch_loop(turned, standstill))

    async def _register(self, server: ClientPorts) -> None:
        """Register this node's address for clients, then report that it serves."""
        if not await self.registering.register(self.request_timeout):
            return
        try:
            self._founding.check_own()  # it may know the cluster's only now
        except ConfigError as error:
            self._fail(error)
        else:
            await server.grpc.serving()
            await self.registering.keep(self.request_timeout)

    def _waits(self) -> dict[int, str]:
        return self._duties.changes.waiting

    def _learner_rate(self) -> int:
        return self.metadata.settings.get(LEARNER_RATE, self.config.learner_bytes_per_s)

    def _on_lease_lifetime(self, lifetime_ms: int) -> None:
        self._producer_ids.set_max_age(max_block_age_s(lifetime_ms))

    def _on_layout(self) -> None:
        self.others.follow()
        self._group_members.metadata_changed()

    def _on_sync(self, seconds: float) -> None:
        self._health.observe(seconds)
        self.metrics.fsync_latency.observe(seconds)
        if seconds > SLOW_SYNC_S:
            text = f"an fsync took {seconds:.1f} s"
            self.metrics.events.note(SLOW, "cluster", "", text, same=("fsync",))

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    # -- network ------------------------------------------------------------------------

    def _receive(self, peer: int, messages: list[Message]) -> None:
        for_groups: list[Message] = []
        for message in messages:
            if message.__class__ not in NODE_MESSAGES:
                for_groups.append(message)
            elif isinstance(message, ClockProbe | ClockReply):
                self._clocks.receive(peer, message)
            elif isinstance(message, NewsMessage):
                self._news.receive(peer, message)
        self._driver.receive(peer, for_groups)

    def _on_leadership(self, gid: int) -> None:
        replica = self._replicas.by_group.get(gid)
        if replica is not None:
            replica.notify()  # its readers belong to the new leader

    def _on_link(self, peer: int, up: bool) -> None:
        self._driver.set_link(peer, up)
        if not up:
            self._requests.lost(peer)
        self._clocks.linked(peer, up)
        self._news.linked(peer, up)
        self._leaders.notify()

    def _on_role(self, gid: int) -> None:
        group = self._driver.groups.get(gid)
        if group is not None and isinstance(group.failed, OlderReleaseError):
            self._fail(group.failed)
        if group is not None and group.is_leader:
            if not group.is_ready:
                self.metrics.elections += 1
            self._news.leads(gid)
        self._leaders.notify()
        replica = self._replicas.by_group.get(gid)
        if replica is None or replica.topic == OFFSETS_TOPIC:
            asyncio.get_running_loop().call_soon(self._group_members.role_changed)  # may propose

    async def _install(self, sender: int, snapshot: Snapshot) -> pb.SnapshotResult:
        """Check a leader's snapshot in a thread, then install it between two rounds."""
        if snapshot.group not in self._driver.groups:
            return pb.SnapshotResult(refused=NO_REPLICA)
        checked: asyncio.Future[Checked] = asyncio.get_running_loop().create_future()

        def done(found: Checked) -> None:
            if not checked.done():  # its link may have broken
                checked.set_result(found)

        self._driver.check(snapshot, done)
        install = partial(self._install_now, sender, await checked)
        return await self._driver_loop.between_rounds(install)

    def _install_now(self, sender: int, checked: Checked) -> pb.SnapshotResult:
        group = self._driver.groups.get(checked.snapshot.group)
        if group is None:
            return pb.SnapshotResult(refused=NO_REPLICA)
        if self._driver.storage_full:
            return pb.SnapshotResult(refused="this node's disk is full")
        try:
            taken = self._driver.install(sender, checked)
        except SnapshotError as error:
            log.error("snapshot refused sender=%d: %s", sender, error)
            return pb.SnapshotResult(refused=str(error))
        return pb.SnapshotResult(installed=taken, term=group.term)

    # -- metadata -----------------------------------------------------------------------

    def _on_metadata_applied(self, index: int) -> None:
        # Groups are opened and closed after this round: apply runs inside it.
        asyncio.get_running_loop().call_soon(self._follower.follow)
        self._proposer.on_applied(index)
        self._transactions.changed()

    async def _allocate_producer_ids(self) -> int:
        command = mpb.MetadataCommand(
            allocate_producer_ids=mpb.AllocateProducerIds(
                node_id=self.config.node_id, count=self.config.pid_block_size
            )
        )
        result = await self._proposer.propose(command, self.request_timeout)
        if result.error:
            raise ClusterError(f"{result.error}: {result.message}")
        return result.first_producer_id


def _serve_probes(config: NodeConfig, stack: contextlib.AsyncExitStack) -> Probes:
    """Serve probes first, if they have a port: a new node may wait for long to be added.

    Raises ListenError.
    """
    probes = Probes(time.monotonic)
    if config.health_listen:
        stack.callback(serve_pages("health_listen", config.health_listen, probes.pages))
    return probes


def _serve_metrics(
    config: NodeConfig, stack: contextlib.AsyncExitStack, security: Security
) -> Metrics:
    """Serve metrics, if they have a port. Raises ListenError."""
    metrics = Metrics()
    if config.metrics_listen:
        pages = {"/targets": lambda query: scrape_targets(config)}
        stack.callback(metrics.start_http(config.metrics_listen, security.page, pages))
    return metrics
