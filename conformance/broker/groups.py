"""GroupService of one node: committed offsets, by the nodes' own table."""

from __future__ import annotations

from typing import Any

from cluster.partition.group_state import CommitResult
from cluster.services.offsets_wire import commit_result, committed_offset, offset_record
from cluster.v1 import offsets_pb2 as internal
from conformance.broker.lies import Lie
from conformance.broker.stage import Stage
from oncelog import errors
from oncelog.v1 import group_pb2 as pb
from oncelog.v1 import group_pb2_grpc

UNKNOWN = CommitResult("UNKNOWN_TOPIC_OR_PARTITION", "unknown topic or partition", False, None)


class GroupService(group_pb2_grpc.GroupServiceServicer):
    """One node leads all groups, `Cluster.offsets_leader`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _leads(self) -> None:
        """Raises NotLeaderError."""
        cluster = self._stage.cluster
        if cluster.offsets_leader != self._stage.node_id:
            raise cluster.not_leader(cluster.offsets_leader)

    async def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: Any
    ) -> pb.CommitOffsetsResponse:
        async def truth(_: Lie | None) -> pb.CommitOffsetsResponse:
            self._leads()
            if not request.offsets:
                raise errors.InvalidRequestError("offsets: none", field="offsets")
            results = [self._commit(request.group, commit) for commit in request.offsets]
            return pb.CommitOffsetsResponse(results=results)

        facts = {"group": request.group, "offsets": len(request.offsets)}
        return await self._stage.answer("commit_offsets", facts, request, context, truth)

    def _commit(self, group: str, commit: pb.OffsetCommit) -> pb.OffsetCommitResult:
        cluster = self._stage.cluster
        topic = cluster.metadata.topic(commit.topic)
        done = UNKNOWN
        if topic is not None and 0 <= commit.partition < len(topic.partitions):
            record = offset_record(commit, topic.topic_id)
            change = internal.CommitGroupOffsets(group=group, offsets=[record])
            command = internal.OffsetsCommand(stamp_ms=cluster.now_ms, commit=change)
            results = cluster.apply_offsets(command.SerializeToString())
            assert isinstance(results, list)
            done = results[0]
        return commit_result(commit, done)

    async def FetchOffsets(
        self, request: pb.FetchOffsetsRequest, context: Any
    ) -> pb.FetchOffsetsResponse:
        async def truth(_: Lie | None) -> pb.FetchOffsetsResponse:
            self._leads()
            group = self._stage.cluster.offsets.group(request.group)
            answer = pb.FetchOffsetsResponse()
            if request.partitions:
                for wanted in request.partitions:
                    key = (wanted.topic, wanted.partition)
                    answer.offsets.append(committed_offset(*key, group.get(key) if group else None))
            else:
                for key, state in group.items() if group else ():
                    answer.offsets.append(committed_offset(*key, state))
            return answer

        return await self._stage.answer(
            "fetch_offsets", {"group": request.group}, request, context, truth
        )
