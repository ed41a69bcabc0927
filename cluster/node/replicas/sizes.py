"""Sizes of each replica of the cluster, for the balance and moves; also lagging replicas.

ReplicaSizes.ask --Request--> ReplicaSizes.here of each node --> node -> group -> bytes
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from cluster.consensus.group import Group
from cluster.consensus.leader_term import WITHIN_ENTRIES
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.links.peers import Peers
from cluster.partition.replica import Partition
from cluster.transport.calls import PeerCallError
from cluster.transport.versions import REQUESTS
from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

ASK_TIMEOUT = 2.0  # seconds

Sizes = Mapping[int, Mapping[int, int]]  # node -> group -> bytes


class ReplicaSizes:
    """Replica sizes, as asked by one node.

    partitions: its own, by group. waiting: group -> why this node, which leads it, does not change
    its replicas now; `reasons`: of all nodes, when they were asked last.
    lags: (group, node) -> committed entries that its replica lacks, if they are many, as the
    leaders said when they were asked last. Of the metadata: learners that are not filled.
    """

    def __init__(
        self,
        node_id: int,
        partitions: Mapping[int, Partition],
        peers: Peers,
        waiting: Callable[[], Mapping[int, str]],
        metadata: Group,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._waiting = waiting
        self.reasons: dict[int, str] = {}
        self.lags: dict[tuple[int, int], int] = {}

    def alive(self, node: int) -> bool:
        return node == self._node_id or self._peers.up(node)

    def here(self) -> pb.DescribeReplicasResponse:
        held = self._partitions
        sizes = [partition.machine.stored.stored_bytes for partition in held.values()]
        lags = [
            pb.ReplicaLag(group=gid, node_id=node, entries=lag)
            for gid, partition in held.items()
            for node, lag in _lags(partition.group)
            if lag > WITHIN_ENTRIES
        ]
        lags += [
            pb.ReplicaLag(group=METADATA_GROUP, node_id=node, entries=lag)
            for node, lag in _lags(self._metadata)
            if node in self._metadata.members.learners
            and not self._metadata.progress[node].is_filled
            and self._metadata.why_no_vote(node)
        ]
        return pb.DescribeReplicasResponse(
            groups=list(held), bytes=sizes, waiting=dict(self._waiting()), lags=lags
        )

    async def ask(self) -> Sizes:
        """Return the sizes of this node and of those that answer."""
        nodes = [node for node in self._peers.links if self._peers.up(node)]
        answers = await asyncio.gather(*(self._ask(node) for node in nodes))
        found = {node: one for node, one in zip(nodes, answers, strict=True) if one is not None}
        found[self._node_id] = self.here()
        self.reasons = {group: why for one in found.values() for group, why in one.waiting.items()}
        self.lags = {
            (lag.group, lag.node_id): lag.entries for one in found.values() for lag in one.lags
        }
        return {node: _sizes(one) for node, one in found.items()}

    async def _ask(self, node: int) -> pb.DescribeReplicasResponse | None:
        link = self._peers.links[node]
        if link.version < REQUESTS["describe_replicas"]:
            return None  # from an older release
        request = pb.Request(describe_replicas=pb.DescribeReplicasRequest())
        try:
            async with asyncio.timeout(ASK_TIMEOUT):
                response = await link.ask(request)
        except (PeerCallError, TimeoutError) as error:
            log.info("node %d did not say how much it holds: %s", node, error)
            return None
        return response.describe_replicas


def largest(held: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Map each group to its fullest replica's bytes: others may still be filled."""
    found: dict[int, int] = {}
    for sizes in held:
        for group, size in sizes.items():
            found[group] = max(size, found.get(group, 0))
    return found


def _lags(group: Group) -> Iterable[tuple[int, int]]:
    """Yield each follower's lag, if the group is led here."""
    return ((node, group.commit_index - one.match) for node, one in group.progress.items())


def _sizes(answer: pb.DescribeReplicasResponse) -> dict[int, int]:
    return dict(zip(answer.groups, answer.bytes, strict=True))
