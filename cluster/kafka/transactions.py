"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn; also ListTransactions and the like.

    session --> TransactionCalls --> OpenTransactions --> metadata, leaders of the partitions
                            '-- offsets --> GroupService --> the partition of __offsets

Any node can be the coordinator; FindCoordinator names the metadata's leader.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from weakref import WeakValueDictionary

from cluster.kafka.brokers import Brokers
from cluster.kafka.errors import EXPECTED, Error, of_error, of_transaction
from cluster.kafka.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Call,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    OtherTransactionState,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
    TransactionState,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from cluster.kafka.needs import Required, Rights
from cluster.kafka.offsets import RESULTS, answered, in_calls, sorted_out
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.sent import Sent
from cluster.kafka.versions import Head
from cluster.metadata.topics import is_internal
from cluster.security.quotas import ExceededError
from cluster.services.context import NodeContext
from cluster.services.groups.service import GroupService
from cluster.services.requests import Deadline
from cluster.services.routing import leading
from cluster.services.slices import in_slices
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import Holder
from cluster.transactions.types import TransactionState as State
from cluster.v1.offsets_pb2 import ClassicCaller
from oncelog.v1 import group_pb2 as pb

MAX_PRODUCERS = 10_000  # of a partition, in an answer
_WRITE_TOPIC = Required("write", "topic")
_READ_GROUP = Required("read", "group")
_STATES = {
    State.OPEN: "Ongoing",
    State.COMMITTING: "PrepareCommit",
    State.COMMITTED: "CompleteCommit",
    State.ABORTING: "PrepareAbort",
    State.ABORTED: "CompleteAbort",
}
_EMPTY = "Empty"
_KNOWN_STATES = frozenset((*_STATES.values(), _EMPTY, "Dead", "PrepareEpochFence"))
_WRAP = (1 << 31) - 1


class TransactionCalls:
    """Answers for one node."""

    def __init__(
        self, node: NodeContext, open_ones: OpenTransactions, groups: GroupService, brokers: Brokers
    ) -> None:
        self._node = node
        self._open = open_ones
        self._groups = groups
        self._brokers = brokers
        # A group's calls are numbered one after the other.
        self._numbering: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- AddPartitionsToTxn, AddOffsetsToTxn, EndTxn ------------------------------------------

    async def add_partitions(
        self, rights: Rights, head: Head, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Add all partitions of the request, or none."""
        call, name = ADD_PARTITIONS_TO_TXN, request.v3_and_below_transactional_id
        holder = Holder(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        wrong: dict[tuple[str, int], Error] = {}
        groups = set[int]()
        every = [(t.name, n) for t in request.v3_and_below_topics for n in t.partitions]
        async for topic, number in in_slices(every):
            refused = rights.refusal(call, topic, _WRITE_TOPIC)
            group = None if is_internal(topic) else self._node.metadata.group_of(topic, number)
            if refused is not None:
                wrong[topic, number] = of_error(refused)
            elif group is None:
                wrong[topic, number] = Error.UNKNOWN_TOPIC_OR_PARTITION
            else:
                groups.add(group)
        other = Error.OPERATION_NOT_ATTEMPTED
        if not wrong:
            other = await self._added(rights, head, call, name, holder, groups)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [
                        AddPartitionsToTxnPartitionResult(n, wrong.get((topic.name, n), other))
                        for n in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    async def add_offsets(
        self, rights: Rights, head: Head, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        call, name = ADD_OFFSETS_TO_TXN, request.transactional_id
        refused = rights.refusal(call, request.group_id, _READ_GROUP)
        if refused is not None:
            return AddOffsetsToTxnResponse(error_code=of_error(refused))
        try:
            group = await self._groups.raft_group(request.group_id)
        except EXPECTED as error:
            return AddOffsetsToTxnResponse(error_code=of_transaction(error, fenced=_fenced(head)))
        holder = Holder(request.producer_id, request.producer_epoch)
        number = await self._added(rights, head, call, name, holder, {group})
        return AddOffsetsToTxnResponse(error_code=number)

    async def _added(
        self, rights: Rights, head: Head, call: Call, name: str, holder: Holder, groups: set[int]
    ) -> Error:
        refused = rights.refusal(call, name)
        if refused is not None:
            return of_error(refused)
        usage = rights.caller.usage
        try:
            if usage is None:
                number = await self._open.add(name, holder, rights.sent, groups)
            else:
                with usage.begin((name, holder)) as begun:
                    number = await self._open.add(name, holder, rights.sent, groups)
                    begun(number)
        except ExceededError:  # the client asks again
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        except EXPECTED as error:
            return of_transaction(error, fenced=_fenced(head))
        rights.sent.added(name, number)
        return Error.NONE

    async def end(self, rights: Rights, head: Head, request: EndTxnRequest) -> EndTxnResponse:
        name, holder = request.transactional_id, Holder(request.producer_id, request.producer_epoch)
        refused = rights.refusal(END_TXN, name)
        if refused is not None:
            return EndTxnResponse(error_code=of_error(refused))
        timeout = self._node.config.request_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout):
                await self._open.end(name, holder, rights.sent, commit=request.committed)
        except TimeoutError:  # the client asks again
            return EndTxnResponse(error_code=Error.COORDINATOR_LOAD_IN_PROGRESS)
        except EXPECTED as error:
            return EndTxnResponse(error_code=of_transaction(error, fenced=_fenced(head)))
        return EndTxnResponse()

    # -- TxnOffsetCommit --------------------------------------------------------------------

    async def commit_offsets(
        self, rights: Rights, head: Head, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        call = TXN_OFFSET_COMMIT
        refused = rights.refusal(call, request.transactional_id)
        refused = refused or rights.refusal(call, request.group_id, _READ_GROUP)
        results, commits = await sorted_out(rights, call, refused, request.topics)
        if commits:
            number = await self._staged(rights.sent, request, commits)
            results |= {(one.topic, one.partition): number for one in commits}
        kinds = TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
        return TxnOffsetCommitResponse(topics=answered(request.topics, results, *kinds))

    async def _staged(
        self, sent: Sent, request: TxnOffsetCommitRequest, commits: Sequence[pb.OffsetCommit]
    ) -> Error:
        member = ClassicCaller(
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id,
        )
        name, holder = request.transactional_id, Holder(request.producer_id, request.producer_epoch)
        lock = self._numbering.setdefault(request.group_id, asyncio.Lock())

        async def stage(number: int) -> pb.StageOffsetsResponse:
            async with lock:
                answer = pb.StageOffsetsResponse()
                for part in in_calls(commits):
                    call = await self._groups.next_call(request.group_id, number)
                    staged = pb.StageOffsetsRequest(
                        transaction_id=number,
                        producer_id=holder.producer_id,
                        epoch=holder.epoch,
                        group=request.group_id,
                        number=call,
                        offsets=part,
                    )
                    answer = await self._groups.stage(staged, member)
                    if answer.error:
                        break
                return answer

        try:
            group = await self._groups.raft_group(request.group_id)
            answer = await self._open.stage_offsets(name, holder, sent, group, stage)
        except EXPECTED as error:
            return of_transaction(error, fenced=False)
        return RESULTS.get(answer.error, Error.UNKNOWN_SERVER_ERROR)

    # -- ListTransactions, DescribeTransactions, DescribeProducers ------------------------------

    async def list(
        self, rights: Rights, head: Head, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """List those of this coordinator: a client asks every node."""
        answer = ListTransactionsResponse(
            unknown_state_filters=[s for s in request.state_filters if s not in _KNOWN_STATES]
        )
        if not self._node.controller_id:
            answer.error_code = Error.COORDINATOR_LOAD_IN_PROGRESS
        if self._node.controller_id != self._node.config.node_id:
            return answer
        metadata = self._node.metadata
        async for name in in_slices(metadata.names()):
            row = self._last(name.name)
            state = _EMPTY if row is None else _STATES[row.state]
            age_ms = 0 if row is None else metadata.clock_ms - row.begun_ms
            if (
                (name.transaction_timeout_ms or row is not None)
                and (not request.state_filters or state in request.state_filters)
                and (not request.producer_id_filters
                     or name.producer_id in request.producer_id_filters)
                and age_ms > request.duration_filter
                and rights.shows(LIST_TRANSACTIONS, name.name)
            ):  # fmt: skip
                answer.transaction_states.append(
                    OtherTransactionState(name.name, name.producer_id, state)
                )
        return answer

    async def describe(
        self, rights: Rights, head: Head, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        answer, deadline = DescribeTransactionsResponse(), Deadline(0, self._node)
        async for name in in_slices(request.transactional_ids):
            refused = rights.refusal(DESCRIBE_TRANSACTIONS, name)
            one = TransactionState(transactional_id=name)
            if refused is not None:
                one.error_code = of_error(refused)
            else:
                try:
                    async with deadline:
                        await self._describe(one)
                except EXPECTED as error:
                    one.error_code = of_transaction(error, fenced=True)
            answer.transaction_states.append(one)
        return answer

    async def _describe(self, one: TransactionState) -> None:
        """Describe the name's last transaction. Raises one of EXPECTED."""
        name = await self._open.newest_name(one.transactional_id)
        if name is None or name.tombstone:
            one.error_code = Error.TRANSACTIONAL_ID_NOT_FOUND
            return
        one.producer_id, one.producer_epoch = name.producer_id, min(name.epoch, (1 << 15) - 1)
        one.transaction_timeout_ms = name.transaction_timeout_ms
        one.transaction_state, one.transaction_start_time_ms = _EMPTY, -1
        row = self._last(name.name)
        if row is None:
            return
        one.transaction_state = _STATES[row.state]
        if row.state is State.OPEN or row.pending():
            one.transaction_start_time_ms = row.begun_ms
            topics = defaultdict[str, list[int]](list)
            for group in row.parts:
                place = self._node.metadata.partition(group)
                if place is not None:
                    topics[place[0].name].append(place[1])
            one.topics = [TopicData(topic, numbers) for topic, numbers in topics.items()]

    def _last(self, name: str) -> TransactionRow | None:
        owner = self._node.metadata.coordinator.owner(name)
        return None if owner is None else self._node.metadata.coordinator.get(owner.last_id)

    async def describe_producers(
        self, rights: Rights, head: Head, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        answer = DescribeProducersResponse()
        for topic in request.topics:
            refused = rights.refusal(DESCRIBE_PRODUCERS, topic.name)
            parts = list[PartitionResponse]()
            async for number in in_slices(topic.partition_indexes):
                try:
                    if refused is not None:
                        raise refused
                    parts.append(self._producers(topic.name, number))
                except EXPECTED as error:
                    parts.append(PartitionResponse(number, of_error(error), str(error)))
            answer.topics.append(TopicResponse(topic.name, parts))
        return answer

    def _producers(self, topic: str, number: int) -> PartitionResponse:
        found = leading(self._node, topic, number).last_seen.scan(0, MAX_PRODUCERS)
        return PartitionResponse(
            number,
            active_producers=[
                ProducerState(
                    one.producer_id,
                    one.epoch,
                    one.last_sequence & _WRAP if one.last_sequence >= 0 else -1,
                    one.last_append_ms,
                    -1,
                )
                for one in found
            ],
        )


def _fenced(head: Head) -> bool:
    """Return whether the client knows PRODUCER_FENCED."""
    return head.version >= 2
