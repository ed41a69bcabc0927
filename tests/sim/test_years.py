"""Days and years: deletion and expiry happen in time, even if one clock is wrong."""

from __future__ import annotations

import pytest

from tests.sim.years import Years, run_years


@pytest.mark.parametrize("seed", range(1, 9))
def test_years(seed: int) -> None:
    run_years(seed)


def test_a_run_does_the_work_it_claims() -> None:
    years: list[Years] = [run_years(seed) for seed in range(2)]
    assert all(one.cluster.slept > 200 * 24 * 3600 for one in years)
    assert sum(len(one.stored) for one in years) > 10
    assert sum(one.deleted for one in years) > 5
    assert sum(one.expired for one in years) > 5
