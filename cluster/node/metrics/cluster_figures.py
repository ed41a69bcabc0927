"""Metrics of a node's place in its cluster: leaders, moves, links, certificates, repairs.

    Node's parts --> ClusterFigures --MetricFamily--> the page

A thread of the page's server asks, so each table is copied before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cluster.consensus.group import Group
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.metrics.text import GAUGE, MetricFamily, counter, gauge, labels
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.leadership.leaders import Leaders
from cluster.node.links.peers import Peers
from cluster.node.replicas.repairs import Repairs
from cluster.partition.replica import Partition


class ClusterFigures:
    """Figures of one node. alive: whether this node hears another; True for itself.

    capacity: producers that a partition's last-seen map holds.
    """

    def __init__(
        self,
        metadata: MetadataState,
        groups: Mapping[int, Group],
        replicas: Mapping[int, Partition],
        leaders: Leaders,
        peers: Peers,
        clocks: ClockAgreement,
        repairs: Repairs,
        alive: Callable[[int], bool],
        capacity: int,
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._replicas = replicas
        self._leaders = leaders
        self._peers = peers
        self._clocks = clocks
        self._repairs = repairs
        self._alive = alive
        self._capacity = capacity

    def families(self) -> Iterator[MetricFamily]:
        yield gauge(
            "oncelog_metadata_leader",
            "1 where this node leads the metadata",
            int(self._groups[METADATA_GROUP].is_leader),
        )
        yield gauge(
            "oncelog_metadata_voter",
            "1 where this node votes on the metadata; in a large cluster the others learn",
            int(self._groups[METADATA_GROUP].members.is_voter),
        )
        records = [one for topic in self._metadata.topics() for one in topic.partitions]
        leaders = [self._leaders.leader_of(one.group_id)[0] for one in records]
        yield gauge(
            "oncelog_partitions_leaderless",
            "Partitions of the cluster without a leader, as far as this node knows",
            sum(leader == 0 or not self._alive(leader) for leader in leaders),
        )
        yield gauge(
            "oncelog_partition_producers_limit",
            "Producers that a partition's last-seen map holds",
            self._capacity,
        )
        yield gauge(
            "oncelog_moves_pending",
            "Partitions of the cluster with replicas to add or remove",
            sum(bool(one.target) for one in records),
        )
        yield gauge(
            "oncelog_move_left_bytes",
            "Estimated bytes that leaders here have to copy to new replicas",
            sum(_left(partition) for partition in [*self._replicas.values()]),
        )
        yield gauge(
            "oncelog_replicas_damaged",
            "Replicas here that stopped for damage",
            len(self._repairs.stopped()),
        )
        yield counter(
            "oncelog_replica_repairs_total",
            "Damaged replicas that are being rebuilt",
            self._repairs.asked,
        )
        yield from self._link_families()

    def _link_families(self) -> Iterator[MetricFamily]:
        links = [(labels(node=node), link) for node, link in [*self._peers.links.items()]]
        yield MetricFamily(
            "oncelog_link_up",
            GAUGE,
            "1 while the link to the node is up",
            [(key, int(link.up)) for key, link in links],
        )
        yield MetricFamily(
            "oncelog_link_queued_messages",
            GAUGE,
            "Messages that wait to be sent to the node",
            [(key, link.queued) for key, link in links],
        )
        yield MetricFamily(
            "oncelog_link_round_trip_seconds",
            GAUGE,
            "Round trip of the newest comparison of clocks with the node",
            [(labels(node=node), seconds) for node, seconds in self._clocks.round_trips().items()],
        )


def _left(partition: Partition) -> float:
    """Estimate the bytes that this leader's learners lack, by the entries they lack."""
    group = partition.group
    if not group.members.learners:
        return 0.0
    first, last = group.journal.base_index, group.commit_index
    each = partition.machine.stored.stored_bytes / max(1, last - first)
    progress, learners = group.progress, group.members.learners
    return sum(
        each * max(0, last - max(first, progress[node].match))
        for node in learners
        if node in progress
    )
