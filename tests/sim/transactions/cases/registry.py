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


def same(found: Any, expected: Any) -> None:
    assert found == expected, f"{found!r}, expected {expected!r}"
