"""Reports of this node's replicas that stopped for damage, so that they are rebuilt.

    Replicas: failed, not opened --> Repairs --RepairReplica--> metadata --> leaders of the groups
    Replicas <-- another instance -- metadata (cluster/metadata/repairs.py)

Only damage counts: an error of storage, or a state that is not the others'. Any other error
that stops a replica would stop the next one, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from cluster.consensus.configuration import CONFIGURATION
from cluster.consensus.group import Group
from cluster.consensus.state_check import StateDivergedError
from cluster.metadata.repairs import damage_of, marked_ms, may_stay
from cluster.node.replicas.changes import Propose
from cluster.node.replicas.replicas import PlacementView, Replicas
from cluster.v1 import metadata_pb2 as mpb
from storage.errors import CorruptionError

log = logging.getLogger(__name__)

ASK_AGAIN = 5.0  # seconds, while the metadata does not know it
NEVER = float("-inf")
HELD = 600.0  # seconds; a replica rebuilt too often may be rebuilt again a day later


@dataclass(slots=True)
class _Found:
    """A stopped replica: its instance, when it was seen, when it was last reported."""

    instance: int
    since: float
    said: float = NEVER


class Repairs:
    """Damage reports of one node.

    delay: seconds that a replica is left as it stopped, for inspection; 0: for ever.
    propose(command, done): to the metadata group; `done` is called once, in any case.
    asked: how many rebuilds this node has asked for since it started.
    """

    def __init__(
        self,
        node_id: int,
        delay: float,
        replicas: Replicas,
        metadata: PlacementView,
        clock: Callable[[], float],
        propose: Propose,
    ) -> None:
        self._node_id = node_id
        self._delay = delay
        self._clock = clock
        self._replicas = replicas
        self._metadata = metadata
        self._propose = propose
        self._found: dict[int, _Found] = {}
        self._saying: set[int] = set()
        self.asked = 0

    def look(self) -> None:
        """Report damage, periodically, between two rounds of the driver."""
        if not self._delay or not self._metadata.features.may_write(CONFIGURATION):
            return
        stopped = self.stopped()
        for gid in self._found.keys() - stopped.keys():
            del self._found[gid]
        for gid, instance in stopped.items():
            self._stopped(gid, instance)
        for gid in self._replicas.by_group.keys() - stopped.keys():
            self._sound(gid)

    def stopped(self) -> dict[int, int]:
        """Return the groups whose replica here has stopped for damage, with its instance."""
        found = {
            gid: partition.group.config.instance
            for gid, partition in [
                *self._replicas.by_group.items()
            ]  # the metrics' thread asks, too
            if isinstance(partition.group.failed, CorruptionError | StateDivergedError)
        }
        for gid, broken in [*self._replicas.broken.items()]:
            if isinstance(broken.error, CorruptionError) and broken.instance is not None:
                found[gid] = broken.instance
        return found

    def _stopped(self, gid: int, instance: int) -> None:
        now, record = self._clock(), self._metadata.partition(gid)
        found = self._found.get(gid)
        if found is None or found.instance != instance:
            found = self._found[gid] = _Found(instance, now)
        if record is None or self._node_id not in record[2].replicas:
            return  # it is removed already
        known = damage_of(record[2], self._node_id)
        again = ASK_AGAIN if known is None else HELD
        is_due = now - found.since >= self._delay and now - found.said >= again
        if not is_due or (known is not None and known.rebuild):
            return
        if found.said == NEVER:
            name = f"{record[0].name}-{record[1]}"
            log.warning("damaged replica: to be rebuilt partition=%s group=%d", name, gid)
            self.asked += 1
        found.said = now
        self._say(gid, instance, sound=False)

    def _sound(self, gid: int) -> None:
        """Report a replica that was not removed, and opened after a restart, as sound."""
        record, group = self._metadata.partition(gid), self._replicas.by_group[gid].group
        known = None if record is None else damage_of(record[2], self._node_id)
        if record is None or known is None or known.instance != group.config.instance:
            return
        if not may_stay(record[2], self._node_id) or (known.rebuild and _is_one_of_two(group)):
            return
        if group.failed is None and gid not in self._saying:
            marked = marked_ms(record[2], self._node_id)
            self._say(gid, known.instance, sound=True, marked=marked)

    def _say(self, gid: int, instance: int, *, sound: bool, marked: int = 0) -> None:
        command = mpb.RepairReplica(
            group_id=gid, node_id=self._node_id, instance=instance, sound=sound, marked_ms=marked
        )
        self._saying.add(gid)
        self._propose(
            mpb.MetadataCommand(repair_replica=command), lambda: self._saying.discard(gid)
        )


def _is_one_of_two(group: Group) -> bool:
    """Return whether this replica is, or will be, one of two voters: the other may go on alone.

    Two voters are in force only when both have that on their disks: so this replica knows it,
    however far behind the metadata is.
    """
    newest = group.journal.configurations[-1].configuration
    return 2 in (len(newest.voters), len(group.members.configuration.voters))
