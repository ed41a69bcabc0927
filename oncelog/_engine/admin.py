"""Calls of the admin clients, as coroutines: one call each, to any node or to a leader.

Place in the flow: `oncelog.Admin` waits for these, `oncelog.aio.Admin` awaits them, a producer
resolves its records with them. A retriable error is tried again at other nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any

from oncelog import errors, types
from oncelog._engine.consume.groups import Groups
from oncelog._engine.consume.positions import LagQuery, Positions
from oncelog._engine.consume.routes import Routes
from oncelog._engine.events import EventCalls
from oncelog._engine.net.attempts import may_have_been_done
from oncelog._engine.net.cluster import (
    Cluster,
    cluster_stub,
    log_stub,
    producer_stub,
    security_stub,
    transaction_stub,
)
from oncelog._engine.sinks import SinkCalls
from oncelog.config import reading_config
from oncelog.lag import GroupLag, PartitionLag, records_behind
from oncelog.moves import Balance, Resized
from oncelog.permissions import AlteredPermissions, PermissionRule, Permissions, Quota
from oncelog.types import TopicPartition
from oncelog.v1 import cluster_pb2, log_pb2, producer_pb2, security_pb2, transaction_pb2
from oncelog.wire import messages

# Producers in one answer of a node, at most.
_PRODUCERS_PAGE = 1000
LAG_S = 2.0  # for a partition's leader to answer, with an election


class AdminCore:
    """Runs on the engine's loop. `oncelog.Admin` documents the methods."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.groups = Groups(cluster)
        self.sinks = SinkCalls(cluster, cluster.config.request_timeout_ms / 1000)
        self.events = EventCalls(cluster)
        self._call = cluster.call

    # --- topics ----------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        config: types.TopicConfig | None,
        timeout_ms: int,
    ) -> types.TopicInfo:
        request = cluster_pb2.CreateTopicRequest(
            name=name,
            partitions=partitions,
            replicas=replicas,
            config=messages.topic_config_to_message(config or types.TopicConfig()),
            timeout_ms=timeout_ms,
        )
        retries: list[errors.OncelogError] = []
        try:
            answer = await self._waiting(
                lambda channel: cluster_stub(channel).CreateTopic, request, timeout_ms, retries
            )
        except errors.TopicAlreadyExistsError as error:
            # A lost answer to an earlier attempt may mean that this is the topic we created.
            if not any(map(may_have_been_done, retries)):
                raise
            topic = await self._present(name, error)
            asked = (partitions or topic.partition_count, replicas or topic.replica_count)
            has = (topic.partition_count, topic.replica_count)
            if asked != has or not _fits(config or types.TopicConfig(), topic.config):
                raise
            return topic
        return messages.topic_info(answer.topic)

    async def _waiting(
        self,
        method: Callable[[Any], Any],
        request: Any,
        timeout_ms: int,
        retries: list[errors.OncelogError],
    ) -> Any:
        """Make a call that the node may hold for `timeout_ms`; `retries` takes earlier errors."""
        timeout_s = timeout_ms / 1000 + 1.0
        return await self._call(
            method,
            request,
            timeout_s=timeout_s,
            attempt_timeout_s=timeout_s,
            on_retry=retries.append,
        )

    async def _present(self, name: str, refusal: errors.OncelogError) -> types.TopicInfo:
        """Describe a topic that our earlier attempt may have changed. Raises `refusal`."""
        try:
            return (await self.describe_topics([name]))[0]
        except errors.OncelogError:
            raise refusal from None

    async def delete_topic(self, name: str) -> None:
        retries: list[errors.OncelogError] = []
        try:
            await self._call(
                lambda channel: cluster_stub(channel).DeleteTopic,
                cluster_pb2.DeleteTopicRequest(name=name),
                on_retry=retries.append,
            )
        except errors.UnknownTopicOrPartitionError:
            # A lost answer to an earlier attempt may mean that we deleted it.
            if not any(map(may_have_been_done, retries)):
                raise

    async def alter_topic(self, name: str, config: types.TopicConfig) -> types.TopicInfo:
        request = cluster_pb2.AlterTopicRequest(
            name=name,
            config=messages.topic_config_to_message(config),
            set_expected_offsets=config.expected_offsets is not None,
        )
        answer = await self._call(lambda channel: cluster_stub(channel).AlterTopic, request)
        return messages.topic_info(answer.topic)

    async def resize_topic(
        self, name: str, partitions: int, replicas: int, dry_run: bool, timeout_ms: int
    ) -> Resized:
        request = cluster_pb2.ResizeTopicRequest(
            name=name,
            partitions=partitions,
            replicas=replicas,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
        )
        retries: list[errors.OncelogError] = []
        try:
            answer = await self._waiting(
                lambda channel: cluster_stub(channel).ResizeTopic, request, timeout_ms, retries
            )
        except errors.InvalidRequestError as error:
            # A lost answer to an earlier attempt may mean that we added these partitions.
            refused = error.field == "partitions" and not dry_run
            if not refused or not any(map(may_have_been_done, retries)):
                raise
            topic = await self._present(name, error)
            if topic.partition_count != partitions:
                raise
            return Resized(topic, (), 0)
        return messages.resized(answer)

    async def describe_topics(self, names: Iterable[str]) -> list[types.TopicInfo]:
        wanted = list(names)
        try:
            answer = await self._call(
                lambda channel: cluster_stub(channel).DescribeTopics,
                cluster_pb2.DescribeTopicsRequest(names=wanted),
            )
        except errors.UnknownTopicOrPartitionError:
            # The node may be behind: a retry asks another node.
            self.cluster.prefer_another()
            raise
        self.cluster.leaders.update(answer)
        topics = {topic.name: messages.topic_info(topic) for topic in answer.topics}
        for name in wanted:
            if name not in topics:
                raise errors.UnknownTopicOrPartitionError(
                    f"topic {name!r} does not exist", topic=name
                )
        return [topics[name] for name in wanted or sorted(topics)]

    # --- cluster ---------------------------------------------------------------------

    async def describe_cluster(self) -> types.ClusterInfo:
        answer = await self._call(
            lambda channel: cluster_stub(channel).DescribeCluster,
            cluster_pb2.DescribeClusterRequest(ask_leaders=True),
        )
        return messages.cluster_info(answer)

    async def list_nodes(self) -> list[types.NodeStatus]:
        answer = await self._call(
            lambda channel: cluster_stub(channel).ListNodes, cluster_pb2.ListNodesRequest()
        )
        return [messages.node_status(node) for node in answer.nodes]

    async def change_node(
        self,
        node_id: int,
        action: cluster_pb2.NodeAction,
        dry_run: bool,
        accept_loss: bool = False,
        directory_id: int = 0,
    ) -> tuple[str, ...]:
        request = cluster_pb2.ChangeNodeRequest(
            node_id=node_id,
            action=action,
            dry_run=dry_run,
            accept_loss=accept_loss,
            directory_id=directory_id,
        )
        answer = await self._call(lambda channel: cluster_stub(channel).ChangeNode, request)
        return tuple(answer.effects)

    async def balance(self, action: cluster_pb2.BalanceAction) -> Balance:
        request = cluster_pb2.BalanceClusterRequest(action=action)
        answer = await self._call(lambda channel: cluster_stub(channel).BalanceCluster, request)
        return messages.balance(answer)

    async def finalize_upgrade(self) -> types.UpgradeInfo:
        answer = await self._call(
            lambda channel: cluster_stub(channel).FinalizeUpgrade,
            cluster_pb2.FinalizeUpgradeRequest(),
        )
        return messages.upgrade_info(answer.upgrade)

    async def reassign_partition(
        self, topic: str, partition: int, replicas: Iterable[int]
    ) -> types.TopicInfo:
        request = cluster_pb2.ReassignPartitionRequest(
            topic=topic, partition=partition, replicas=replicas
        )
        answer = await self._call(lambda channel: cluster_stub(channel).ReassignPartition, request)
        return messages.topic_info(answer.topic)

    async def set_cluster_setting(self, name: str, value: int) -> dict[str, int]:
        setting = cluster_pb2.ClusterSetting(name=name, value=value)
        answer = await self._call(
            lambda channel: cluster_stub(channel).SetClusterSetting,
            cluster_pb2.SetClusterSettingRequest(setting=setting),
        )
        return {setting.name: setting.value for setting in answer.settings}

    async def alter_permissions(
        self,
        add: Iterable[PermissionRule],
        remove: Iterable[PermissionRule],
    ) -> AlteredPermissions:
        request = security_pb2.AlterPermissionsRequest(
            add=map(messages.permission_rule_message, add),
            remove=map(messages.permission_rule_message, remove),
        )
        answer = await self._call(lambda channel: security_stub(channel).AlterPermissions, request)
        return AlteredPermissions(answer.added, answer.removed)

    async def list_permissions(self, principal: str) -> Permissions:
        request = security_pb2.ListPermissionsRequest(principal=principal)
        answer = await self._call(lambda channel: security_stub(channel).ListPermissions, request)
        rules = tuple(map(messages.permission_rule, answer.rules))
        return Permissions(rules, answer.enforced, answer.caller)

    async def check_permission(self, operation: str, kind: str, name: str, principal: str) -> bool:
        request = security_pb2.CheckPermissionRequest(
            principal=principal, operation=operation, kind=kind, name=name
        )
        answer = await self._call(lambda channel: security_stub(channel).CheckPermission, request)
        return bool(answer.allowed)

    async def alter_quotas(
        self, quotas: Iterable[Quota], remove: Iterable[tuple[str, str]]
    ) -> None:
        request = security_pb2.AlterQuotasRequest(
            set=[
                security_pb2.Quota(principal=one.principal, name=one.name, value=one.value)
                for one in quotas
            ],
            remove=[security_pb2.QuotaKey(principal=who, name=name) for who, name in remove],
        )
        await self._call(lambda channel: security_stub(channel).AlterQuotas, request)

    async def list_quotas(self, principal: str) -> list[Quota]:
        request = security_pb2.ListQuotasRequest(principal=principal)
        answer = await self._call(lambda channel: security_stub(channel).ListQuotas, request)
        return [Quota(one.principal, one.name, one.value) for one in answer.quotas]

    async def transfer_leadership(self, topic: str, partition: int, target_node_id: int) -> int:
        request = cluster_pb2.TransferLeadershipRequest(
            topic=topic, partition=partition, target_node_id=target_node_id
        )
        answer = await self._call(lambda channel: cluster_stub(channel).TransferLeadership, request)
        return int(answer.leader_id)

    # --- producers -------------------------------------------------------------------

    async def lease_producer(self, producer_name: str | None) -> types.ProducerLease:
        request = producer_pb2.LeaseProducerRequest()
        if producer_name:
            request.producer_name, request.nonce = producer_name, _nonce()
        answer = await self._call(lambda channel: producer_stub(channel).LeaseProducer, request)
        return messages.producer_lease(answer)

    async def describe_producers(
        self, topic: str, partition: int, producer_id: int, limit: int
    ) -> list[types.ProducerState]:
        states: list[types.ProducerState] = []
        while len(states) < limit:
            page = min(limit - len(states), _PRODUCERS_PAGE)
            request = producer_pb2.DescribeProducersRequest(
                topic=topic,
                partition=partition,
                producer_id=producer_id,
                after_producer_id=states[-1].producer_id if states else 0,
                limit=page,
            )
            answer = await self.call_leader(
                TopicPartition(topic, partition),
                lambda channel: producer_stub(channel).DescribeProducers,
                request,
            )
            states += [messages.producer_state(state) for state in answer.producers]
            if producer_id or len(answer.producers) < page:
                break
        return states

    async def list_producer_names(self) -> list[types.ProducerName]:
        answer = await self._call(
            lambda channel: producer_stub(channel).ListProducerNames,
            producer_pb2.ListProducerNamesRequest(),
        )
        return [messages.producer_name(name) for name in answer.names]

    async def fence_producer(self, producer_name: str) -> types.ProducerEpoch:
        answer = await self._call(
            lambda channel: producer_stub(channel).FenceProducer,
            producer_pb2.FenceProducerRequest(producer_name=producer_name, nonce=_nonce()),
        )
        return types.ProducerEpoch(answer.producer_id, answer.epoch)

    async def resolve_sequence(
        self, tp: TopicPartition, producer_id: int, epoch: int | None, sequence: int
    ) -> types.ResolvedSequence:
        request = log_pb2.ResolveSequenceRequest(
            topic=tp.topic,
            partition=tp.partition,
            producer_id=producer_id,
            epoch=-1 if epoch is None else epoch,
            sequence=sequence,
        )
        answer = await self.call_leader(
            tp, lambda channel: log_stub(channel).ResolveSequence, request
        )
        return messages.resolved(answer, epoch)

    async def call_leader(self, tp: TopicPartition, method: Any, request: Any) -> Any:
        """Call a partition's leader. Raises UnknownTopicOrPartitionError before any call."""
        await self.cluster.require_topic(tp.topic, self.cluster.config.request_timeout_ms / 1000)
        if self.cluster.leaders.leader(tp) is None:
            raise errors.UnknownTopicOrPartitionError(
                f"topic {tp.topic!r} has no partition {tp.partition}",
                topic=tp.topic,
                partition=tp.partition,
            )
        return await self.cluster.call_leader(tp, method, request)

    # --- groups ----------------------------------------------------------------------

    async def group_lag(self, group: str) -> GroupLag:
        described = await self.groups.describe(group)
        owned = {tp for member in described.members for tp in member.owned}
        tps = sorted(described.offsets.keys() | owned)
        config = reading_config(self.cluster.config)
        positions = Positions(config, self.cluster, Routes(config, self.cluster))
        starts, ends, problems = await positions.find_both_ends(tps, LAG_S)
        lags = {
            tp: records_behind(at.offset, starts[tp], ends[tp])
            for tp, at in described.offsets.items()
            if tp in starts and tp in ends
        }
        late = {tp: LagQuery(described.offsets[tp].offset) for tp, lag in lags.items() if lag}
        times, _ = await positions.find_offsets(late, LAG_S)
        partitions = {}
        for tp in tps:
            behind_ms = times.get(tp, 0 if lags.get(tp) == 0 else -1)
            partitions[tp] = PartitionLag(
                described.offsets.get(tp), starts.get(tp), ends.get(tp), lags.get(tp),
                problems.get(tp), None if behind_ms < 0 else behind_ms,
            )  # fmt: skip
        return GroupLag(described, partitions)

    # --- transactions ----------------------------------------------------------------

    async def list_transactions(
        self, producer_name: str, older_than_ms: int, limit: int
    ) -> list[types.TransactionInfo]:
        request = transaction_pb2.ListTransactionsRequest(
            producer_name=producer_name, older_than_ms=older_than_ms, limit=limit
        )
        answer = await self._call(
            lambda channel: transaction_stub(channel).ListTransactions, request
        )
        return [messages.transaction(one) for one in answer.transactions]

    async def describe_transaction(self, transaction_id: int) -> types.TransactionInfo:
        request = transaction_pb2.DescribeTransactionRequest(transaction_id=transaction_id)
        answer = await self._call(
            lambda channel: transaction_stub(channel).DescribeTransaction, request
        )
        return messages.transaction(answer.transaction)

    async def abort_transaction(self, transaction_id: int) -> None:
        request = transaction_pb2.AbortTransactionRequest(transaction_id=transaction_id)
        await self._call(lambda channel: transaction_stub(channel).AbortTransaction, request)


def _fits(asked: types.TopicConfig, has: types.TopicConfig) -> bool:
    """Tell whether a topic has the settings that a call gives; nodes may omit defaults."""
    pairs = zip(astuple(asked), astuple(has), strict=True)
    return all(given is None or given == value for given, value in pairs if value is not None)


def _nonce() -> int:
    """Return one number for all attempts of a call: a repeated call raises an epoch once."""
    return int.from_bytes(os.urandom(8), "little") or 1
