"""Periodic work of a node: snapshots, preferred leaders, retention.

    MaintenanceLoop (a node), scheduler (the simulator) --timers--> Maintenance --work--> groups

Plain calls between two rounds of the driver; nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from cluster.consensus.driver import Driver
from cluster.consensus.group import Group
from cluster.consensus.message import Snapshot
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.health.node_health import successor
from cluster.node.leadership.handover import MAX_HANDOVERS
from cluster.node.leadership.preferred_leader import PreferredLeader
from cluster.node.replicas.replicas import PlacementView, Replicas
from cluster.partition.replica import Partition
from storage.errors import StorageError

log = logging.getLogger(__name__)

CAUGHT_UP_ENTRIES = 8  # a preferred leader this little behind may take over

TransferDone = Callable[[bool, str], None]  # whether it was installed, the error
Transfer = Callable[[int, Snapshot, TransferDone], None]


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """preferred_leader_delay: seconds that a preferred leader is linked before it leads again,
    and that it waits after a loss; more after each further one, see PreferredLeader.

    metadata_entries: entries kept for followers that are a little behind.
    """

    node_id: int
    preferred_leader_delay: float
    metadata_entries: int


class Maintenance:
    """The periodic work of one node.

    linked_since: node -> when its link came up, by `clock`.
    clocks: agreement of this node's clock with others'.
    transfer(peer, snapshot, done): sends a snapshot; `done` is called once.
    clean: begins a cleaning of a compacted partition, if one is due.
    """

    def __init__(
        self,
        settings: MaintenanceSettings,
        driver: Driver,
        replicas: Replicas,
        metadata: PlacementView,
        clock: Callable[[], float],
        linked_since: Mapping[int, float],
        clocks: ClockAgreement,
        transfer: Transfer,
        clean: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._linked_since = linked_since
        self._clocks = clocks
        self._transfer = transfer
        self._clean = clean
        self._sending: set[tuple[int, int]] = set()
        self._preferred: dict[int, PreferredLeader] = {}  # group -> its preferred node

    # -- often ------------------------------------------------------------------------

    def look(self) -> None:
        """Compare clocks, begin due transfers, restore preferred leaders."""
        self._compare_clocks()
        if self._replicas.incomplete:
            self._replicas.reconcile()
        under_way = sum(group.is_transferring for group in self._driver.groups.values())
        drained = self._settings.node_id in self._metadata.membership.drained
        for gid, group in self._driver.groups.items():
            while group.snapshots_due:
                peer = group.snapshots_due.pop()
                if (gid, peer) not in self._sending:
                    self._send_snapshot(gid, peer, group)
            if not self._clocks.agreed:
                self._hand_over(gid, group)
            elif not drained:
                self._restore_preferred_leader(gid, group)
            elif group.is_leader and not group.is_transferring and under_way < MAX_HANDOVERS:
                self._hand_over(gid, group)
                under_way += group.is_transferring
        for gid in self._preferred.keys() - self._driver.groups.keys():
            del self._preferred[gid]

    def _compare_clocks(self) -> None:
        group = self._driver.groups.get(METADATA_GROUP)
        if group is not None:
            self._clocks.compare_with(group.members.voters, self._asked(group))
        self._clocks.look()

    def _asked(self, metadata: Group) -> Collection[int]:
        """Return the nodes to ask beside the voters: all, or the followers of this node."""
        if metadata.members.is_voter:
            return metadata.members.learners
        led = (group for group in self._driver.groups.values() if group.is_leader)
        return {peer for group in led for peer in group.members.peers}

    def _hand_over(self, gid: int, group: Group) -> None:
        """Hand over from a node that may not lead: its clock is wrong, or it is drained."""
        away = {*self._clocks.wrong, *self._metadata.membership.drained}
        target = 0 if group.is_transferring else successor(group, away, self._clocks.sick)
        if target:
            group.transfer(target)
            self._driver.touch(gid)

    def _send_snapshot(self, gid: int, peer: int, group: Group) -> None:
        """Send a snapshot, one transfer of a group at a time to each peer."""
        index = group.journal.base_index

        def done(installed: bool, error: str = "") -> None:
            if error:
                log.warning("snapshot not sent partition=%s peer=%d: %s", group.name, peer, error)
            self._sending.discard((gid, peer))
            group.snapshot_sent(peer, index, installed)
            if self._driver.groups.get(gid) is group:
                self._driver.touch(gid)

        def read(outcome: Snapshot | Exception) -> None:
            if isinstance(outcome, Exception):
                done(False, repr(outcome))
                if gid in self._replicas.by_group and isinstance(outcome, StorageError):
                    self._replicas.by_group[gid].unreadable(outcome)
                return
            log.info("sending snapshot partition=%s peer=%d index=%d", group.name, peer, index)
            self._transfer(peer, outcome, done)

        self._sending.add((gid, peer))
        self._driver.reads.ask(gid, group.base_reading(peer), read)

    def _restore_preferred_leader(self, gid: int, group: Group) -> None:
        """Let a partition's preferred node lead again once it has been back for a while."""
        found = self._metadata.partition(gid)
        if found is None or found[2].replicas[0] == self._settings.node_id:
            return
        preferred, now = found[2].replicas[0], self._clock()
        delay = self._settings.preferred_leader_delay
        if gid not in self._preferred:
            self._preferred[gid] = PreferredLeader(delay)
        record = self._preferred[gid]
        if group.is_transferring:
            return
        if group.leader_id:
            record.seen(now, leads=group.leader_id == preferred)
        since = self._linked_since.get(preferred)
        if not group.is_ready or since is None or now - since < delay:
            return
        away = (self._clocks.wrong, self._clocks.sick, self._metadata.membership.drained)
        if any(preferred in nodes for nodes in away):
            return
        if not record.may_return(now):
            return
        # A silent or hung node, or one with a full disk, would block proposals.
        behind = group.follower_lag().get(preferred, CAUGHT_UP_ENTRIES + 1)
        if behind <= CAUGHT_UP_ENTRIES and group.is_responsive(preferred):
            group.transfer(preferred)
            record.handed_over(now)
            self._driver.touch(gid)

    # -- now and then ------------------------------------------------------------------

    def retain(self) -> None:
        """Apply retention as the leader, producers' leases, retention of own logs, and cleaning."""
        for partition in list(self._replicas.by_group.values()):
            self._retain(partition)
        group = self._driver.groups.get(METADATA_GROUP)
        if group is not None:
            self._compact_metadata(group)
        self._clean()

    def _retain(self, partition: Partition) -> None:
        group = partition.group
        if group.failed is not None:
            return
        try:
            partition.retain()
            partition.compact()
        except StorageError as error:
            log.warning("retention was not done partition=%s: %s", group.name, error)
            partition.unreadable(error)

    def _compact_metadata(self, group: Group) -> None:
        """Keep the metadata log short."""
        kept = self._settings.metadata_entries
        if group.applied_index - group.journal.base_index > 2 * kept:
            group.checkpoints.save()
            group.checkpoints.compact(group.applied_index - kept)
            self._driver.touch(METADATA_GROUP)
