"""This node's own faults that keep it from serving, for /readyz.

    Node: server, clocks, driver, replicas --> Readiness.faults --> Probes

A thread of the probes' server asks, so it copies each table before it goes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Protocol

from cluster.consensus.group import Group
from cluster.consensus.replication import KEEPS_UP
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.health.node_health import Sync

FAR_BEHIND = 64  # entries of the leader that a replica here lacks
SETTLING = 5.0  # seconds after a start in which replicas must hear their leaders


class ReadyServer(Protocol):
    """Server for clients. `rpc.Server` is one."""

    is_serving: bool


class AgreedClock(Protocol):
    """This node's clock. `ClockAgreement` is one."""

    @property
    def disagrees(self) -> bool: ...


class WritableDisk(Protocol):
    """The store's writer. `Driver` is one."""

    @property
    def storage_full(self) -> bool: ...


class Readiness:
    """groups: with a replica here. broken: replicas here that could not be opened."""

    def __init__(
        self,
        clock: Callable[[], float],
        server: ReadyServer,
        clocks: AgreedClock,
        disk: WritableDisk,
        sync: Sync,
        groups: Mapping[int, Group],
        broken: Sized,
    ) -> None:
        self._clock = clock
        self._started = clock()
        self._settled = False  # later a missing leader is the others' fault
        self._server = server
        self._clocks = clocks
        self._disk = disk
        self._sync = sync
        self._groups = groups
        self._broken = broken

    def faults(self) -> Iterator[str]:
        """Yield each fault in plain words, without names."""
        if not self._server.is_serving:
            yield "it does not serve clients: it is not registered yet, or hands over"
        if self._clocks.disagrees:
            yield "its wall clock is not the one a majority agrees on: set the clock"
        if self._disk.storage_full:
            yield "its disk is full: make space"
        if self._sync.hangs:
            yield f"its disk has not finished an fsync for {self._sync.under_way:.0f} seconds"
        yield from self._replica_faults()

    def _replica_faults(self) -> Iterator[str]:
        groups = [*self._groups.values()]
        damaged = sum(one.failed is not None for one in groups) + len(self._broken)
        # A node of a large cluster never votes in the metadata group, and is complete.
        filled = sum(
            not (one.members.is_voter or one.is_stopped or one.config.group == METADATA_GROUP)
            for one in groups
        )
        behind = sum(_is_far_behind(one) for one in groups)
        if damaged:
            yield f"{_replicas(damaged)} stopped after a fault: see `oncelog cluster health`"
        if filled:
            yield f"{_replicas(filled)} still being filled"
        if behind:
            yield f"{_replicas(behind)} more than {FAR_BEHIND} entries behind the leader"
        alone = sum(one.leader_id == 0 and not one.is_stopped for one in groups)
        self._settled |= not alone or self._clock() - self._started >= SETTLING
        if not self._settled:
            yield f"{_replicas(alone)} without a leader since the start"


def _is_far_behind(group: Group) -> bool:
    """Tells so of a learner of the metadata from KEEPS_UP on: it gets as many at once (ADR 136)."""
    learns = group.config.group == METADATA_GROUP and not group.members.is_voter
    limit = KEEPS_UP if learns else FAR_BEHIND
    return group.entries_behind > limit and not group.is_stopped


def _replicas(count: int) -> str:
    return "1 replica here is" if count == 1 else f"{count} replicas here are"
