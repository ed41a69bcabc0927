"""Mutations of the random runs' own checks: `rest_schedules.py` has what catches them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.sim.cluster import Cluster
from tests.sim.membership import nodes
from tests.sim.membership.harm import Harm
from tests.sim.mutations import mutation

# Which schedule must catch which weakness.
CAUGHT_BY = {
    "equal-is-at-rest": "equal_replicas_are_not_at_rest_without_a_leader",
    "another-founding-unchecked": "a_run_that_ends_by_another_founding_is_checked",
    "harmed-runs-unchecked": "a_told_loss_forgives_its_partition_only",
    "stuck-runs-unchecked": "a_cluster_that_stands_still_has_the_records_of_whole_groups",
    "told-forgives-all": "a_told_loss_forgives_its_partition_only",
}


@mutation("a run ends when replicas are equal, whether or not a leader serves them")
def equal_is_at_rest() -> Any:
    def are_equal(cluster: Cluster, gid: int, held: Collection[int]) -> bool:
        groups = [cluster.nodes[node].machines[gid].group for node in held]
        marks = {(one.applied_index, one.journal.last_index) for one in groups if one is not None}
        return len(marks) == 1

    return [(nodes, "is_at_rest", are_equal)]


@mutation("the end of a run is not checked if the first nodes found a cluster anew")
def another_founding_unchecked() -> Any:
    return [(nodes, "check_disks", lambda cluster, harmed: None)]


@mutation("the end of a run is not checked if any group was harmed")
def harmed_runs_unchecked() -> Any:
    return [(Harm, "check_end", lambda self: None)]


@mutation("the end of a run is not checked if the metadata was harmed")
def stuck_runs_unchecked() -> Any:
    check = Harm.check_end

    def check_unless_stuck(self: Harm) -> None:
        if not self.is_stuck:
            check(self)

    return [(Harm, "check_end", check_unless_stuck)]


@mutation("a loss that was told forgives every violation")
def told_forgives_all() -> Any:
    return [(Harm, "forgives", lambda self, error: bool(self.groups))]
