"""Calls about the open transaction of a Kafka client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import FeatureOffError
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.sent import Sent
from cluster.metadata.state import MetadataState
from cluster.transactions.types import Holder


async def never(*of: Any) -> Any:
    raise AssertionError(f"a command to nodes of another release: {of}")


@pytest.mark.parametrize("call", ["add", "commit", "abort", "offsets"])
def test_nothing_is_proposed_before_the_upgrade_is_finalized(call: str) -> None:
    """A release without the feature stops at a command with an unknown field."""
    node: Any = SimpleNamespace(metadata=MetadataState(), propose_metadata=never)
    transactions = OpenTransactions(node, SimpleNamespace(all_runs=never), lambda: 1)
    calls: dict[str, Coroutine[Any, Any, Any]] = {
        "add": transactions.add("n", Holder(1, 0), {1}),
        "commit": transactions.end("n", Holder(1, 0), Sent(1), commit=True),
        "abort": transactions.end("n", Holder(1, 0), Sent(1), commit=False),
        "offsets": transactions.stage_offsets("n", Holder(1, 0), Sent(1), 1, never),
    }
    wanted = calls.pop(call)
    for other in calls.values():
        other.close()
    with pytest.raises(FeatureOffError, match="kafka"):
        asyncio.run(wanted)
