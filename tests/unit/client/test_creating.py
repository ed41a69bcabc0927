"""A topic that may have been created though the answer was lost."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog._engine.admin import AdminCore
from oncelog.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    NotAuthorizedError,
    OncelogError,
    TopicAlreadyExistsError,
)
from oncelog.types import CleanupPolicy, ExpectedOffsets, TopicConfig
from oncelog.v1 import cluster_pb2


def admin_of(answers: list[Any]) -> AdminCore:
    """Admin of a cluster whose first answer was lost, and that gives these in turn."""

    async def call(
        method: object,
        request: object,
        *,
        on_retry: Callable[[OncelogError], None] | None = None,
        **more: object,
    ) -> Any:
        if on_retry is not None:
            on_retry(BrokerUnavailableError("a:1: Socket closed"))
        answer = answers.pop(0)
        if isinstance(answer, OncelogError):
            raise answer
        return answer

    cluster: Any = SimpleNamespace(
        call=call,
        config=SimpleNamespace(request_timeout_ms=10_000),
        leaders=SimpleNamespace(update=lambda described: None),
    )
    return AdminCore(cluster)


REFUSED = NotAuthorizedError("describe topic t")


async def test_the_doubt_stays_if_the_topic_cannot_be_described() -> None:
    admin = admin_of([TopicAlreadyExistsError("there is one; in doubt"), REFUSED])
    with pytest.raises(TopicAlreadyExistsError, match="in doubt"):
        await admin.create_topic("t", 1, 1, None, 1000)
    admin = admin_of([InvalidRequestError("there are 2; in doubt", field="partitions"), REFUSED])
    with pytest.raises(InvalidRequestError, match="in doubt"):
        await admin.resize_topic("t", 2, 0, False, 1000)


@pytest.mark.parametrize(
    ("asked", "is_ours"),
    [
        (None, True),
        (TopicConfig(retention_ms=-1, min_compaction_lag_ms=0), True),
        (TopicConfig(expected_offsets=ExpectedOffsets.REQUIRED), True),
        (TopicConfig(retention_ms=60_000), False),
        (TopicConfig(cleanup_policy=CleanupPolicy.COMPACT), False),
    ],
)
async def test_a_topic_with_other_settings_is_anothers(
    asked: TopicConfig | None, is_ours: bool
) -> None:
    """After a lost answer: the topic has as many partitions and replicas as the call gives."""
    there = cluster_pb2.TopicInfo(
        name="t",
        partitions=[cluster_pb2.PartitionInfo(replicas=[1])],
        config=cluster_pb2.TopicConfig(
            retention_ms=-1, expected_offsets=cluster_pb2.EXPECTED_OFFSETS_REQUIRED
        ),
    )
    described = cluster_pb2.DescribeTopicsResponse(topics=[there])
    admin = admin_of([TopicAlreadyExistsError("there is one"), described])
    if is_ours:
        assert (await admin.create_topic("t", 1, 1, asked, 1000)).config.retention_ms == -1
    else:
        with pytest.raises(TopicAlreadyExistsError):
            await admin.create_topic("t", 1, 1, asked, 1000)
