"""A group that is deleted though the answer was lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog._engine.consume.groups import Groups
from oncelog.errors import BrokerUnavailableError, NotReadyError, RetriableError
from oncelog.v1 import group_pb2

REFUSED = BrokerUnavailableError("a:1: failed to connect to all addresses")
REFUSED.unsent = True


def groups_of(answers: list[Any]) -> Groups:
    """Groups of a cluster whose node gives these answers in turn."""

    async def call(*given: object, **more: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cluster: Any = SimpleNamespace(
        call=call,
        config=SimpleNamespace(request_timeout_ms=10_000),
        addresses=lambda: ["a:1"],
        avoid=lambda address: None,
        backoff=SimpleNamespace(delay=lambda failures: 0.0),
    )
    return Groups(cluster)


@pytest.mark.parametrize(
    ("first", "was_there"),
    [
        (BrokerUnavailableError("a:1: Socket closed"), True),
        (REFUSED, False),  # nothing was asked
        (NotReadyError("later"), False),  # and nothing was done
    ],
)
async def test_gone_after_an_unanswered_try_is_deleted(
    first: RetriableError, was_there: bool
) -> None:
    groups = groups_of([first, group_pb2.DeleteGroupResponse(existed=False)])
    assert await groups.delete("g") is was_there
