"""A consumer's place in its group: a stream that brings assignments, and calls that answer.

    coordinator --JoinGroup--> GroupSession --> MemberOwnerships --MembershipChange--> fetch_buffer
    coordinator <--GroupHeartbeat-- GroupSession <-- `rebalance`, on the user's thread

Place in the flow: runs on the engine's loop, beside `fetcher`. Changes reach the user's thread as
interruptions; only that thread changes the user's state. All but the hello goes by calls, not by
the stream: an answer proves that the coordinator still has this member. Without an answer for a
session's length, no records are returned.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import grpc.aio

from oncelog import errors
from oncelog._engine.consume.fetch_buffer import FetchBuffer
from oncelog._engine.consume.groups import ATTEMPT_S, CommitTerms, group_stub
from oncelog._engine.consume.membership import Step
from oncelog._engine.consume.positions import Positions
from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig
from oncelog.types import OffsetCommit, TopicPartition
from oncelog.v1 import batch_pb2, group_pb2
from oncelog.wire.status import from_rpc_error

log = logging.getLogger("oncelog.consumer")

# Reasons of a fenced member that may not join again.
_INSTANCE_TAKEN, _GROUP_FULL = "INSTANCE_TAKEN", "GROUP_FULL"
MAX_HOST_CHARS = 255


class MembershipChange(NamedTuple):
    """A change for the user's thread; an empty one: look again."""

    connection: int
    step: Step[TopicPartition]
    deadline: float  # of the revoked partitions, time.monotonic()
    ended: bool = False  # the membership ended: the user has to come back before another begins


_NOTHING: Step[TopicPartition] = Step((), (), {})
LOOK_AGAIN = MembershipChange(0, _NOTHING, 0.0)


class GroupSession:
    """One consumer in its group, over all connections and memberships, until `leave`."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        positions: Positions,
        buffer: FetchBuffer,
        topics: Iterable[str],
    ) -> None:
        assert config.group_id is not None
        self.group = config.group_id
        self.member_id = positions.member_id
        self.error: errors.OncelogError | None = None  # for good
        self._config = config
        self._cluster = cluster
        self._buffer = buffer
        self._groups = positions.groups
        self._machine = positions.membership
        self._topics = list(topics)
        self._claim = 0
        self._was_member = False
        self._address = ""  # of the coordinator, while connected
        self._ping_s = self._session_s = config.session_timeout_ms / 1000
        self._outbox: deque[group_pb2.JoinGroupRequest | None] = deque()  # None: hello again
        self._wake = asyncio.Event()
        self._joined = asyncio.Event()
        self._came_back = asyncio.Event()
        self._came_back.set()
        self._is_in = False  # an assignment came over the present connection
        self._why_not_joined: errors.OncelogError | None = None
        self._progress = buffer.progress()
        self._progress_at = time.monotonic()
        self._hold: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._tasks = [loop.create_task(self._run(), name="group member")]
        if config.enable_auto_commit:
            self._tasks.append(loop.create_task(self._remind(), name="auto commit"))

    # --- the user's questions, on the engine's loop --------------------------------------

    async def joined(self, timeout_s: float) -> None:
        """Wait until the group has answered. Raises the OncelogError that prevents it."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._joined.wait()
        except TimeoutError:
            why = self._why_not_joined or "no answer"
            text = f"group {self.group} not joined within {timeout_s:g} s: {why}"
            raise errors.RequestTimeoutError(text) from None
        if self.error is not None:
            raise self.error

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to other topics from now on."""
        self._topics = list(topics)
        self._send(None)

    async def asked_back(self, change: MembershipChange) -> list[TopicPartition]:
        """Return the revoked partitions still to be given back on this connection."""
        if change.connection != self._machine.connection:
            return []  # asked again on the new connection, if at all
        owned, may_poll = self._machine.owned, self._machine.may_poll
        return [tp for tp in change.step.revoked if tp in owned and not may_poll(tp)]

    async def release(
        self, change: MembershipChange, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Give back finished and committed partitions; returns the remaining ones, with numbers."""
        self._answer(change.connection, tps)
        return dict(self._machine.owned)

    async def still_owned(self, numbers: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return those that are owned under the same number."""
        owned = self._machine.owned
        return {tp: number for tp, number in numbers.items() if owned.get(tp) == number}

    async def come_back(self) -> None:
        """Note that the user knows of the membership's end: another one may begin."""
        self._came_back.set()

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetCommit], numbers: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, bool]:
        """Commit as `Groups.commit` does, for records read under ownerships of these numbers."""
        terms = await self.commit_terms(offsets, numbers)
        return await self._groups.commit(self.group, offsets, terms)

    async def commit_terms(
        self, offsets: Iterable[TopicPartition], numbers: Mapping[TopicPartition, int]
    ) -> CommitTerms:
        """Return the next commit's terms. Raises FencedMemberError."""
        owned, number = self._machine.owned, 0
        for tp in offsets:
            terms = self._machine.next_commit(tp)
            if terms is None or owned[tp] != numbers.get(tp):
                text = "offset not committed: it is not part of this consumer's assignment"
                raise errors.FencedMemberError(f"{tp}: {text}")
            number = terms[1]
        return CommitTerms(self.member_id, number, numbers)

    def idle_s(self) -> float:
        """Return the seconds since the user last got a record, or asked for some."""
        progress, now = self._buffer.progress(), time.monotonic()
        if progress != self._progress or self._buffer.is_waited_for:
            self._progress = progress
            self._progress_at = now
        return now - self._progress_at

    async def leave(self) -> None:
        """End the membership; that of a named instance ends with its session only."""
        if self._address and self._config.group_instance_id is None:
            try:
                await self._say(group_pb2.JoinGroupRequest(leave=group_pb2.MemberLeave()))
            except errors.OncelogError as error:
                log.debug("leaving group %s: %s", self.group, error)  # its session will end
        for task in self._tasks:
            task.cancel()
        if self._hold is not None:
            self._hold.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- connections ---------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while self.error is None:
            # A stuck consumer would only get partitions that it does not read.
            await self._came_back.wait()
            address = self._groups.coordinator(self.group)
            try:
                await self._connection(address)
                failures = 0
            except errors.RetriableError as error:
                failures = 1 if self._is_in else failures + 1
                self._why_not_joined = error
                pause = self._groups.failed(self.group, address, error, failures)
                await asyncio.sleep(pause)
            except errors.OncelogError as error:
                self._fail(error)
            finally:
                self._address = ""
                self._is_in = False

    async def _connection(self, address: str) -> None:
        """Serve a connection until either side wants another. Raises OncelogError."""
        connection, sent = self._machine.connect(), time.monotonic()
        self._outbox.clear()
        call: Any = group_stub(self._cluster.channel(address)).JoinGroup(
            metadata=self._cluster.founding.metadata
        )
        beat: asyncio.Task[group_pb2.JoinGroupResponse | None] | None = None
        try:
            async with asyncio.timeout(ATTEMPT_S):
                await call.write(group_pb2.JoinGroupRequest(hello=self._hello(connection)))
                answer = _message(await call.read())
            self._groups.answered(self.group, address)
            self._address = address
            self._ping_s = max(answer.ping_interval_ms, 100) / 1000
            self._session_s = 3 * self._ping_s
            self._confirmed(sent)
            beat = self._loop.create_task(self._beat(connection))
            beat.add_done_callback(_looked_at)
            while self._goes_on(connection, answer):
                read = self._loop.create_task(call.read())
                read.add_done_callback(_looked_at)
                await asyncio.wait({read, beat}, return_when=asyncio.FIRST_COMPLETED)
                if not read.done():
                    read.cancel()
                    ended = beat.result()
                    if ended is None:
                        return
                    answer = ended
                else:
                    answer = _message(read.result())
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        except TimeoutError:
            raise errors.BrokerUnavailableError(f"{address}: no answer to a hello") from None
        finally:
            if beat is not None:
                beat.cancel()
            call.cancel()

    def _hello(self, connection: int) -> group_pb2.MemberHello:
        config = self._config
        return group_pb2.MemberHello(
            group=self.group,
            member_id=self.member_id,
            connection=connection,
            topics=self._topics,
            instance_id=config.group_instance_id or "",
            epoch=self._machine.epoch,
            claim=self._claim,
            owned=_wire(self._machine.owned),
            assignor=config.assignor,
            session_timeout_ms=config.session_timeout_ms,
            revoke_timeout_ms=config.revoke_timeout_ms,
            processing_timeout_ms=config.processing_timeout_ms,
            client_host=f"{config.client_id}@{socket.gethostname()}"[:MAX_HOST_CHARS],
        )

    async def _beat(self, connection: int) -> group_pb2.JoinGroupResponse | None:
        """Send answers or heartbeats; returns the reason that ends the connection."""
        while True:
            try:
                async with asyncio.timeout(self._ping_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            ping = group_pb2.MemberPing(idle_ms=round(self.idle_s() * 1000))
            request = (
                self._outbox.popleft() if self._outbox else group_pb2.JoinGroupRequest(ping=ping)
            )
            if request is None:
                return None
            if self._outbox:
                self._wake.set()
            sent = time.monotonic()
            answer = await self._say(request)
            if answer.connection != connection:
                raise errors.NotLeaderError("the coordinator does not know this connection")
            if answer.HasField("fenced"):
                return answer
            self._confirmed(sent)

    async def _say(self, request: group_pb2.JoinGroupRequest) -> group_pb2.JoinGroupResponse:
        call = group_pb2.GroupHeartbeatRequest(
            group=self.group,
            member_id=self.member_id,
            connection=self._machine.connection,
            request=request,
        )
        answer: group_pb2.JoinGroupResponse = await self._cluster.call(
            lambda channel: group_stub(channel).GroupHeartbeat,
            call,
            address=self._address,
            timeout_s=min(ATTEMPT_S, max(self._ping_s, 0.5)),
        )
        return answer

    def _answer(self, connection: int, tps: Iterable[TopicPartition]) -> None:
        """Report the partitions still held, without these."""
        answer = self._machine.released(connection, tps)
        if answer is not None:
            owned = group_pb2.MemberOwned(epoch=answer.epoch, partitions=_wire(answer.partitions))
            self._send(group_pb2.JoinGroupRequest(owned=owned))

    def _send(self, request: group_pb2.JoinGroupRequest | None) -> None:
        self._outbox.append(request)
        self._wake.set()

    def _confirmed(self, sent: float) -> None:
        """Note that the coordinator had this member when that message was sent."""
        until = sent + self._session_s
        self._buffer.hold_from(until)
        if self._hold is not None:
            self._hold.cancel()
        self._hold = self._loop.call_at(until, self._buffer.interrupt, LOOK_AGAIN)

    # --- what comes ----------------------------------------------------------------------

    def _goes_on(self, connection: int, answer: group_pb2.JoinGroupResponse) -> bool:
        """Take a message over; False: another connection is needed."""
        match answer.WhichOneof("message"):
            case "assignment":
                self._assigned(connection, answer.assignment)
            case "fenced":
                self._fenced(answer.fenced.reason)
                return False
            case "instance_held":
                if self._was_member:
                    self._fail(self._taken())
                self._claim = answer.instance_held.claim
                return False
        return True

    def _assigned(self, connection: int, new: group_pb2.GroupAssignment) -> None:
        numbers = {TopicPartition(p.topic, p.partition): p.ownership for p in new.partitions}
        revoke = [TopicPartition(p.topic, p.partition) for p in new.revoke]
        step = self._machine.assignment(connection, new.epoch, numbers, revoke)
        self._claim = 0
        self._was_member = True
        self._is_in = True
        if step != _NOTHING:
            deadline = time.monotonic() + self._config.revoke_timeout_ms / 1000
            self._buffer.interrupt(MembershipChange(connection, step, deadline))
        if any(tp not in self._machine.owned for tp in revoke):
            # Given and asked back before this member heard of it: only the newest assignment is
            # sent. There is nothing to finish.
            self._answer(connection, ())
        self._joined.set()

    def _fenced(self, reason: str) -> None:
        """Handle a fence. Raises ThrottledError if the group is full."""
        log.warning("group %s: membership ended: %s", self.group, reason)
        if reason == _INSTANCE_TAKEN:
            self._fail(self._taken())
        elif reason == _GROUP_FULL:
            raise errors.ThrottledError(f"group {self.group} has as many members as it may")
        else:
            self._came_back.clear()
            self._lose_all()

    def _lose_all(self) -> None:
        lost = self._machine.fenced()
        self._buffer.interrupt(MembershipChange(0, Step(lost, (), {}), 0.0, ended=True))

    def _taken(self) -> errors.FencedMemberError:
        name = self._config.group_instance_id
        return errors.FencedMemberError(f"another process goes by group_instance_id {name!r}")

    def _fail(self, error: errors.OncelogError) -> None:
        self.error = error
        self._lose_all()
        self._joined.set()

    async def _remind(self) -> None:
        """Remind the user's thread to commit; it may wait for records, or be within a batch."""
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            if not self._buffer.interruptions:
                self._buffer.interrupt(LOOK_AGAIN)


def _message(answer: Any) -> group_pb2.JoinGroupResponse:
    if answer is grpc.aio.EOF:
        raise errors.NotLeaderError("the coordinator has ended the stream")
    assert isinstance(answer, group_pb2.JoinGroupResponse)
    return answer


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Retrieve a second task's error: of two that end together, both errors say the same."""
    if not task.cancelled():
        task.exception()


def _wire(tps: Iterable[TopicPartition]) -> list[batch_pb2.TopicPartition]:
    return [batch_pb2.TopicPartition(topic=tp.topic, partition=tp.partition) for tp in tps]
