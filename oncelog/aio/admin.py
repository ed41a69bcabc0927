"""The admin client for asyncio: `oncelog.Admin`, awaited.

Place in the flow: each method awaits one coroutine of `_engine/admin` on the engine's thread.
`oncelog.Admin` documents the methods and their errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar, Unpack

from oncelog import admin as sync
from oncelog import types
from oncelog._engine.arguments import as_commits
from oncelog.aio.bridge import on_engine
from oncelog.config import AdminConfig
from oncelog.dotted import settings_from_dotted
from oncelog.events import EventFilter, NodeEvent, NodeEvents
from oncelog.lag import GroupLag
from oncelog.moves import Balance, Resized
from oncelog.permissions import AlteredPermissions, PermissionRule, Permissions, Quota
from oncelog.settings import ClientSettings
from oncelog.types import TopicPartition
from oncelog.v1 import cluster_pb2

T = TypeVar("T")


class Admin:
    """Manages topics, and shows the cluster, its producers and groups."""

    def __init__(self, **settings: Unpack[ClientSettings]) -> None:
        self._sync = sync.Admin(**settings)
        self._core = self._sync._core

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Build from dotted Kafka-style names."""
        return cls(**settings_from_dotted(AdminConfig, config))

    @property
    def config(self) -> AdminConfig:
        return self._sync.config

    async def create_topic(
        self,
        name: str,
        partitions: int = 0,
        replicas: int = 0,
        config: types.TopicConfig | None = None,
        *,
        timeout_ms: int = 30_000,
    ) -> types.TopicInfo:
        return await self._run(
            self._core.create_topic(name, partitions, replicas, config, timeout_ms)
        )

    async def delete_topic(self, name: str) -> None:
        await self._run(self._core.delete_topic(name))

    async def alter_topic(self, name: str, config: types.TopicConfig) -> types.TopicInfo:
        return await self._run(self._core.alter_topic(name, config))

    async def resize_topic(
        self,
        name: str,
        *,
        partitions: int = 0,
        replicas: int = 0,
        dry_run: bool = False,
        timeout_ms: int = 30_000,
    ) -> Resized:
        return await self._run(
            self._core.resize_topic(name, partitions, replicas, dry_run, timeout_ms)
        )

    async def describe_topic(self, name: str) -> types.TopicInfo:
        return (await self._run(self._core.describe_topics([name])))[0]

    async def describe_topics(self, names: Iterable[str] = ()) -> list[types.TopicInfo]:
        return await self._run(self._core.describe_topics(names))

    async def list_topics(self) -> list[str]:
        return [topic.name for topic in await self.describe_topics()]

    async def describe_cluster(self) -> types.ClusterInfo:
        return await self._run(self._core.describe_cluster())

    async def list_nodes(self) -> list[types.NodeStatus]:
        return await self._run(self._core.list_nodes())

    async def add_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_ADD, dry_run)
        return await self._run(change)

    async def remove_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_REMOVE, dry_run)
        return await self._run(change)

    async def cancel_node_removal(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_KEEP, dry_run)
        return await self._run(change)

    async def drain_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_DRAIN, dry_run)
        return await self._run(change)

    async def undrain_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_UNDRAIN, dry_run)
        return await self._run(change)

    async def replace_node(
        self,
        node_id: int,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        directory_id: int = 0,
    ) -> tuple[str, ...]:
        change = self._core.change_node(
            node_id, cluster_pb2.NODE_ACTION_REPLACE, dry_run, accept_loss, directory_id
        )
        return await self._run(change)

    async def start_balance(self) -> Balance:
        return await self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_START))

    async def cancel_balance(self) -> Balance:
        return await self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_CANCEL))

    async def plan_balance(self) -> Balance:
        return await self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_PLAN))

    async def describe_balance(self) -> Balance:
        return await self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_DESCRIBE))

    async def finalize_upgrade(self) -> types.UpgradeInfo:
        return await self._run(self._core.finalize_upgrade())

    async def reassign_partition(
        self, topic: str, partition: int, replicas: Iterable[int]
    ) -> types.TopicInfo:
        return await self._run(self._core.reassign_partition(topic, partition, replicas))

    async def set_cluster_setting(self, name: str, value: int) -> dict[str, int]:
        return await self._run(self._core.set_cluster_setting(name, value))

    async def alter_permissions(
        self,
        add: Iterable[PermissionRule] = (),
        remove: Iterable[PermissionRule] = (),
    ) -> AlteredPermissions:
        return await self._run(self._core.alter_permissions(add, remove))

    async def list_permissions(self, principal: str = "") -> Permissions:
        return await self._run(self._core.list_permissions(principal))

    async def check_permission(
        self, operation: str, kind: str, name: str = "", principal: str = ""
    ) -> bool:
        return await self._run(self._core.check_permission(operation, kind, name, principal))

    async def alter_quotas(
        self, quotas: Iterable[Quota] = (), remove: Iterable[tuple[str, str]] = ()
    ) -> None:
        await self._run(self._core.alter_quotas(quotas, remove))

    async def list_quotas(self, principal: str = "") -> list[Quota]:
        return await self._run(self._core.list_quotas(principal))

    async def transfer_leadership(self, topic: str, partition: int, target_node_id: int = 0) -> int:
        return await self._run(self._core.transfer_leadership(topic, partition, target_node_id))

    async def lease_producer(self, producer_name: str | None = None) -> types.ProducerLease:
        return await self._run(self._core.lease_producer(producer_name))

    async def describe_producers(
        self, topic: str, partition: int, producer_id: int = 0, limit: int = 1000
    ) -> list[types.ProducerState]:
        return await self._run(self._core.describe_producers(topic, partition, producer_id, limit))

    async def list_producer_names(self) -> list[types.ProducerName]:
        return await self._run(self._core.list_producer_names())

    async def fence_producer(self, producer_name: str) -> types.ProducerEpoch:
        return await self._run(self._core.fence_producer(producer_name))

    async def resolve_sequence(
        self, topic: str, partition: int, producer_id: int, epoch: int | None, sequence: int
    ) -> types.ResolvedSequence:
        tp = TopicPartition(topic, partition)
        return await self._run(self._core.resolve_sequence(tp, producer_id, epoch, sequence))

    async def list_events(self, wanted: EventFilter | None = None) -> NodeEvents:
        return await self._run(self._core.events.all(wanted or EventFilter()))

    async def follow_events(self, wanted: EventFilter | None = None) -> AsyncIterator[NodeEvent]:
        follower = await self._run(self._sync._open_follower(wanted or EventFilter()))
        try:
            while True:
                yield await self._run(follower.next())
        finally:
            await on_engine(follower.close())

    async def list_groups(self) -> list[types.GroupInfo]:
        return await self._run(self._core.groups.all())

    async def describe_group(self, group: str) -> types.GroupDescription:
        return await self._run(self._core.groups.describe(group))

    async def group_lag(self, group: str) -> GroupLag:
        return await self._run(self._core.group_lag(group))

    async def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int | types.OffsetCommit]
    ) -> None:
        await self._run(self._core.groups.commit(group, as_commits(offsets)))

    async def delete_group(self, group: str) -> bool:
        return await self._run(self._core.groups.delete(group))

    async def list_transactions(
        self, producer_name: str = "", older_than_ms: int = 0, limit: int = 0
    ) -> list[types.TransactionInfo]:
        return await self._run(self._core.list_transactions(producer_name, older_than_ms, limit))

    async def describe_transaction(self, transaction_id: int) -> types.TransactionInfo:
        return await self._run(self._core.describe_transaction(transaction_id))

    async def abort_transaction(self, transaction_id: int) -> None:
        await self._run(self._core.abort_transaction(transaction_id))

    # --- life ------------------------------------------------------------------------

    async def list_sinks(self) -> list[types.SinkInfo]:
        return await self._run(self._core.sinks.list())

    async def describe_sink(self, sink: str) -> types.SinkInfo:
        return await self._run(self._core.sinks.describe(sink))

    async def reset_sink(self, sink: str) -> None:
        await self._run(self._core.sinks.reset(sink))

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._sync._check_open(coroutine)
        return await on_engine(coroutine)

    async def close(self) -> None:
        if not self._sync._closed:
            await on_engine(self._sync._shut(), whole=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()


__all__ = ["Admin"]
