"""The starts of a simulated node, as its data directory knows them, by the real rules."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.features import PLACES, REPLICA_CHANGES
from cluster.metadata.registrations import RegistrationClaim
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.disk import Disk

if TYPE_CHECKING:
    from tests.sim.node import Node

PERIOD = 0.25


@dataclass(frozen=True, slots=True)
class Stored:
    """Registrations in the directory: the confirmed one, its number, and the begun one."""

    known: int = 0
    number: int = 0
    begun: int = 0


class Registering:
    """Registrations of one node. Off, unless its settings ask for them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.is_on = node.cluster.settings.registers
        self.stored, self.takes_part = Stored(), True
        self._fresh = False  # whether this start has begun a registration of its own
        self.refused = self.is_copy = False

    def started(self) -> None:
        """A process begins."""
        if self.is_on:
            self.takes_part = not self.stored.begun
            self._fresh = False
            self._register(self._node.incarnation)

    def wipe(self) -> None:
        """The directory is lost."""
        self.stored, self.is_copy = Stored(), False

    def says_so(self) -> bool:
        """Tells the node's partitions whether this start takes part."""
        return self.takes_part

    def claim(self) -> RegistrationClaim:
        stored = self.stored
        return RegistrationClaim(stored.begun, stored.known, stored.number, self._node.incarnation)

    def copied(self) -> tuple[Disk, Stored]:
        """Copies the directory."""
        return copy.deepcopy(self._node.disk), self.stored

    def put_back(self, taken: tuple[Disk, Stored]) -> None:
        """Puts the copy in the directory's place, while the node is down."""
        assert not self._node.alive
        self.is_copy = True
        self._node.volume.disk, self.stored = copy.deepcopy(taken[0]), taken[1]
        self._node.cluster.checker.disk_lost(self._node.id, self._node.disk)

    def _begin(self) -> None:
        begun = self._node.cluster.rng.getrandbits(63) | 1
        self.stored = Stored(self.stored.known, self.stored.number, begun)

    def _register(self, incarnation: int) -> None:
        node, scheduler = self._node, self._node.cluster.scheduler
        if incarnation != node.incarnation or not node.alive:
            return
        state, stored = node.running.state, self.stored
        if not stored.begun and not state.features.is_on(REPLICA_CHANGES):
            scheduler.after(PERIOD, self._register, incarnation)
            return
        last = state.membership.registration_of(node.id)
        if last is not None and last.id == stored.begun:
            self.stored = Stored(stored.begun, last.number, stored.begun)
            if self._fresh:
                self.takes_part = True
                return
        if not self._fresh and self.stored.begun == self.stored.known:
            self._fresh = True
            self._begin()
        command = mpb.RegisterNode(
            node_id=node.id, address=node.joining.config.advertised,
            directory_id=node.joining.directory_id,
            registration=self.stored.begun, known_registration=self.stored.known,
            incarnation=incarnation,
            rack=node.cluster.racks.get(node.id, "") if state.features.is_on(PLACES) else "",
        )  # fmt: skip
        node.cluster.command(mpb.MetadataCommand(register_node=command), self._answered)
        scheduler.after(PERIOD, self._register, incarnation)

    def _answered(self, result: bytes) -> None:
        self.refused = mpb.MetadataResult.FromString(result).error == "FENCED"
