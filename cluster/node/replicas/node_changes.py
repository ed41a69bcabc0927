"""Changes of nodes, made by the metadata's leader as nodes come or go.

It moves the replicas of a leaving node, then forgets the node. When nodes come, internal topics
get replicas up to their target.

    metadata: leaving --> NodeChanges --SetReplicas--> metadata --> ReplicaChanges of the leaders
                              '--------ChangeNode FORGET-->  when nothing is left there

Each look plans anew from the metadata, so the next leader continues after the last one. At most
MAX_MOVES partitions of the whole cluster move at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable

from cluster.config.node_config import DEFAULT_REPLICAS
from cluster.consensus.driver import Driver
from cluster.consensus.group import Group
from cluster.features import REPLICA_CHANGES
from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.placement import NO_PLACES, best
from cluster.metadata.places import Spread
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import INTERNAL_TOPICS, PartitionState, TopicState, is_internal
from cluster.node.replicas.changes import Propose
from cluster.node.replicas.replicas import PlacementView
from cluster.v1 import metadata_pb2 as mpb

log = logging.getLogger(__name__)

MAX_MOVES = 50  # partitions that have a target, of the whole cluster


class NodeChanges:
    """Node changes of one node; acts only while the node leads the metadata.

    propose(command, done): to the metadata group; `done` is called once, in any case.
    """

    def __init__(
        self,
        driver: Driver,
        metadata: PlacementView,
        propose: Propose,
        replicas: int = DEFAULT_REPLICAS,
    ) -> None:
        """replicas: of internal topics, at most one per node."""
        self._driver = driver
        self._metadata = metadata
        self._propose = propose
        self._replicas = replicas
        self._asked: set[tuple[str, int]] = set()  # commands in progress

    def look(self) -> None:
        """Plan and propose, periodically, between two rounds of the driver."""
        group = self._driver.groups.get(METADATA_GROUP)
        view = self._metadata.membership
        if group is None or not group.is_ready:
            return
        own, holders = group.config.node_id, view.holders()
        living = {node for node in holders if node == own or group.is_responsive(node)}
        if view.leaving:
            topics = self._metadata.topics()
            wanted = moves(topics, holders, view.leaving, living, view.spread, view.loads)
        else:
            wanted = self._grown(living)
        for record, target in wanted:
            move = mpb.SetReplicas(
                group_id=record.group_id, replicas=target, expected_version=record.version
            )
            self._ask("move", record.group_id, mpb.MetadataCommand(set_replicas=move))
        for node in sorted(view.leaving):
            gone = bool(view.own.replicas) and node not in view.own.replicas
            if gone and not view.holds(node) and _all_know(group):
                forget = mpb.ChangeNode(node_id=node, action=mpb.NODE_ACTION_FORGET)
                self._ask("forget", node, mpb.MetadataCommand(change_node=forget))

    def _grown(self, living: Collection[int]) -> list[tuple[PartitionState, list[int]]]:
        found = [topic for name in INTERNAL_TOPICS if (topic := self._metadata.topic(name))]
        least = min((len(one.replicas) for topic in found for one in topic.partitions), default=9)
        most = min(self._replicas, len(living))
        if least >= most or not self._metadata.features.is_on(REPLICA_CHANGES):
            return []
        view = self._metadata.membership
        return internal_growth(self._metadata.topics(), living, most, view.spread, view.loads)

    def _ask(self, what: str, number: int, command: mpb.MetadataCommand) -> None:
        key = (what, number)
        if key not in self._asked:
            self._asked.add(key)
            self._propose(command, lambda: self._asked.discard(key))


def moves(
    topics: Iterable[TopicState],
    holders: Collection[int],
    leaving: Collection[int],
    living: Collection[int],
    spread: Spread = NO_PLACES,
    loads: NodeLoads | None = None,
) -> list[tuple[PartitionState, list[int]]]:
    """Return the partitions on leaving nodes, with their new replicas.

    They go to living nodes first (a move to a dead node waits for it), then to those that keep the
    partition spread over racks and machines, then, in a large cluster, to those that share
    partitions with its other nodes, then to the least loaded. loads: changed as they go.
    Internal topics get fewer replicas if no other node is left.
    """
    loads = loads or NodeLoads()
    known = list(topics)
    internal = {one.group_id for t in known if is_internal(t.name) for one in t.partitions}
    records = [record for topic in known for record in topic.partitions]
    load = Counter(node for record in records for node in record.placed)
    free = MAX_MOVES - sum(bool(record.target) for record in records)
    found: list[tuple[PartitionState, list[int]]] = []
    for record in records:
        target = list(record.placed)
        if not any(node in leaving for node in target):
            continue
        if not record.target and free <= 0:
            continue
        stay = [node for node in target if node not in leaving]
        for place, node in enumerate(target):
            spare = [one for one in holders if one not in target]
            if node in leaving and spare:
                near = best(spare, living, spread, stay, len(target), loads)
                target[place] = min(near, key=lambda one: (load[one], one))
                load[target[place]] += 1
                stay.append(target[place])
        if record.group_id in internal:
            target = [node for node in target if node not in leaving] or target
        if target != list(record.placed):
            loads.add(record.placed, times=-1)
            loads.add(target)
            free -= not record.target
            found.append((record, target))
    return found


def internal_growth(
    topics: Iterable[TopicState],
    living: Collection[int],
    most: int,
    spread: Spread = NO_PLACES,
    loads: NodeLoads | None = None,
) -> list[tuple[PartitionState, list[int]]]:
    """Return internal partitions with too few replicas, and the replicas to add.

    A cluster that began with one node would keep its groups' offsets at one. No partition loses
    replicas: a node that is down comes back.
    """
    loads = loads or NodeLoads()
    known = list(topics)
    records = [record for topic in known for record in topic.partitions]
    load = Counter(node for record in records for node in record.placed)
    free = MAX_MOVES - sum(bool(record.target) for record in records)
    found: list[tuple[PartitionState, list[int]]] = []
    for record in (one for topic in known if is_internal(topic.name) for one in topic.partitions):
        if record.target or record.to_remove or len(found) >= free:
            continue
        grown = list(record.replicas)
        spare = set(living) - {*grown}
        while spare and len(grown) < most:
            near = best(spare, spare, spread, grown, most, loads)
            grown.append(min(near, key=lambda one: (load[one], one)))
            spare.discard(grown[-1])
        if len(grown) > len(record.replicas):
            load.update(grown[len(record.replicas) :])
            loads.add(record.placed, times=-1)
            loads.add(grown)
            found.append((record, grown))
    return found


def _all_know(group: Group) -> bool:
    """Return whether all voters know the configuration in force: none needs a proof of it."""
    members = group.members
    return all(group.progress[node].version >= members.version for node in members.voters)
