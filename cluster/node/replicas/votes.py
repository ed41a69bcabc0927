"""Votes on the metadata: the choice of its leader, from the answers of the other nodes.

    places, answers, learners without a gap --MetadataVotes--> nodes that shall vote --> changes.py

The choice is stored nowhere: the next leader makes it again from its own observations.
"""

from __future__ import annotations

from collections.abc import Collection

from cluster.consensus.group import Group
from cluster.consensus.port import Clock
from cluster.metadata.nodes import NodesView
from cluster.metadata.voters import MOST, wanted

SILENT = 30.0  # seconds after which another node votes in place of one that does not answer


class MetadataVotes:
    """The nodes that shall vote on the metadata, as its leader at this node chooses them.

    most, silent: see metadata/voters.py, and SILENT.
    """

    def __init__(self, clock: Clock, most: int = MOST, silent: float = SILENT) -> None:
        self.most = most
        self._clock = clock
        self._silent = silent
        self._term = 0  # of this node as the leader; `_heard` is of it
        self._heard: dict[int, float] = {}  # voter -> when it answered last

    def choose(self, group: Group, target: Collection[int], view: NodesView) -> tuple[int, ...]:
        """Returns the nodes that shall vote. target: all that shall hold the metadata."""
        members = group.members
        voters = [one.node for one in members.configuration.voters]
        fit = [one for one in members.learners if not group.why_no_vote(one)]
        living = {*self._living(group), *fit} - {*view.leaving}
        return wanted(target, voters, living, view.spread, self.most)

    def _living(self, group: Group) -> Collection[int]:
        """Return the voters that were not silent for long, or not since this node leads."""
        now = self._clock()
        if self._term != group.term:
            self._term = group.term
            self._heard = {}
        self._heard = {
            voter: now if group.is_responsive(voter) else self._heard.get(voter, now)
            for voter in group.members.voters
        }
        silent = {voter for voter, at in self._heard.items() if now - at >= self._silent}
        return {group.config.node_id, *self._heard} - silent
