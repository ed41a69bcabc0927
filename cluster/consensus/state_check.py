"""Comparison of all replicas' states, at indexes that the leader names ahead.

    leader, before it appends --CheckpointAt(index)--> followers
    each, when it has applied that entry: a checkpoint --StateChecksum--> all others
    note() --> nothing, or StateDivergedError: this replica stops

Replicas save checkpoints at indexes of their own, which cannot be compared. So the leader names the
index of an entry that nobody has yet, and all save there instead of a little later. Lost messages
are not sent again: the next comparison replaces them.
"""

from __future__ import annotations

import logging
from collections import Counter

from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.configuration import Members
from cluster.consensus.environment import GroupConfig
from cluster.consensus.journal import Journal
from cluster.consensus.message import StateChecksum

log = logging.getLogger(__name__)

KEPT = 4  # indexes of which reports are kept: one of the others may be behind
_SOONER = 0.75  # of the log after which a replica saves by itself


class StateDivergedError(Exception):
    """This replica's state at `index` differs from the others'."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


class StateCheck:
    """One replica's part. at: its next index to save and report; 0: none."""

    def __init__(
        self, config: GroupConfig, journal: Journal, checkpoints: Checkpoints, members: Members
    ) -> None:
        self._config = config
        self._journal = journal
        self._checkpoints = checkpoints
        self._members = members
        self.at = self._unreported = 0
        self._since = (journal.applied_index, checkpoints.applied_bytes)
        self._reports: dict[int, dict[int, int]] = {}  # index -> node -> checksum

    # -- where ------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether the leader should name an index."""
        config, (index, size) = self._config, self._since
        return not self._members.is_alone and (
            self._checkpoints.applied_bytes - size >= _SOONER * config.checkpoint_bytes
            or self._journal.applied_index - index >= _SOONER * config.checkpoint_entries
        )

    def plan(self, index: int) -> None:
        """Plans the comparison at `index`; too late if that is applied here already."""
        if index > self._journal.applied_index:
            self.at = index
            self._since = (index, self._checkpoints.applied_bytes)

    # -- reports ----------------------------------------------------------------------

    def save(self) -> None:
        """Begins to save the state at the applied index, which is `at`."""
        self.at, self._unreported = 0, self.at
        self._checkpoints.save()

    def report(self, term: int) -> StateChecksum | None:
        """Counts the saved state; returns the report to send once it is written."""
        if not self._unreported or self._checkpoints.is_saving:
            return None
        wanted, self._unreported = self._unreported, 0
        index, checksum = self._checkpoints.saved
        if index != wanted:
            return None  # it could not be saved
        self.note(self._config.node_id, index, checksum)
        return StateChecksum(self._config.group, term, index, checksum)

    def note(self, node: int, index: int, checksum: int) -> None:
        """Notes `node`'s state. Raises StateDivergedError if this replica is wrong, or may be."""
        reports = self._reports.setdefault(index, {})
        reports[node] = checksum
        while len(self._reports) > KEPT:
            del self._reports[min(self._reports)]
        own = reports.get(self._config.node_id)
        if own is None or len(set(reports.values())) == 1:
            return
        replicas = len({*self._members.voters, self._config.node_id})
        (most, count), *_ = Counter(reports.values()).most_common(1)
        if 2 * count > replicas:
            if own != most:
                text = f"the state at index {index} is not that of {count} of {replicas} replicas"
                raise StateDivergedError(index, text)
            others = sorted(peer for peer, said in reports.items() if said != own)
            log.error("partition=%s index=%d: the state of nodes %s is not the majority's",
                      self._config.name, index, others)  # fmt: skip
        elif len(reports) == replicas:
            text = f"the states of {replicas} replicas at index {index} differ, without a majority"
            raise StateDivergedError(index, text)
        else:
            log.error("partition=%s index=%d: states differ, not all replicas have said theirs: %s",
                      self._config.name, index, sorted(reports))  # fmt: skip
