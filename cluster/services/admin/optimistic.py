"""Optimistic concurrency: a target names the partition's version that its plan was based on.

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
    """Return the result of a call that reads versions and proposes by them. Raises its errors.

    Clients do not know versions, and each step of a move gives the partition a new one.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await plan_and_propose()
        except InvalidRequestError as error:
            if error.field != "expected_version":
                raise
    return await plan_and_propose()
