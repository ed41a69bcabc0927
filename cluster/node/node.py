"""One node: everything is made here, wired here, and taken down here.

    __main__ -> Node.start: directory lock, engine, metadata group, partitions,
                            peer links, gRPC server, periodic duties
             -> Node.stop:  leadership handed over, checkpoints, last sync, close

Also the node's side of the services' contexts: who leads, who lives, where a
partition is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Collection

from cluster.config import NodeConfig
from cluster.consensus.driver import Driver
from cluster.consensus.message import Leadership, Message, Snapshot
from cluster.consensus.replay_budget import ReplayBudget
from cluster.errors import ClusterError, NotLeaderError
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.producer_ids import ProducerIdBlocks, max_block_age_s
from cluster.metadata.state import MetadataState, TermsChanged, TopicAltered
from cluster.metrics import Metrics
from cluster.node.driver_loop import Runner
from cluster.node.maintenance import Duties
from cluster.node.metadata_proposer import Controller
from cluster.node.metrics_sample import figures
from cluster.node.replicas import METADATA_GROUP, Replicas, Shared, wall_clock_ms
from cluster.node.server import Server
from cluster.partition.replica import Partition
from cluster.services.cluster_service import ClusterService
from cluster.services.group_service import GroupService
from cluster.services.log_service import LogService, add_log_service
from cluster.services.producer_service import ProducerService
from cluster.transport.link import MAX_FRAME_BYTES, Identity, PeerLink
from cluster.transport.listener import PeerListener, PeerService
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from oncelog.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    group_pb2,
    group_pb2_grpc,
    log_pb2,
    producer_pb2,
    producer_pb2_grpc,
)
from storage.engine import Engine
from storage.errors import StorageError
from storage.identity import DirectoryLock, claim
from storage.options import EngineOptions

log = logging.getLogger(__name__)

# How long a refusal by a peer may last: it may still see this node's last life.
REFUSAL_PATIENCE = 15.0
HANDOVER_PATIENCE = 3.0
WAKE_SLACK = 0.1  # of the heartbeat's period: how late a timeout may come
GRACE = 1.0  # seconds that calls under way get when the server stops


class Node:
    """A running node. Also `services.context.NodeContext` and `log_service.LogContext`."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self.request_timeout = config.request_timeout_ms / 1000
        self.fetch_max_bytes = config.fetch_max_bytes
        self.metadata = MetadataState()
        self.failure: asyncio.Future[BaseException] | None = None
        self._links: dict[int, PeerLink] = {}
        self._elsewhere: dict[int, tuple[int, int]] = {}  # group -> (term, leader)
        self._leader_news = asyncio.Event()
        self._linked_since: dict[int, float] = {}
        self._refused_since: dict[int, float] = {}
        self._stack = contextlib.AsyncExitStack()
        self._lock: DirectoryLock | None = None

    # -- life ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises storage.LockedError, storage.IdentityError, StorageError, ListenError."""
        config = self.config
        self.failure = asyncio.get_running_loop().create_future()
        self._lock = claim(config.data_dir, config.cluster_id, config.node_id)
        self._stack.callback(self._lock.release)
        self._identity = Identity(
            config.cluster_id,
            config.node_id,
            incarnation=int.from_bytes(os.urandom(8)),
            directory_id=self._lock.directory_id,
        )
        self._bind()
        options = EngineOptions(page_cache_bytes=config.page_cache_bytes)
        self.engine = Engine.open(config.data_dir / "db", options=options, directory=self._lock)
        self._stack.callback(self.engine.close)
        self.runner = Runner(
            time.monotonic,
            config.election_timeout_ms / 2000,
            config.heartbeat_ms / 1000 * WAKE_SLACK,
            self.metrics.fsync_latency.observe,
            self._fail,
        )
        replay = ReplayBudget(config.checkpoint_node_bytes)
        self.driver = Driver(self.engine, time.monotonic, self._send, self.runner.wake, replay)
        self.replicas = Replicas(
            Shared(
                config=config,
                kv=self.engine,
                driver=self.driver,
                clock=time.monotonic,
                now_ms=wall_clock_ms,
                rng=random.Random(),
                metadata=self.metadata,
                on_role=self._on_role,
            )
        )
        self._open_metadata()
        await self._serve()
        for peer, address in config.nodes.items():
            if peer != config.node_id:
                self._links[peer] = PeerLink(
                    self._identity,
                    peer,
                    address,
                    config.peer_stream_of(peer),
                    self._on_link,
                    self._on_refusal,
                )
        self.runner.start(self.driver)
        self.duties = Duties(
            config,
            self.driver,
            self.replicas,
            self.controller,
            self.metadata,
            self._links,
            self._linked_since,
            self.engine.reclaim,
        )
        self.duties.start()
        self._registration = asyncio.create_task(self._register())
        log.info(
            "node started cluster=%s node=%d listen=%s data=%s",
            config.cluster_id,
            config.node_id,
            config.listen,
            config.data_dir,
        )

    def _open_metadata(self) -> None:
        config = self.config
        machine = MetadataMachine(self.metadata, self._on_metadata_applied)
        peers = tuple(node for node in config.nodes if node != config.node_id)
        group = self.replicas.new_group(METADATA_GROUP, peers, machine, "metadata")
        self.controller = Controller(
            group,
            self._links,
            lambda: self.driver.touch(METADATA_GROUP),
            wall_clock_ms,
            lease_lifetime_ms=config.lease_lifetime_ms,
            producer_name_expiry_ms=config.producer_name_expiry_ms,
        )
        machine.role_listener = lambda: self._on_role(METADATA_GROUP)
        self._producer_ids = ProducerIdBlocks(
            self._allocate_producer_ids,
            config.pid_block_size,
            max_age_s=max_block_age_s(config.lease_lifetime_ms),
            clock=time.monotonic,
        )
        self._follow_metadata()

    def _bind(self) -> None:
        """Takes the ports, before anything in the data directory is touched."""
        config = self.config
        self.server = Server(config)
        offered = self.server.grpc
        add_log_service(LogService(self), offered)
        cluster_pb2_grpc.add_ClusterServiceServicer_to_server(ClusterService(self), offered)
        producer_pb2_grpc.add_ProducerServiceServicer_to_server(self._producer_service(), offered)
        group_pb2_grpc.add_GroupServiceServicer_to_server(
            GroupService(self, now_ms=wall_clock_ms), offered
        )
        self.server.add_peers(PeerService(dict(config.nodes), self._install, self._propose_here))
        self.listener = PeerListener(
            self._identity,
            dict(config.nodes),
            self._receive,
            self.metadata.directory_of,
            config.max_message_bytes + MAX_FRAME_BYTES,
        )
        if config.peer_listen:
            self.listener.bind(config.peer_listen)
        if config.metrics_listen:
            self._stack.callback(self.metrics.start_http(config.metrics_listen))
        files = (log_pb2, cluster_pb2, producer_pb2, group_pb2)
        services = (
            service for file in files for service in file.DESCRIPTOR.services_by_name.values()
        )
        self.server.bind([service.full_name for service in services])

    async def _serve(self) -> None:
        self.metrics.source = lambda: figures(self.replicas.by_group.values(), self._linked_since)
        self.metrics.storage = self.engine.stats
        await self.server.start()
        if self.config.peer_listen:
            await self.listener.start()

    def _producer_service(self) -> ProducerService:
        return ProducerService(
            self, now_ms=wall_clock_ms, new_nonce=lambda: int.from_bytes(os.urandom(8))
        )

    async def stop(self) -> None:
        """Hands leadership over, finishes calls, saves checkpoints, closes. Never raises."""
        if hasattr(self, "duties"):
            await self.duties.stop()
        if hasattr(self, "server"):
            await self.server.leave()
        if hasattr(self, "driver"):
            await self._hand_over()
        if hasattr(self, "server"):
            await self.server.stop(GRACE)
        if hasattr(self, "listener"):
            self.listener.stop()
        if hasattr(self, "runner"):
            await self.runner.stop()
        if hasattr(self, "_producer_ids"):  # not if the metadata group did not open
            await self._producer_ids.close()
        if hasattr(self, "_registration"):
            self._registration.cancel()
            await asyncio.gather(self._registration, return_exceptions=True)
        for link in self._links.values():
            await link.close()
        if hasattr(self, "driver"):
            for group in self.driver.groups.values():
                group.close("this node is shutting down")
                if group.failed is None:
                    group.checkpoint()
            try:
                self.engine.write(self.driver.batch)
                self.engine.sync()
            except StorageError as error:
                log.error("the last checkpoints were not saved: %s", error)
        await self._stack.aclose()
        log.info("node stopped node=%d", self.config.node_id)

    async def _hand_over(self) -> None:
        led = [group for group in self.driver.groups.values() if group.is_leader]
        for group in led:
            successor = group.best_successor()
            if successor:
                group.transfer(successor)
                self.driver.touch(group.config.group)
        try:
            async with asyncio.timeout(HANDOVER_PATIENCE):
                while any(group.is_leader and group.best_successor() for group in led):
                    await self._next_leader_news()
        except TimeoutError:
            log.warning("leadership was not handed over in time")

    def _fail(self, error: BaseException) -> None:
        assert self.failure is not None
        if not self.failure.done():
            self.failure.set_result(error)

    # -- network ------------------------------------------------------------------------

    def _send(self, peer: int, messages: list[Message]) -> None:
        link = self._links.get(peer)
        if link is not None:
            link.send(messages)

    def _receive(self, peer: int, messages: list[Message]) -> None:
        for_groups: list[Message] = []
        for message in messages:
            if isinstance(message, Leadership):
                self._note_elsewhere(message)
            else:
                for_groups.append(message)
        self.driver.receive(peer, for_groups)

    def _note_elsewhere(self, news: Leadership) -> None:
        if news.term >= self._elsewhere.get(news.group, (0, 0))[0]:
            self._elsewhere[news.group] = (news.term, news.leader)
            self._tell_leader_news()
            replica = self.replicas.by_group.get(news.group)
            if replica is not None:
                replica.notify()  # its readers belong to the new leader

    def _on_link(self, peer: int, up: bool) -> None:
        self.driver.set_link(peer, up)
        if not up:
            self._linked_since.pop(peer, None)
            return
        self._linked_since[peer] = time.monotonic()
        self._refused_since.pop(peer, None)
        led = [group for group in self.driver.groups.values() if group.is_leader]
        self._send(peer, [self._leadership(group.config.group) for group in led])

    def _on_refusal(self, peer: int, reason: str) -> None:
        """A refusal that lasts is a fault of this node's settings: it must end."""
        now = time.monotonic()
        since = self._refused_since.setdefault(peer, now)
        if reason and now - since > REFUSAL_PATIENCE:
            self._fail(ClusterError(f"node {peer} refuses this node: {reason}"))

    def _leadership(self, gid: int) -> Leadership:
        return Leadership(gid, self.driver.groups[gid].term, self.config.node_id)

    def _on_role(self, gid: int) -> None:
        group = self.driver.groups.get(gid)
        if group is not None and group.is_leader:
            if not group.is_ready:
                self.metrics.elections += 1
            for peer in self._links:
                self._send(peer, [self._leadership(gid)])
        self._tell_leader_news()

    def _tell_leader_news(self) -> None:
        news, self._leader_news = self._leader_news, asyncio.Event()
        news.set()

    async def _next_leader_news(self) -> None:
        # A follower learns its leader from an append, which tells nobody: look again.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._leader_news.wait()

    async def _install(self, sender: int, snapshot: Snapshot) -> pb.SnapshotResult:
        """Takes a leader's snapshot between two rounds of the driver."""
        return await self.runner.between_rounds(lambda: self._install_now(sender, snapshot))

    def _install_now(self, sender: int, snapshot: Snapshot) -> pb.SnapshotResult:
        group = self.driver.groups.get(snapshot.group)
        if group is None:
            return pb.SnapshotResult(refused="no replica of this group here")
        if self.driver.storage_full:
            return pb.SnapshotResult(refused="this node's disk is full")
        taken = self.driver.install(sender, snapshot)
        return pb.SnapshotResult(installed=taken, term=group.term)

    # -- metadata -----------------------------------------------------------------------

    def _on_metadata_applied(self, index: int) -> None:
        # Groups are opened and closed after this round: apply runs inside it.
        asyncio.get_running_loop().call_soon(self._follow_metadata)
        self.controller.on_applied(index)

    def _follow_metadata(self) -> None:
        events = self.metadata.take_events()
        if not events:
            return
        for event in events:
            if isinstance(event, TopicAltered):
                self.replicas.alter(event.topic.name, event.topic.settings)
            elif isinstance(event, TermsChanged):
                self.replicas.follow_terms()
                self._producer_ids.set_max_age(max_block_age_s(self.metadata.lease_lifetime_ms))
        self.replicas.reconcile()
        for partition in self.replicas.by_group.values():
            assert partition.group is not None
            for peer, link in self._links.items():
                if link.up and peer in partition.group.config.peers:
                    partition.group.set_link(peer, True)
        if hasattr(self, "controller"):
            self.controller.group.checkpoint()
            self.driver.touch(METADATA_GROUP)
        self._tell_leader_news()

    async def propose_metadata(
        self, command: mpb.MetadataCommand, timeout: float
    ) -> mpb.MetadataResult:
        """See Controller.propose."""
        return await self.controller.propose(command, timeout)

    async def _propose_here(self, command: bytes) -> pb.ProposeMetadataResponse:
        return await self.controller.propose_here(command)

    async def _allocate_producer_ids(self) -> int:
        command = mpb.MetadataCommand(
            allocate_producer_ids=mpb.AllocateProducerIds(
                node_id=self.config.node_id, count=self.config.pid_block_size
            )
        )
        result = await self.controller.propose(command, self.request_timeout)
        if result.error:
            raise ClusterError(f"{result.error}: {result.message}")
        return result.first_producer_id

    async def next_producer_id(self) -> int:
        return await self._producer_ids.next_id()

    def is_issued(self, producer_id: int) -> bool:
        return self.metadata.is_issued(producer_id)

    async def confirm_issued(self, producer_id: int) -> bool:
        """An empty command is refused by all replicas, but only after what came before it."""
        await self.controller.propose(mpb.MetadataCommand(), self.request_timeout)
        return self.metadata.is_issued(producer_id)

    # -- who is where -------------------------------------------------------------------

    def leader_of(self, group_id: int) -> tuple[int, int]:
        """(node id or 0, term).

        What a new leader told this node counts before what its own replica knows: one that
        has stopped, or cannot write because the disk is full, goes on leading an old term.
        """
        group = self.driver.groups.get(group_id)
        term, leader = self._elsewhere.get(group_id, (0, 0))
        if group is not None and term <= group.term:
            return group.leader_id, group.term
        return leader, term

    async def wait_for_leaders(self, group_ids: Collection[int], timeout: float) -> bool:
        """Whether each group has a leader that this node knows of, before the timeout."""
        try:
            async with asyncio.timeout(timeout):
                while not all(self.leader_of(gid)[0] for gid in group_ids):
                    await self._next_leader_news()
        except TimeoutError:
            return False
        return True

    @property
    def controller_id(self) -> int:
        return self.controller.group.leader_id

    def alive(self, node_id: int) -> bool:
        link = self._links.get(node_id)
        return node_id == self.config.node_id or (link is not None and link.up)

    def partition(self, group_id: int) -> Partition | None:
        return self.replicas.by_group.get(group_id)

    def find(self, topic: str, partition: int) -> tuple[Partition | None, int]:
        """See log_service.LogContext.find."""
        here = self.replicas.by_name.get((topic, partition))
        if here is not None and here.group is not None:
            return here, self.leader_of(here.group.config.group)[0]
        gid = self.metadata.group_of(topic, partition)
        if gid is None:
            raise KeyError((topic, partition))
        return None, self.leader_of(gid)[0]

    def address_of(self, node_id: int) -> str:
        return self.metadata.nodes.get(node_id, "")

    async def transfer_leadership(self, group_id: int, target: int) -> int:
        """Returns the leader afterwards. Raises NotLeaderError."""
        group = self.driver.groups.get(group_id)
        if group is None or not group.is_leader:
            leader = self.leader_of(group_id)[0]
            raise NotLeaderError("this node does not lead the partition", leader)
        target = target or group.best_successor()
        if target and target != self.config.node_id:
            group.transfer(target)
            self.driver.touch(group_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.request_timeout):
                    while self.leader_of(group_id)[0] in (0, self.config.node_id):
                        await self._next_leader_news()
        return self.leader_of(group_id)[0]

    # -- joining -------------------------------------------------------------------------

    async def _register(self) -> None:
        """Tells the cluster where clients reach this node, then says that it serves."""
        command = mpb.MetadataCommand(
            register_node=mpb.RegisterNode(
                node_id=self.config.node_id,
                address=self.config.advertised,
                directory_id=self._identity.directory_id,
            )
        )
        while True:
            with contextlib.suppress(ClusterError):
                await self.controller.propose(command, self.request_timeout)
                await self.server.serving()
                return
