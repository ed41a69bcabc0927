"""Logs of partitions for admins: DeleteRecords, DescribeLogDirs.

    session --> Logs --LOG_START entries--> Partition.delete_below
                  '--- this node's replicas, their sizes

Records go by whole batches, as by retention: the batch of the offset itself stays whole.
"""

from __future__ import annotations

import asyncio
from functools import partial

from cluster.errors import ProposalTimeoutError
from cluster.kafka.errors import EXPECTED, of_error
from cluster.kafka.messages import (
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from cluster.kafka.needs import Rights
from cluster.kafka.versions import Head
from cluster.metadata.topics import TopicState, is_internal
from cluster.partition.replica import OffsetOutOfRangeError
from cluster.services.context import NodeContext
from cluster.services.outcomes import applied, called_back, confirm
from cluster.services.requests import MAX_TIMEOUT_MS
from cluster.services.routing import leading
from cluster.services.slices import in_slices

END = -1  # as an offset: all that is readable now


class Logs:
    """Logs of one node's partitions."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    # -- DeleteRecords ------------------------------------------------------------------

    async def delete(
        self, rights: Rights, head: Head, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        answer = DeleteRecordsResponse()
        ends = asyncio.get_running_loop().time() + min(request.timeout_ms, MAX_TIMEOUT_MS) / 1000
        for topic in request.topics:
            result = DeleteRecordsTopicResult(topic.name)
            async for one in in_slices(topic.partitions):
                deleted = DeleteRecordsPartitionResult(one.partition_index, -1)
                refused = rights.refusal(DELETE_RECORDS, topic.name)
                if refused is None:
                    work = self._deleted(topic.name, one.partition_index, one.offset, ends)
                    try:
                        with rights.noting(DELETE_RECORDS, topic.name, of_error):
                            deleted.low_watermark = await work
                    except EXPECTED as error:
                        deleted.error_code = of_error(error)
                    else:
                        rights.ended(DELETE_RECORDS, topic.name, "ok")
                else:
                    deleted.error_code = of_error(refused)
                result.partitions.append(deleted)
            answer.topics.append(result)
        return answer

    async def _deleted(self, topic: str, index: int, offset: int, ends: float) -> int:
        """Delete records below the offset; returns the log's start. Raises one of EXPECTED."""
        hidden = is_internal(topic)
        replica = leading(self._node, "" if hidden else topic, index)
        start = -1
        try:
            async with asyncio.timeout_at(ends):
                if offset > replica.high_watermark:
                    await confirm(replica)  # a deposed leader lacks records without knowing
                end = replica.high_watermark
                wanted = end if offset == END else offset
                if not 0 <= wanted <= end:
                    raise OffsetOutOfRangeError(wanted, replica.log_start_offset, end)
                while start != replica.log_start_offset:
                    start = replica.log_start_offset
                    applied(await called_back(partial(replica.delete_below, wanted)))
        except TimeoutError:
            raise ProposalTimeoutError(f"{topic}-{index}: not committed in time") from None
        return start

    # -- DescribeLogDirs ----------------------------------------------------------------

    async def describe(
        self, rights: Rights, head: Head, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """Describe the one directory of this node; it has no other."""
        refused = rights.refusal(DESCRIBE_LOG_DIRS, "")
        if refused is not None:
            return DescribeLogDirsResponse(error_code=of_error(refused))
        result = DescribeLogDirsResult(log_dir=str(self._node.config.data_dir))
        wanted = None
        if request.topics is not None:
            wanted = {one.topic: set(one.partitions) for one in request.topics}
        known = [one for one in self._node.metadata.topics() if not is_internal(one.name)]
        async for topic in in_slices(known):
            if wanted is None or topic.name in wanted:
                numbers = None if wanted is None else wanted[topic.name]
                listed = list(self._sizes(topic, numbers))
                if listed:
                    result.topics.append(DescribeLogDirsTopic(topic.name, listed))
        return DescribeLogDirsResponse(results=[result])

    def _sizes(self, topic: TopicState, numbers: set[int] | None) -> list[DescribeLogDirsPartition]:
        found = []
        for number, partition in enumerate(topic.partitions):
            replica = self._node.partition(partition.group_id)
            if replica is not None and (numbers is None or number in numbers):
                found.append(DescribeLogDirsPartition(number, replica.machine.stored.stored_bytes))
        return found
