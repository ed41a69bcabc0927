"""Picture of a sequence's life: places of bars, crosses and lines, which a template draws as SVG.

Time runs to the right, with long pauses shortened; sequences run upwards. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10

from oncelog.views.life import LifeRow, LifeView
from oncelog.views.words import grouped, when

MAX_DRAWN = 120
WIDTH, HEIGHT = 960, 340
LEFT, RIGHT, TOP, BOTTOM = 110, 30, 46, 40
BAR = 12.0
_LEAST_HEIGHT = 5.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A row at its place. label: next to it; title: shown by a pointer, read by a screen reader."""

    kind: str
    x: float
    y: float
    height: float
    title: str
    label: str = ""
    hits: bool = False
    shade: int = 0  # of the epoch


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes, the marks of both axes, and the line of the sequence that is asked for."""

    shapes: tuple[Shape, ...]
    times: tuple[Tick, ...]
    sequences: tuple[Tick, ...]
    asked_y: float
    left_out: int
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM
    bar: float = BAR


def draw(view: LifeView) -> Picture | None:
    """Return the picture; None: there is nothing to draw."""
    rows = _chosen(view.rows)
    if not rows:
        return None
    asked = view.question.sequence
    spans = [row for row in rows if row.first_sequence >= 0]
    low = min([asked, *(row.first_sequence for row in spans)])
    high = max([asked, *(row.last_sequence for row in spans)]) + 1
    scale = (HEIGHT - TOP - BOTTOM) / (high - low)

    def y(sequence: int) -> float:
        return round(HEIGHT - BOTTOM - (sequence - low) * scale, 1)

    xs = _places([row.first_ms for row in rows])
    shapes = []
    for row, x in zip(rows, xs, strict=True):
        top, height = float(TOP), float(HEIGHT - TOP - BOTTOM)
        if row.first_sequence >= 0:
            top = y(row.last_sequence + 1)
            height = max(_LEAST_HEIGHT, round(y(row.first_sequence) - top, 1))
        shapes.append(
            Shape(
                row.kind, x, top, height, _title(row), _label(row), row.hits, max(0, row.epoch) % 3
            )
        )
    return Picture(
        tuple(shapes), _time_ticks(rows, xs),
        tuple(Tick(y(n), grouped(n)) for n in dict.fromkeys((low, high - 1))), y(asked),
        len(view.rows) - len(rows),
    )  # fmt: skip


def _chosen(rows: Sequence[LifeRow]) -> Sequence[LifeRow]:
    """Return at most MAX_DRAWN rows: those around the asked sequence, or the newest."""
    hits = [at for at, row in enumerate(rows) if row.hits]
    middle = hits[len(hits) // 2] if hits else len(rows)
    first = max(0, min(middle - MAX_DRAWN // 2, len(rows) - MAX_DRAWN))
    return rows[first : first + MAX_DRAWN]


def _places(times: Sequence[int]) -> list[float]:
    """Return the x of each time; a pause of ten times the length is one step wider."""
    at, places = 0.0, [0.0]
    for before, now in pairwise(times):
        at += 1.0 + log10(1 + max(0, now - before))
        places.append(at)
    room = WIDTH - LEFT - RIGHT - 2 * BAR
    if not at:
        return [LEFT + BAR + room / 2]
    return [round(LEFT + BAR + place / at * room, 1) for place in places]


def _time_ticks(rows: Sequence[LifeRow], xs: Sequence[float]) -> tuple[Tick, ...]:
    """Label the first time, the last one, and some between that have room."""
    ticks: list[Tick] = []
    for row, x in zip(rows, xs, strict=True):
        if not ticks or x - ticks[-1].at >= 150:
            ticks.append(Tick(x, when(row.first_ms)[11:-1]))
    return tuple(ticks)


def _label(row: LifeRow) -> str:
    if row.kind == "fence":
        return f"epoch {row.epoch}"
    if row.kind == "leader":
        return f"node {row.node_id}"
    return f"{row.count}x" if row.count > 1 else ""


def _title(row: LifeRow) -> str:
    parts = [when(row.first_ms), row.text]
    if row.first_sequence >= 0:
        parts.append(f"sequences {row.first_sequence} to {row.last_sequence}, epoch {row.epoch}")
    if row.offset >= 0:
        parts.append(f"at offset {row.offset}")
    if row.count > 1:
        parts.append(f"{row.count} times")
    return ", ".join(parts)


__all__ = ["Picture", "Shape", "Tick", "draw"]
