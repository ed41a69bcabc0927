"""Optimistic concurrency: a target names the version of its partition that it was planned by.

ReassignPartition, ResizeTopic --> plan, by this node's copy --> propose --> metadata
                                    ^------ a step was reported meanwhile -----'
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.errors import InvalidRequestError

ATTEMPTS = 3

T = TypeVar("T")


async def optimistically(plan_and_propose: Callable[[], Awaitable[T]]) -> T:
    """What the call returns that reads versions and proposes by them. Raises what it raises.

    Its client knows nothing of versions, and a partition that moves gets a new one by each step.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await plan_and_propose()
        except InvalidRequestError as error:
            if error.field != "expected_version":
                raise
    return await plan_and_propose()
