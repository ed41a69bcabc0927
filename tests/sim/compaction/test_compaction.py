"""Cleaners in the seeds: batches are carried, and cleanings that are out of date refused."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.node.cleaning.cleaner import Cleaner
from cluster.partition.stored_batches import StoredBatches
from tests.sim.compaction.keyed import KeyedModel
from tests.sim.run import run_seed

SEEDS = range(6, 22, 4)  # some of the quarter that has cleaners
KEYED_SEEDS = (12, 36, 84, 108, 116, 156)  # some of those in which nodes clean by key


def test_seeds_carry_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, carry = list[bool](), StoredBatches.carry

    def counted(self: StoredBatches, *entry: Any) -> bool:
        outcomes.append(carry(self, *entry))
        return outcomes[-1]

    monkeypatch.setattr(StoredBatches, "carry", counted)
    results = [run_seed(seed) for seed in SEEDS]
    assert not [result.seed for result in results if result.error]
    assert outcomes.count(True) > 50 and outcomes.count(False) > 10


def test_seeds_clean_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records become blanks, tombstones go, and passes break off."""
    models, cleaners = list[KeyedModel](), list[Cleaner]()
    make_model, make_cleaner = KeyedModel.__init__, Cleaner.__init__

    def model(self: KeyedModel, *facts: Any, **more: Any) -> None:
        make_model(self, *facts, **more)
        models.append(self)

    def cleaner(self: Cleaner, *parts: Any) -> None:
        make_cleaner(self, *parts)
        cleaners.append(self)

    monkeypatch.setattr(KeyedModel, "__init__", model)
    monkeypatch.setattr(Cleaner, "__init__", cleaner)
    results = [run_seed(seed) for seed in KEYED_SEEDS]
    assert not [result.seed for result in results if result.error]
    assert sum(model.blanks for model in models) > 100
    assert sum(model.dropped for model in models) > 0
    assert sum(cleaner.counters.broken_off for cleaner in cleaners) > 0
