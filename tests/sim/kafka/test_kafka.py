"""Kafka clients in the seeds: they meet each case, and seeds catch a missing proof of ids."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.sim.checker import Checker
from tests.sim.kafka import weak
from tests.sim.mutations import named
from tests.sim.run import KAFKA_WRAP_BITS, run_seed

SEEDS = range(1, 25, 3)  # a third of all seeds has such clients


def test_seeds_cross_the_wrap_and_rebuild_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts, wraps, answered = Counter[str](), set[int](), Checker.answered

    def counted(self: Checker, gid: int, batch: Any, *, was_head: bool, answer: Any) -> None:
        if batch.pid >= 1 << 62:
            verdicts[answer.verdict.kind.name] += 1
            wraps.add(batch.first >> KAFKA_WRAP_BITS)
        answered(self, gid, batch, was_head=was_head, answer=answer)

    monkeypatch.setattr(Checker, "answered", counted)
    assert not [seed for seed in SEEDS if run_seed(seed).error]
    assert wraps >= {0, 1}
    assert verdicts["APPENDED"] > 200 and verdicts["DUPLICATE"] > 5 and verdicts["FENCED"] > 0


@pytest.mark.parametrize("name", weak.CAUGHT_BY_SEEDS)
def test_seeds_catch_a_missing_proof(name: str) -> None:
    with named(name).planted():
        assert any(run_seed(seed).error for seed in SEEDS)
