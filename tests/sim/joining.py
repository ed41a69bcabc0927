"""How a simulated node with a new directory comes into its cluster: it asks any node, by the
real rules, until it has an instance. A process runs only from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.node.joining import welcome
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from tests.sim.disk import Disk
from tests.sim.machines import Volume

if TYPE_CHECKING:
    from tests.sim.node import Node

ASK_PERIOD = 0.4
FOUNDING = 7  # the number that all members share
NEXT_DIRECTORY = 100  # a new one has a number of which the last digits are the node


class Joining:
    """Of one node. directory, instance: what its identity says."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.directory, self.instance = node.id, 0
        self.is_done = node.id in node.cluster.founding
        self._asks = False

    def start(self) -> None:
        if not self._asks:
            self._asks = True
            self._node.cluster.scheduler.after(ASK_PERIOD, self._ask)

    def wipe(self) -> None:
        """The disk is lost, and what it had promised; a new directory is in its place."""
        node, cluster = self._node, self._node.cluster
        if node.alive:
            node.crash("disk lost")
        node.volume = Volume(node.id)
        node.volume.disk = Disk()
        node.cluster_version = 1
        node.lives.wipe()
        self.directory += NEXT_DIRECTORY
        self.instance, self.is_done = 0, False
        cluster.checker.disk_lost(node.id, node.disk)
        cluster.trace("node %d has an empty disk", node.id)

    def _ask(self) -> None:
        node, cluster = self._node, self._node.cluster
        self._asks = False
        if self.is_done or node.alive:
            return
        self.start()
        asked = cluster.rng.choice([one for one in cluster.node_ids if one != node.id])
        peer = cluster.nodes[asked]
        there = peer.process is not None and cluster.scheduler.now >= peer.paused_until
        links = cluster.network.links
        if not there or links[node.id, asked].blocked or links[asked, node.id].blocked:
            return
        metadata = peer.running.metadata
        assert metadata is not None and metadata.group is not None
        join = pb.Join(
            cluster_id="sim", node_id=node.id, directory_id=self.directory,
            address=f"node{node.id}:1", peer_address=f"node{node.id}:2",
        )  # fmt: skip
        answer, command = welcome(
            join, peer.running.state, metadata.group.members, tuple(cluster.founding), FOUNDING
        )
        if command is not None:
            cluster.command(mpb.MetadataCommand(join_node=command), lambda result: None)
        if answer.instance:
            self.instance, self.is_done = answer.instance, True
            cluster.trace("node %d joins as instance %d", node.id, self.instance)
            node.start()
