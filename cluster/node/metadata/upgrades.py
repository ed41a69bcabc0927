"""This node's part in raising the cluster version: obstacles, and automatic finalization.

    links' Hellos --> Upgrades.plan --> services (shown), metrics
    Founding.watch --> Upgrades.due --FinalizeUpgrade--> MetadataProposer, on the leader

A new cluster is at the newest version from its first command on. An upgraded cluster stays at
the older version until an operator finalizes it, or until all nodes have run the newer
release for `upgrade_auto_finalize_ms` without a break, as the leader of the metadata saw it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.features import THIS_RELEASE, Finalized, Release
from cluster.metadata import upgrade
from cluster.metadata.state import MetadataState
from cluster.node.links.peers import Peers
from cluster.v1 import metadata_pb2 as mpb
from storage.identity import DirectoryLock

log = logging.getLogger(__name__)


class Upgrades:
    """The nodes' releases, as this node's links say.

    auto_finalize: seconds; 0: never.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataState,
        peers: Peers,
        clock: Callable[[], float],
        auto_finalize: float,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._clock = clock
        self._auto_finalize = auto_finalize
        self._ready: tuple[Finalized, float] | None = None  # the target, and since when

    def release_of(self, node_id: int) -> Release | None:
        """Return a node's release; None if there is no link to it."""
        return THIS_RELEASE if node_id == self._node_id else self._peers.release_of(node_id)

    def plan(self) -> upgrade.Plan:
        return upgrade.plan(self._metadata.finalized, self._releases())

    def complete(self, command: mpb.FinalizeUpgrade) -> None:
        """Add each node's release to the leader's command."""
        del command.nodes[:]
        command.nodes.extend(upgrade.node_releases(self._releases()))

    def founding(self) -> mpb.FinalizeUpgrade | None:
        """Return the upgrade that precedes a new cluster's first command, to the newest version.

        None: the cluster is not new, or a node that is linked runs an older release.
        """
        if self._metadata.nodes or self._metadata.finalized != Finalized():
            return None
        plan = self.plan()
        return upgrade.command(plan.target) if plan.is_ready else None

    def due(self, *, leads: bool) -> mpb.FinalizeUpgrade | None:
        """Return the upgrade for the metadata's leader to finalize by itself, if it is due."""
        plan = self.plan()
        if not (leads and plan.is_ready and self._auto_finalize):
            self._ready = None
            return None
        now = self._clock()
        if self._ready is None or self._ready[0] != plan.target:
            self._ready = (plan.target, now)
            log.info(
                "all nodes can go to cluster version %d: finalized in %d s",
                plan.target.version,
                self._auto_finalize,
            )
        if now - self._ready[1] < self._auto_finalize:
            return None
        self._ready = (plan.target, now)  # once more after the same time, should it fail
        return upgrade.command(plan.target)

    def _releases(self) -> dict[int, Release | None]:
        """Return the releases of registered nodes, and of linked nodes that will register."""
        nodes = {self._node_id, *self._metadata.nodes, *self._peers.linked_since}
        return {node_id: self.release_of(node_id) for node_id in sorted(nodes)}


def keep_version(lock: DirectoryLock, version: int) -> None:
    """Record the version so that an older release does not open the directory."""
    try:
        lock.note_cluster_version(version)
    except OSError as error:
        log.error("cluster version %d could not be noted in the directory: %s", version, error)
    else:
        log.info("the cluster is at version %d", version)
