"""Metadata of topics: partition counts, leaders, limits. Pure.

Place in the flow: `cluster` feeds it with DescribeTopics answers, the sender and the fetcher with
NOT_LEADER hints; they ask it for addresses. News of an older term never replaces that of a newer
one, so a lagging node cannot send a client back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from oncelog.types import TopicPartition
from oncelog.v1 import cluster_pb2

DEFAULT_MAX_BATCH_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class KnownLeader:
    node_id: int = 0
    address: str = ""  # "": not known
    term: int = -1
    # A rejecting node named this leader, without a term: another node may know better.
    hinted: bool = False
    # The node that rejected; "": none, or its hint has been doubted since.
    refused: str = ""
    replicas: tuple[int, ...] = ()
    added: bool = False  # after the topic's creation


@dataclass(slots=True)
class TopicView:
    name: str
    topic_id: int
    max_batch_bytes: int
    partitions: list[KnownLeader] = field(default_factory=list)


class LeaderCache:
    def __init__(self) -> None:
        self.nodes: dict[int, str] = {}
        self.racks: dict[int, str] = {}  # "": the node has no such label
        self.topics: dict[str, TopicView] = {}
        # Partitions without an address, and partitions without a leader in the last answer of their
        # term or a later one.
        self.leaderless: set[TopicPartition] = set()
        # Nodes to which the last connection failed, and no later one succeeded.
        self.unreachable: set[str] = set()

    def update(self, answer: cluster_pb2.DescribeTopicsResponse) -> list[TopicPartition]:
        """Take over an answer; return the partitions with a new leader."""
        for node in answer.nodes:
            if node.address:
                self.nodes[node.node_id] = node.address
                self.racks[node.node_id] = node.rack
        changed: list[TopicPartition] = []
        for topic in answer.topics:
            view = self.topics.get(topic.name)
            if view is not None and topic.topic_id < view.topic_id:
                continue  # the node has not learned of its deletion: ids only rise
            if view is None or view.topic_id != topic.topic_id:
                # Deleted and created again: terms start from the beginning.
                view = TopicView(topic.name, topic.topic_id, DEFAULT_MAX_BATCH_BYTES)
                self.leaderless = {tp for tp in self.leaderless if tp.topic != topic.name}
            if topic.config.max_batch_bytes:
                view.max_batch_bytes = topic.config.max_batch_bytes
            missing = max((p.partition + 1 for p in topic.partitions), default=0)
            missing -= len(view.partitions)
            if missing > 0:  # a lagging node names fewer; partitions never become fewer
                # All at once: another thread places keys by the count.
                view.partitions = [*view.partitions, *(KnownLeader() for _ in range(missing))]
            self.topics[topic.name] = view
            for info in topic.partitions:
                tp = TopicPartition(topic.name, info.partition)
                if self._update_leader(tp, view.partitions[info.partition], info):
                    changed.append(tp)
        return changed

    def _update_leader(
        self, tp: TopicPartition, leader: KnownLeader, info: cluster_pb2.PartitionInfo
    ) -> bool:
        leader.replicas, leader.added = tuple(info.replicas), info.added_ms > 0
        address = self.nodes.get(info.leader_id, "")
        if info.term < leader.term:
            return False
        if not address:
            # The known address stays: this node may be the one that is cut off.
            self.leaderless.add(tp)
            return False
        if info.term == leader.term and leader.address:
            if address == leader.refused:
                return False  # it led in this term, and does not lead now
            if not leader.hinted:
                # Same term, same leader; but its address may be news.
                address = address if info.leader_id == leader.node_id else leader.address
        changed = leader.address != address
        leader.node_id = info.leader_id if changed else leader.node_id
        leader.address, leader.term = address, info.term
        leader.hinted, leader.refused = False, ""
        self.leaderless.discard(tp)
        return changed

    def hint(self, tp: TopicPartition, node_id: int, address: str) -> bool:
        """Take over the leader that a rejecting node named."""
        leader = self.leader(tp)
        if leader is None or not address:
            return False
        self.nodes.setdefault(node_id, address)
        changed = leader.address != address
        if changed:
            leader.refused, leader.hinted = leader.address, True
        leader.node_id, leader.address = node_id, address
        self.leaderless.discard(tp)
        return changed

    def suspect(self, tp: TopicPartition) -> None:
        """Doubt the named leader, which rejected and named none; any node's answer replaces it."""
        leader = self.leader(tp)
        if leader is not None:
            leader.refused = ""

    def forget(self, tp: TopicPartition, address: str) -> None:
        """Forget that this node leads the partition."""
        leader = self.leader(tp)
        if leader is not None and leader.address == address:
            leader.address = leader.refused = ""
            leader.hinted = False
            self.leaderless.add(tp)

    def gone(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that their topics lack: they had them before they were recreated."""
        counts = {name: len(view.partitions) for name, view in self.topics.items()}
        return [tp for tp in tps if tp.partition >= counts.get(tp.topic, tp.partition + 1)]

    def leader(self, tp: TopicPartition) -> KnownLeader | None:
        view = self.topics.get(tp.topic)
        if view is None or not 0 <= tp.partition < len(view.partitions):
            return None
        return view.partitions[tp.partition]

    def is_available(self, tp: TopicPartition) -> bool:
        """Tell whether it has a known leader that can be reached."""
        if not self.leaderless and not self.unreachable:
            return True  # the usual case: each batch of records without a key asks
        address = self.address(tp)
        return bool(address) and tp not in self.leaderless and address not in self.unreachable

    def lacking(self) -> tuple[set[str], set[str]]:
        """Return topics to ask for again, and nodes to connect to again."""
        if not self.leaderless and not self.unreachable:
            return set(), set()
        used = {one.address for view in self.topics.values() for one in view.partitions}
        self.unreachable &= used
        return {tp.topic for tp in self.leaderless}, set(self.unreachable)

    def address(self, tp: TopicPartition) -> str:
        leader = self.leader(tp)
        return leader.address if leader else ""
