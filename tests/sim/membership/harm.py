"""Groups of a run that lost more disks than they bear, and groups that an answer gave up.

A harmed group may stand still for ever; a group that was given up keeps no promise any more.
All other groups keep theirs: at the end they serve. Without the metadata group nothing moves, so
their records are looked for on the disks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import StrEnum

from cluster.metadata import nodes as rules
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from tests.sim.checker import Violation
from tests.sim.cluster import Cluster
from tests.sim.membership.nodes import bears_loss, check_disks, is_done, records_of
from tests.sim.membership.seeds import check_topics

TOLD = re.compile(r"the records of (.*)-(\d+) are lost")
TWO_CLUSTERS = "one side's are lost"


class Unrest(StrEnum):
    """Reason for a run to end without the check that its groups are at rest."""

    LOST = "lost disk that the metadata needed"
    NOBODY_LED = "lost disk while nobody led the metadata"
    REMOVED = "removal beside a lost disk"
    TOLD = "told of two clusters"
    FOUNDED = "founded anew by the first nodes"


class Harm:
    """Harm of one run.

    groups: that may stand still. unrest: why the metadata group may, and with it all changes.
    ends: whether two clusters may come of this one, each with its records, as an answer said.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.groups: set[int] = set()
        self.unrest: set[Unrest] = set()
        self.ends = False

    @property
    def is_stuck(self) -> bool:
        """Tells whether the metadata group may stand still, and so all changes."""
        return bool(self.unrest)

    def may_stand_still(self, groups: Collection[int], why: Unrest) -> None:
        """Expects no rest of these groups any more."""
        self.groups.update(groups)
        if METADATA_GROUP in groups:
            self.unrest.add(why)

    def of_loss(self, state: MetadataState | None, number: int, lost: Collection[int]) -> set[int]:
        """Returns the groups that do not bear the loss of this node's disk now.

        state: the metadata's, if somebody leads it. lost: nodes without a disk that counts.
        """
        if state is None:
            return {METADATA_GROUP, *self.cluster.checker.logs}
        copies = {one.id for one in self.cluster.nodes.values() if one.registering.is_copy}
        void = {*lost, *copies}
        held = self._held(state)
        return {
            gid
            for gid, nodes in held.items()
            if number in nodes and (nodes & void or not bears_loss(self.cluster, state, gid))
        }

    def _held(self, state: MetadataState) -> dict[int, set[int]]:
        """Returns the nodes that may hold each group: as it is reported, wished or in force."""
        own = state.membership.own
        held = {METADATA_GROUP: {*(own.replicas or self.cluster.founding)}}
        for gid, record in records_of(state).items():
            held[gid] = {*record.replicas, *record.target}
        for node in self.cluster.live():
            for gid, machine in node.machines.items():
                if gid in held and machine.group is not None:
                    now = machine.group.members.configuration
                    held[gid] |= {one.node for one in now.voters + now.learners}
        return held

    def told(self, state: MetadataState, said: Iterable[str]) -> None:
        """Takes an answer of a node: it names partitions that lose their records."""
        for line in said:
            self.ends = self.ends or TWO_CLUSTERS in line
            found = TOLD.match(line)
            if found is not None:
                topic = state.tables.topics[found[1]]
                self.forgive(topic.partitions[int(found[2])].group_id)
        if self.ends:
            self.may_stand_still({METADATA_GROUP, *self.cluster.checker.logs}, Unrest.TOLD)

    def gives_up(self, state: MetadataState, number: int) -> None:
        """Takes the decision that this node's directory never counts again, whatever ends."""
        for gid, record in records_of(state).items():
            if number in record.replicas and not rules.goes_on(record, number):
                self.forgive(gid)

    def forgive(self, gid: int) -> None:
        """Expects nothing of the group any more."""
        self.groups.add(gid)
        self.cluster.checker.deleted.add(gid)

    def forgives(self, error: Violation) -> bool:
        """Tells whether an answer announced this: two clusters. A lost partition is no cause."""
        return self.ends and isinstance(error.__cause__ or error, Violation)

    def is_over(self, *, is_mended: bool) -> bool:
        """Tells whether the groups that are not harmed are at rest, once disks are replaced."""
        return self.is_stuck or (is_mended and is_done(self.cluster, self.groups))

    def check_end(self) -> None:
        """Checks the groups that are not harmed."""
        if not self.is_stuck:
            check_topics(self.cluster, self.groups)
            return
        check_disks(self.cluster, self.groups)
