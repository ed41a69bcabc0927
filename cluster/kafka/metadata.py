"""Metadata and DescribeCluster: brokers, topics, the leader of each partition.

session --> Metadata --> this node's copy of the metadata, Brokers
                 '-- kafka_auto_create --> Topics

A partition's leader epoch is made of its Raft term: it rises with each leader, as Kafka's does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cluster.kafka.brokers import NO_NODE, Brokers
from cluster.kafka.errors import Error, of_error, of_missing_topic
from cluster.kafka.messages import (
    METADATA,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from cluster.kafka.needs import Rights
from cluster.kafka.versions import Head
from cluster.metadata.topics import (
    PartitionState,
    Rejected,
    TopicState,
    check_topic_name,
    is_internal,
)
from cluster.services.context import NodeContext
from cluster.services.requests import Deadline
from cluster.services.slices import in_slices

TOPICS_SLICE = 5  # each has up to 1,000 partitions
BROKER_ENDPOINTS = 1


class Creates(Protocol):
    """Creation of a topic that a client's metadata request names."""

    async def create_default(self, rights: Rights, name: str, deadline: Deadline) -> Error: ...


class Metadata:
    """Answers for one node."""

    def __init__(self, node: NodeContext, brokers: Brokers, topics: Creates) -> None:
        self._node = node
        self._brokers = brokers
        self._topics = topics

    async def metadata(
        self, rights: Rights, head: Head, request: MetadataRequest
    ) -> MetadataResponse:
        answer = MetadataResponse(
            brokers=[MetadataResponseBroker(*broker) for broker in self._brokers.all()],
            cluster_id=self._brokers.cluster_id,
            controller_id=self._brokers.controller_id,
        )
        if request.topics is None or (head.version == 0 and not request.topics):
            known = [t for t in self._node.metadata.topics() if not is_internal(t.name)]
            shown = [t for t in known if rights.shows(METADATA, t.name)]
            async for topic in in_slices(shown, TOPICS_SLICE):
                answer.topics.append(self._topic(topic))
            return answer
        create = None
        if request.allow_auto_topic_creation and self._node.config.kafka_auto_create:
            create = Deadline(0, self._node)
        names = dict.fromkeys(one.name or "" for one in request.topics)
        async for name in in_slices(names, TOPICS_SLICE):
            answer.topics.append(await self._named(rights, name, create))
        return answer

    async def cluster(
        self, rights: Rights, head: Head, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        if request.endpoint_type != BROKER_ENDPOINTS:
            text = "there are no endpoints but the brokers'"
            return DescribeClusterResponse(
                error_code=Error.UNSUPPORTED_ENDPOINT_TYPE, error_message=text
            )
        return DescribeClusterResponse(
            cluster_id=self._brokers.cluster_id,
            controller_id=self._brokers.controller_id,
            brokers=[DescribeClusterBroker(*broker) for broker in self._brokers.all()],
        )

    async def _named(
        self, rights: Rights, name: str, create: Deadline | None
    ) -> MetadataResponseTopic:
        """create: a missing topic, until then."""
        refused = rights.refusal(METADATA, name)
        if refused is not None:
            return MetadataResponseTopic(error_code=of_error(refused), name=name)
        try:
            check_topic_name(name)
        except Rejected as fault:
            return MetadataResponseTopic(error_code=of_error(fault), name=name)
        topic = self._node.metadata.topic(name)
        if topic is None and create is not None:
            error = await self._topics.create_default(rights, name, create)
            topic = self._node.metadata.topic(name)
            if topic is None:
                return MetadataResponseTopic(error_code=error, name=name)
        if topic is None:
            error = of_missing_topic(self._node.controller_id)
            return MetadataResponseTopic(error_code=error, name=name)
        return self._topic(topic)

    def _topic(self, topic: TopicState) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name, partitions=list(self._partitions(topic.partitions))
        )

    def _partitions(
        self, partitions: Iterable[PartitionState]
    ) -> Iterable[MetadataResponsePartition]:
        for number, partition in enumerate(partitions):
            leader = self._brokers.leader_of(partition.group_id)
            led = leader.node_id != NO_NODE
            yield MetadataResponsePartition(
                error_code=Error.NONE if led else Error.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=leader.node_id,
                leader_epoch=leader.epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=self._brokers.in_sync(partition),
                offline_replicas=self._brokers.offline(partition),
            )
