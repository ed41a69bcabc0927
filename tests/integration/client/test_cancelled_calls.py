"""Each public coroutine of `oncelog.aio` is cancelled at each of its waits."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from oncelog import aio
from tests.integration.client.cancelled_calls import COVERS, SCENARIOS
from tests.integration.client.cancelling import Kit, When, kit, play_all, play_twice

__all__ = ["kit"]


def public_coroutines(kind: type[Any]) -> set[str]:
    return {
        f"{kind.__name__}.{name}"
        for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_") or name.startswith("__a")
    }


def test_each_public_coroutine_has_its_scenario() -> None:
    for kind in (aio.Producer, aio.Consumer, aio.Transaction, aio.Admin):
        assert public_coroutines(kind) - COVERS == set()


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_call_that_is_given_up(kit: Kit, name: str, when: When) -> None:
    waits = await play_all(kit, SCENARIOS[name], when)
    assert waits or when is When.ENGINE_WAITS, "it never waits"


@pytest.mark.slow
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - {"all_of_admin"}))
async def test_a_call_that_is_given_up_twice(kit: Kit, name: str, when: When) -> None:
    """The second cancellation meets the code that handles the first one."""
    await play_twice(kit, SCENARIOS[name], when)
