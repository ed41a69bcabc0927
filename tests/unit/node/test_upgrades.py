"""Upgrades: when they finalize by themselves, how a new cluster begins, which nodes are asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.config.node_config import NodeConfig
from cluster.consensus.proposals import Applied
from cluster.entries import METADATA, UPGRADE
from cluster.errors import ConfigError, FeatureOffError
from cluster.features import CLUSTER_VERSIONS, COMMANDS, THIS_RELEASE, Finalized, Release
from cluster.metadata.state import MetadataState
from cluster.metadata.upgrade import command, node_releases
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.metadata.founding import Founding
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.metadata.upgrades import Upgrades, keep_version
from cluster.v1 import metadata_pb2 as mpb
from storage.errors import IdentityError
from storage.identity import claim

NEWEST = Finalized(CLUSTER_VERSIONS.newest, THIS_RELEASE.features)
OLD = Release()
DAY = 86_400.0
SETTINGS = {
    "lease_lifetime_ms": 10_000,
    "producer_name_expiry_ms": 20_000,
    "max_batch_bytes": 2048,
    "learner_bytes_per_s": 0,
}


def config_of(settings: dict[str, int]) -> NodeConfig:
    return NodeConfig.load([f"--{n.replace('_', '-')}={v}" for n, v in settings.items()], {})


class Leader:
    """Node 1, which leads the metadata of three nodes and proposes to itself."""

    def __init__(self, *, registered: bool = True, auto_finalize: float = DAY) -> None:
        self.now = 0.0
        self.metadata = MetadataState()
        self.links: dict[int, Release] = {2: THIS_RELEASE, 3: THIS_RELEASE}
        peers: Any = SimpleNamespace(release_of=self.links.get, linked_since=self.links)
        self.upgrades = Upgrades(1, self.metadata, peers, lambda: self.now, auto_finalize)
        group: Any = SimpleNamespace(is_ready=True, leader_id=1, propose=self._propose)
        group.applied_index = 0
        self.group = group
        self.kinds: list[int] = []
        clocks = ClockAgreement((), 10_000, lambda: 0.0, lambda: 1_000_000, lambda *sent: None)
        links: Any = {2: SimpleNamespace(up=True, version=3, peer=2)}
        self.proposer = MetadataProposer(
            group,
            links,
            lambda: None,
            clocks,
            Founding(config_of(SETTINGS), self.metadata, self.upgrades),
            self.metadata,
        )
        if registered:
            for node in (1, 2, 3):
                self._propose(bytes((METADATA,)) + registration(node).SerializeToString(), None)

    def _propose(self, data: bytes, done: Any, *, outlives_term: bool = False) -> None:
        self.kinds.append(data[0])
        self.group.applied_index += 1
        index, upgrade = self.group.applied_index, data[0] == UPGRADE
        result = self.metadata.apply(index, data[1:], upgrade=upgrade)
        if done is not None:
            done(Applied(index, result))

    def due(self, seconds: float) -> bool:
        self.now += seconds
        return self.upgrades.due(leads=True) is not None


def registration(node: int) -> mpb.MetadataCommand:
    record = mpb.RegisterNode(node_id=node, address=f"h{node}:1")
    return mpb.MetadataCommand(register_node=record)


# --- a new cluster ------------------------------------------------------------------------


async def test_a_new_cluster_begins_at_the_newest_version() -> None:
    leader = Leader(registered=False)
    await leader.proposer.propose(registration(1), 1.0)
    assert leader.metadata.finalized == NEWEST
    assert leader.kinds == [UPGRADE, METADATA, METADATA] and list(leader.metadata.nodes) == [1]
    assert leader.metadata.settings == SETTINGS
    await leader.proposer.propose(registration(2), 1.0)
    assert len(leader.kinds) == 4


async def test_a_new_cluster_with_an_older_node_begins_at_its_version() -> None:
    leader = Leader(registered=False)
    leader.links[3] = OLD
    await leader.proposer.propose(registration(1), 1.0)
    assert leader.metadata.finalized == Finalized() and leader.kinds == [METADATA]


async def test_an_older_cluster_keeps_its_version() -> None:
    leader = Leader()
    await leader.proposer.propose(registration(1), 1.0)
    assert leader.metadata.finalized == Finalized()


# --- finalized ----------------------------------------------------------------------------


async def test_the_leader_says_what_the_nodes_run() -> None:
    """Releases that the request claims for nodes are not believed."""
    leader = Leader()
    leader.links[3] = OLD
    asked = command(NEWEST)
    asked.nodes.extend(node_releases(dict.fromkeys((1, 2, 3), THIS_RELEASE)))
    upgrade = mpb.MetadataCommand(finalize_upgrade=asked)
    refused = await leader.proposer.propose(upgrade, 1.0)
    assert refused.error == "NOT_SUPPORTED" and "node 3: a release from before" in refused.message
    leader.links[3] = THIS_RELEASE
    assert not (await leader.proposer.propose(upgrade, 1.0)).error
    assert leader.metadata.finalized == NEWEST


async def test_a_leader_of_an_older_release_is_not_asked() -> None:
    """The old leader would put the command into an entry that its own release rejects."""
    leader = Leader()
    leader.group.is_ready, leader.group.leader_id = False, 2
    upgrade = mpb.MetadataCommand(finalize_upgrade=command(NEWEST))
    with pytest.raises(FeatureOffError, match="node 2, runs a release without"):
        await leader.proposer.propose(upgrade, 1.0)


async def test_a_command_waits_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "delete_topic", 2)
    leader = Leader()
    gone = mpb.MetadataCommand(delete_topic=mpb.DeleteTopic(name="t"))
    with pytest.raises(FeatureOffError, match="'delete_topic' comes with cluster version 2"):
        await leader.proposer.propose(gone, 1.0)
    assert leader.kinds == [METADATA] * 3, "nothing is in the log"
    await leader.proposer.propose(mpb.MetadataCommand(finalize_upgrade=command(NEWEST)), 1.0)
    assert (await leader.proposer.propose(gone, 1.0)).error == "UNKNOWN_TOPIC_OR_PARTITION"


# --- by itself ----------------------------------------------------------------------------


def test_it_is_finalized_after_a_day_of_all_nodes() -> None:
    leader = Leader()
    assert not leader.due(0) and not leader.due(DAY - 1)
    assert leader.due(1)
    assert not leader.due(1), "once more only after another day"
    assert leader.due(DAY)


@pytest.mark.parametrize("why", ["older", "away", "not leading"])
def test_the_day_begins_anew(why: str) -> None:
    leader = Leader()
    assert not leader.due(0) and not leader.due(DAY - 1)
    if why == "older":
        leader.links[3] = OLD
    elif why == "away":
        del leader.links[3]
    assert leader.upgrades.due(leads=why != "not leading") is None
    leader.links[3] = THIS_RELEASE
    assert not leader.due(1) and not leader.due(DAY - 1)
    assert leader.due(1)


def test_never() -> None:
    leader = Leader(auto_finalize=0)
    assert not leader.due(0) and not leader.due(1000 * DAY)


# --- settings -----------------------------------------------------------------------------


async def test_an_upgraded_cluster_gets_settings_by_itself() -> None:
    leader = Leader()
    upgrade = mpb.MetadataCommand(finalize_upgrade=command(NEWEST))
    await leader.proposer.propose(upgrade, 1.0)
    assert leader.metadata.finalized == NEWEST and not leader.metadata.settings
    await leader.proposer.propose(mpb.MetadataCommand(), 1.0)
    assert leader.metadata.settings == SETTINGS


def test_a_nodes_own_setting_is_the_clusters() -> None:
    metadata = MetadataState()

    def check(**given: int) -> None:
        nothing: Any = None
        Founding(config_of(given), metadata, nothing).check_own()

    first = {**SETTINGS, "lease_lifetime_ms": 5000, "max_batch_bytes": 4096}
    check(lease_lifetime_ms=5000)  # nothing is known yet
    metadata.apply(1, found(first))
    assert not metadata.settings, "not before the upgrade"
    metadata.apply(2, finalized(), upgrade=True)
    metadata.apply(3, found(first))
    check(lease_lifetime_ms=5000)
    check()  # defaults differ in nothing
    with pytest.raises(ConfigError) as refused:
        check(lease_lifetime_ms=1000, max_batch_bytes=1024)
    text = str(refused.value)
    assert "lease_lifetime_ms: this node's setting is 1000, the cluster's is 5000" in text
    assert "max_batch_bytes: this node's setting is 1024, the cluster's is 4096" in text


def found(settings: dict[str, int]) -> bytes:
    listed = [mpb.ClusterSetting(name=name, value=value) for name, value in settings.items()]
    first = mpb.FoundClusterSettings(settings=listed)
    stamp = settings["lease_lifetime_ms"]
    command = mpb.MetadataCommand(found_cluster_settings=first, lease_lifetime_ms=stamp)
    return command.SerializeToString()


def finalized() -> bytes:
    return mpb.MetadataCommand(finalize_upgrade=command(NEWEST)).SerializeToString()


# --- the directory ------------------------------------------------------------------------


def test_a_directory_remembers_the_version(tmp_path: Path, caplog: Any) -> None:
    with claim(tmp_path, "c", 1) as lock:
        lock.found([1])
        before = json.loads((tmp_path / "identity.json").read_text())
        assert before["format"] == 5, "as older releases read it, until the first upgrade"
        assert "cluster_version" not in before
        lock.check_cluster_version(1, 1)
        keep_version(lock, 3)
    after = json.loads((tmp_path / "identity.json").read_text())
    assert after == {**before, "format": 6, "cluster_version": 3}
    with claim(tmp_path, "c", 1) as lock:
        lock.check_cluster_version(2, 3)
        for versions in ((1, 2), (4, 5)):
            text = f"at version 3, and this release takes part in versions {versions[0]} to"
            with pytest.raises(IdentityError, match=text):
                lock.check_cluster_version(*versions)
        keep_version(lock, 3)
        lock.check_members([1])
    assert json.loads((tmp_path / "identity.json").read_text()) == after


def test_a_version_that_cannot_be_noted_is_said(tmp_path: Path, caplog: Any, monkeypatch) -> None:
    with claim(tmp_path, "c", 1) as lock:

        def full(identity: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(lock, "_write", full)
        keep_version(lock, 2)
    assert "cluster version 2 could not be noted in the directory: no space left" in caplog.text
