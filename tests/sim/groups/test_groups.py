"""A consumer group's promises hold over random lives, and each protection is needed for that."""

from __future__ import annotations

import pytest

from tests.sim.groups import weak
from tests.sim.groups.checker import Violation
from tests.sim.groups.run import run_seed


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_lives_of_a_group(first: int) -> None:
    commits = sum(run_seed(seed).checker.commits for seed in range(first, first + 30))
    assert commits > 1000, "the runs do too little to mean anything"


def test_a_seed_says_all() -> None:
    runs = [run_seed(7) for _ in range(2)]
    assert runs[0].entries == runs[1].entries
    assert runs[0].committed == runs[1].committed


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (weak.any_member_commits, 0),
        (weak.member_id_is_enough, 3),
        (weak.late_commits_count, 0),
        (weak.number_is_kept, 0),
        (weak.hello_tells_nothing, 82),
        (weak.released_on_any_connection, 2814),
        (weak.instance_without_compare, 329),
        (weak.late_hello_joins, 9484013),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_missing_protection_is_seen(plant: weak.Plant, seed: int) -> None:
    with plant(), pytest.raises(Violation):
        run_seed(seed)
