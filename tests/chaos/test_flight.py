"""The check of flight recorders finds an answer without an event; and a run with real nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.flight import LATE, Noted, check_events
from tests.chaos.history import Told

DUPLICATE = Told(10.0, "DUPLICATE", 1, 7, 2, 40)
FENCE = Told(11.0, "FENCED", 1, 7, 2, 41)
EVENTS = (
    Noted("verdict", "DUPLICATE", 1, 7, 2, 38, 40),
    Noted("verdict", "FENCED", 1, 7, 2, 41, 41),
)
OPENED = Noted("producer", "", 1, 7, 3, -1, -1)


def broken(told: Told, *events: Noted, broke: tuple[float, ...] = ()) -> tuple[list[str], int]:
    checks, lost = check_events([told], events, broke)
    return [one.name for one in checks if not one.holds], lost


def test_every_answer_has_its_event() -> None:
    checks, lost = check_events([DUPLICATE, FENCE], EVENTS, [])
    assert (lost, [one.holds for one in checks]) == (0, [True, True])
    assert broken(FENCE, OPENED) == ([], 0)


@pytest.mark.parametrize(
    "change",
    [{"partition": 2}, {"producer_id": 8}, {"epoch": 1}, {"sequence": 37}, {"sequence": 41}],
    ids=str,
)
def test_a_duplicate_without_its_event(change: dict[str, int]) -> None:
    told = replace(DUPLICATE, **change)  # type: ignore[arg-type]
    assert broken(told, *EVENTS) == (["duplicate without event"], 0)


def test_a_fence_without_its_event() -> None:
    for change in ({"producer_id": 8}, {"epoch": 1}):
        told = replace(FENCE, **change)  # type: ignore[arg-type]
        assert broken(told, *EVENTS) == (["fence without event"], 0)
    assert broken(FENCE, replace(OPENED, epoch=2)) == (["fence without event"], 0)
    assert broken(FENCE, replace(OPENED, partition=0)) == (["fence without event"], 0)


def test_only_an_answer_just_before_a_nodes_end_is_left_open() -> None:
    assert broken(DUPLICATE, broke=(DUPLICATE.at + LATE / 2,)) == ([], 1)
    for at in (DUPLICATE.at - 0.1, DUPLICATE.at + LATE + 0.1):
        assert broken(DUPLICATE, broke=(at,)) == (["duplicate without event"], 0)
