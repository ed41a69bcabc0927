"""Chaos with a group: a short run, and the checker's findings in histories that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import network
from tests.chaos.group_checker import Event, check
from tests.chaos.groups import chaos

OLD, NEW = 1, 2  # processes


@pytest.mark.skipif(bool(network.missing()), reason=network.missing())
def test_a_group_keeps_its_promises_whoever_is_harmed(tmp_path: Path) -> None:
    assert chaos(1.0, 3, tmp_path) == []


def event(pid: int, at: float, name: str, **facts: Any) -> Event:
    return {"pid": pid, "at": at, "event": name, **facts}


def commit(pid: int, begun: float, at: float, offset: int, error: str = "") -> list[Event]:
    return [
        event(pid, begun, "committing", offsets={0: offset}),
        event(pid, at, "committed", error=error),
    ]


def history() -> dict[int, list[Event]]:
    """Builds a history: 10 records of a partition go from one process to another, in order."""
    return {
        OLD: [
            event(OLD, 1, "assigned", numbers={0: 5}),
            event(OLD, 2, "records", spans={0: [0, 4]}),
            *commit(OLD, 2.1, 2.2, 4),
            event(OLD, 3, "records", spans={0: [4, 6]}),
            *commit(OLD, 3.1, 3.2, 6),
            event(OLD, 4, "revoked", partitions=[0]),
        ],
        NEW: [
            event(NEW, 5, "assigned", numbers={0: 9}),
            event(NEW, 6, "records", spans={0: [6, 10]}),
            *commit(NEW, 6.1, 6.2, 10),
        ],
    }


def judged(told: dict[int, list[Event]], committed: int = 10) -> list[str]:
    return check(told.values(), {0: 10}, {0: committed}, {})


def test_a_history_that_is_right() -> None:
    assert judged(history()) == []


def number_twice(told: dict[int, list[Event]]) -> None:
    told[NEW][0]["numbers"] = {0: 5}


def zombie_commits(told: dict[int, list[Event]]) -> None:
    told[OLD] += commit(OLD, 5.5, 5.6, 6)


def goes_back(told: dict[int, list[Event]]) -> None:
    told[OLD][-1:-1] = commit(OLD, 3.3, 3.4, 4)


def begins_too_far(told: dict[int, list[Event]]) -> None:
    told[NEW][1]["spans"] = {0: [7, 10]}


def begins_too_early(told: dict[int, list[Event]]) -> None:
    told[NEW][1]["spans"] = {0: [4, 10]}


def leaves_out(told: dict[int, list[Event]]) -> None:
    told[OLD][4]["spans"] = {0: [5, 6]}


def works_too_late(told: dict[int, list[Event]]) -> None:
    told[OLD].insert(-1, event(OLD, 7, "records", spans={0: [6, 7]}))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (number_twice, "of the processes"),
        (zombie_commits, "after 9 had begun"),
        (goes_back, "4 was committed after 6"),
        (begins_too_far, "nobody committed"),
        (begins_too_early, "6 was committed"),
        (leaves_out, "came 5 after 4"),
        (works_too_late, "too late"),
    ],
)
def test_what_is_wrong_is_found(spoil: Callable[[dict[int, list[Event]]], None], text: str) -> None:
    told = history()
    spoil(told)
    assert any(text in one for one in judged(told)), judged(told)


def test_what_is_not_committed_is_found() -> None:
    assert judged(history(), committed=9) == ["partition 0: 9 is committed of 10"]
