"""Feature gate: compares this release's features with the cluster's finalized ones.

    Hello of each node --Release--> upgrade --FinalizeUpgrade--> metadata --> Features
    writers of new things --is_on, require--> Features

A *cluster version* is a number that rises with releases that write something their
predecessors cannot read. A release takes part in a range of them. The cluster is at one
version, in the metadata group; it is raised (finalized) once all nodes run a release that
takes part in the new one, and never falls. Until then nothing new is written, so that each
node can go back to the release before.

A *feature* is a name for something new. It comes with a version and is on when the cluster
was finalized with it. Entry kinds and metadata commands that belong to a feature are listed
here; unlisted ones cannot be written (`tests/unit/metadata/test_features.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cluster.entries import (
    BATCH,
    CARRIED,
    CLASSIC_GROUPS,
    CONFIGURATION,
    GROUP_MEMBERS,
    KAFKA_BATCH,
    LOG_START,
    MARKER,
    METADATA,
    OFFSETS,
    OPEN_PRODUCER,
    RELEASE_PRODUCERS,
    STAGED_OFFSETS,
    UPGRADE,
)
from cluster.errors import ClusterError, FeatureOffError
from oncelog.version import __version__


class OlderReleaseError(ClusterError):
    """The cluster uses something that this node's release does not know. The node must end."""


class Versions(NamedTuple):
    """A range, both ends included."""

    oldest: int
    newest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.oldest <= version <= self.newest

    def common(self, other: Versions) -> int:
        """Return the highest version that both have; 0 if there is none."""
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else 0

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}"


BEFORE_THE_GATE = Versions(1, 1)
# Cluster versions that this release takes part in.
CLUSTER_VERSIONS = Versions(1, 3)
# The cluster's own settings, in the metadata, decide replicated facts.
CLUSTER_SETTINGS = "cluster_settings"
# Consumer groups with partitions assigned by the nodes.
GROUPS = "groups"
# Partitions move to other nodes, and topics get more of them.
REPLICA_CHANGES = "replica_changes"
# Records of several partitions appear together or not at all.
TRANSACTIONS = "transactions"
# Rules of permissions.
PERMISSIONS = "permissions"
# Limits on each principal's use of a node.
QUOTAS = "quotas"
# Batches of Kafka's protocol, topics that take them, and classic groups.
KAFKA = "kafka"
# Stored batches are replaced at their own offsets.
COMPACTION = "compaction"
# Racks and machines of nodes, as places for replicas.
PLACES = "places"
# Nodes that hold the metadata without a vote on it.
METADATA_LEARNERS = "metadata_learners"
# Feature -> the cluster version that it comes with.
FEATURES: Mapping[str, int] = {
    CLUSTER_SETTINGS: 2,
    COMPACTION: 3,
    GROUPS: 2,
    KAFKA: 3,
    METADATA_LEARNERS: 3,
    PERMISSIONS: 2,
    PLACES: 3,
    QUOTAS: 2,
    REPLICA_CHANGES: 2,
    TRANSACTIONS: 2,
}

# Each thing's cluster version or feature. A new entry kind or metadata command must be added here;
# a field of one is listed in `tests/unit/metadata/test_features.py`.
Since = int | str
ENTRIES: Mapping[int, Since] = {
    BATCH: 1,
    KAFKA_BATCH: KAFKA,
    CARRIED: COMPACTION,
    LOG_START: 1,
    OPEN_PRODUCER: 1,
    RELEASE_PRODUCERS: 1,
    MARKER: TRANSACTIONS,
    STAGED_OFFSETS: TRANSACTIONS,
    METADATA: 1,
    OFFSETS: 1,
    CONFIGURATION: REPLICA_CHANGES,
    GROUP_MEMBERS: GROUPS,
    CLASSIC_GROUPS: KAFKA,
    # Comes before its version, which it raises.
    UPGRADE: 1,
}
COMMANDS: Mapping[str, Since] = {
    "register_node": 1,
    "create_topic": 1,
    "delete_topic": 1,
    "alter_topic": 1,
    "allocate_producer_ids": 1,
    "lease_name": 1,
    "create_lease_secret": 1,
    "finalize_upgrade": 1,
    "transaction": TRANSACTIONS,
    "found_cluster_settings": CLUSTER_SETTINGS,
    "set_cluster_setting": CLUSTER_SETTINGS,
    "set_replicas": REPLICA_CHANGES,
    "report_replicas": REPLICA_CHANGES,
    "change_node": REPLICA_CHANGES,
    "join_node": REPLICA_CHANGES,
    "change_balance": REPLICA_CHANGES,
    "repair_replica": REPLICA_CHANGES,
    "add_partitions": REPLICA_CHANGES,
    "set_topic_replicas": REPLICA_CHANGES,
    "alter_permissions": PERMISSIONS,
    "alter_quotas": QUOTAS,
}


class Finalized(NamedTuple):
    """A cluster's finalized version and features."""

    version: int = 1
    features: frozenset[str] = frozenset()

    def has(self, since: Since) -> bool:
        if isinstance(since, str):
            return since in self.features
        return since <= self.version


@dataclass(frozen=True, slots=True)
class Release:
    """Abilities of a node's program. The defaults are a release from before the gate."""

    name: str = ""
    versions: Versions = BEFORE_THE_GATE
    features: frozenset[str] = frozenset()

    def lacks(self, finalized: Finalized) -> str:
        """Return why it cannot take part in a cluster finalized so; empty: it can."""
        name = f"release {self.name}" if self.name else "a release from before cluster versions"
        if finalized.version not in self.versions:
            return f"{name} takes part in versions {self.versions}, not in {finalized.version}"
        unknown = sorted(finalized.features - self.features)
        if unknown:
            return f"{name} does not know {', '.join(unknown)}"
        return ""


THIS_RELEASE = Release(__version__, CLUSTER_VERSIONS, frozenset(FEATURES))


class Features:
    """Features that are on, by this node's copy of the metadata. Every writer of new things asks.

    An answer may be behind the cluster's, never ahead of it, and a feature never goes off.
    """

    def __init__(self, finalized: Callable[[], Finalized] = Finalized) -> None:
        """Without an argument nothing is on."""
        self._finalized = finalized

    @property
    def version(self) -> int:
        return self._finalized().version

    def is_on(self, feature: str) -> bool:
        return feature in self._finalized().features

    def require(self, feature: str) -> None:
        """Raises FeatureOffError."""
        if not self.is_on(feature):
            raise FeatureOffError(self._off(f"feature {feature!r}", feature))

    def require_command(self, which: str) -> None:
        """Raises FeatureOffError unless all nodes know the metadata command."""
        if not self._finalized().has(COMMANDS[which]):
            raise FeatureOffError(self._off(f"metadata command {which!r}", COMMANDS[which]))

    def _off(self, what: str, since: Since) -> str:
        version = FEATURES[since] if isinstance(since, str) else since
        return (
            f"{what} comes with cluster version {version}, and the upgrade from version "
            f"{self.version} is not finalized: see `oncelog cluster upgrade`"
        )

    def may_write(self, kind: int) -> bool:
        """Return whether all replicas can read an entry of this kind."""
        since = ENTRIES.get(kind)
        return since is not None and self._finalized().has(since)
