"""The blocking calls of the Python client are ended by a signal handler at each of their steps."""

from __future__ import annotations

import itertools

import pytest

from tests.integration.client.cancelling import Kit, kit
from tests.integration.client.interrupted_calls import SCENARIOS, Interrupted

__all__ = ["kit"]
# A coroutine was made and not begun; a transaction has lost its handle.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:a transaction was dropped:ResourceWarning"),
]
SOME = 3  # one step in so many, in the tests that always run


def play_all(kit: Kit, name: str, stride: int) -> int:
    for step in itertools.count(1, stride):
        if not Interrupted(kit, step).play(SCENARIOS[name]):
            return step
    raise AssertionError("counting ends")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_that_a_signal_ends(kit: Kit, name: str) -> None:
    assert play_all(kit, name, SOME) > SOME, "it has hardly a step"


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_that_a_signal_ends_at_any_step(kit: Kit, name: str) -> None:
    play_all(kit, name, 1)
