"""A caller's seek wins against answers that were on their way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from oncelog._engine.consume.fetch_buffer import Wanted
from oncelog._engine.consume.fetcher import Fetcher
from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig
from oncelog.errors import OncelogError
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    """Fetcher that reaches no node, with two partitions at offset 0."""
    config = ConsumerConfig(bootstrap_servers=("127.0.0.1:1",), auto_offset_reset="earliest")
    fetcher = Fetcher(config, Cluster(config))
    fetcher.buffer.assign([A, B])
    fetcher.buffer.seek(A, 0)
    fetcher.buffer.seek(B, 0)
    yield fetcher
    await fetcher.stop()
    await fetcher.cluster.close()


async def test_a_seek_between_an_answer_and_its_reset_wins(fetcher: Fetcher) -> None:
    (asked,) = (one for one in fetcher.buffer.wanted() if one.tp == A)
    fetcher.buffer.seek(A, 7)  # the answer's generation was checked a moment ago
    answer = log_pb2.PartitionRecords(
        error=log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE, log_start_offset=9
    )
    fetcher._refused(asked, answer, "a:1")
    assert fetcher.buffer.position(A) == 7
    fetcher._refused(Wanted(B, 0, fetcher.buffer.cursors()[1].generation), answer, "a:1")
    assert fetcher.buffer.position(B) is None


async def test_a_seek_while_the_end_of_the_log_is_looked_up_wins(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answer = asyncio.Event(), asyncio.Event()

    async def find_offsets(
        queries: Mapping[TopicPartition, str | int], timeout_s: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, OncelogError]]:
        begun.set()
        await answer.wait()
        return dict.fromkeys(queries, 9), {}

    monkeypatch.setattr(fetcher.positions, "find_offsets", find_offsets)
    seeking = asyncio.create_task(fetcher.seek_all([A, B], "latest"))
    await begun.wait()
    fetcher.buffer.seek(A, 5)
    answer.set()
    await seeking
    assert (fetcher.buffer.position(A), fetcher.buffer.position(B)) == (5, 9)
