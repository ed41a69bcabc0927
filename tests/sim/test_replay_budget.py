"""Bound on the entries that a node applies again after a crash, for all its replicas together."""

from __future__ import annotations

from cluster.consensus.replay_budget import ENTRY_BYTES
from tests.sim.cluster import Cluster
from tests.sim.node import Settings
from tests.sim.run import Clients

GROUPS, ENTRIES = 6, 12
LIMIT = ENTRIES * 17 * 1024  # an entry here has less than 1 KiB
assert ENTRIES * ENTRY_BYTES < LIMIT
NO_LIMIT = 1 << 40


def entries_to_apply_again(limit: int) -> list[int]:
    """Counts entries to apply again, of each node that was killed after some entries."""
    cluster = Cluster(
        Settings(groups=GROUPS, checkpoint_entries=1_000_000, checkpoint_node_bytes=limit), seed=1
    )
    cluster.start()
    cluster.scheduler.run_until(5.0)
    clients = Clients(cluster)
    clients.start()
    cluster.scheduler.run_until(25.0)
    assert len(clients.producers) >= GROUPS
    found = []
    for node in cluster.live():
        node.crash("test")
        node.start()
        groups = list(node.driver.groups.values())
        found.append(sum(g.journal.last_index - g.applied_index for g in groups))
    return found


def test_many_replicas_below_their_own_limits_keep_to_the_nodes() -> None:
    assert min(entries_to_apply_again(NO_LIMIT)) > 3 * ENTRIES
    # Beyond the limit: entries not yet applied, or not yet synced, when the node was killed.
    assert max(entries_to_apply_again(LIMIT)) <= 2 * ENTRIES
