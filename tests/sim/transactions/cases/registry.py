"""Register of directed cases, and their shared helpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.transactions.types import Holder
from tests.sim.transactions.stage import Stage

CASES: dict[str, Callable[[], None]] = {}


def case(play: Callable[[], None]) -> Callable[[], None]:
    CASES[play.__name__] = play
    return play


def opened(stage: Stage, name: str = "p", groups: tuple[int, ...] = (1, 2)) -> Holder:
    """A holder that has opened the partitions."""
    holder = stage.lease(name)
    for group in groups:
        assert stage.open(group, holder).kind == "APPENDED"
    return holder


def staged(partitions: int = 1) -> tuple[Stage, Holder, int]:
    """A producer's open transaction, in which each partition holds its sequences 0 and 1."""
    stage = Stage(partitions)
    holder = opened(stage, groups=tuple(stage.parts))
    number = stage.begin("p", holder)
    for group in stage.parts:
        stage.put(group, holder, number, 0, 1)
    return stage, holder, number


def decided() -> tuple[Stage, Holder, int]:
    """The same of one partition, decided to commit; the markers wait until `release`."""
    stage, holder, number = staged()
    stage.hold("write_markers")
    stage.ask(stage.commit_call(number, holder, (1, 2, 1)))
    return stage, holder, number


def same(found: Any, expected: Any) -> None:
    assert found == expected, f"{found!r}, expected {expected!r}"
