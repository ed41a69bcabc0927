"""Opens, keeps and closes this node's replicas: one group each, over one driver.

    metadata (topic created, deleted, altered) --> Replicas --> Driver.groups

It is the only place that builds a Partition with its stores and its Group. The
simulator runs it with a clock, a store and a partition class of its own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from cluster.config.node_config import NodeConfig
from cluster.consensus.commit_proof import take_proof
from cluster.consensus.configuration import CONFIGURATION
from cluster.consensus.driver import Driver
from cluster.consensus.environment import Environment, GroupConfig, StateMachine
from cluster.consensus.group import Group
from cluster.consensus.tombstone import Tombstone, unpack_tombstone
from cluster.features import Features
from cluster.metadata.nodes import NodesView
from cluster.metadata.settings import MAX_BATCH_BYTES
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState, TopicSettings, TopicState
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.partition.replica import Partition, Policy
from cluster.partition.types import Cleanup, Names, NodeView
from storage.checkpoints import CheckpointStore
from storage.errors import StorageError
from storage.kv import KeyValue, WriteBatch
from storage.offset_index import OffsetIndex
from storage.raft_log import RaftLogStore

log = logging.getLogger(__name__)

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
    """Prepare a directory that has joined as this instance, before its metadata group opens.

    Data of another instance was written before it joined, and no node heard of it.
    """
    log_store, batch = RaftLogStore(store, METADATA_GROUP), store.batch()
    if log_store.instance() != instance:
        log_store.destroy(batch)
        log_store.put_instance(batch, instance)
        store.write(batch)
        store.sync()


class PlacementView(Names, Protocol):
    """The metadata for replicas and maintenance. `MetadataState` is one."""

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
    """Parts that all replicas of a node use.

    clocks:         this node's wall clock as far as a majority shares it.
    linked:         the peers whose link is up.
    on_role(gid):   a replica began or ceased to lead, or to be ready.
    leader_changed: a replica knows of another leader than before.
    takes_part:     whether this start of the node is known to the cluster.
    """

    kv: KeyValue
    driver: Driver
    clock: Callable[[], float]
    clocks: ClockAgreement
    rng: random.Random
    metadata: PlacementView
    linked: Collection[int]
    on_role: Callable[[int], None]
    leader_changed: Callable[[], None]
    takes_part: Callable[[], bool] = lambda: True


class Broken(NamedTuple):
    """A replica that could not be opened: its stored data is damaged.

    instance: of the stored data; None: unreadable. Such a replica is not rebuilt: it might be
    newer than this node's copy of the metadata knows.
    """

    error: StorageError
    instance: int | None


class Replicas:
    """This node's partitions, by group id and by (topic, partition).

    partition_class: of a group's partition; the simulator watches its own.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        context: ReplicaContext,
        partition_class: Callable[[int], type[Partition]] = lambda gid: Partition,
    ) -> None:
        self._settings = settings
        self._context = context
        self._partition_class = partition_class
        self.by_group: dict[int, Partition] = {}
        self._tail_bytes = settings.tail_cache_bytes
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.broken: dict[int, Broken] = {}
        # Groups to look at again: an old replica's data must be erased before the next opens,
        # or this replica has not applied yet what the metadata shows.
        self.incomplete: set[int] = set()
        self._unproven: set[int] = set()
        self._admitted = False
        self._looked_for_tombstone: set[int] = set()
        self._destroyed_in: dict[int, WriteBatch] = {}

    # -- wanted by the metadata -----------------------------------------------------

    def reconcile(self, touched: Collection[int] = ()) -> None:
        """Open and close replicas as the metadata says.

        touched: the groups that may have changed since the last call; of all others, only those
        left unfinished then are looked at.
        """
        node, metadata = self._settings.node_id, self._context.metadata
        admitted = metadata.membership.admits(node, self._settings.directory_id)
        groups = {*touched, *self.incomplete, *self._unproven}
        if admitted and not self._admitted:
            groups.update(one.group_id for topic in metadata.topics() for one in topic.partitions)
        self._admitted = admitted
        self.incomplete = set()
        self._unproven = set()
        found = {gid: metadata.partition(gid) for gid in sorted(groups)}
        wanted: dict[int, tuple[TopicState, int]] = {}
        changed: dict[int, PartitionState] = {}  # those that may have had a replica here
        for gid, place in found.items():
            if place is None:
                continue
            topic, index, record = place
            if self._shall_hold(record, admitted=admitted):
                wanted[gid] = (topic, index)
            if record.version:
                changed[gid] = record
        self._drop_tombstones({gid for gid, place in found.items() if place is None})
        self._drop_broken(found.keys(), changed)
        for gid in found.keys() & self.by_group.keys():
            self._close_unless_wanted(gid, wanted.get(gid), changed.get(gid))
        for gid in changed.keys() - self._looked_for_tombstone:
            self._load_tombstone(gid)
        for gid, (topic, index) in wanted.items():
            if gid not in self.by_group and gid not in self.broken:
                self._open_wanted(topic, index)

    def _open_wanted(self, topic: TopicState, index: int) -> None:
        """Open a replica unless data of an older one is in the way."""
        node, instance, record = self._settings.node_id, None, topic.partitions[index]
        try:
            if not self._may_open(record):
                return
            instance = record.instance_of(node)
            group = self.open(topic, index)
        except StorageError as error:
            # Its stored data is damaged. The other replicas go on.
            name, gid = f"{topic.name}-{index}", record.group_id
            log.critical("replica not opened partition=%s group=%d: %s", name, gid, error)
            self.broken[gid] = Broken(error, instance)
            return
        is_new = group.term == 0
        if is_new and record.replicas[0] == node:
            group.campaign()

    def _shall_hold(self, record: PartitionState, *, admitted: bool) -> bool:
        """Return whether this directory shall have a replica: an older directory's one is lost.

        A directory not known, or no longer, opens nothing; open replicas stay, for they are
        unchanged.
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
        """Close a replica whose topic was deleted, or that was removed from its group."""
        held = self.by_group[gid]
        group, node = held.group, self._settings.node_id
        if wanted is not None:
            topic, index = wanted
            if topic.partitions[index].instance_of(node) <= group.config.instance:
                newer = record is not None and record.version > group.members.version
                if record is not None and newer and group.failed is None:
                    # The node that told it first may be gone, with all that would prove it.
                    self._unproven.add(gid)
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

    def _drop_broken(self, groups: Set[int], changed: Mapping[int, PartitionState]) -> None:
        """Erase damaged replicas that were removed from their group."""
        for gid in groups & self.broken.keys():
            instance, record = self.broken[gid].instance, changed.get(gid)
            if record is None or instance is None:
                continue
            held = self._settings.node_id in record.replicas
            if held and record.instance_of(self._settings.node_id) <= instance:
                continue
            log.info("damaged replica removed group=%d", gid)
            del self.broken[gid]
            place = (record.version, record.index, record.index_term)
            self._destroy(gid, Tombstone(instance, *place, 0))

    def _drop_tombstones(self, deleted: Set[int]) -> None:
        driver = self._context.driver
        for gid in deleted & driver.tombstones.keys():
            del driver.tombstones[gid]
            self._destroy(gid, None)

    def _load_tombstone(self, gid: int) -> None:
        """Read it once: from then on only this process changes it."""
        self._looked_for_tombstone.add(gid)
        if gid in self._context.driver.tombstones or gid in self.broken:
            return
        try:
            stored = RaftLogStore(self._context.kv, gid).tombstone()
            if stored:
                self._context.driver.tombstones[gid] = unpack_tombstone(stored)
        except StorageError as error:
            log.critical("tombstone not read group=%d: %s", gid, error)
            self.broken[gid] = Broken(error, None)

    def _may_open(self, record: PartitionState) -> bool:
        """Refuse a replica that was removed here, and wait for the erasure of an older one."""
        gid, wanted = record.group_id, record.instance_of(self._settings.node_id)
        driver, store = self._context.driver, RaftLogStore(self._context.kv, record.group_id)
        if self._destroyed_in.get(gid) is driver.batch:
            self.incomplete.add(gid)
            return False
        self._destroyed_in.pop(gid, None)
        tombstone, stored = driver.tombstones.get(gid), store.instance()
        if stored > wanted or (tombstone is not None and wanted <= tombstone.instance):
            return False  # this copy of the metadata is behind
        if stored < wanted and not store.is_new():
            place = (record.version, record.index, record.index_term)
            self._destroy(gid, Tombstone(stored, *place, 0))
            self.incomplete.add(gid)
            return False
        if stored < wanted:
            store.put_instance(driver.batch, wanted)
        return True

    def _destroy(self, gid: int, tombstone: Tombstone | None) -> None:
        """Erase a replica's data. It is there until the open batch is written."""
        driver, left = self._context.driver, b""
        if tombstone is not None:
            driver.tombstones[gid], left = tombstone, tombstone.pack()
        RaftLogStore(self._context.kv, gid).destroy(driver.batch, left)
        self._destroyed_in[gid] = driver.batch
        driver.touch(gid)  # to be written soon

    def apply_settings(self) -> None:
        """Apply changed topics, or a changed lease lifetime."""
        for partition in self.by_group.values():
            topic = self._context.metadata.topic(partition.topic)
            if topic is not None:
                partition.alter(self._policy(topic.settings))

    def open(self, topic: TopicState, index: int) -> Group:
        """Open this node's replica of a partition. Raises StorageError if it is damaged."""
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
        """Close a replica and erase its data; tombstone: it was removed."""
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
        """Open the metadata group. instance: of this directory, if it has joined."""
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
        """Open a group's stores. members: those that it began with."""
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
                # The metadata group takes the starts: it cannot wait for its own.
                takes_part=context.takes_part if gid != METADATA_GROUP else lambda: True,
            ),
        )

    def _add(self, group: Group) -> None:
        """Hand a group to the driver."""
        for peer in self._context.linked:
            group.set_link(peer, True)
        self._context.driver.add(group)

    def _share_tail_cache(self) -> None:
        """Give each replica an equal part of the cache."""
        share = self._settings.tail_cache_bytes // max(1, len(self.by_group))
        self._tail_bytes = max(self._settings.min_tail_bytes, share)

    def _policy(self, settings: TopicSettings) -> Policy:
        """Return a topic's settings as a policy of this node."""
        metadata, now_ms = self._context.metadata, self._context.clocks.now_ms
        cap = metadata.settings.get(MAX_BATCH_BYTES, self._settings.max_batch_bytes)
        return Policy(
            max_batch_bytes=min(settings.max_batch_bytes, cap),
            expected_offsets=settings.expected_offsets,
            formats=settings.formats,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            cleanup=Cleanup(settings.cleanup_policy),
            min_compaction_lag_ms=settings.min_compaction_lag_ms,
            max_compaction_lag_ms=settings.max_compaction_lag_ms,
            delete_retention_ms=settings.delete_retention_ms,
            min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
            lease_lifetime_ms=metadata.lease_lifetime_ms,
            expired_below=lambda: metadata.expired_below(now_ms(), metadata.lease_lifetime_ms),
            names=metadata,
        )
