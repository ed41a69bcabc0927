"""Steps that bring each group to its target nodes, one after the other.

    metadata: target --> ReplicaChanges at the leader --ConfigurationChange--> the group's log
    metadata <--ReportReplicas-- in force there

Each step follows from the configuration in force and the target, so the next leader continues
after the last one. The next step waits until the last one is reported: the report tells nodes
which replicas to open and to close.

The metadata group itself goes the same way: its leader brings it to all nodes of the cluster. Where
learners may stay, only the nodes of `votes.py` vote.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from cluster.consensus.configuration import (
    MAX_VOTERS,
    ChangeRefusedError,
    ChangeStep,
    Configuration,
    ConfigurationChange,
)
from cluster.consensus.driver import Driver
from cluster.consensus.group import Group
from cluster.consensus.survivor import is_unconfirmed
from cluster.features import METADATA_LEARNERS
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState
from cluster.node.replicas.replicas import PlacementView
from cluster.node.replicas.votes import MetadataVotes
from cluster.v1 import metadata_pb2 as mpb

log = logging.getLogger(__name__)

MAX_LEARNERS = 50  # that this node's leaders fill at a time, of all partitions together

Done = Callable[[], None]
Propose = Callable[[mpb.MetadataCommand, Done], None]


class ReplicaChanges:
    """Changes of the groups that this node leads.

    propose(command, done): to the metadata group; `done` is called once, in any case.
    directory_of: of a node's data directory.
    votes: on the metadata.
    waiting: group -> why its next step was not taken.
    """

    def __init__(
        self,
        driver: Driver,
        metadata: PlacementView,
        directory_of: Callable[[int], int],
        propose: Propose,
        votes: MetadataVotes,
    ) -> None:
        self._driver = driver
        self._metadata = metadata
        self._directory_of = directory_of
        self._propose = propose
        self._votes = votes
        self._reporting: set[int] = set()
        self._learners = 0
        self.waiting: dict[int, str] = {}

    def look(self) -> None:
        """Take the next steps, periodically, between two rounds of the driver."""
        self.waiting.clear()
        self._learners = sum(
            len(group.members.learners)
            for gid, group in self._driver.groups.items()
            if group.is_ready and gid != METADATA_GROUP
        )
        for gid, group in self._driver.groups.items():
            if len(group.members.configuration.voters) == 2:
                self._look_at_two(gid, group)
            if not group.is_ready:
                continue
            if gid == METADATA_GROUP:
                self._look_at_metadata(group)
                continue
            found = self._metadata.partition(gid)
            if found is not None and (found[2].target or group.members.version):
                self._look(gid, group, found[2])

    def _look_at_metadata(self, group: Group) -> None:
        view = self._metadata.membership
        now = group.members.configuration
        may_learn = self._metadata.features.is_on(METADATA_LEARNERS)
        if not view.is_changing and not (may_learn and len(now.voters) > self._votes.most):
            return
        learners = {one.node for one in now.learners}
        if may_learn and now.version == view.own.version and learners != {*view.learners}:
            self._report(METADATA_GROUP, group)  # it was reported before learners could stay
            return
        target = view.own_target()
        votes = self._votes.choose(group, target, view) if may_learn else target
        self._look(METADATA_GROUP, group, replace(view.own, target=target), votes)

    def _look(
        self,
        gid: int,
        group: Group,
        record: PartitionState,
        votes: Collection[int] = (),
    ) -> None:
        now = group.members.configuration
        leader, is_responsive = group.config.node_id, group.is_responsive
        damaged = [one[:2] for one in record.damaged if one.rebuild]
        change = next_change(now, record.target, leader, is_responsive, record.lost, damaged, votes)
        reached = gid != METADATA_GROUP and record.target and change is None and not damaged
        if change is None and self._confirms(group):
            change = (
                ChangeStep.CONFIRM,
                leader,
            )  # before the report: the leaving replica is still there
        elif now.version > record.version or not record.replicas or reached:
            self._report(gid, group)
            return
        if change is None or now.version < record.version:
            return  # this copy of the metadata, or this leader, is behind
        step, node = change
        if step is ChangeStep.ADD and node in self._metadata.membership.expected:
            self.waiting[gid] = f"node {node} has not come with its new data directory yet"
            return
        if step is ChangeStep.ADD and self._learners >= MAX_LEARNERS:
            self.waiting[gid] = f"{self._learners} other replicas are filled by this node"
            return
        directory = self._directory_of(node) if step is ChangeStep.ADD else 0
        try:
            group.change(
                ConfigurationChange(step, node, now.version, directory), lambda outcome: None
            )
        except ChangeRefusedError as error:
            self.waiting[gid] = str(error)
            return
        self._learners += step is ChangeStep.ADD
        log.info("%s of node %d partition=%s, now %s", step.value, node, group.name, now)
        self._driver.touch(gid)

    def _confirms(self, group: Group) -> bool:
        """Return whether two moved voters both answer, so that either is known to have all."""
        unconfirmed = is_unconfirmed(group.members, group.journal.configurations)
        return unconfirmed and all(map(group.is_responsive, group.members.voters))

    def _look_at_two(self, gid: int, group: Group) -> None:
        """Remove a lost or damaged one of two: the other has everything."""
        if gid == METADATA_GROUP:
            gone = self._metadata.membership.lost
        else:
            found = self._metadata.partition(gid)
            gone = () if found is None else found[2].to_remove
        if not gone:
            return
        why_not = group.exclude_lost(gone)
        if why_not:
            self.waiting[gid] = why_not
        self._driver.touch(gid)

    def _report(self, gid: int, group: Group) -> None:
        if gid in self._reporting:
            return
        placed = group.members.placed
        now = placed.configuration
        command = mpb.MetadataCommand(
            report_replicas=mpb.ReportReplicas(
                group_id=gid,
                version=now.version,
                index=placed.index,
                index_term=placed.term,
                voters=[one.node for one in now.voters],
                learners=[one.node for one in now.learners],
                instances=[one.instance for one in now.voters + now.learners],
            )
        )
        self._reporting.add(gid)
        self._propose(command, lambda: self._reporting.discard(gid))


def next_change(
    now: Configuration,
    target: Collection[int],
    leader: int,
    is_responsive: Callable[[int], bool],
    lost: Collection[tuple[int, int]] = (),
    damaged: Collection[tuple[int, int]] = (),
    votes: Collection[int] = (),
) -> tuple[ChangeStep, int] | None:
    """Return the step from `now` towards `target`; None: it is reached, or there is none.

    votes: the nodes of `target` that shall vote; empty: all.
    A replica is added before one is removed, so that no majority gets smaller. Exceptions:
    - A silent voter goes as soon as a learner can replace it: three of four with one dead bear no
      further loss. With `votes` it waits while an even number votes, less than shall: without it
      commits would be on fewer disks.
    - A lost (node, instance) on a target node goes first, then a damaged one. That may still vote
      after a restart, so it goes when the others are a majority without it. If it answers, it is
      sound again: it stays until the replica being filled has its vote.
    - A learner may always go.
    - A group with as many voters as it may have takes one more only when one has gone.
    """
    if not target:
        return None
    voters = [one.node for one in now.voters]
    for one in now.learners + now.voters:
        if (one.node, one.instance) in lost and (one.node in target or one in now.learners):
            return ChangeStep.REMOVE, one.node
    learners = [one.node for one in now.learners]
    living = {node for node in voters if node == leader or is_responsive(node)}
    marked = [one.node for one in now.learners + now.voters if (one.node, one.instance) in damaged]
    if any(node in target and node not in marked for node in learners):
        marked = [node for node in marked if node not in living]
    for node in marked:
        left = [one for one in voters if one != node]
        if len(living - {node}) > len(left) // 2:
            return ChangeStep.REMOVE, node
    for node in learners:
        if node not in target:
            return ChangeStep.REMOVE, node
    if marked:
        return None
    may_go = not votes or len(voters) % 2 == 1 or len(voters) >= len(votes)
    votes = votes or target
    leaving = [node for node in voters if node not in votes]
    leaving.sort(key=lambda node: (node == leader, node in living))  # the leader goes last
    coming = [node for node in learners if node in votes]
    coming.sort(key=lambda node: not is_responsive(node))
    if coming:
        is_full = len(voters) >= MAX_VOTERS
        if leaving and len(voters) > 2 and (is_full or (may_go and leaving[0] not in living)):
            return _without_vote(leaving[0], target)
        return ChangeStep.PROMOTE, coming[0]
    for node in target:
        if now.member(node) is None:
            return ChangeStep.ADD, node
    return _without_vote(leaving[0], target) if leaving else None


def _without_vote(node: int, target: Collection[int]) -> tuple[ChangeStep, int]:
    return (ChangeStep.DEMOTE if node in target else ChangeStep.REMOVE), node
