"""Cleaners in the seeds: batches are carried, and cleanings that are out of date refused."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.partition.stored_batches import StoredBatches
from tests.sim.run import run_seed

SEEDS = range(6, 22, 4)  # some of the quarter that has cleaners


def test_seeds_carry_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, carry = list[bool](), StoredBatches.carry

    def counted(self: StoredBatches, *entry: Any) -> bool:
        outcomes.append(carry(self, *entry))
        return outcomes[-1]

    monkeypatch.setattr(StoredBatches, "carry", counted)
    results = [run_seed(seed) for seed in SEEDS]
    assert not [result.seed for result in results if result.error]
    assert outcomes.count(True) > 50 and outcomes.count(False) > 10
