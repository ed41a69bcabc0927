"""GroupService of one node: committed offsets, by the nodes' own table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from cluster.partition.group_state import CommitResult, OffsetState
from cluster.rpc.errors import abort
from cluster.services.groups.offsets_wire import commit_result, committed_offset, offset_record
from cluster.v1 import offsets_pb2 as internal
from conformance.broker.lies import Lie
from conformance.broker.members import PING_MS
from conformance.broker.stage import Stage
from oncelog import errors
from oncelog.v1 import group_pb2 as pb
from oncelog.v1 import group_pb2_grpc

FENCED = CommitResult("FENCED_MEMBER", "the partition is not this member's", False, None)
UNKNOWN = CommitResult("UNKNOWN_TOPIC_OR_PARTITION", "unknown topic or partition", False, None)


class GroupService(group_pb2_grpc.GroupServiceServicer):
    """Service of groups. One node leads all groups, `Cluster.offsets_leader`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _leads(self) -> None:
        """Checks leadership. Raises NotLeaderError."""
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
            owns = self._stage.cluster.members.owns
            results = [
                commit_result(commit, FENCED)
                if request.member_id
                and owns.get((commit.topic, commit.partition)) != commit.ownership
                else self._commit(request.group, commit)
                for commit in request.offsets
            ]
            return pb.CommitOffsetsResponse(results=results)

        facts = {
            "group": request.group,
            "offsets": len(request.offsets),
            "member": bool(request.member_id),
            "ownership": request.offsets[0].ownership if request.offsets else 0,
        }
        return await self._stage.answer("commit_offsets", facts, request, context, truth)

    async def StageOffsets(
        self, request: pb.StageOffsetsRequest, context: Any
    ) -> pb.StageOffsetsResponse:
        async def truth(_: Lie | None) -> pb.StageOffsetsResponse:
            self._leads()
            cluster, done = self._stage.cluster, FENCED
            owns = cluster.members.owns
            places = [(commit.topic, commit.partition) for commit in request.offsets]
            ownerships = [commit.ownership for commit in request.offsets]
            if not request.member_id or [owns.get(place) for place in places] == ownerships:
                done = cluster.transactions.stage_offsets(request)
            return pb.StageOffsetsResponse(
                error=done.error, message=done.message, duplicate=done.duplicate
            )

        facts = {
            "group": request.group,
            "transaction": request.transaction_id,
            "offsets": len(request.offsets),
            "number": request.number,
            "member": bool(request.member_id),
        }
        return await self._stage.answer("stage_offsets", facts, request, context, truth)

    async def JoinGroup(
        self, request_iterator: AsyncIterator[pb.JoinGroupRequest], context: Any
    ) -> None:
        """Answers a hello, then sends the case's messages to the member."""
        members = self._stage.cluster.members
        try:
            self._leads()
        except errors.NotLeaderError as error:
            await abort(context, error)
        requests = aiter(request_iterator)
        hello = (await anext(requests)).hello
        facts = {"epoch": hello.epoch, "connection": hello.connection, "owned": len(hello.owned)}
        self._stage.note("hello", {"group": hello.group, **facts}, hello)
        queue = members.open()
        reading = asyncio.create_task(self._read(hello.group, requests))
        try:
            while (message := await queue.get()) is not None:
                await context.write(_of(hello.connection, message))
                if message.HasField("fenced"):
                    return
        finally:
            reading.cancel()
            members.close(queue)
            self._stage.note("ended", {"group": hello.group}, hello)
        await abort(context, self._stage.cluster.not_leader(self._stage.cluster.offsets_leader))

    async def _read(self, group: str, requests: AsyncIterator[pb.JoinGroupRequest]) -> None:
        async for request in requests:
            self._said(group, request)

    def _said(self, group: str, request: pb.JoinGroupRequest) -> None:
        kind = request.WhichOneof("message")
        if kind == "owned":
            facts = {"epoch": request.owned.epoch, "partitions": len(request.owned.partitions)}
            self._stage.cluster.members.owned(request.owned)
            self._stage.note("owned", facts, request)
        elif kind == "leave":
            self._stage.note("leave", {"group": group}, request)

    async def GroupHeartbeat(
        self, request: pb.GroupHeartbeatRequest, context: Any
    ) -> pb.JoinGroupResponse:
        try:
            self._leads()
        except errors.NotLeaderError as error:
            await abort(context, error)
        self._said(request.group, request.request)
        return _of(request.connection, self._stage.cluster.members.newest())

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

    def _valid(self, group: str) -> dict[tuple[str, int], OffsetState]:
        """Committed offsets of the group, without those of deleted topics."""
        cluster = self._stage.cluster
        state = cluster.offsets.group(group)
        ids = {topic.name: topic.topic_id for topic in cluster.metadata.topics()}
        return {
            key: one
            for key, one in (state.items() if state is not None else ())
            if one.topic_id == ids.get(key[0])
        }

    async def FetchOffsets(
        self, request: pb.FetchOffsetsRequest, context: Any
    ) -> pb.FetchOffsetsResponse:
        async def truth(_: Lie | None) -> pb.FetchOffsetsResponse:
            self._leads()
            if not request.ignore_transactions:
                keys = [(one.topic, one.partition) for one in request.partitions]
                self._stage.cluster.transactions.end_staged(request.group, keys)
            known = self._valid(request.group)
            wanted = [(one.topic, one.partition) for one in request.partitions] or list(known)
            found = [committed_offset(*key, known.get(key)) for key in wanted]
            return pb.FetchOffsetsResponse(offsets=found)

        return await self._stage.answer(
            "fetch_offsets", {"group": request.group}, request, context, truth
        )


def _of(connection: int, message: pb.JoinGroupResponse) -> pb.JoinGroupResponse:
    """Copy of the message for one connection."""
    sent = pb.JoinGroupResponse(connection=connection, ping_interval_ms=PING_MS)
    sent.MergeFrom(message)
    return sent
