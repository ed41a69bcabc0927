"""Nodes as Kafka's clients see them: the brokers, and the leader of a partition.

    metadata, offsets, topics --> Brokers --> kafka addresses that the nodes registered

A node without a Kafka address is no broker: its partitions have no leader until another leads.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.config.addresses import host_and_port
from cluster.metadata.topics import PartitionState
from cluster.services.context import NodeContext
from oncelog.wire.foundings import founding_text

NO_NODE = -1
EPOCHS_OF_A_GROUP = 1000
_MAX_EPOCH = (1 << 31) - 1


class Broker(NamedTuple):
    """A node that serves Kafka's clients."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """A partition's leader (NO_NODE: none is known that serves Kafka's clients), and its epoch."""

    node_id: int
    epoch: int


class Brokers:
    """The brokers, as one node knows them."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    @property
    def cluster_id(self) -> str:
        """Return the cluster's name and founding: of another founding, it is another cluster."""
        return f"{self._node.config.cluster_id}-{founding_text(self._node.founding)}"

    def all(self) -> list[Broker]:
        """Return all brokers, by id; this node is among them before it has registered."""
        config, view = self._node.config, self._node.metadata.membership
        known = {**view.kafka, config.node_id: config.kafka_advertised}
        racks = {node: place.rack for node, place in view.places.items()}
        return [
            Broker(node, *host_and_port(at), racks.get(node) or None)
            for node, at in sorted(known.items())
        ]

    def find(self, node_id: int) -> Broker | None:
        config = self._node.config
        if node_id == config.node_id:
            return Broker(node_id, *host_and_port(config.kafka_advertised))
        at = self._node.metadata.membership.kafka.get(node_id)
        return Broker(node_id, *host_and_port(at)) if at else None

    @property
    def controller_id(self) -> int:
        """Return the metadata's leader, or this node: any node makes changes."""
        leader = self._node.controller_id
        return leader if self.find(leader) is not None else self._node.config.node_id

    def leader_of(self, group_id: int) -> Leader:
        node_id, term = self._node.leader_of(group_id)
        known = self.find(node_id) is not None
        return Leader(node_id if known else NO_NODE, _epoch(group_id, term))

    def epoch_of(self, group_id: int) -> int:
        """Return the epoch of the group's leader."""
        return _epoch(group_id, self._node.leader_of(group_id)[1])

    def in_sync(self, partition: PartitionState) -> list[int]:
        """Return the replicas that count and have a node that answers, the leader among them."""
        leader = self._node.leader_of(partition.group_id)[0]
        alive = self._node.alive
        return [one for one in partition.replicas
                if one == leader or (one in partition.counting and alive(one))]  # fmt: skip

    def offline(self, partition: PartitionState) -> list[int]:
        return [one for one in partition.replicas if not self._node.alive(one)]


def _epoch(group_id: int, term: int) -> int:
    """Return the leader's epoch, which rises with its term, and with a topic made again.

    Clients ignore a leader of a lower epoch than they know. The terms of a topic that is made
    again begin at 1, but its groups have higher ids.
    """
    return (group_id * EPOCHS_OF_A_GROUP + term) & _MAX_EPOCH
