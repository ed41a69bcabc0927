"""Mutations of the feature gate."""

from __future__ import annotations

from typing import Any

from cluster.features import Features
from cluster.metadata import upgrade
from cluster.metadata.state import MetadataState
from tests.sim.mutations import mutation


@mutation("writers do not ask the gate")
def gate_not_asked() -> Any:
    return [(Features, "is_on", lambda self, feature: True)]


@mutation("an upgrade is finalized whatever the nodes run")
def upgrade_without_all_nodes() -> Any:
    return [(upgrade, "_hindrances", lambda target, nodes: ())]


@mutation("an older release goes on beyond an upgrade")
def upgrade_skipped_by_old_release() -> Any:
    return [(MetadataState, "_check_release", lambda self, finalized: None)]
