"""Random runs of twenty nodes, of which five vote on the metadata: one seed, one run.

Ten partitions are placed as the product places them in a cluster of so many nodes. Faults, clients
and an operator who moves partitions act at once. In the end each node knows each leader, and the
replicas have all records.
"""

from __future__ import annotations

import random
from dataclasses import replace

from cluster.metadata.node_loads import MANY_NODES
from tests.sim.cluster import Cluster
from tests.sim.faults import Faults
from tests.sim.many_nodes import ManyNodes, placed
from tests.sim.membership.nodes import records_of
from tests.sim.membership.seeds import DURATION, Moves, drive, settings_of
from tests.sim.node import METADATA_ENTRIES
from tests.sim.run import Clients, Result, describe

PARTITIONS = 10


def run_many(seed: int, *, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    result = Result(seed)
    settings = replace(
        settings_of(rng),
        smallest_majority=2,
        hints=True,
        silent=rng.choice((3.0, 30.0)),
        metadata_entries=rng.choice((METADATA_ENTRIES, 1000)),
    )
    many = ManyNodes(MANY_NODES, placed(MANY_NODES, PARTITIONS), settings=settings, seed=seed)
    cluster = many.cluster
    cluster.verbose = verbose
    try:
        moves, faults = _drive(cluster, many.groups(), rng)
        result.injected = {**faults.injected, "change": moves.asked}
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.failed(error)
    result.count(cluster)
    return result


def _drive(cluster: Cluster, groups: list[int], rng: random.Random) -> tuple[Moves, Faults]:
    cluster.groups = groups[:1]
    clients = Clients(cluster)  # they find the other partitions in the metadata
    clients.bootstrap = []
    cluster.groups = groups
    until = cluster.scheduler.now + DURATION * 0.65
    faults = Faults(cluster, clients, until=until, gap=0.4 + 1.0 * rng.random())
    moves = Moves(cluster, clients, rng)
    drive(cluster, clients, faults, moves, _is_done, _describe)
    return moves, faults


def _is_done(cluster: Cluster) -> bool:
    """Tells whether targets are reached, replicas are equal, and each node knows each leader."""
    if not cluster.at_rest():
        return False
    leader = max(cluster.live(), key=lambda node: node.running.state.applied_index)
    is_placed = not any(one.target for one in records_of(leader.running.state).values())
    return is_placed and cluster.know_all_leaders(cluster.node_ids, cluster.placement())


def _describe(cluster: Cluster) -> str:
    unknown = [
        (node.id, gid)
        for node in cluster.live()
        for gid in cluster.placement()
        if not cluster.know_all_leaders([node.id], [gid])
    ]
    return f"the nodes do not come to rest; leaders not known: {unknown}; {describe(cluster)}"
