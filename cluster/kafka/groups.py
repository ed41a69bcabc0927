"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

session --> Groups --ClassicCalls--> the group's coordinator, at the leader of its partition

A member's id is made here, of its client's name or its instance id and a random part, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from uuid import uuid4

from cluster.groups import classic, classic_table, coordinator
from cluster.groups.classic import ClassicJoin, Joined, Synced
from cluster.kafka.errors import EXPECTED, Error, of_coordinator
from cluster.kafka.messages import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    Call,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from cluster.kafka.needs import Rights
from cluster.kafka.versions import Head
from cluster.services.groups.classic_groups import ClassicCalls
from cluster.services.groups.member_streams import SESSION_TIMEOUT_MS, check_name
from cluster.services.slices import in_slices
from cluster.v1 import offsets_pb2 as internal
from oncelog.errors import GroupHasMembersError

T = TypeVar("T")
MAX_CLIENT_ID_CHARS = 255
RETURNS_SINCE = 4  # JoinGroup's version with KIP-394
MEMBERS_SINCE = 3  # LeaveGroup's version that names several
LEFT_AT_ONCE = 10  # members between which others run: each is a look at all members
# Coordinator's reason -> Kafka's error.
REASONS: Mapping[str, Error] = {
    "": Error.NONE,
    classic_table.UNKNOWN_MEMBER: Error.UNKNOWN_MEMBER_ID,
    classic_table.ILLEGAL_GENERATION: Error.ILLEGAL_GENERATION,
    classic_table.FENCED_INSTANCE: Error.FENCED_INSTANCE_ID,
    classic.REBALANCING: Error.REBALANCE_IN_PROGRESS,
    classic.INCONSISTENT_PROTOCOL: Error.INCONSISTENT_GROUP_PROTOCOL,
    classic.MEMBER_ID_REQUIRED: Error.MEMBER_ID_REQUIRED,
    classic.NOT_STORED: Error.COORDINATOR_NOT_AVAILABLE,
    classic.NO_ROOM: Error.COORDINATOR_NOT_AVAILABLE,
    classic.ASSIGNMENT_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    coordinator.GROUP_FULL: Error.GROUP_MAX_SIZE_REACHED,
}


class ClassicMembers:
    """Members' calls, for one node."""

    def __init__(self, calls: ClassicCalls) -> None:
        self._calls = calls

    async def join(
        self, rights: Rights, head: Head, request: JoinGroupRequest
    ) -> JoinGroupResponse:
        low, high = SESSION_TIMEOUT_MS
        if not low <= request.session_timeout_ms <= high:
            return _not_joined(Error.INVALID_SESSION_TIMEOUT, request.member_id)

        async def joined() -> Joined:
            if request.group_instance_id is not None:
                check_name("group_instance_id", request.group_instance_id)
            wanted = _wanted(rights, head, request)
            return await self._calls.join(request.group_id, wanted)

        answer, error = await _called(rights, JOIN_GROUP, request.group_id, joined)
        if answer is None:
            return _not_joined(error, request.member_id)
        if answer.error:
            return _not_joined(REASONS[answer.error], answer.member)
        return JoinGroupResponse(
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol,
            leader=answer.leader,
            member_id=answer.member,
            members=[
                JoinGroupResponseMember(member, instance or None, metadata)
                for member, instance, metadata in answer.members
            ],
        )

    async def sync(
        self, rights: Rights, head: Head, request: SyncGroupRequest
    ) -> SyncGroupResponse:
        shares = {one.member_id: one.assignment for one in request.assignments}
        protocols = (request.protocol_type, request.protocol_name)

        async def synced() -> Synced:
            caller = caller_of(request.member_id, request.group_instance_id, request.generation_id)
            return await self._calls.sync(request.group_id, caller, protocols, shares)

        answer, error = await _called(rights, SYNC_GROUP, request.group_id, synced)
        if answer is None:
            return SyncGroupResponse(error_code=error)
        return SyncGroupResponse(
            0,
            REASONS[answer.error],
            None if answer.error else answer.protocol_type,
            None if answer.error else answer.protocol,
            answer.assignment,
        )

    async def heartbeat(
        self, rights: Rights, head: Head, request: HeartbeatRequest
    ) -> HeartbeatResponse:
        async def beaten() -> str:
            caller = caller_of(request.member_id, request.group_instance_id, request.generation_id)
            return await self._calls.heartbeat(request.group_id, caller)

        answer, error = await _called(rights, HEARTBEAT, request.group_id, beaten)
        if answer is not None:
            error = REASONS[answer]
        # As in Kafka. The leader that has just begun keeps the members, and their sessions are new.
        if error is Error.COORDINATOR_LOAD_IN_PROGRESS:
            error = Error.NONE
        return HeartbeatResponse(error_code=error)

    async def leave(
        self, rights: Rights, head: Head, request: LeaveGroupRequest
    ) -> LeaveGroupResponse:
        members = request.members
        if head.version < MEMBERS_SINCE:
            members = [MemberIdentity(request.member_id)]
        answer = LeaveGroupResponse()
        async for one in in_slices(members, LEFT_AT_ONCE):

            async def left(one: MemberIdentity = one) -> str:
                instance = one.group_instance_id or ""
                return await self._calls.leave(request.group_id, one.member_id, instance)

            reason, error = await _called(rights, LEAVE_GROUP, request.group_id, left)
            if reason is None or head.version < MEMBERS_SINCE:
                # The whole group's error; an old client knows no other.
                code = error if reason is None else REASONS[reason]
                return LeaveGroupResponse(error_code=code)
            answer.members.append(
                MemberResponse(one.member_id, one.group_instance_id, REASONS[reason])
            )
        return answer


def caller_of(member: str, instance: str | None, generation: int) -> internal.ClassicCaller:
    """Return a member as it names itself."""
    return internal.ClassicCaller(member=member, instance=instance or "", generation=generation)


def host_of(address: str) -> str:
    """Return a client's host as Kafka shows it."""
    host = address.partition(":")[2].rpartition(":")[0]
    return "/" + host.removeprefix("%5B").removesuffix("%5D")


async def _called(
    rights: Rights, call: Call, group: str, work: Callable[[], Awaitable[T]]
) -> tuple[T | None, Error]:
    """Return the call's answer, or None and the error."""
    try:
        refused = rights.refusal(call, group)
        if refused is not None:
            raise refused
        check_name("group", group)
        return await work(), Error.NONE
    except GroupHasMembersError:
        return None, Error.INCONSISTENT_GROUP_PROTOCOL
    except EXPECTED as error:
        return None, of_coordinator(error)


def _wanted(rights: Rights, head: Head, request: JoinGroupRequest) -> ClassicJoin:
    instance, client_id = request.group_instance_id or "", head.client_id[:MAX_CLIENT_ID_CHARS]
    session = request.session_timeout_ms
    rebalance = request.rebalance_timeout_ms if head.version else session
    return ClassicJoin(
        request.member_id,
        instance,
        f"{instance or client_id}-{uuid4()}",
        client_id,
        host_of(rights.caller.address),
        session / 1000,
        max(0, rebalance) / 1000,
        request.protocol_type,
        tuple((one.name, one.metadata) for one in request.protocols),
        returns=head.version >= RETURNS_SINCE,
    )


def _not_joined(error: Error, member: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member)
