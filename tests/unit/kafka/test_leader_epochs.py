"""Leader epochs: an answer tells the leader's term, and a request with another one is refused.

Without the check a client reads on at a deposed leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
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
    epoch = Brokers(rig.node).epoch_of(GROUP)
    assert await ask(rig, NO_EPOCH) == await ask(rig, epoch) == (Error.NONE, END)
    assert await ask(rig, epoch - 1) == (Error.FENCED_LEADER_EPOCH, -1)
    assert await ask(rig, epoch + 1) == (Error.UNKNOWN_LEADER_EPOCH, -1)


def test_an_epoch_rises_with_the_term_and_with_a_topic_that_is_made_again() -> None:
    """Clients ignore a leader of a lower epoch, so a running one would never hear of the topic."""
    terms = {16: 999, 17: 1}
    node: Any = SimpleNamespace(leader_of=lambda group: (1, terms[group]))
    brokers = Brokers(node)
    before = brokers.epoch_of(16)
    assert brokers.epoch_of(17) > before
    terms[16] += 1
    assert brokers.epoch_of(16) > before
    terms[1 << 40] = 5
    assert 0 <= brokers.epoch_of(1 << 40) < 1 << 31


async def test_clients_hear_the_leaders_epoch() -> None:
    rig = await filled()
    node: Any = rig.node
    node.config = replace(node.config, kafka_listen="127.0.0.1:9092")
    metadata = Metadata(node, Brokers(node), Topics(ClusterService(node)))
    answer = await metadata.metadata(ANYBODY, Head(METADATA, 9, 1, "", True), MetadataRequest(None))
    (topic,) = answer.topics
    assert topic.partitions[0].leader_epoch == Brokers(node).epoch_of(GROUP)
