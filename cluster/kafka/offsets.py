"""Committed offsets of groups: FindCoordinator, OffsetCommit, OffsetFetch.

session --> Offsets --the services' requests--> GroupService --> the partition of __offsets

A group's coordinator is the leader of its partition of `__offsets`. A commit that names a member or
a generation keeps the member's session, and is checked against the generation when it is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from cluster.kafka.brokers import NO_NODE, Brokers
from cluster.kafka.errors import EXPECTED, Error, of_coordinator, of_error, text_of
from cluster.kafka.groups import REASONS, caller_of
from cluster.kafka.messages import (
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Call,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    TxnOffsetCommitRequestTopic,
)
from cluster.kafka.needs import Required, Rights
from cluster.kafka.versions import Head
from cluster.partition.group_offsets import MAX_COMMITS
from cluster.services.groups.service import GroupService
from cluster.services.requests import Deadline
from cluster.services.slices import in_slices
from oncelog.errors import NotReadyError, OncelogError
from oncelog.v1 import batch_pb2
from oncelog.v1 import group_pb2 as pb

PartitionT = TypeVar("PartitionT")
TopicT = TypeVar("TopicT")
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
_READ_TOPIC = Required("read", "topic")
_READ_GROUP = Required("read", "group")
_DESCRIBE_TOPIC = Required("describe", "topic")
_DESCRIBE_NAME = Required("describe", "producer")
RESULTS = {
    "": Error.NONE,
    "UNKNOWN_TOPIC_OR_PARTITION": Error.UNKNOWN_TOPIC_OR_PARTITION,
    "GROUP_HAS_MEMBERS": Error.UNKNOWN_MEMBER_ID,
    "UNKNOWN_MEMBER": Error.UNKNOWN_MEMBER_ID,
    "ILLEGAL_GENERATION": Error.ILLEGAL_GENERATION,
    "FENCED_INSTANCE": Error.FENCED_INSTANCE_ID,
    "TRANSACTION_CONFLICT": Error.COORDINATOR_LOAD_IN_PROGRESS,
    "NOT_READY": Error.COORDINATOR_LOAD_IN_PROGRESS,
    "THROTTLED": Error.COORDINATOR_NOT_AVAILABLE,
    # Another coordinator's call of the same number came first.
    "SEQUENCE_CONFLICT": Error.COORDINATOR_LOAD_IN_PROGRESS,
    "OUT_OF_ORDER": Error.COORDINATOR_LOAD_IN_PROGRESS,
    # Of a transaction that has ended meanwhile.
    "TRANSACTION_ABORTED": Error.INVALID_PRODUCER_EPOCH,
    "TRANSACTION_ENDED": Error.INVALID_TXN_STATE,
    "FENCED": Error.INVALID_PRODUCER_EPOCH,
}
Stored = dict[tuple[str, int], pb.CommittedOffset]
Unstable = Collection[tuple[str, int]]


async def sorted_out(
    rights: Rights,
    call: Call,
    refused: OncelogError | None,
    topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
) -> tuple[dict[tuple[str, int], Error], list[pb.OffsetCommit]]:
    """Return the result of each partition, NONE so far, and the offsets to commit.

    refused: why none may be committed.
    """
    results: dict[tuple[str, int], Error] = {}
    commits = list[pb.OffsetCommit]()
    for topic in topics:
        hidden = refused or rights.refusal(call, topic.name, _READ_TOPIC)
        async for one in in_slices(one for one in topic.partitions):
            key = topic.name, one.partition_index
            if hidden is not None:
                results[key] = of_error(hidden)
            elif one.partition_index < 0:
                results[key] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif key not in results:
                results[key] = Error.NONE
                commits.append(
                    pb.OffsetCommit(
                        topic=topic.name,
                        partition=one.partition_index,
                        offset=one.committed_offset,
                        metadata=one.committed_metadata or "",
                    )
                )
    return results, commits


def answered(
    topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
    results: Mapping[tuple[str, int], Error],
    topic_of: Callable[[str, list[PartitionT]], TopicT],
    partition_of: Callable[[int, int], PartitionT],
) -> list[TopicT]:
    """Return the answer's topics, as the request has them."""
    return [
        topic_of(
            topic.name,
            [
                partition_of(one.partition_index, results[topic.name, one.partition_index])
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]


def in_calls(commits: Sequence[pb.OffsetCommit]) -> Iterator[Sequence[pb.OffsetCommit]]:
    """Yield the offsets in parts that GroupService takes: Kafka's clients know no limit."""
    for first in range(0, len(commits), MAX_COMMITS):
        yield commits[first : first + MAX_COMMITS]


class Offsets:
    """Committed offsets, for one node."""

    def __init__(self, groups: GroupService, brokers: Brokers) -> None:
        self._groups = groups
        self._brokers = brokers

    # -- FindCoordinator ----------------------------------------------------------------

    async def find(
        self, rights: Rights, head: Head, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        keys = request.coordinator_keys if head.version >= 4 else [request.key]
        answer, deadline = FindCoordinatorResponse(), Deadline(0, self._groups.node)
        async for key in in_slices(dict.fromkeys(keys)):
            answer.coordinators.append(await self._found(rights, key, request.key_type, deadline))
        if head.version >= 4:
            return answer
        (one,) = answer.coordinators
        return FindCoordinatorResponse(
            0, one.error_code, one.error_message, one.node_id, one.host, one.port
        )

    async def _found(self, rights: Rights, key: str, kind: int, deadline: Deadline) -> Coordinator:
        if kind not in (GROUP, TRANSACTION):
            text = f"key_type: {kind} must be {GROUP}, a group, or {TRANSACTION}, a transaction"
            return Coordinator(key, NO_NODE, "", NO_NODE, Error.INVALID_REQUEST, text)
        try:
            need = _DESCRIBE_NAME if kind == TRANSACTION else None
            refused = rights.refusal(FIND_COORDINATOR, key, need)
            if refused is not None:
                raise refused
            if kind == TRANSACTION:  # any node is one
                node_id = self._brokers.controller_id
            else:
                async with deadline:
                    node_id = await self._groups.coordinator(key)
            broker = self._brokers.find(node_id)
            if broker is None:
                raise NotReadyError("the coordinator has no Kafka address")
        except EXPECTED as error:
            number = of_coordinator(error)
            if number in (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR):
                number = Error.COORDINATOR_NOT_AVAILABLE
            return Coordinator(key, NO_NODE, "", NO_NODE, number, text_of(error))
        return Coordinator(key, *broker[:3], Error.NONE, None)

    # -- OffsetCommit -------------------------------------------------------------------

    async def commit(
        self, rights: Rights, head: Head, request: OffsetCommitRequest
    ) -> OffsetCommitResponse:
        refused = rights.refusal(OFFSET_COMMIT, request.group_id)
        results, commits = await sorted_out(rights, OFFSET_COMMIT, refused, request.topics)
        if commits:
            results |= await self._committed(request, commits)
        kinds = OffsetCommitResponseTopic, OffsetCommitResponsePartition
        return OffsetCommitResponse(topics=answered(request.topics, results, *kinds))

    async def _committed(
        self, request: OffsetCommitRequest, commits: Sequence[pb.OffsetCommit]
    ) -> dict[tuple[str, int], Error]:
        group, member = request.group_id, request.member_id
        generation, instance = request.generation_id_or_member_epoch, request.group_instance_id
        caller = None
        if generation >= 0 or member or instance:
            caller = caller_of(member, instance, generation)
        results: dict[tuple[str, int], Error] = {}
        try:
            reason = "" if caller is None else await self._groups.classic.commits(group, caller)
            if reason:
                return {(one.topic, one.partition): REASONS[reason] for one in commits}
            for part in in_calls(commits):
                answer = await self._groups.commit(
                    pb.CommitOffsetsRequest(group=group, offsets=part), caller
                )
                for one in answer.results:
                    number = RESULTS.get(one.error, Error.UNKNOWN_SERVER_ERROR)
                    results[one.topic, one.partition] = number
        except EXPECTED as error:
            number = of_coordinator(error)
            return {(one.topic, one.partition): number for one in commits} | results
        return results

    # -- OffsetFetch --------------------------------------------------------------------

    async def fetch(
        self, rights: Rights, head: Head, request: OffsetFetchRequest
    ) -> OffsetFetchResponse:
        stable, deadline = request.require_stable, Deadline(0, self._groups.node)
        if head.version < 8:
            topics = None
            if request.topics is not None:
                topics = [(one.name, one.partition_indexes) for one in request.topics]
            found, error = await self._fetched(
                rights, request.group_id, topics, deadline, stable=stable
            )
            return OffsetFetchResponse(
                error_code=error,
                topics=[
                    OffsetFetchResponseTopic(
                        name, [OffsetFetchResponsePartition(*one) for one in partitions]
                    )
                    for name, partitions in found
                ],
            )
        answer = OffsetFetchResponse()
        for group in request.groups:
            topics = None
            if group.topics is not None:
                topics = [(one.name, one.partition_indexes) for one in group.topics]
            found, error = await self._fetched(
                rights, group.group_id, topics, deadline, stable=stable
            )
            listed = [
                OffsetFetchResponseTopics(
                    name, [OffsetFetchResponsePartitions(*one) for one in partitions]
                )
                for name, partitions in found
            ]
            answer.groups.append(OffsetFetchResponseGroup(group.group_id, listed, error))
        return answer

    async def _fetched(
        self,
        rights: Rights,
        group: str,
        topics: Iterable[tuple[str, list[int]]] | None,
        deadline: Deadline,
        *,
        stable: bool,
    ) -> tuple[list[tuple[str, list[tuple[int, int, int, str, int]]]], Error]:
        """Return each topic with its partitions' (number, offset, epoch, metadata, error).

        topics: None for all that the group committed.
        """
        keys = None if topics is None else [(t, n) for t, numbers in topics for n in numbers]
        stored, error = Stored(), Error.NONE
        unstable: Unstable = ()
        try:
            # Stable offsets may end the group's open transactions: that is a consumer's right.
            refused = rights.refusal(OFFSET_FETCH, group, _READ_GROUP if stable else None)
            if refused is not None:
                raise refused
            async with deadline:
                stored, unstable = await self._stored(group, keys, stable=stable)
        except EXPECTED as fault:
            error = of_coordinator(fault)
        found: dict[str, list[tuple[int, int, int, str, int]]] = {}
        every = dict.fromkeys([*stored, *unstable]) if keys is None else keys
        async for topic, number in in_slices(every):
            if keys is None and not rights.shows(OFFSET_FETCH, topic, _DESCRIBE_TOPIC):
                continue
            hidden = rights.refusal(OFFSET_FETCH, topic, _DESCRIBE_TOPIC)
            fault_code = error if hidden is None else of_error(hidden)
            if fault_code is Error.NONE and (topic, number) in unstable:
                fault_code = Error.UNSTABLE_OFFSET_COMMIT
            one = None if fault_code else stored.get((topic, number))
            offset, text = (-1, "") if one is None else (one.offset, one.metadata)
            found.setdefault(topic, []).append((number, offset, -1, text, fault_code))
        return list(found.items()), error

    async def _stored(
        self, group: str, keys: list[tuple[str, int]] | None, *, stable: bool
    ) -> tuple[Stored, Unstable]:
        """Return committed offsets, and keys of those that may still change.

        Raises one of EXPECTED.
        """
        if keys is not None and not keys:
            return {}, ()
        answer, unstable = await self._groups.fetch(
            pb.FetchOffsetsRequest(
                group=group,
                partitions=[
                    batch_pb2.TopicPartition(topic=topic, partition=number)
                    for topic, number in keys or ()
                    if number >= 0
                ],
                ignore_transactions=not stable,
            ),
            is_classic=True,
        )
        return {(one.topic, one.partition): one for one in answer.offsets}, unstable
