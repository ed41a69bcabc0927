"""Does on this node what the metadata says: opens and closes replicas, passes settings on.

MetadataMachine.apply --after the round--> MetadataFollower.follow --> Replicas, producer ids
                                                                  --> checkpoint

What it followed is saved at once: a node that starts again knows its topics before it has
heard from a leader what is committed, and says NOT_LEADER of a partition, not that there is
no such topic.
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
from cluster.node.replicas import METADATA_GROUP, Replicas

log = logging.getLogger(__name__)


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
        on_lease_lifetime: Callable[[int], None],
        on_upgrade: Callable[[int], None],
        on_layout: Callable[[], None],
    ) -> None:
        self._metadata, self._replicas, self._driver = metadata, replicas, driver
        self._on_lease_lifetime, self._on_upgrade = on_lease_lifetime, on_upgrade
        self._on_layout = on_layout

    def follow(self) -> None:
        """Brings the node to what is applied by now. Not inside a round of the driver."""
        events = self._metadata.take_events()
        if not events:
            return
        if any(isinstance(event, UpgradeFinalized) for event in events):
            self._on_upgrade(self._metadata.finalized.version)
        self._replicas.reconcile()
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
        group = self._driver.groups.get(METADATA_GROUP)
        if group is not None and group.failed is None:
            group.checkpoints.save()
            self._driver.touch(METADATA_GROUP)
