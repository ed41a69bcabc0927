"""Mutations of the random runs' own checks: `rest_schedules.py` has what catches them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.sim.cluster import Cluster
from tests.sim.membership import nodes
from tests.sim.mutations import mutation

# Which schedule must catch which weakness.
CAUGHT_BY = {
    "equal-is-at-rest": "equal_replicas_are_not_at_rest_without_a_leader",
}


@mutation("a run ends when replicas are equal, whether or not a leader serves them")
def equal_is_at_rest() -> Any:
    def are_equal(cluster: Cluster, gid: int, held: Collection[int]) -> bool:
        groups = [cluster.nodes[node].machines[gid].group for node in held]
        marks = {(one.applied_index, one.journal.last_index) for one in groups if one is not None}
        return len(marks) == 1

    return [(nodes, "is_at_rest", are_equal)]
