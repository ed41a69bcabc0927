"""Follower of the metadata on this node: opens and closes replicas, passes settings on.

MetadataMachine.apply --after the round--> MetadataFollower.follow --> Replicas, producer ids
                                                                  --> commit index, checkpoint

It records at once that the applied metadata is committed. A restarted node applies it before it
has heard from a leader, and answers NOT_LEADER for a partition, not "unknown topic".
Checkpoints only save work, so they take a small part of the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.consensus.driver import Driver
from cluster.metadata.events import LayoutChanged
from cluster.metadata.state import (
    MetadataState,
    SettingsChanged,
    TermsChanged,
    TopicAltered,
    UpgradeFinalized,
)
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.replicas.replicas import Replicas

log = logging.getLogger(__name__)

SAVE_PERIOD = 1.0  # seconds between two checkpoints, at least
SAVED_BYTES_PER_S = 100_000  # so checkpoints take about a twentieth of the time


class MetadataFollower:
    """Follows one node's copy of the metadata.

    on_lease_lifetime(ms): leases have become shorter.
    on_upgrade(version): the cluster version is this from now on.
    on_layout(): topics or nodes came or went.
    """

    def __init__(
        self,
        metadata: MetadataState,
        replicas: Replicas,
        driver: Driver,
        clock: Callable[[], float],
        on_lease_lifetime: Callable[[int], None],
        on_upgrade: Callable[[int], None],
        on_layout: Callable[[], None],
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._driver = driver
        self._on_lease_lifetime = on_lease_lifetime
        self._on_upgrade = on_upgrade
        self._on_layout = on_layout
        self._clock = clock
        self._next_save = float("-inf")

    def follow(self) -> None:
        """Bring the node to the applied metadata. Not inside a round of the driver."""
        events = self._metadata.take_events()
        if not events:
            return
        if any(isinstance(event, UpgradeFinalized) for event in events):
            self._on_upgrade(self._metadata.finalized.version)
        self._replicas.reconcile(self._metadata.tables.take_touched())
        terms_changed = any(isinstance(event, TermsChanged) for event in events)
        if any(isinstance(event, SettingsChanged) for event in events):
            log.info("the cluster's settings are %s", dict(self._metadata.settings))
        policies = (TermsChanged, TopicAltered, SettingsChanged)
        if any(isinstance(event, policies) for event in events):
            self._replicas.apply_settings()
        if terms_changed:
            self._on_lease_lifetime(self._metadata.lease_lifetime_ms)
        if any(isinstance(event, LayoutChanged) for event in events):
            self._on_layout()
        self._save()

    def _save(self) -> None:
        group, now = self._driver.groups.get(METADATA_GROUP), self._clock()
        if group is None or group.failed is not None:
            return
        group.journal.save_commit(group.applied_index)
        if now >= self._next_save:
            group.checkpoints.save()
            seconds = group.checkpoints.state_bytes / SAVED_BYTES_PER_S
            self._next_save = now + max(SAVE_PERIOD, seconds)
        self._driver.touch(METADATA_GROUP)
