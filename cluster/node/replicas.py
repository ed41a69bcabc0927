"""Opens, keeps and closes this node's replicas: one group each, over one driver.

    metadata (topic created, deleted, altered) --> Replicas --> Driver.groups

It is the only place that builds a Partition with its stores and its Group. The
simulator runs it with a clock, a store and a partition class of its own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from cluster.config import NodeConfig
from cluster.consensus.commit_proof import take_proof
from cluster.consensus.configuration import CONFIGURATION
from cluster.consensus.driver import Driver
from cluster.consensus.environment import Environment, GroupConfig, StateMachine
from cluster.consensus.group import Group
from cluster.consensus.tombstone import Tombstone, unpack_tombstone
from cluster.features import Features
from cluster.metadata.nodes import NodesView
from cluster.metadata.settings import MAX_BATCH_BYTES
from cluster.metadata.topics import PartitionState, TopicSettings, TopicState
from cluster.node.clock_agreement import ClockAgreement
from cluster.partition.replica import Partition, Policy
from cluster.partition.types import Names, NodeView
from storage.checkpoints import CheckpointStore
from storage.errors import StorageError
from storage.kv import KeyValue, WriteBatch
from storage.offset_index import OffsetIndex
from storage.raft_log import RaftLogStore

log = logging.getLogger(__name__)

METADATA_GROUP = 0
MIN_TAIL_BYTES = 256 * 1024  # of each replica


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """A node's settings for its replicas. Timeouts in seconds.

    directory_id: of this node's data directory.
    tail_cache_bytes: of all replicas together; each has `min_tail_bytes` at least.
    """

    node_id: int
    directory_id: int
    election_timeout: float
    heartbeat: float
    checkpoint_bytes: int
    checkpoint_entries: int
    tail_cache_bytes: int
    min_tail_bytes: int
    max_batch_bytes: int
    last_seen_capacity: int

    @classmethod
    def of(cls, config: NodeConfig, directory_id: int) -> ReplicaSettings:
        return cls(
            node_id=config.node_id,
            directory_id=directory_id,
            election_timeout=config.election_timeout_ms / 1000,
            heartbeat=config.heartbeat_ms / 1000,
            checkpoint_bytes=config.checkpoint_bytes,
            checkpoint_entries=config.checkpoint_entries,
            tail_cache_bytes=config.tail_cache_bytes,
            min_tail_bytes=MIN_TAIL_BYTES,
            max_batch_bytes=config.max_batch_bytes,
            last_seen_capacity=config.last_seen_capacity,
        )


def prepare_metadata(store: KeyValue, instance: int) -> None:
    """Before the metadata group is opened in a directory that has joined as this instance.

    What is there of another was written before it joined, and nobody heard of it.
    """
    log_store, batch = RaftLogStore(store, METADATA_GROUP), store.batch()
    if log_store.instance() != instance:
        log_store.destroy(batch)
        log_store.put_instance(batch, instance)
        store.write(batch)
        store.sync()


class Metadata(Names, Protocol):
    """What replicas and maintenance need of the metadata. `MetadataState` is one."""

    @property
    def lease_lifetime_ms(self) -> int: ...
    @property
    def features(self) -> Features: ...
    @property
    def settings(self) -> Mapping[str, int]: ...
    def topic(self, name: str) -> TopicState | None: ...
    def topics(self) -> list[TopicState]: ...
    def partition(self, group_id: int) -> tuple[TopicState, int, PartitionState] | None: ...
    @property
    def membership(self) -> NodesView: ...
    def expired_below(self, now_ms: int, lifetime_ms: int) -> int: ...


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """What all replicas of a node use.

    clocks:         this node's wall clock as far as a majority shares it.
    linked:         the peers whose link is up.
    on_role(gid):   a replica began or ceased to lead, or to be ready.
    leader_changed: a replica knows of another leader than before.
    """

    kv: KeyValue
    driver: Driver
    clock: Callable[[], float]
    clocks: ClockAgreement
    rng: random.Random
    metadata: Metadata
    linked: Collection[int]
    on_role: Callable[[int], None]
    leader_changed: Callable[[], None]


class Replicas:
    """This node's partitions, by group id and by (topic, partition).

    partition_class: what a group's partition is made with; the simulator watches its own.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        context: ReplicaContext,
        partition_class: Callable[[int], type[Partition]] = lambda gid: Partition,
    ) -> None:
        self._settings, self._context = settings, context
        self._partition_class = partition_class
        self.by_group: dict[int, Partition] = {}
        self._tail_bytes = settings.tail_cache_bytes
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.broken: dict[int, Exception] = {}
        # What a replica left must be written away before the next is opened.
        self.incomplete = False
        self._destroyed_in: dict[int, WriteBatch] = {}

    # -- what the metadata wants ----------------------------------------------------

    def reconcile(self) -> None:
        """Opens and closes replicas so that they are what the metadata says."""
        node = self._settings.node_id
        admitted = self._context.metadata.membership.admits(node, self._settings.directory_id)
        self.incomplete = False
        wanted: dict[int, tuple[TopicState, int]] = {}
        changed: dict[int, PartitionState] = {}  # those that may have had a replica here
        for topic in self._context.metadata.topics():
            for index, record in enumerate(topic.partitions):
                if self._shall_hold(record, admitted=admitted):
                    wanted[record.group_id] = (topic, index)
                if record.version:
                    changed[record.group_id] = record
        self._drop_tombstones()
        for gid in list(self.by_group):
            self._close_unless_wanted(gid, wanted.get(gid), changed.get(gid))
        for gid in changed.keys() - self._context.driver.tombstones.keys() - self.broken.keys():
            self._load_tombstone(gid)
        for gid, (topic, index) in wanted.items():
            if gid in self.by_group or gid in self.broken:
                continue
            try:
                if not self._may_open(topic.partitions[index]):
                    continue
                group = self.open(topic, index)
            except StorageError as error:
                # What is stored of it is damaged. The other replicas go on.
                name = f"{topic.name}-{index}"
                log.critical("replica not opened partition=%s group=%d: %s", name, gid, error)
                self.broken[gid] = error
                continue
            is_new = group.term == 0
            if is_new and topic.partitions[index].replicas[0] == node:
                group.campaign()

    def _shall_hold(self, record: PartitionState, *, admitted: bool) -> bool:
        """Whether this directory shall have a replica: what an older one had is lost.

        A directory that is not known, or not any more, opens nothing; what is open stays, for
        it is what it was.
        """
        node = self._settings.node_id
        if node not in record.replicas:
            return False
        if record.group_id in self.by_group:
            return True
        return admitted and (node, record.instance_of(node)) not in record.lost

    def _close_unless_wanted(
        self, gid: int, wanted: tuple[TopicState, int] | None, record: PartitionState | None
    ) -> None:
        """Closes a replica whose topic was deleted, or that was removed from its group."""
        held = self.by_group[gid]
        group, node = held.group, self._settings.node_id
        if wanted is not None:
            topic, index = wanted
            if topic.partitions[index].instance_of(node) <= group.config.instance:
                if record is not None and record.version > group.members.version:
                    # Who told it first may be gone, with all that would prove it.
                    place = (record.index, record.index_term)
                    take_proof(group.core, group.journal, *place)
                    self._context.driver.touch(gid)
                return
        if record is None:
            log.info("partition deleted partition=%s-%d", held.topic, held.index)
            self.delete(gid)
            return
        tombstone = group.removed or Tombstone(
            group.config.instance, record.version, record.index, record.index_term, group.term
        )
        log.info("replica removed partition=%s-%d", held.topic, held.index)
        self.delete(gid, tombstone)

    def _drop_tombstones(self) -> None:
        """Those of topics that were deleted."""
        driver, metadata = self._context.driver, self._context.metadata
        for gid in [gid for gid in driver.tombstones if metadata.partition(gid) is None]:
            del driver.tombstones[gid]
            self._destroy(gid, None)

    def _load_tombstone(self, gid: int) -> None:
        try:
            stored = RaftLogStore(self._context.kv, gid).tombstone()
            if stored:
                self._context.driver.tombstones[gid] = unpack_tombstone(stored)
        except StorageError as error:
            log.critical("tombstone not read group=%d: %s", gid, error)
            self.broken[gid] = error

    def _may_open(self, record: PartitionState) -> bool:
        """Not what was removed here, nor before what an older one left is gone."""
        gid, wanted = record.group_id, record.instance_of(self._settings.node_id)
        driver, store = self._context.driver, RaftLogStore(self._context.kv, record.group_id)
        if self._destroyed_in.get(gid) is driver.batch:
            self.incomplete = True
            return False
        self._destroyed_in.pop(gid, None)
        tombstone, stored = driver.tombstones.get(gid), store.instance()
        if stored > wanted or (tombstone is not None and wanted <= tombstone.instance):
            return False  # this copy of the metadata is behind
        if stored < wanted and not store.is_new():
            place = (record.version, record.index, record.index_term)
            self._destroy(gid, Tombstone(stored, *place, 0))
            self.incomplete = True
            return False
        if stored < wanted:
            store.put_instance(driver.batch, wanted)
        return True

    def _destroy(self, gid: int, tombstone: Tombstone | None) -> None:
        """Drops all that a replica stored. It is there until the open batch is written."""
        driver, left = self._context.driver, b""
        if tombstone is not None:
            driver.tombstones[gid], left = tombstone, tombstone.pack()
        RaftLogStore(self._context.kv, gid).destroy(driver.batch, left)
        self._destroyed_in[gid] = driver.batch
        driver.touch(gid)  # to be written soon

    def apply_settings(self) -> None:
        """Topics were altered, or the lease lifetime has changed."""
        for partition in self.by_group.values():
            topic = self._context.metadata.topic(partition.topic)
            if topic is not None:
                partition.alter(self._policy(topic.settings))

    def open(self, topic: TopicState, index: int) -> Group:
        """Opens this node's replica of a partition. Raises StorageError if it is damaged."""
        record, context = topic.partitions[index], self._context
        gid = record.group_id
        assert gid not in self.by_group and gid != METADATA_GROUP
        partition = self._partition_class(gid)(
            topic.name,
            index,
            OffsetIndex(context.kv, gid),
            self._policy(topic.settings),
            NodeView(
                now_ms=context.clocks.now_ms,
                touch=partial(context.driver.touch, gid),
                storage_full=partial(getattr, context.driver, "storage_full"),
                clock_agreed=partial(getattr, context.clocks, "agreed"),
                features=context.metadata.features,
            ),
            lambda machine: self._group(
                gid,
                record.founding or record.replicas,
                machine,
                f"{topic.name}-{index}",
                record.instance_of(self._settings.node_id),
            ),
            on_role=lambda: context.on_role(gid),
            capacity=self._settings.last_seen_capacity,
        )
        self._add(partition.group)
        self.by_group[gid] = partition
        self._share_tail_cache()
        self.by_name[topic.name, index] = partition
        return partition.group

    def delete(self, gid: int, tombstone: Tombstone | None = None) -> None:
        """Closes a replica and drops all that it stored; tombstone: it was removed."""
        partition = self.by_group.pop(gid)
        self._share_tail_cache()
        del self.by_name[partition.topic, partition.index]
        group = self._context.driver.remove(gid)
        group.close("the replica is gone")
        partition.close()
        self._destroy(gid, tombstone)

    def open_metadata(
        self, members: Collection[int], machine: StateMachine, instance: int = 0
    ) -> Group:
        """Opens the metadata group. instance: of this directory, if it has joined."""
        group = self._group(METADATA_GROUP, members, machine, "metadata", instance)
        self._add(group)
        return group

    # -- parts ------------------------------------------------------------------------

    def _group(
        self,
        gid: int,
        members: Collection[int],
        machine: StateMachine,
        name: str,
        instance: int = 0,
    ) -> Group:
        """Opens a group's stores. members: those that it began with."""
        settings, context = self._settings, self._context
        return Group(
            GroupConfig(
                group=gid,
                node_id=settings.node_id,
                peers=tuple(node for node in members if instance or node != settings.node_id),
                instance=instance,
                election_timeout=settings.election_timeout,
                heartbeat=settings.heartbeat,
                checkpoint_bytes=settings.checkpoint_bytes,
                checkpoint_entries=settings.checkpoint_entries,
                name=name,
                notify_commits=gid == METADATA_GROUP,
            ),
            RaftLogStore(context.kv, gid),
            CheckpointStore(context.kv, gid),
            machine,
            Environment(
                clock=context.clock,
                rng=context.rng,
                batch=partial(getattr, context.driver, "batch"),
                tail_bytes=partial(getattr, self, "_tail_bytes"),
                replay=context.driver.replay,
                windows=context.driver.windows,
                reads=context.driver.reads,
                leader_changed=context.leader_changed,
                stopped=context.driver.on_stopped,
                may_lead=partial(getattr, context.clocks, "agreed"),
                may_change=lambda: context.metadata.features.may_write(CONFIGURATION),
            ),
        )

    def _add(self, group: Group) -> None:
        """Hands a group to the driver."""
        for peer in self._context.linked:
            group.set_link(peer, True)
        self._context.driver.add(group)

    def _share_tail_cache(self) -> None:
        """Each replica may keep an equal part of the cache."""
        share = self._settings.tail_cache_bytes // max(1, len(self.by_group))
        self._tail_bytes = max(self._settings.min_tail_bytes, share)

    def _policy(self, settings: TopicSettings) -> Policy:
        """What a topic's settings mean on this node."""
        metadata, now_ms = self._context.metadata, self._context.clocks.now_ms
        cap = metadata.settings.get(MAX_BATCH_BYTES, self._settings.max_batch_bytes)
        return Policy(
            max_batch_bytes=min(settings.max_batch_bytes, cap),
            expected_offsets=settings.expected_offsets,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            lease_lifetime_ms=metadata.lease_lifetime_ms,
            expired_below=lambda: metadata.expired_below(now_ms(), metadata.lease_lifetime_ms),
            names=metadata,
        )
