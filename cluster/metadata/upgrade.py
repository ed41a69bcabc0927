"""Upgrade of the cluster version: obstacles to it, and the command for it. Pure.

each node's Release --plan--> Plan --command--> FinalizeUpgrade --check--> Finalized
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.features import Finalized, Release, Versions
from cluster.metadata.topics import NOT_SUPPORTED, Rejected, invalid
from cluster.v1 import metadata_pb2 as pb


@dataclass(frozen=True, slots=True)
class Plan:
    """The next cluster version, and the obstacles to it.

    hindered: one line for each node that stands in the way.
    """

    finalized: Finalized
    target: Finalized
    hindered: tuple[str, ...]

    @property
    def is_pending(self) -> bool:
        """Whether some node runs a release with more than is finalized."""
        return self.target != self.finalized

    @property
    def is_ready(self) -> bool:
        return self.is_pending and not self.hindered


def plan(finalized: Finalized, nodes: Mapping[int, Release | None]) -> Plan:
    """Plans the upgrade. nodes: all registered nodes; None: it cannot be reached."""
    known = [release for release in nodes.values() if release is not None]
    version = max((finalized.version, *(release.versions.newest for release in known)))
    features = finalized.features.union(
        *(release.features for release in known if release.versions.newest == version)
    )
    target = Finalized(version, features)
    if target == finalized:
        return Plan(finalized, target, ())
    return Plan(finalized, target, tuple(_hindrances(target, nodes)))


def _hindrances(target: Finalized, nodes: Mapping[int, Release | None]) -> Iterable[str]:
    for node_id, release in sorted(nodes.items()):
        if release is None:
            yield f"node {node_id} is unreachable: its release is not known"
        elif lacks := release.lacks(target):
            yield f"node {node_id}: {lacks}"


def command(target: Finalized) -> pb.FinalizeUpgrade:
    """Makes the command; the metadata group's leader adds the releases of the nodes."""
    return pb.FinalizeUpgrade(version=target.version, features=sorted(target.features))


def node_releases(nodes: Mapping[int, Release | None]) -> list[pb.NodeRelease]:
    return [
        pb.NodeRelease(
            node_id=node_id,
            release=release.name,
            oldest_version=release.versions.oldest,
            newest_version=release.versions.newest,
            features=sorted(release.features),
        )
        for node_id, release in sorted(nodes.items())
        if release is not None
    ]


def check(
    upgrade: pb.FinalizeUpgrade, finalized: Finalized, registered: Iterable[int]
) -> Finalized:
    """Returns the agreed version and features after the command. Raises Rejected."""
    target = Finalized(upgrade.version, frozenset(upgrade.features))
    if target.version < finalized.version:
        text = f"{target.version} is below the cluster's, {finalized.version}: it never falls"
        raise invalid("version", text)
    missing = sorted(finalized.features - target.features)
    if missing:
        raise invalid("features", f"{', '.join(missing)} cannot be turned off")
    releases: dict[int, Release | None] = dict.fromkeys(registered)
    releases |= {node.node_id: _release(node) for node in upgrade.nodes}
    hindered = list(_hindrances(target, releases))
    if hindered:
        raise Rejected(NOT_SUPPORTED, "the upgrade cannot be finalized: " + "; ".join(hindered))
    return target


def _release(node: pb.NodeRelease) -> Release:
    versions = Versions(node.oldest_version, node.newest_version)
    return Release(node.release, versions, frozenset(node.features))
