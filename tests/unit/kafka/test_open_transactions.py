"""Calls about the open transaction of a Kafka client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import FeatureOffError
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.sent import DelayedCallError, Sent
from cluster.metadata.state import MetadataState
from cluster.services.admin.cluster_service import ClusterService
from cluster.transactions.types import Holder
from oncelog.v1 import cluster_pb2
from tests.unit.kafka.test_topics import finalized


async def never(*of: Any) -> Any:
    raise AssertionError(f"a command to nodes of another release: {of}")


@pytest.mark.parametrize("call", ["add", "commit", "abort", "offsets"])
def test_nothing_is_proposed_before_the_upgrade_is_finalized(call: str) -> None:
    """A release without the feature stops at a command with an unknown field."""
    node: Any = SimpleNamespace(metadata=MetadataState(), propose_metadata=never)
    transactions = OpenTransactions(node, SimpleNamespace(all_runs=never), lambda: 1)
    calls: dict[str, Coroutine[Any, Any, Any]] = {
        "add": transactions.add("n", Holder(1, 0), Sent(1), {1}),
        "commit": transactions.end("n", Holder(1, 0), Sent(1), commit=True),
        "abort": transactions.end("n", Holder(1, 0), Sent(1), commit=False),
        "offsets": transactions.stage_offsets("n", Holder(1, 0), Sent(1), 1, never),
    }
    wanted = calls.pop(call)
    for other in calls.values():
        other.close()
    with pytest.raises(FeatureOffError, match="kafka"):
        asyncio.run(wanted)


async def no_wait(row: object) -> None:
    """The outcome shows in all partitions."""


@pytest.mark.parametrize("ends", ["over another connection", "at another node"])
async def test_a_delayed_add_begins_no_transaction(ends: str) -> None:
    """Its client gave it up, did it again, and ended: nobody would end the new one."""
    node = finalized()
    topic = cluster_pb2.CreateTopicRequest(name="t", partitions=1)
    group = (await ClusterService(node).CreateTopic(topic)).topic.partitions[0].group_id
    coordination: Any = SimpleNamespace(all_runs=never, published=no_wait)
    here, elsewhere = (OpenTransactions(node, coordination, node.new_nonce) for _ in range(2))

    def connection() -> Sent:
        return Sent(node.metadata.coordinator.next_id)

    async def add(at: OpenTransactions, sent: Sent) -> int:
        number = await at.add("n", holder, sent, {group})
        sent.added("n", number)
        return number

    holder = await here.lease("n", 60_000, None)
    old = connection()
    at = here if ends == "over another connection" else elsewhere
    if at is here:
        assert await add(here, old) == 1
    new = connection()
    assert await add(at, new) == 1
    await at.end("n", holder, new, commit=False)
    with pytest.raises(DelayedCallError):
        await here.add("n", holder, old, {group})
    assert node.metadata.coordinator.next_id == 2
    # A client that still waits comes again.
    assert await add(here, connection()) == 2
