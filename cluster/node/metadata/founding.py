"""First commands of a new cluster: its version, and its settings.

MetadataProposer, on the leader --before each command--> Founding.commands --> metadata group

`commands` is empty once they are applied. A cluster that was upgraded gets its settings right
after the upgrade that brings them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from cluster.config.node_config import NodeConfig
from cluster.consensus.group import Group
from cluster.errors import ClusterError, ConfigError
from cluster.features import CLUSTER_SETTINGS
from cluster.metadata.settings import SETTINGS, differences
from cluster.metadata.state import MetadataState
from cluster.node.metadata.upgrades import Upgrades
from cluster.v1 import metadata_pb2 as mpb

log = logging.getLogger(__name__)

LOOK_PERIOD = 1.0  # seconds


class CommandProposer(Protocol):
    """Takes metadata commands. `MetadataProposer` is one."""

    group: Group

    async def propose(self, command: mpb.MetadataCommand, timeout: float) -> mpb.MetadataResult: ...


class Founding:
    """settings: this node's, with which it founds the cluster's if it leads then."""

    def __init__(self, config: NodeConfig, metadata: MetadataState, upgrades: Upgrades) -> None:
        self._config = config
        self._metadata = metadata
        self.upgrades = upgrades
        self.settings: Mapping[str, int] = {name: getattr(config, name) for name in SETTINGS}
        self._said: list[str] = []

    def check_own(self) -> None:
        """Raises ConfigError if a setting differs from the cluster's, or `join` is missing."""
        alone = self._names_nobody()
        if alone:
            raise ConfigError(alone)
        different = self._different()
        if different:
            raise ConfigError(
                "; ".join(different) + ". It is the cluster's to say: leave it out of this node's "
                "settings, and change it with `oncelog cluster config set`"
            )

    def _names_nobody(self) -> str:
        """Return why this node may not start again with its settings; empty: it may.

        With an empty disk it would found another cluster of this name.
        """
        config, state = self._config, self._metadata
        others = {node: at for node, at in state.nodes.items() if node != config.node_id}
        if config.join or len(config.nodes) > 1 or not others:
            return ""
        return (
            f"join: the cluster has grown, and this node's settings name no other node: with an "
            f"empty data directory it would found another cluster. Set join to "
            f"{','.join(others[node] for node in sorted(others))}"
        )

    def _different(self) -> list[str]:
        given = {n: value for n, value in self.settings.items() if n in self._config.given}
        return differences(given, self._metadata.settings)

    def commands(self) -> list[mpb.MetadataCommand]:
        commands, features = [], self._metadata.finalized.features
        upgrade = self.upgrades.founding()
        if upgrade is not None:
            commands.append(mpb.MetadataCommand(finalize_upgrade=upgrade))
            features = frozenset(upgrade.features)
        if CLUSTER_SETTINGS in features and not self._metadata.settings:
            settings = [mpb.ClusterSetting(name=n, value=v) for n, v in self.settings.items()]
            found = mpb.FoundClusterSettings(settings=settings)
            commands.append(mpb.MetadataCommand(found_cluster_settings=found))
        return commands

    async def watch(self, proposer: CommandProposer, timeout: float) -> None:
        """Propose due upgrades and founding commands periodically, on the leader."""
        while True:
            await asyncio.sleep(LOOK_PERIOD)
            self._report()
            leads = proposer.group.is_ready
            due = self.upgrades.due(leads=leads)
            if due is not None:
                await _proposed(proposer, mpb.MetadataCommand(finalize_upgrade=due), timeout)
            elif leads and self._metadata.nodes and self.commands():
                # An empty command is enough: the founding commands precede any command.
                await _proposed(proposer, mpb.MetadataCommand(), timeout)

    def _report(self) -> None:
        """Warn of a cluster setting that changed while this node runs."""
        alone = self._names_nobody()
        different = [*self._different(), *([alone] if alone else [])]
        if different and different != self._said:
            log.warning("%s: this node will not start again with that", "; ".join(different))
        self._said = different


async def _proposed(
    proposer: CommandProposer, command: mpb.MetadataCommand, timeout: float
) -> None:
    try:
        result = await proposer.propose(command, timeout)
    except ClusterError as error:
        log.warning("a metadata command was not taken: %s", error)
        return
    if result.error and command.HasField("finalize_upgrade"):
        log.warning("the upgrade was not finalized: %s", result.message)
