"""Admin client: topics, the cluster, producers, groups; everything but writing and reading.

Place in the flow: each method waits for one coroutine of `_engine/admin`, which runs on the
engine's thread. `oncelog.aio.Admin` awaits the same coroutines.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Mapping
from typing import Any, Self, TypeVar, Unpack

from oncelog import errors, types
from oncelog._engine.admin import AdminCore
from oncelog._engine.arguments import as_commits
from oncelog._engine.events import EventFollower
from oncelog._engine.net import runtime
from oncelog._engine.net.cluster import Cluster
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
    """Manages topics, and shows the cluster, its producers and groups.

    Every method raises subclasses of OncelogError; after retries, the last error.
    """

    _closed = True  # until `__init__` is done

    def __init__(self, **settings: Unpack[ClientSettings]) -> None:
        self.config = AdminConfig.from_settings(settings)
        self._why_closed = "the admin client is closed"
        self._core = runtime.run(self._build())
        self._closed = False
        runtime.register(self)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Build from dotted Kafka-style names."""
        return cls(**settings_from_dotted(AdminConfig, config))

    async def _build(self) -> AdminCore:
        return AdminCore(Cluster(self.config))

    # --- topics ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 0,
        replicas: int = 0,
        config: types.TopicConfig | None = None,
        *,
        timeout_ms: int = 30_000,
    ) -> types.TopicInfo:
        """Create a topic and wait until each partition has a leader.

        0 partitions or replicas: the cluster's default. Raises TopicAlreadyExistsError,
        InvalidRequestError, RequestTimeoutError.
        """
        return self._run(self._core.create_topic(name, partitions, replicas, config, timeout_ms))

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopicOrPartitionError."""
        self._run(self._core.delete_topic(name))

    def alter_topic(self, name: str, config: types.TopicConfig) -> types.TopicInfo:
        """Change the settings that are not None; return the topic as it is now.

        Leaders learn of the change a moment later.
        """
        return self._run(self._core.alter_topic(name, config))

    def resize_topic(
        self,
        name: str,
        *,
        partitions: int = 0,
        replicas: int = 0,
        dry_run: bool = False,
        timeout_ms: int = 30_000,
    ) -> Resized:
        """Give a topic more partitions, or its partitions another number of replicas.

        With more partitions, later records of a key may go to another partition; stored records
        stay. Returns when each new partition has a leader. Replicas change while the topic is
        written: the call returns when the change is decided, and `describe_topic` shows when it is
        done (no `target`). Raises InvalidRequestError, NotSupportedError, RequestTimeoutError.
        """
        return self._run(self._core.resize_topic(name, partitions, replicas, dry_run, timeout_ms))

    def describe_topic(self, name: str) -> types.TopicInfo:
        """Return a topic. Raises UnknownTopicOrPartitionError."""
        return self._run(self._core.describe_topics([name]))[0]

    def describe_topics(self, names: Iterable[str] = ()) -> list[types.TopicInfo]:
        """Return these topics, or all, by name."""
        return self._run(self._core.describe_topics(names))

    def list_topics(self) -> list[str]:
        return [topic.name for topic in self.describe_topics()]

    # --- cluster ---------------------------------------------------------------------

    def describe_cluster(self) -> types.ClusterInfo:
        return self._run(self._core.describe_cluster())

    def list_nodes(self) -> list[types.NodeStatus]:
        """Return all nodes, and the progress of their pending changes."""
        return self._run(self._core.list_nodes())

    def add_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        """Let a new node join, with an empty data directory; return texts about the effect.

        This and the next five return when the change is decided, or is found possible (`dry_run`).
        `list_nodes` shows the progress. Raise InvalidRequestError, NotSupportedError.
        """
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_ADD, dry_run)
        return self._run(change)

    def remove_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        """Move a node's replicas to other nodes, then remove it."""
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_REMOVE, dry_run)
        return self._run(change)

    def cancel_node_removal(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        """Keep a node that is being removed; replicas that have moved do not come back."""
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_KEEP, dry_run)
        return self._run(change)

    def drain_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        """Move a node's leaderships away before a restart, until `undrain_node`."""
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_DRAIN, dry_run)
        return self._run(change)

    def undrain_node(self, node_id: int, *, dry_run: bool = False) -> tuple[str, ...]:
        """Let a drained node lead again."""
        change = self._core.change_node(node_id, cluster_pb2.NODE_ACTION_UNDRAIN, dry_run)
        return self._run(change)

    def replace_node(
        self,
        node_id: int,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        directory_id: int = 0,
    ) -> tuple[str, ...]:
        """Give up a node's lost data directory, so that it can join with an empty one.

        accept_loss: go on even if partitions have no majority, or no replica, without the node.
        directory_id: id of the lost data directory, if one of two nodes is lost and the other
        decides alone.
        """
        change = self._core.change_node(
            node_id, cluster_pb2.NODE_ACTION_REPLACE, dry_run, accept_loss, directory_id
        )
        return self._run(change)

    def start_balance(self) -> Balance:
        """Spread replicas and leaderships over the nodes, by count and then by bytes.

        Returns at once with the progress of all moves. Raises NotSupportedError.
        """
        return self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_START))

    def cancel_balance(self) -> Balance:
        """Start no further move, and undo the moves in progress; return those."""
        return self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_CANCEL))

    def plan_balance(self) -> Balance:
        """Return the moves that `start_balance` would make."""
        return self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_PLAN))

    def describe_balance(self) -> Balance:
        """Return the progress of all moves, of any origin."""
        return self._run(self._core.balance(cluster_pb2.BALANCE_ACTION_DESCRIBE))

    def finalize_upgrade(self) -> types.UpgradeInfo:
        """Enable the newest release's features; no node can go back to an older one afterwards.

        Returns the enabled version. Raises NotSupportedError, which names the nodes in the way.
        """
        return self._run(self._core.finalize_upgrade())

    def reassign_partition(
        self, topic: str, partition: int, replicas: Iterable[int]
    ) -> types.TopicInfo:
        """Move a partition to these nodes, the preferred leader first.

        Returns when the move is decided; `describe_topic` shows when it is done (no `target`).
        Naming the present nodes undoes a move in progress. Raises InvalidRequestError,
        NotSupportedError.
        """
        return self._run(self._core.reassign_partition(topic, partition, replicas))

    def set_cluster_setting(self, name: str, value: int) -> dict[str, int]:
        """Change a setting of all nodes; return all such settings. Raises InvalidRequestError."""
        return self._run(self._core.set_cluster_setting(name, value))

    def alter_permissions(
        self,
        add: Iterable[PermissionRule] = (),
        remove: Iterable[PermissionRule] = (),
    ) -> AlteredPermissions:
        """Remove rules and add others, all or none; return the numbers of new and removed rules.

        Nodes follow a moment later. Raises NotAuthorizedError, InvalidRequestError.
        """
        return self._run(self._core.alter_permissions(add, remove))

    def list_permissions(self, principal: str = "") -> Permissions:
        """Return all rules, or those of one principal, and whether they are enforced."""
        return self._run(self._core.list_permissions(principal))

    def check_permission(
        self, operation: str, kind: str, name: str = "", principal: str = ""
    ) -> bool:
        """Tell whether a principal (default: this client's) may do the operation."""
        return self._run(self._core.check_permission(operation, kind, name, principal))

    def alter_quotas(
        self, quotas: Iterable[Quota] = (), remove: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Remove quotas by principal and name ("": all of the principal's), and set others.

        All or none; nodes follow a moment later. Raises NotAuthorizedError, InvalidRequestError.
        """
        self._run(self._core.alter_quotas(quotas, remove))

    def list_quotas(self, principal: str = "") -> list[Quota]:
        """Return all quotas, or those of one principal."""
        return self._run(self._core.list_quotas(principal))

    def transfer_leadership(self, topic: str, partition: int, target_node_id: int = 0) -> int:
        """Have another replica lead (0: the most caught-up one); return the leader's id."""
        return self._run(self._core.transfer_leadership(topic, partition, target_node_id))

    # --- producers -------------------------------------------------------------------

    def lease_producer(self, producer_name: str | None = None) -> types.ProducerLease:
        """Lease a producer id; with a name, its id with the epoch raised by one."""
        return self._run(self._core.lease_producer(producer_name))

    def describe_producers(
        self, topic: str, partition: int, producer_id: int = 0, limit: int = 1000
    ) -> list[types.ProducerState]:
        """Return a partition's memory of its producers, or of one of them."""
        return self._run(self._core.describe_producers(topic, partition, producer_id, limit))

    def list_producer_names(self) -> list[types.ProducerName]:
        """Return all names, as the answering node knows them."""
        return self._run(self._core.list_producer_names())

    def fence_producer(self, producer_name: str) -> types.ProducerEpoch:
        """Raise a name's epoch, which fences its producer; return the new epoch."""
        return self._run(self._core.fence_producer(producer_name))

    def resolve_sequence(
        self, topic: str, partition: int, producer_id: int, epoch: int | None, sequence: int
    ) -> types.ResolvedSequence:
        """Resolve the outcome of a record after its acknowledgement was lost.

        `epoch` None asks what any epoch stored, the newest first: `ResolvedSequence.epoch`.
        """
        tp = TopicPartition(topic, partition)
        return self._run(self._core.resolve_sequence(tp, producer_id, epoch, sequence))

    # --- events ----------------------------------------------------------------------

    def list_events(self, wanted: EventFilter | None = None) -> NodeEvents:
        """Return recent events of all nodes, oldest first, as far as the caller may see them."""
        return self._run(self._core.events.all(wanted or EventFilter()))

    def follow_events(self, wanted: EventFilter | None = None) -> Generator[NodeEvent, None, None]:
        """Yield recent events of all nodes, then those that come, without end.

        A repeat of a known event comes again, with a higher count.
        """
        return self._follow(wanted or EventFilter())

    def _follow(self, wanted: EventFilter) -> Generator[NodeEvent, None, None]:
        follower = self._run(self._open_follower(wanted))
        try:
            while True:
                yield self._run(follower.next())
        finally:
            runtime.run(follower.close())

    async def _open_follower(self, wanted: EventFilter) -> EventFollower:
        return EventFollower(self._core.events, wanted)

    # --- groups ----------------------------------------------------------------------

    def list_groups(self) -> list[types.GroupInfo]:
        """Return all groups that have committed offsets, by name."""
        return self._run(self._core.groups.all())

    def describe_group(self, group: str) -> types.GroupDescription:
        """Return a group's committed offsets; `exists` is False if there are none."""
        return self._run(self._core.groups.describe(group))

    def group_lag(self, group: str) -> GroupLag:
        """Return a group's lag in records, with its members and committed offsets.

        No partition is missing: one without an answer within 2 s has an `error` instead of a lag.
        """
        return self._run(self._core.group_lag(group))

    def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int | types.OffsetCommit]
    ) -> None:
        """Set a group's committed offsets. Raises as `Consumer.commit` does."""
        self._run(self._core.groups.commit(group, as_commits(offsets)))

    def delete_group(self, group: str) -> bool:
        """Delete a group and its offsets; tell whether there was one.

        True also if an attempt without an answer may have deleted it.
        """
        return self._run(self._core.groups.delete(group))

    # --- transactions ----------------------------------------------------------------

    def list_transactions(
        self, producer_name: str = "", older_than_ms: int = 0, limit: int = 0
    ) -> list[types.TransactionInfo]:
        """Return transactions that have not ended in all their partitions, the oldest first."""
        return self._run(self._core.list_transactions(producer_name, older_than_ms, limit))

    def describe_transaction(self, transaction_id: int) -> types.TransactionInfo:
        """Return a transaction. Raises UnknownTransactionError if none is remembered."""
        return self._run(self._core.describe_transaction(transaction_id))

    def abort_transaction(self, transaction_id: int) -> None:
        """Abort any producer's transaction. Raises TransactionCommittedError if it is decided."""
        self._run(self._core.abort_transaction(transaction_id))

    # --- sinks -----------------------------------------------------------------------

    def list_sinks(self) -> list[types.SinkInfo]:
        """Return the outputs of queries and jobs, by name, with their committed batches."""
        return self._run(self._core.sinks.list())

    def describe_sink(self, sink: str) -> types.SinkInfo:
        """Return a sink. Raises UnknownTransactionError if there is none."""
        return self._run(self._core.sinks.describe(sink))

    def reset_sink(self, sink: str) -> None:
        """Let any query write the next batch; runs started before can write nothing more."""
        self._run(self._core.sinks.reset(sink))

    # --- life ------------------------------------------------------------------------

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._check_open(coroutine)
        return runtime.run(coroutine)

    def _check_open(self, coroutine: Coroutine[Any, Any, T]) -> None:
        if self._closed:
            coroutine.close()
            raise errors.ClientClosedError(self._why_closed)

    def close(self) -> None:
        if not self._closed and runtime.can_close():
            runtime.run(self._shut(), whole=True)

    async def _shut(self) -> None:
        self._closed = True
        await self._core.cluster.close()

    def __del__(self) -> None:
        if not self._closed:
            runtime.end_dropped("an admin client", self._core.cluster.close)

    def _forked(self) -> None:
        """Called in a forked child: the engine's thread stayed with the parent."""
        self._closed = True
        self._why_closed = "the admin client was made before a fork: make one in each process"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


__all__ = ["Admin"]
