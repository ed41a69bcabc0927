"""Differences between nodes, and a machine's effects on its node.

varied   settings of its own: timeouts, caches, the lease's lifetime as its copy has it
Volume   the place of its store: it may not be mounted when the node starts
Load     the cost of each round of its loop, by the work that was in it
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from storage.errors import MissingStoreError
from storage.identity import DirectoryLock, Identity, StoreState
from storage.system import SYSTEM
from tests.sim.disk import Disk

if TYPE_CHECKING:
    from tests.sim.node import Node, Settings


def varied(settings: Settings, rng: random.Random) -> Settings:
    """Varies settings, as another operator or an older copy of the metadata would have them."""
    longer = rng.uniform(0.8, 1.4)
    return replace(
        settings,
        election_timeout=settings.election_timeout * longer,
        heartbeat=settings.heartbeat * longer * rng.uniform(0.5, 1.0),
        checkpoint_entries=rng.choice((8, 20, 60, 1000)),
        checkpoint_node_bytes=rng.choice((20 * 17 * 1024, 1 << 40)),
        tail_bytes=rng.choice((0, 500, 4000, 100_000)),
        lease_ms=int(settings.lease_ms * rng.uniform(0.5, 1.5)),
        clock_bound_ms=rng.choice((5000, 10_000, 20_000)),
        sync_time=rng.choice((0.001, 0.01, 0.05)),
    )


class Volume:
    """A node's identity, which is always there, and its disk, which may not be mounted.

    Whether a node starts without its store is decided by the real `DirectoryLock`.
    """

    def __init__(self, node_id: int) -> None:
        self.disk = Disk()
        self._lost: Disk | None = None
        self._is_made = False  # whether there is a store on the disk
        self._identity = Identity("sim", node_id, node_id, StoreState.NONE)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def unmount(self) -> None:
        """Unmounts the volume; an empty one is in its place."""
        assert self._lost is None
        self._lost, self.disk, self._is_made = self.disk, Disk(), False

    def mount(self) -> None:
        """Mounts the volume with its old contents."""
        if self._lost is not None:
            self.disk, self._lost, self._is_made = self._lost, None, True

    def open(self) -> None:
        """Checks the store's place, as a node does before it opens it. Raises MissingStoreError."""
        place: Any = _Place(exists=self._is_made)
        DirectoryLock(place, self._identity, -1, SYSTEM).check_store(place)
        self._is_made = True
        self._identity = replace(self._identity, store=StoreState.MADE)


class _Place:
    """A path with all of its files, or none."""

    def __init__(self, *, exists: bool) -> None:
        self._exists = exists

    def __truediv__(self, part: str) -> _Place:
        return self

    def exists(self) -> bool:
        return self._exists


class Load:
    """Counts the work of a node's rounds: messages, and entries that were applied."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # for each
        self._applied = 0

    def of_round(self, node: Node, messages: int) -> float:
        """Seconds that the round just ended keeps the loop busy."""
        groups = [machine.group for machine in node.machines.values()]
        applied = sum(group.applied_index for group in groups if group is not None)
        done = messages + max(0, applied - self._applied)
        self._applied = applied
        return done * self.seconds


def opens(node: Node) -> bool:
    """Tells whether the node may open its store."""
    try:
        node.volume.open()
    except MissingStoreError:
        node.cluster.trace("node %d does not start without its store", node.id)
        return False
    return True
