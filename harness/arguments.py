"""Options of the commands around the harness."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", int, float)


def number(kind: type[N], low: N, high: N | None = None) -> Callable[[str], N]:
    """Type for `add_argument`: a number within the limits; 1_000 and 1,000 are numbers."""

    def parse(text: str) -> N:
        value = kind(text.replace("_", "").replace(",", ""))
        if value < low or (high is not None and value > high):
            limit = f"below {low:,}" if high is None else f"not in {low:,}..{high:,}"
            raise argparse.ArgumentTypeError(f"{text} is {limit}")
        return value

    parse.__name__ = "number"
    return parse
