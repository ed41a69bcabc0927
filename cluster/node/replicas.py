"""Opens, keeps and closes this node's replicas: one group each, over one driver.

    metadata events (topic created, deleted, altered) --> Replicas --> Driver.groups

It is the only place that builds a Partition with its stores and its Group.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.config import NodeConfig
from cluster.consensus.driver import Driver
from cluster.consensus.environment import Environment, GroupConfig, StateMachine
from cluster.consensus.group import Group
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import TopicSettings
from cluster.partition.replica import Partition, Policy
from cluster.partition.types import NodeView
from storage.checkpoints import CheckpointStore
from storage.errors import StorageError
from storage.kv import KeyValue
from storage.offset_index import OffsetIndex
from storage.raft_log import RaftLogStore

log = logging.getLogger(__name__)

METADATA_GROUP = 0
MIN_TAIL_BYTES = 256 * 1024


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Shared:
    """What all replicas of a node use."""

    config: NodeConfig
    kv: KeyValue
    driver: Driver
    clock: Callable[[], float]
    now_ms: Callable[[], int]
    rng: random.Random
    metadata: MetadataState
    on_role: Callable[[int], None]


class Replicas:
    """This node's partitions, by group id and by (topic, partition)."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.by_group: dict[int, Partition] = {}
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.broken: dict[int, Exception] = {}

    def new_group(
        self, gid: int, peers: tuple[int, ...], machine: StateMachine, name: str
    ) -> Group:
        """Opens a group's stores and hands it to the driver."""
        shared, config = self._shared, self._shared.config
        group = Group(
            GroupConfig(
                group=gid,
                node_id=config.node_id,
                peers=peers,
                election_timeout=config.election_timeout_ms / 1000,
                heartbeat=config.heartbeat_ms / 1000,
                checkpoint_bytes=config.checkpoint_bytes,
                checkpoint_entries=config.checkpoint_entries,
                name=name,
                notify_commits=gid == METADATA_GROUP,
            ),
            RaftLogStore(shared.kv, gid),
            CheckpointStore(shared.kv, gid),
            machine,
            Environment(
                clock=shared.clock,
                rng=shared.rng,
                batch=lambda: shared.driver.batch,
                tail_bytes=self._tail_bytes,
                replay=shared.driver.replay,
            ),
        )
        shared.driver.add(group)
        return group

    def _tail_bytes(self) -> int:
        share = self._shared.config.tail_cache_bytes // max(1, len(self.by_group))
        return max(MIN_TAIL_BYTES, share)

    def open(self, gid: int, topic: str, index: int, replicas: tuple[int, ...]) -> Partition:
        assert gid not in self.by_group and gid != METADATA_GROUP
        shared, config = self._shared, self._shared.config
        topic_record = shared.metadata.topic(topic)
        assert topic_record is not None
        peers = tuple(node for node in replicas if node != config.node_id)
        partition = Partition(
            topic,
            index,
            OffsetIndex(shared.kv, gid),
            self.policy(topic_record.settings),
            NodeView(
                now_ms=shared.now_ms,
                touch=lambda: shared.driver.touch(gid),
                storage_full=lambda: shared.driver.storage_full,
            ),
            lambda machine: self.new_group(gid, peers, machine, f"{topic}-{index}"),
            on_role=lambda: shared.on_role(gid),
            capacity=config.last_seen_capacity,
        )
        self.by_group[gid] = partition
        self.by_name[topic, index] = partition
        return partition

    def policy(self, settings: TopicSettings) -> Policy:
        """What a topic's settings mean on this node."""
        shared, config = self._shared, self._shared.config

        def expired_below() -> int:
            metadata = shared.metadata
            return metadata.expired_below(shared.now_ms(), metadata.lease_lifetime_ms)

        return Policy(
            max_batch_bytes=min(settings.max_batch_bytes, config.max_batch_bytes),
            expected_offsets=settings.expected_offsets,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            lease_lifetime_ms=shared.metadata.lease_lifetime_ms,
            expired_below=expired_below,
            names=shared.metadata,
        )

    def alter(self, topic: str, settings: TopicSettings) -> None:
        for (name, _), partition in self.by_name.items():
            if name == topic:
                partition.alter(self.policy(settings))

    def follow_terms(self) -> None:
        """The lease lifetime has changed."""
        for partition in self.by_group.values():
            partition.policy.lease_lifetime_ms = self._shared.metadata.lease_lifetime_ms

    def delete(self, gid: int) -> None:
        """Closes a deleted topic's replica and drops all that it stored."""
        partition = self.by_group.pop(gid)
        del self.by_name[partition.topic, partition.index]
        group = self._shared.driver.remove(gid)
        group.close("the topic was deleted")
        partition.close()
        RaftLogStore(self._shared.kv, gid).destroy(self._shared.driver.batch)

    def reconcile(self) -> None:
        """Opens and closes replicas so that they are what the metadata says."""
        node = self._shared.config.node_id
        wanted = {
            record.group_id: (topic.name, index, tuple(record.replicas))
            for topic in self._shared.metadata.topics()
            for index, record in enumerate(topic.partitions)
            if node in record.replicas
        }
        for gid in [gid for gid in self.by_group if gid not in wanted]:
            gone = self.by_group[gid]
            log.info("partition deleted partition=%s-%d", gone.topic, gone.index)
            self.delete(gid)
        for gid, (topic_name, index, replicas) in wanted.items():
            if gid not in self.by_group and gid not in self.broken:
                try:
                    partition = self.open(gid, topic_name, index, replicas)
                except (StorageError, ValueError, AssertionError) as error:
                    # What is stored of it is damaged. The other replicas go on.
                    name = f"{topic_name}-{index}"
                    log.critical("replica not opened partition=%s group=%d: %s", name, gid, error)
                    self.broken[gid] = error
                    continue
                fresh = partition.group.term == 0
                if fresh and replicas[0] == node:
                    partition.group.campaign()
