"""Coordinator of a group with members, driven by a case's assignments.

    steps of a case --assign_member, fence_member--> Members --> streams of JoinGroup
    hello, owned, leave --> journal

It never assigns partitions by itself: cases test a client's reaction to an assignment. The
nodes' tests cover the rules of assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from oncelog.v1 import batch_pb2
from oncelog.v1 import group_pb2 as pb

# Members wait for an answer as long: it must be one that a busy machine keeps.
PING_MS = 2000


class Members:
    """One group. `owns`: (topic, partition) -> number of the current ownership.

    A revoked partition stays owned until the member's `owned` omits it.
    """

    def __init__(self) -> None:
        self.owns: dict[tuple[str, int], int] = {}
        self._newest = pb.GroupAssignment(epoch=1)
        self._streams: set[asyncio.Queue[pb.JoinGroupResponse | None]] = set()

    # --- actions of cases ----------------------------------------------------------------

    def assign(self, epoch: int, owns: Iterable[Any], revoke: Iterable[Any] = ()) -> None:
        """Assigns `owns`: [topic, partition, ownership]; revokes `revoke`: [topic, partition]."""
        asked = [batch_pb2.TopicPartition(topic=one, partition=number) for one, number in revoke]
        given = {(topic, number): ownership for topic, number, ownership in owns}
        held = ((one.topic, one.partition) for one in asked)
        self.owns = {one: self.owns[one] for one in held if one in self.owns} | given
        self._newest = pb.GroupAssignment(
            epoch=epoch,
            partitions=[
                pb.OwnedPartition(topic=topic, partition=number, ownership=ownership)
                for (topic, number), ownership in given.items()
            ],
            revoke=asked,
        )
        self._tell(pb.JoinGroupResponse(assignment=self._newest))

    def fence(self, reason: str) -> None:
        self.owns = {}
        self._newest = pb.GroupAssignment(epoch=self._newest.epoch + 1)
        self._tell(pb.JoinGroupResponse(fenced=pb.MemberFenced(reason=reason)))

    def owned(self, answer: pb.MemberOwned) -> None:
        """Takes a member's report of the partitions it still holds."""
        if answer.epoch == self._newest.epoch:
            held = [*answer.partitions]
            for one in self._newest.revoke:
                if one not in held:
                    self.owns.pop((one.topic, one.partition), None)

    def owns_all(self, commits: Iterable[pb.OffsetCommit]) -> bool:
        """Checks that each commit names the present ownership of its partition."""
        return all(self.owns.get((one.topic, one.partition)) == one.ownership for one in commits)

    def break_streams(self) -> None:
        """Ends all streams, as when another node takes over."""
        self._tell(None)

    # --- streams -------------------------------------------------------------------------

    def open(self) -> asyncio.Queue[pb.JoinGroupResponse | None]:
        """Queue of messages for a new stream; None ends it."""
        queue: asyncio.Queue[pb.JoinGroupResponse | None] = asyncio.Queue()
        queue.put_nowait(self.newest())
        self._streams.add(queue)
        return queue

    def close(self, queue: asyncio.Queue[pb.JoinGroupResponse | None]) -> None:
        self._streams.discard(queue)

    def newest(self) -> pb.JoinGroupResponse:
        return pb.JoinGroupResponse(assignment=self._newest)

    def _tell(self, message: pb.JoinGroupResponse | None) -> None:
        for queue in self._streams:
            queue.put_nowait(message)
