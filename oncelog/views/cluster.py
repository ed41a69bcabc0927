"""Problems and notes of a cluster's health, as sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.types import ClusterInfo, TopicInfo, UpgradeInfo
from oncelog.views.words import plural

DEFAULT_REPLICAS = 3  # a topic's default, if there are enough nodes
MAX_NAMED = 5
MAX_LOOKED_AT = 10_000  # partitions; a health check must not be a load


@dataclass(frozen=True, slots=True)
class Health:
    """A cluster without problems is healthy; notes are hints."""

    problems: list[str]
    notes: list[str]

    @property
    def sentence(self) -> str:
        return "not healthy: " + "; ".join(self.problems) if self.problems else "healthy"


def needs_topics(facts: ClusterInfo) -> bool:
    """Tell whether a note may be about topics, so that `check_health` wants them."""
    return len(facts.nodes) > 1 and facts.partitions <= MAX_LOOKED_AT


def check_health(facts: ClusterInfo, topics: Iterable[TopicInfo] = ()) -> Health:
    notes = find_warnings(facts)
    if needs_topics(facts):
        notes += find_small(len(facts.nodes), topics)
    if facts.upgrade.pending:
        notes.append(describe_pending(facts.upgrade))
    return Health(find_problems(facts), notes)


def find_problems(facts: ClusterInfo) -> list[str]:
    problems = [f"node {node.node_id} is down" for node in facts.nodes if not node.alive]
    problems += [
        f"node {node.node_id}: its clock is not the one a majority agrees on"
        for node in facts.nodes
        if node.clock_disagrees
    ]
    if not facts.controller_id:
        problems.append("no controller")
    if facts.leaderless_partitions:
        problems.append(f"{facts.leaderless_partitions} partitions without a leader")
    if facts.under_replicated_partitions:
        problems.append(f"{facts.under_replicated_partitions} partitions under-replicated")
    problems += facts.damaged_replicas
    return problems


def find_warnings(facts: ClusterInfo) -> list[str]:
    """Return a warning for each insecure node, and for partitions with a majority in one rack."""
    insecure = [
        f"node {node.node_id} is insecure: it listens without TLS beyond its machine"
        for node in facts.nodes
        if node.insecure
    ]
    return [*insecure, *facts.crowded_partitions]


def find_small(nodes: int, topics: Iterable[TopicInfo]) -> list[str]:
    """Return topics with fewer replicas than new ones get, and the command that adds replicas."""
    most = min(nodes, DEFAULT_REPLICAS)
    small = [info for info in topics if info.replica_count < most]
    notes = [
        f"topic {info.name} has {plural(info.replica_count, 'replica')}, and there are {nodes} "
        f"nodes: oncelog topic alter {info.name} --replicas {most}"
        for info in small[:MAX_NAMED]
    ]
    if len(small) > MAX_NAMED:
        notes.append(f"and {len(small) - MAX_NAMED} more topics with fewer than {most} replicas")
    return notes


def describe_pending(state: UpgradeInfo) -> str:
    new = sorted(set(state.target_features) - set(state.features))
    what = f" with {', '.join(new)}" if new else ""
    return (
        f"an upgrade from version {state.cluster_version} to {state.target_version}{what} waits "
        f"to be finalized: oncelog cluster upgrade --finalize"
    )
