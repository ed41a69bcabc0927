"""Member's calls to its group: JoinGroup, a stream, and GroupHeartbeat, the same without one.

JoinGroup  --hello--> RunningGroup.hello --> MemberConnection --assignments--> stream
           --owned, ping, leave--> GroupCoordinator --> advance
GroupHeartbeat --one of these--> the same; answers with the newest message
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from cluster.access.budget import Account
from cluster.access.memory import COPIES, received
from cluster.dedup.verdict import MAX_INT64
from cluster.features import GROUPS
from cluster.groups.coordinator import Assignment, Fenced, Hello, InstanceHeld
from cluster.groups.ownership import RANGE, UNIFORM, GroupSettings, TopicIdPartition
from cluster.partition.replica import Partition
from cluster.security.caller import CALLER
from cluster.services.context import NodeContext
from cluster.services.groups.running_groups import (
    GroupMembers,
    MemberConnection,
    Message,
    RunningGroup,
)
from cluster.services.groups.subscriptions import Subscription
from cluster.services.requests import Write, count_in_range, decoded, in_range, invalid
from oncelog.v1 import batch_pb2
from oncelog.v1 import group_pb2 as pb

MAX_ID_CHARS = 255
MAX_OWNED = 10_000
SESSION_TIMEOUT_MS = (1000, 30 * 60_000)
REVOKE_TIMEOUT_MS = (1000, 60 * 60_000)
PROCESSING_TIMEOUT_MS = (1000, 24 * 60 * 60_000)
PINGS = 3  # in a session timeout
ANSWER_TIMEOUT = 5.0  # seconds that a hello without a stream waits for its assignment


class Joining:
    """The calls of one node. replica_of: returns the group's partition, if this node leads it."""

    def __init__(
        self,
        node: NodeContext,
        members: GroupMembers,
        replica_of: Callable[[str], Awaitable[Partition]],
    ) -> None:
        self._node = node
        self._members = members
        self._replica_of = replica_of

    async def stream(self, requests: AsyncIterator[pb.JoinGroupRequest], write: Write) -> None:
        """Serve a connection until it ends. Raises ClusterError, InvalidRequestError."""
        account = self._node.memory.of_call()
        account.receiving = True
        first = await anext(aiter(requests), None)
        account.receiving = False
        if first is None or not decoded(first).HasField("hello"):
            raise invalid("message", "a stream begins with a hello")
        # The member's subscription is kept as long as its stream.
        received(self._node.memory, account, first.ByteSize())
        running, connection = await self._hello(first.hello)
        reader = asyncio.create_task(self._read(running, first.hello, requests, account))
        news = asyncio.create_task(connection.next())
        try:
            while True:
                await asyncio.wait({news, reader}, return_when=asyncio.FIRST_COMPLETED)
                if not news.done():
                    reader.result()
                    return  # the member has closed its side
                message = news.result()
                response = _response(running, connection.number, message)
                size = COPIES * response.ByteSize()
                account.take(size)
                await write(response)
                account.release(size)
                if not isinstance(message, Assignment):
                    return
                news = asyncio.create_task(connection.next())
        finally:
            reader.cancel()
            news.cancel()

    async def heartbeat(self, request: pb.GroupHeartbeatRequest) -> pb.JoinGroupResponse:
        """Handle one request of a member without a stream; returns the newest message for it."""
        hello = request.request.hello
        if request.request.HasField("hello"):
            if (hello.group, hello.member_id, hello.connection) != (
                request.group,
                request.member_id,
                request.connection,
            ):
                raise invalid("request.hello", "is not of the same group, member and connection")
            running, connection = await self._hello(hello)
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return _response(running, connection.number, await connection.next())
        check_name("group", request.group)
        check_name("member_id", request.member_id)
        replica = await self._replica_of(request.group)
        found = self._members.running(replica, request.group)
        known = None if found is None else found.connection(request.member_id, request.connection)
        if found is None or known is None:
            return pb.JoinGroupResponse()  # connection 0: say hello on a new one
        self._said(found, request.member_id, request.connection, request.request)
        newest = known.newest
        if newest is None:
            return pb.JoinGroupResponse(connection=known.number)
        return _response(found, known.number, newest)

    # -- parts --------------------------------------------------------------------------

    async def _hello(self, hello: pb.MemberHello) -> tuple[RunningGroup, MemberConnection]:
        self._node.metadata.features.require(GROUPS)
        _check_hello(hello)
        subscription = Subscription(hello.topics)
        settings = _settings(hello)
        replica = await self._replica_of(hello.group)
        running = self._members.begun(replica, hello.group, settings)
        message = Hello(
            hello.member_id,
            hello.connection,
            frozenset(),
            hello.instance_id,
            hello.epoch,
            hello.claim,
            self._partitions(hello.owned),
        )
        return running, running.hello(
            message, subscription, hello.client_host or CALLER.get().address
        )

    async def _read(
        self,
        running: RunningGroup,
        hello: pb.MemberHello,
        requests: AsyncIterator[pb.JoinGroupRequest],
        account: Account,
    ) -> None:
        """Read the stream. Raises InvalidRequestError for a message that a begun stream bars."""
        account.receiving = True
        async for request in requests:
            account.receiving = False
            size = COPIES * decoded(request).ByteSize()
            account.take(size)
            self._said(running, hello.member_id, hello.connection, request)
            account.release(size)
            if account.must_wait:
                await account.room()
            account.receiving = True

    def _said(
        self, running: RunningGroup, member: str, connection: int, request: pb.JoinGroupRequest
    ) -> None:
        coordinator = running.coordinator
        now = asyncio.get_running_loop().time()
        match request.WhichOneof("message"):
            case "owned":
                count_in_range("owned.partitions", len(request.owned.partitions), 0, MAX_OWNED)
                held = self._partitions(request.owned.partitions)
                coordinator.owned(now, member, connection, request.owned.epoch, held)
            case "ping" | None:
                idle_ms = in_range("ping.idle_ms", request.ping.idle_ms, 0, MAX_INT64)
                if not coordinator.ping(now, member, connection, idle_ms / 1000):
                    return
            case "leave":
                coordinator.leave(member, connection)
            case _:
                raise invalid("message", "a hello begins a stream, and comes once")
        running.advance()

    def _partitions(self, given: Any) -> frozenset[TopicIdPartition]:
        """Return the partitions of existing topics; no member can own any other."""
        found: set[TopicIdPartition] = set()
        for one in given:
            topic = self._node.metadata.topic(one.topic)
            if topic is not None:
                found.add(TopicIdPartition(topic.topic_id, one.partition))
        return frozenset(found)


def check_name(field: str, name: str) -> None:
    """Check the name of a group, member or instance. Raises InvalidRequestError."""
    if not 1 <= len(name) <= MAX_ID_CHARS:
        limit = f"1..{MAX_ID_CHARS}"
        raise invalid(field, f"has {len(name)} characters, must have {limit}", limit)
    if any(char < " " or char == "\x7f" for char in name):
        raise invalid(field, "must not contain control characters")


def ping_interval_ms(settings: GroupSettings) -> int:
    return round(settings.session_timeout * 1000 / PINGS)


def _check_hello(hello: pb.MemberHello) -> None:
    check_name("group", hello.group)
    check_name("member_id", hello.member_id)
    if hello.instance_id:
        check_name("instance_id", hello.instance_id)
    in_range("connection", hello.connection, 1, MAX_INT64)
    in_range("epoch", hello.epoch, 0, MAX_INT64)
    in_range("claim", hello.claim, 0, MAX_INT64)
    count_in_range("owned", len(hello.owned), 0, MAX_OWNED)
    if len(hello.client_host) > MAX_ID_CHARS:
        raise invalid("client_host", "is too long", f"0..{MAX_ID_CHARS}")


def _settings(hello: pb.MemberHello) -> GroupSettings:
    assignor = hello.assignor or UNIFORM
    if assignor not in (UNIFORM, RANGE):
        raise invalid(
            "assignor", f"{assignor!r} must be {UNIFORM} or {RANGE}", f"{UNIFORM}, {RANGE}"
        )
    defaults = GroupSettings()

    def seconds(field: str, limits: tuple[int, int], default: float) -> float:
        value = getattr(hello, field)
        return in_range(field, value, *limits) / 1000 if value else default

    return GroupSettings(
        assignor,
        seconds("session_timeout_ms", SESSION_TIMEOUT_MS, defaults.session_timeout),
        seconds("revoke_timeout_ms", REVOKE_TIMEOUT_MS, defaults.revoke_timeout),
        seconds("processing_timeout_ms", PROCESSING_TIMEOUT_MS, defaults.processing_timeout),
    )


def _response(running: RunningGroup, connection: int, message: Message) -> pb.JoinGroupResponse:
    response = pb.JoinGroupResponse(
        connection=connection, ping_interval_ms=ping_interval_ms(running.coordinator.settings)
    )
    match message:
        case Assignment(epoch, partitions, revoke):
            response.assignment.epoch = epoch
            response.assignment.partitions.extend(owned_partitions(running, partitions))
            response.assignment.revoke.extend(named(running, revoke))
        case Fenced(reason):
            response.fenced.reason = reason
        case InstanceHeld(claim):
            response.instance_held.claim = claim
    return response


def owned_partitions(
    running: RunningGroup, partitions: dict[TopicIdPartition, int]
) -> list[pb.OwnedPartition]:
    """Return partitions by topic id and number, without those of deleted topics."""
    return [
        pb.OwnedPartition(topic=topic, partition=part.partition, ownership=number)
        for part, number in sorted(partitions.items())
        if (topic := running.topic_name(part.topic_id))
    ]


def named(
    running: RunningGroup, partitions: tuple[TopicIdPartition, ...]
) -> list[batch_pb2.TopicPartition]:
    return [
        batch_pb2.TopicPartition(topic=topic, partition=part.partition)
        for part in partitions
        if (topic := running.topic_name(part.topic_id))
    ]
