"""Groups of one node: offsets by the nodes' own service, members by a case's script.

CommitOffsets, StageOffsets, FetchOffsets --Scripted: its owners?--> cluster.services.groups
JoinGroup, GroupHeartbeat --> Members
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from cluster.groups.ownership import FENCED_MEMBER
from cluster.partition.group_state import CommitResult
from cluster.rpc.errors import abort
from cluster.services.context import NodeContext
from cluster.services.groups.offsets_wire import commit_result
from cluster.services.groups.running_groups import GroupMembers
from cluster.services.groups.service import GroupService
from cluster.services.transactions.permissions import TransactionRights
from conformance.broker.members import PING_MS
from conformance.broker.stage import Stage
from oncelog.v1 import group_pb2 as pb
from oncelog.v1 import group_pb2_grpc

FENCED = CommitResult(FENCED_MEMBER, "the partition is not this member's", False, None)


class OwnersGroups(GroupService):
    """The nodes' service. Case steps say who owns a partition, so it sees no member."""

    def __init__(self, stage: Stage, node: NodeContext) -> None:
        rights = TransactionRights(node, None)
        super().__init__(node, GroupMembers(node), rights, now_ms=lambda: stage.cluster.now_ms)
        self._owns = stage.cluster.members.owns_all

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsResponse:
        asked = list(request.offsets)
        owned = [not request.member_id or self._owns([commit]) for commit in asked]
        request = _without_member(request)
        del request.offsets[:]
        request.offsets.extend(one for one, mine in zip(asked, owned, strict=True) if mine)
        done = iter(
            (await super().CommitOffsets(request)).results if request.offsets or not asked else ()
        )
        return pb.CommitOffsetsResponse(
            results=[
                next(done) if mine else commit_result(commit, FENCED)
                for commit, mine in zip(asked, owned, strict=True)
            ]
        )

    async def StageOffsets(self, request: pb.StageOffsetsRequest) -> pb.StageOffsetsResponse:
        if request.member_id and not self._owns(request.offsets):
            return pb.StageOffsetsResponse(error=FENCED.error, message=FENCED.message)
        return await super().StageOffsets(_without_member(request))

    async def FetchOffsets(self, request: pb.FetchOffsetsRequest) -> pb.FetchOffsetsResponse:
        return await super().FetchOffsets(_without_member(request))


def _without_member(request: Any) -> Any:
    """Copy of a request as a client without membership sends it."""
    copy = type(request).FromString(request.SerializeToString())
    for field in ("member_id", "commit_number", "ownerships"):
        if field in copy.DESCRIPTOR.fields_by_name:
            copy.ClearField(field)
    return copy


class MemberStreams(group_pb2_grpc.GroupServiceServicer):
    """Streams of members, driven by `Members`; `honest` adds the calls about offsets."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def _check_leader(self, context: Any) -> None:
        """Ends the call unless this node leads all groups: `Cluster.offsets_leader`."""
        cluster = self._stage.cluster
        if cluster.offsets_leader != self._stage.node_id:
            await abort(context, cluster.not_leader(cluster.offsets_leader))

    async def JoinGroup(
        self, request_iterator: AsyncIterator[pb.JoinGroupRequest], context: Any
    ) -> None:
        """Answers a hello, then sends the case's messages to the member."""
        members = self._stage.cluster.members
        await self._check_leader(context)
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
        await self._check_leader(context)
        self._said(request.group, request.request)
        return _of(request.connection, self._stage.cluster.members.newest())


def _of(connection: int, message: pb.JoinGroupResponse) -> pb.JoinGroupResponse:
    """Copy of the message for one connection."""
    sent = pb.JoinGroupResponse(connection=connection, ping_interval_ms=PING_MS)
    sent.MergeFrom(message)
    return sent
