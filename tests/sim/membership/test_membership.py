"""Random runs with changed members, few here; `schedules.py` and `weak.py` run with the others."""

from __future__ import annotations

import pytest

from tests.sim.membership.balances import run_balances
from tests.sim.membership.harm import Unrest
from tests.sim.membership.large_runs import run_many
from tests.sim.membership.nodes import run_nodes
from tests.sim.membership.operators import is_careful, run_operators
from tests.sim.membership.seeds import run_changes, run_moves
from tests.sim.run import Result

# Seeds that once failed. 55, 82: the disk that had the only proof of a removal was lost.
FOUND = (55, 82)
FIRST = 1_000_000
PER_TEST = 15
PER_BALANCE = 5


@pytest.mark.parametrize("run", [run_changes, run_moves])
def test_seeds(run: object) -> None:
    assert callable(run)
    results: list[Result] = [run(seed) for seed in range(FIRST, FIRST + PER_TEST)]
    assert not {result.seed: result.error for result in results if result.error}
    assert sum(result.injected["change"] for result in results) > 2 * PER_TEST
    if run is run_moves:
        assert sum(result.injected["grown"] for result in results) > PER_TEST // 2
    else:
        assert sum(result.injected["lost disk"] for result in results) > PER_TEST // 3
        assert sum(result.injected["demotion"] for result in results) > PER_TEST


def test_seeds_of_nodes() -> None:
    results = [run_nodes(seed) for seed in range(FIRST, FIRST + PER_TEST)]
    assert not {result.seed: result.error for result in results if result.error}
    assert sum(result.injected["change"] for result in results) > 3 * PER_TEST
    assert sum(result.injected["lost disk"] for result in results) > PER_TEST // 2
    assert sum(result.injected["away"] for result in results) > PER_TEST // 3
    assert sum(result.injected["demotion"] for result in results) > PER_TEST // 3


def test_seeds_of_balances() -> None:
    results = [run_balances(seed) for seed in range(FIRST, FIRST + PER_BALANCE)]
    assert not {result.seed: result.error for result in results if result.error}
    assert sum(result.injected["balance's move"] for result in results) > 3 * PER_BALANCE
    assert sum(result.injected["change"] for result in results) > PER_BALANCE


def test_seeds_of_operators() -> None:
    """Checks that operators lose nothing in any run, and that most runs come to rest.

    A careful operator's always do, unless an answer said otherwise before.
    """
    results = [run_operators(seed) for seed in range(FIRST, FIRST + PER_BALANCE)]
    assert not {result.seed: result.error for result in results if result.error}
    for what in ("change", "lost disk", "refused"):
        assert sum(result.injected.get(what, 0) for result in results) > PER_BALANCE // 2
    unrest = {one.seed: {why for why in Unrest if why in one.injected} for one in results}
    assert sum(map(bool, unrest.values())) < PER_BALANCE / 2, unrest
    for seed, reasons in unrest.items():
        assert not is_careful(seed) or reasons <= {Unrest.TOLD, Unrest.FOUNDED}, seed


def test_a_seed_of_many_nodes() -> None:
    """One seed, since it takes seconds; it finds voters that pass no leaders on."""
    result = run_many(FIRST)
    assert result.error == ""
    assert result.injected["change"] and result.crashes


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something(seed: int) -> None:
    assert run_changes(seed).error == ""
