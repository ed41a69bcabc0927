"""Offsets of Kafka's clients on their way to GroupService, and error numbers of its answers."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.access.gate import Gate
from cluster.errors import NotLeaderError, NotReadyError
from cluster.kafka.errors import Error, of_coordinator
from cluster.kafka.messages import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from cluster.kafka.needs import Rights
from cluster.kafka.offsets import Offsets
from cluster.kafka.sent import Sent
from cluster.kafka.versions import Head
from cluster.partition.group_offsets import MAX_COMMITS
from cluster.security.caller import Caller
from cluster.services.groups.service import _check_commits
from oncelog.errors import StorageFullError
from oncelog.v1 import group_pb2 as pb

HEAD = Head(OFFSET_COMMIT, 8, 1, "", True)
ANYBODY = Rights(Gate(None, None, None), Caller(), Sent(1))


class Groups:
    """The end of GroupService's call: checks it, and keeps the offsets. fails_at: of the calls."""

    def __init__(self, fails_at: int = -1) -> None:
        self.stored: list[int] = []
        self.calls, self._fails_at = 0, fails_at

    async def commit(self, request: pb.CommitOffsetsRequest, caller: Any) -> Any:
        _check_commits(request)
        if self.calls == self._fails_at:
            raise NotLeaderError("no longer the leader", 0)
        self.calls += 1
        self.stored += [one.partition for one in request.offsets]
        return pb.CommitOffsetsResponse(
            results=[
                pb.OffsetCommitResult(topic=one.topic, partition=one.partition)
                for one in request.offsets
            ]
        )


async def committed(groups: Groups, count: int) -> list[int]:
    """Commits so many partitions' offsets; returns the error numbers."""
    parts = [OffsetCommitRequestPartition(number, 7) for number in range(count)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", parts)])
    answer = await Offsets(groups, None).commit(ANYBODY, HEAD, request)  # type: ignore[arg-type]
    return [one.error_code for one in answer.topics[0].partitions]


async def test_a_commit_has_as_many_partitions_as_its_client_likes() -> None:
    count = 2 * MAX_COMMITS + 1
    groups = Groups()
    assert await committed(groups, count) == [0] * count
    assert (groups.stored, groups.calls) == (list(range(count)), 3)
    errors = await committed(Groups(fails_at=1), count)
    assert errors == [0] * MAX_COMMITS + [Error.NOT_COORDINATOR] * (count - MAX_COMMITS)


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (NotLeaderError("moved", 2), Error.NOT_COORDINATOR),
        (NotReadyError("just begun"), Error.COORDINATOR_LOAD_IN_PROGRESS),
        (StorageFullError("the leader's disk is full"), Error.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_clients_ask_again(error: Exception, number: Error) -> None:
    assert of_coordinator(error) is number
