"""ClusterService: nodes, topics, placement. Any node answers.

Reads come from this node's copy of the metadata. Changes are proposed to the metadata
group and answered once this node has applied them, so a client of the same node reads its
own changes.
"""

from __future__ import annotations

from cluster.errors import NotReadyError
from cluster.features import REPLICA_CHANGES
from cluster.metadata import upgrade
from cluster.metadata.places import NodePlace
from cluster.metadata.settings import MAX_BATCH_BYTES, changed
from cluster.metadata.topics import (
    PartitionState,
    TopicSettings,
    TopicState,
    as_known,
    check_placements,
    check_replicas,
    check_topic_name,
    is_internal,
)
from cluster.services.admin import balance as balancing
from cluster.services.admin import node_changes
from cluster.services.admin import resize as resizing
from cluster.services.admin.limits import request_limits
from cluster.services.admin.optimistic import optimistically
from cluster.services.admin.placement import (
    Placements,
    all_nodes,
    default_replicas,
    place_replicas,
)
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.requests import Deadline, count_in_range, invalid, timeout_s
from cluster.services.routing import not_leader
from cluster.services.slices import in_slices
from cluster.v1 import metadata_pb2 as meta
from oncelog import errors
from oncelog.v1 import cluster_pb2 as pb
from oncelog.wire.foundings import founding_text

MAX_NAMES_PER_CALL = 10_000
TOPICS_SLICE = 5  # each has up to 1,000 partitions


class ClusterService:
    """Answers for one node."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node

    async def DescribeCluster(
        self, request: pb.DescribeClusterRequest
    ) -> pb.DescribeClusterResponse:
        node = self.node
        response = pb.DescribeClusterResponse(
            cluster_id=node.config.cluster_id,
            answering_node_id=node.config.node_id,
            controller_id=node.controller_id,
            nodes=self._nodes(),
            max_message_bytes=node.config.max_message_bytes,
            limits=request_limits(node.config),
            upgrade=self._upgrade_info(),
            settings=self._settings(),
            damaged_replicas=await node_changes.damaged(node),
            crowded_partitions=await node_changes.crowded(node),
            founding=founding_text(node.founding),
        )
        far_behind: set[int] = set()
        if request.ask_leaders:
            await node.sizes.ask()
            far_behind = {group for group, _ in node.sizes.lags}
        alive = {info.node_id for info in response.nodes if info.alive}
        topics = node.metadata.topics()
        response.topics = sum(not is_internal(topic.name) for topic in topics)
        async for partition in in_slices(one for topic in topics for one in topic.partitions):
            response.partitions += 1
            if not self._leader_of(partition.group_id)[0]:
                response.leaderless_partitions += 1
            missing = len(partition.counting) < len(partition.placed)
            away = not alive.issuperset(partition.replicas)
            if missing or away or partition.group_id in far_behind:
                response.under_replicated_partitions += 1
        return response

    async def CreateTopic(
        self, request: pb.CreateTopicRequest, placements: Placements = ()
    ) -> pb.CreateTopicResponse:
        """placements: nodes of each partition, chosen by hand."""
        deadline = Deadline(request.timeout_ms, self.node)
        if self.node.metadata.topic(request.name) is not None:
            async with deadline:
                await self.node.newest_metadata.wait()
        command = self.create_command(request, placements)
        result = await self.node.propose_metadata(
            meta.MetadataCommand(create_topic=command), deadline.left()
        )
        accepted(result, topic=request.name)
        topic = self._topic(request.name)
        await self._wait_for_leaders(topic, 0, "is created", deadline.left())
        return pb.CreateTopicResponse(topic=self._topic_info(topic))

    async def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        await self._newest_topic(request.name)
        command = meta.MetadataCommand(delete_topic=meta.DeleteTopic(name=request.name))
        result = await self.node.propose_metadata(command, timeout_s(0, self.node))
        accepted(result, topic=request.name)
        return pb.DeleteTopicResponse()

    async def AlterTopic(self, request: pb.AlterTopicRequest) -> pb.AlterTopicResponse:
        await self._newest_topic(request.name)
        command = meta.MetadataCommand(alter_topic=self.alter_command(request))
        result = await self.node.propose_metadata(command, timeout_s(0, self.node))
        accepted(result, topic=request.name)
        return pb.AlterTopicResponse(topic=self._topic_info(self._topic(request.name)))

    async def ResizeTopic(
        self, request: pb.ResizeTopicRequest, placements: Placements = ()
    ) -> pb.ResizeTopicResponse:
        """placements: nodes of each new partition, chosen by hand."""
        deadline = Deadline(request.timeout_ms, self.node)
        topic = await self._newest_topic(request.name)
        moves = await resizing.resize(self.node, topic, request, placements)
        before, topic = len(topic.partitions), self._topic(request.name)
        grown = f"has {len(topic.partitions)} partitions"
        await self._wait_for_leaders(topic, before, grown, deadline.left())
        return pb.ResizeTopicResponse(
            topic=self._topic_info(topic), moves=moves[: resizing.MAX_SHOWN], count=len(moves)
        )

    async def DescribeTopics(self, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
        count_in_range("names", len(request.names), 0, MAX_NAMES_PER_CALL)
        topics = (
            [self._topic(name) for name in dict.fromkeys(request.names)]
            if request.names
            else [t for t in self.node.metadata.topics() if not is_internal(t.name)]
        )
        infos = [self._topic_info(topic) async for topic in in_slices(topics, TOPICS_SLICE)]
        return pb.DescribeTopicsResponse(topics=infos, nodes=self._nodes())

    async def ReassignPartition(
        self, request: pb.ReassignPartitionRequest
    ) -> pb.ReassignPartitionResponse:
        await optimistically(lambda: self._reassign(request))
        return pb.ReassignPartitionResponse(topic=self._topic_info(self._topic(request.topic)))

    async def TransferLeadership(
        self, request: pb.TransferLeadershipRequest
    ) -> pb.TransferLeadershipResponse:
        topic, partition = self._partition(request.topic, request.partition)
        target = request.target_node_id
        if target and target not in partition.replicas:
            held_by = ", ".join(map(str, partition.replicas))
            raise invalid("target_node_id", f"{target} must be one of the replicas: {held_by}")
        leader, _ = self.node.leader_of(partition.group_id)
        if leader != self.node.config.node_id:
            raise not_leader(self.node, topic.name, request.partition, leader)
        if target != leader:
            leader = await self.node.transfer_leadership(partition.group_id, target)
        return pb.TransferLeadershipResponse(leader_id=leader)

    async def ChangeNode(self, request: pb.ChangeNodeRequest) -> pb.ChangeNodeResponse:
        node = self.node
        node.metadata.features.require(REPLICA_CHANGES)
        change = await node_changes.command(node, request)
        effects = node_changes.effects(node, change)
        if not request.dry_run:
            command = meta.MetadataCommand(change_node=change)
            accepted(await node.propose_metadata(command, timeout_s(0, node)))
        return pb.ChangeNodeResponse(effects=effects)

    async def ListNodes(self, request: pb.ListNodesRequest) -> pb.ListNodesResponse:
        copied = await balancing.copied(self.node)
        return pb.ListNodesResponse(nodes=await node_changes.statuses(self.node, copied))

    async def BalanceCluster(self, request: pb.BalanceClusterRequest) -> pb.BalanceClusterResponse:
        return await balancing.answer(self.node, request.action)

    async def FinalizeUpgrade(
        self, request: pb.FinalizeUpgradeRequest
    ) -> pb.FinalizeUpgradeResponse:
        plan = self.node.upgrades.plan()
        if plan.hindered:
            raise errors.NotSupportedError(
                f"the upgrade to version {plan.target.version} cannot be finalized: "
                + "; ".join(plan.hindered)
            )
        if plan.is_pending:
            command = meta.MetadataCommand(finalize_upgrade=upgrade.command(plan.target))
            accepted(await self.node.propose_metadata(command, timeout_s(0, self.node)))
        return pb.FinalizeUpgradeResponse(upgrade=self._upgrade_info())

    async def SetClusterSetting(
        self, request: pb.SetClusterSettingRequest
    ) -> pb.SetClusterSettingResponse:
        wanted = request.setting
        settings = self.node.metadata.settings
        if not settings:
            raise errors.NotSupportedError(
                "the cluster has no settings of its own yet: `oncelog cluster upgrade --finalize`"
            )
        changed(settings, wanted.name, wanted.value)
        command = meta.SetClusterSetting(
            setting=meta.ClusterSetting(name=wanted.name, value=wanted.value)
        )
        accepted(
            await self.node.propose_metadata(
                meta.MetadataCommand(set_cluster_setting=command), timeout_s(0, self.node)
            )
        )
        return pb.SetClusterSettingResponse(settings=self._settings())

    # --- requests ------------------------------------------------------------------

    def create_command(
        self, request: pb.CreateTopicRequest, placements: Placements = ()
    ) -> meta.CreateTopic:
        """Return the command for a valid request. Raises Rejected, NotReadyError."""
        config = self.node.config
        check_topic_name(request.name)
        if self.node.metadata.topic(request.name) is not None:
            raise errors.TopicAlreadyExistsError(
                f"topic {request.name!r} already exists", topic=request.name
            )
        settings = pb.TopicConfig()
        settings.CopyFrom(request.config)
        if not settings.HasField("max_batch_bytes"):
            settings.max_batch_bytes = self.default_max_batch_bytes
        made = TopicSettings().altered(settings, set_expected_offsets=True)
        made.check_formats(None, self.node.metadata.finalized)
        made.check_compaction(self.node.metadata.finalized)
        _check_cap(settings, self._max_batch_bytes)
        if placements:
            check_placements(placements, self.node.metadata.membership.holders())
        else:
            placements = place_replicas(
                self.node,
                request.partitions or config.default_partitions,
                request.replicas or default_replicas(self.node),
            )
        return meta.CreateTopic(
            name=request.name,
            placements=[meta.Placement(replicas=replicas) for replicas in placements],
            config=as_known(settings, self.node.metadata.finalized),
        )

    def alter_command(self, request: pb.AlterTopicRequest) -> meta.AlterTopic:
        """Return the command for a valid request. Raises Rejected, NotReadyError."""
        topic = self._topic(request.name)
        settings = topic.settings.altered(
            request.config, set_expected_offsets=request.set_expected_offsets
        )
        settings.check_formats(topic.settings.formats, self.node.metadata.finalized)
        settings.check_compaction(self.node.metadata.finalized)
        _check_cap(request.config, self._max_batch_bytes)
        return meta.AlterTopic(
            name=request.name,
            config=as_known(request.config, self.node.metadata.finalized),
            set_expected_offsets=request.set_expected_offsets,
        )

    async def _reassign(self, request: pb.ReassignPartitionRequest) -> None:
        topic, partition = self._partition(request.topic, request.partition)
        check_replicas(request.replicas, self.node.metadata.nodes)
        command = meta.MetadataCommand(
            set_replicas=meta.SetReplicas(
                group_id=partition.group_id,
                replicas=request.replicas,
                expected_version=partition.version,
            )
        )
        result = await self.node.propose_metadata(command, timeout_s(0, self.node))
        accepted(result, topic=topic.name)

    async def _wait_for_leaders(
        self, topic: TopicState, first: int, done: str, timeout: float
    ) -> None:
        """Wait for the leaders of the partitions from `first` on.

        Raises RequestTimeoutError. done: the part of its message about the work done.
        """
        groups = [partition.group_id for partition in topic.partitions[first:]]
        if not await self.node.wait_for_leaders(groups, timeout):
            without = [
                str(number)
                for number, group in enumerate(groups, first)
                if not self.node.leader_of(group)[0]
            ]
            raise errors.RequestTimeoutError(
                f"topic {topic.name!r} {done}, but these partitions have no leader yet: "
                + ", ".join(without)
            )

    async def _newest_topic(self, name: str) -> TopicState:
        """Return a topic that is to be changed, also if another node has just created it."""
        if self.node.metadata.topic(name) is None:
            await self.node.newest_metadata.wait()
        return self._topic(name)

    # --- answers -------------------------------------------------------------------

    def _topic(self, name: str) -> TopicState:
        topic = self.node.metadata.topic(name)
        if topic is None and not self.node.controller_id:
            raise NotReadyError(f"topic {name!r} is not known here, and this node may be behind")
        if topic is None:
            raise errors.UnknownTopicOrPartitionError(f"topic {name!r} does not exist", topic=name)
        return topic

    def _nodes(self) -> list[pb.NodeInfo]:
        """List all nodes: members, and configured nodes that have not joined yet."""
        addresses = dict.fromkeys(all_nodes(self.node), "") | dict(self.node.metadata.nodes)
        return [self._node_info(*known) for known in sorted(addresses.items())]

    def _node_info(self, node_id: int, address: str) -> pb.NodeInfo:
        info = pb.NodeInfo(
            node_id=node_id,
            address=address,
            alive=self.node.alive(node_id),
            clock_disagrees=self.node.clock_disagrees(node_id),
            insecure=self.node.insecure(node_id),
            rack=self.node.metadata.membership.places.get(node_id, NodePlace()).rack,
        )
        release = self.node.upgrades.release_of(node_id)
        if release is not None:
            info.release = release.name
            info.oldest_cluster_version, info.newest_cluster_version = release.versions
            info.features[:] = sorted(release.features)
        return info

    def _settings(self) -> list[pb.ClusterSetting]:
        settings = sorted(self.node.metadata.settings.items())
        return [pb.ClusterSetting(name=name, value=value) for name, value in settings]

    @property
    def default_max_batch_bytes(self) -> int:
        """The value of a topic that asks for none: the cluster's limit may be lower than ours."""
        return min(TopicSettings().max_batch_bytes, self._max_batch_bytes)

    @property
    def _max_batch_bytes(self) -> int:
        node = self.node
        return node.metadata.settings.get(MAX_BATCH_BYTES, node.config.max_batch_bytes)

    def _upgrade_info(self) -> pb.UpgradeInfo:
        plan = self.node.upgrades.plan()
        return pb.UpgradeInfo(
            cluster_version=plan.finalized.version,
            features=sorted(plan.finalized.features),
            target_version=plan.target.version,
            target_features=sorted(plan.target.features),
            hindered_by=plan.hindered,
        )

    def _partition(self, name: str, number: int) -> tuple[TopicState, PartitionState]:
        topic = self._topic(name)
        if not 0 <= number < len(topic.partitions):
            raise errors.UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has partitions 0..{len(topic.partitions) - 1}, not {number}",
                topic=topic.name,
                partition=number,
            )
        return topic, topic.partitions[number]

    def _topic_info(self, topic: TopicState) -> pb.TopicInfo:
        return pb.TopicInfo(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                self._partition_info(number, partition)
                for number, partition in enumerate(topic.partitions)
            ],
            config=topic.config,
            created_ms=topic.created_ms,
        )

    def _leader_of(self, group_id: int) -> tuple[int, int]:
        """Return (node id, term). The id is 0 if no leader is known, or it is unreachable."""
        leader, term = self.node.leader_of(group_id)
        return leader if leader and self.node.alive(leader) else 0, term

    def _partition_info(self, number: int, partition: PartitionState) -> pb.PartitionInfo:
        group_id = partition.group_id
        leader, term = self._leader_of(group_id)
        replica = self.node.partition(group_id)
        return pb.PartitionInfo(
            partition=number,
            group_id=group_id,
            leader_id=leader,
            term=term,
            replicas=partition.replicas,
            target=partition.target,
            added_ms=partition.added_ms,
            log_start_offset=-1 if replica is None else replica.log_start_offset,
            cleaned_offset=None if replica is None else replica.cleaned_offset,
            high_watermark=-1 if replica is None else replica.high_watermark,
        )


def _check_cap(config: pb.TopicConfig, cap: int) -> None:
    """Raises Rejected if the topic's largest batch exceeds the cluster's limit."""
    if config.max_batch_bytes > cap:
        text = f"{config.max_batch_bytes} must be at most the cluster's limit, {cap}"
        raise invalid("max_batch_bytes", text, f"..{cap}")
