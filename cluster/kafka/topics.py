"""Topics: CreateTopics, DeleteTopics, CreatePartitions; any node answers.

session --> Topics --the services' requests--> ClusterService

A topic made here takes batches of Kafka's protocol (its setting `formats`).
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from cluster.kafka import configs
from cluster.kafka.errors import Error
from cluster.kafka.messages import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from cluster.kafka.needs import Rights
from cluster.kafka.versions import Head
from cluster.metadata.topics import invalid
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.requests import MAX_TIMEOUT_MS, Deadline
from cluster.services.slices import in_slices
from oncelog.v1 import cluster_pb2 as pb

SLICE = 50  # topics between two turns of other tasks
# Errors of a creation that a client's next metadata request repeats. Features are off in the first
# second of a new cluster.
_CREATED_LATER = (Error.REQUEST_TIMED_OUT, Error.NOT_CONTROLLER, Error.UNSUPPORTED_VERSION)


class Topics:
    """Changes of topics, for one node."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._keeps_compacted = configs.keeps_compacted(service.node)

    async def create(
        self, rights: Rights, head: Head, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        answer, deadline = CreateTopicsResponse(), self._deadline(request.timeout_ms)
        names = Counter(topic.name for topic in request.topics)
        async for topic in in_slices(request.topics, SLICE):
            if names[topic.name] > 1:
                text: str | None = "the request names the topic twice"
                error = Error.INVALID_REQUEST
            else:
                work = partial(self._create, topic, request.timeout_ms, request.validate_only)
                error, text = await rights.changed(CREATE_TOPICS, topic.name, work, deadline)
            result = CreatableTopicResult(topic.name, error, text)
            made = self._service.node.metadata.topic(topic.name)
            if not error and made is not None:
                result.num_partitions = len(made.partitions)
                result.replication_factor = made.replica_count
            answer.topics.append(result)
        return answer

    async def create_default(self, rights: Rights, name: str, deadline: Deadline) -> Error:
        """Create a topic that a client's metadata request names."""
        work = partial(self._create, CreatableTopic(name, -1, -1), 0, False)
        error, _ = await rights.changed(CREATE_TOPICS, name, work, deadline, waits=False)
        return Error.LEADER_NOT_AVAILABLE if error in _CREATED_LATER else error

    async def _create(self, topic: CreatableTopic, timeout_ms: int, is_trial: bool) -> None:
        by_hand = {one.partition_index: one.broker_ids for one in topic.assignments}
        if sorted(by_hand) != list(range(len(topic.assignments))):
            text = (
                f"partitions {sorted(by_hand)} must be 0..{len(topic.assignments) - 1}, each once"
            )
            raise invalid("placements", text)
        for field, value in (("partitions", topic.num_partitions),
                             ("replicas", topic.replication_factor)):  # fmt: skip
            if by_hand and value != -1:
                raise invalid("assignments", f"{field} must be -1 beside them, not {value}")
            if value == 0 or value < -1:
                raise invalid(field, f"{value} must be positive, or -1 for the default")
        values = {one.name: one.value for one in topic.configs}
        request = pb.CreateTopicRequest(
            name=topic.name,
            partitions=max(0, topic.num_partitions),
            replicas=max(0, topic.replication_factor),
            config=configs.created(values, keeps_compacted=self._keeps_compacted),
            timeout_ms=_timeout(timeout_ms),
        )
        placements = [by_hand[number] for number in sorted(by_hand)]
        if is_trial:
            self._service.create_command(request, placements)
        else:
            await self._service.CreateTopic(request, placements)

    async def delete(
        self, rights: Rights, head: Head, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        answer, deadline = DeleteTopicsResponse(), self._deadline(request.timeout_ms)
        async for name in in_slices(request.topic_names, SLICE):
            work = partial(self._service.DeleteTopic, pb.DeleteTopicRequest(name=name))
            error, text = await rights.changed(DELETE_TOPICS, name, work, deadline)
            answer.responses.append(DeletableTopicResult(name, error, text))
        return answer

    async def create_partitions(
        self, rights: Rights, head: Head, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        answer, deadline = CreatePartitionsResponse(), self._deadline(request.timeout_ms)
        async for topic in in_slices(request.topics, SLICE):
            work = partial(self._grow, topic, request)
            error, text = await rights.changed(CREATE_PARTITIONS, topic.name, work, deadline)
            answer.results.append(CreatePartitionsTopicResult(topic.name, error, text))
        return answer

    async def _grow(self, topic: CreatePartitionsTopic, request: CreatePartitionsRequest) -> None:
        if topic.count < 1:
            raise invalid("partitions", f"{topic.count} must be positive")
        await self._service.ResizeTopic(
            pb.ResizeTopicRequest(
                name=topic.name,
                partitions=topic.count,
                dry_run=request.validate_only,
                timeout_ms=_timeout(request.timeout_ms),
            ),
            [one.broker_ids for one in topic.assignments or ()],
        )

    def _deadline(self, timeout_ms: int) -> Deadline:
        return Deadline(_timeout(timeout_ms), self._service.node)


def _timeout(timeout_ms: int) -> int:
    return min(max(0, timeout_ms), MAX_TIMEOUT_MS)
