"""Random mutation without coverage: for the tests' short run, and where atheris is missing.

Reproducible: the same seed makes the same inputs.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator

from tests.fuzz.targets import Target

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63)
MAX_BYTES = 1 << 16


def mutations(seeds: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """Yields inputs without end. Each begins with a seed and changes it in one to eight places."""
    while True:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 8)):
            _change(data, seeds, rng)
        yield bytes(data[:MAX_BYTES])


def _change(data: bytearray, seeds: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(7):
        case 0 if data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        case 1 if data:
            data[at % len(data)] = rng.randrange(256)
        case 2:
            del data[at : at + rng.randint(1, 8)]
        case 3:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        case 4:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(INTERESTING) & ((1 << (8 * width)) - 1)
            data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        case 5:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + rng.randint(1, 64)]
        case _:
            del data[at:]


def run(
    target: Target, seed: int, *, seconds: float = math.inf, executions: int = sys.maxsize
) -> int:
    """Runs a target until either limit is reached; returns the executions.

    Raises the target's error, with the input noted.
    """
    rng = random.Random(seed)
    seeds = target.seeds()
    for one in seeds:
        attempt(target, one)
    done, end = len(seeds), time.monotonic() + seconds
    for data in mutations(seeds, rng):
        if done >= executions or time.monotonic() >= end:
            return done
        attempt(target, data)
        done += 1
        if target.fix is not None:
            attempt(target, target.fix(data))
            done += 1
    raise AssertionError("mutations end")


def attempt(target: Target, data: bytes) -> None:
    try:
        target.run(data)
    except Exception as error:
        error.add_note(f"target {target.name}, input {data.hex()}")
        raise
