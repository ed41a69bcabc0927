"""Leader epochs: an answer tells the leader's term, and a request with another one is refused.

Without the check a client reads on at a deposed leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from cluster.kafka.brokers import Brokers
from cluster.kafka.errors import Error
from cluster.kafka.fetch import Fetching
from cluster.kafka.messages import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from cluster.kafka.metadata import Metadata
from cluster.kafka.topics import Topics
from cluster.kafka.versions import Head
from cluster.services.admin.cluster_service import ClusterService
from tests.unit.kafka.test_logs import ANYBODY, filled
from tests.unit.kafka.test_produce import Rig
from tests.unit.services.log_rig import GROUP, TOPIC

NO_EPOCH = -1
END = 15  # of the filled partition


async def fetched(rig: Rig, epoch: int) -> tuple[int, int]:
    part = FetchPartition(0, epoch, fetch_offset=END, partition_max_bytes=1)
    request = FetchRequest(topics=[FetchTopic(TOPIC, [part])])
    answer = await Fetching(rig.node, Brokers(rig.node)).fetch(
        ANYBODY, Head(FETCH, 12, 1, "", True), request
    )
    data = b"".join(bytes(one) for one in answer.parts)
    (one,) = FetchResponse.decode(data[5:], version=12).responses[0].partitions
    return one.error_code, one.high_watermark


async def listed(rig: Rig, epoch: int) -> tuple[int, int]:
    part = ListOffsetsPartition(0, epoch, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, [part])])
    answer = await Fetching(rig.node, Brokers(rig.node)).list_offsets(
        ANYBODY, Head(LIST_OFFSETS, 7, 1, "", True), request
    )
    (one,) = answer.topics[0].partitions
    return one.error_code, one.offset


async def ended(rig: Rig, epoch: int) -> tuple[int, int]:
    part = OffsetForLeaderPartition(0, epoch, leader_epoch=2)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(TOPIC, [part])])
    answer = await Fetching(rig.node, Brokers(rig.node)).end_of_epoch(
        ANYBODY, Head(OFFSET_FOR_LEADER_EPOCH, 3, 1, "", True), request
    )
    (one,) = answer.topics[0].partitions
    return one.error_code, one.end_offset


@pytest.mark.parametrize("ask", [fetched, listed, ended])
async def test_another_epoch_is_refused(ask: Callable[[Rig, int], Awaitable[Any]]) -> None:
    rig = await filled()
    _, term = rig.node.leader_of(GROUP)
    assert term > 1
    assert await ask(rig, NO_EPOCH) == await ask(rig, term) == (Error.NONE, END)
    assert await ask(rig, term - 1) == (Error.FENCED_LEADER_EPOCH, -1)
    assert await ask(rig, term + 1) == (Error.UNKNOWN_LEADER_EPOCH, -1)


async def test_clients_hear_the_leaders_term() -> None:
    rig = await filled()
    node: Any = rig.node
    node.config = replace(node.config, kafka_listen="127.0.0.1:9092")
    metadata = Metadata(node, Brokers(node), Topics(ClusterService(node)))
    answer = await metadata.metadata(ANYBODY, Head(METADATA, 9, 1, "", True), MetadataRequest(None))
    (topic,) = answer.topics
    assert topic.partitions[0].leader_epoch == node.leader_of(GROUP)[1]
