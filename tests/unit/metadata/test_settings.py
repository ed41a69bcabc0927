"""The cluster's settings in the metadata: founded once, changed within limits, never longer."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.config import settings as node_settings
from cluster.entries import METADATA, UPGRADE
from cluster.features import THIS_RELEASE, Finalized
from cluster.metadata.settings import SETTINGS
from cluster.metadata.state import MetadataState, SettingsChanged, TermsChanged
from cluster.metadata.upgrade import command
from cluster.v1 import metadata_pb2 as pb

HOUR = 3_600_000
GIVEN = {
    "lease_lifetime_ms": HOUR,
    "producer_name_expiry_ms": 2 * HOUR,
    "max_batch_bytes": 4096,
    "learner_bytes_per_s": 0,
}


class Log:
    """The metadata log of an upgraded cluster, and a state that applies it."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self.index = 0
        target = Finalized(THIS_RELEASE.versions.newest, THIS_RELEASE.features)
        self.apply(UPGRADE, pb.MetadataCommand(finalize_upgrade=command(target)))
        self.state.take_events()

    def apply(self, kind: int, command: pb.MetadataCommand, **stamped: int) -> pb.MetadataResult:
        self.index += 1
        command.stamp_ms = 1000
        for name, value in stamped.items():
            setattr(command, name, value)
        data, upgrade = command.SerializeToString(), kind == UPGRADE
        return pb.MetadataResult.FromString(self.state.apply(self.index, data, upgrade=upgrade))

    def found(self, given: dict[str, int], **stamped: int) -> pb.MetadataResult:
        listed = [pb.ClusterSetting(name=name, value=value) for name, value in given.items()]
        first = pb.FoundClusterSettings(settings=listed)
        return self.apply(METADATA, pb.MetadataCommand(found_cluster_settings=first), **stamped)

    def set(self, name: str, value: int) -> pb.MetadataResult:
        setting = pb.SetClusterSetting(setting=pb.ClusterSetting(name=name, value=value))
        return self.apply(METADATA, pb.MetadataCommand(set_cluster_setting=setting))

    def allocate(self, **stamped: int) -> None:
        ids = pb.AllocateProducerIds(node_id=1, count=1)
        self.apply(METADATA, pb.MetadataCommand(allocate_producer_ids=ids), **stamped)


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_first_leaders_settings_are_the_clusters(log: Log) -> None:
    stamped = {"lease_lifetime_ms": HOUR, "producer_name_expiry_ms": 2 * HOUR}
    assert not log.found(GIVEN, **stamped).error
    assert log.state.settings == GIVEN
    assert log.state.take_events() == [SettingsChanged(), TermsChanged()]
    assert not log.found({**GIVEN, "max_batch_bytes": 9999}).error, "a second node was slower"
    assert log.state.settings == GIVEN and log.state.take_events() == []


def test_nothing_is_founded_before_the_upgrade() -> None:
    log = Log()
    log.state = MetadataState()
    assert log.found(GIVEN).error == "NOT_SUPPORTED"
    assert log.set("max_batch_bytes", 4096).error == "NOT_SUPPORTED"
    assert not log.state.settings


def test_what_is_in_force_stays_in_force(log: Log) -> None:
    """In an older cluster the shortest lifetime ever stamped stays, at any leader's setting."""
    log.allocate(lease_lifetime_ms=HOUR // 2, producer_name_expiry_ms=HOUR)
    log.found(GIVEN, lease_lifetime_ms=HOUR, producer_name_expiry_ms=2 * HOUR)
    assert log.state.settings["lease_lifetime_ms"] == log.state.lease_lifetime_ms == HOUR // 2
    assert log.state.settings["producer_name_expiry_ms"] == HOUR


def test_a_leaders_own_times_count_no_more(log: Log) -> None:
    log.found(GIVEN)
    log.state.take_events()
    before = log.state.lease_lifetime_ms
    log.allocate(lease_lifetime_ms=1000, producer_name_expiry_ms=1000)
    assert log.state.lease_lifetime_ms == before == HOUR
    assert log.state.take_events() == []


def test_a_time_can_be_made_shorter_and_not_longer(log: Log) -> None:
    log.found(GIVEN)
    log.state.take_events()
    assert not log.set("lease_lifetime_ms", 5000).error
    assert log.state.lease_lifetime_ms == 5000
    assert log.state.take_events() == [SettingsChanged(), TermsChanged()]
    longer = log.set("lease_lifetime_ms", 5001)
    assert longer.error == "INVALID_REQUEST"
    assert longer.message.startswith(
        "lease_lifetime_ms: 5001 must be at most 5000, the value in force"
    )
    assert not log.set("max_batch_bytes", 8192).error, "this may rise"
    assert not log.set("max_batch_bytes", 8192).error
    assert log.state.take_events() == [SettingsChanged()]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("no_such", 1, "name: 'no_such' must be one of lease_lifetime_ms, producer_name"),
        ("lease_lifetime_ms", 999, "lease_lifetime_ms: 999 must be 1000..2592000000"),
        ("max_batch_bytes", 64 * 2**20 + 1, "max_batch_bytes: 67108865 must be 1024..67108864"),
        ("producer_name_expiry_ms", HOUR - 1, "must be at least lease_lifetime_ms, 3600000"),
    ],
)
def test_bad_settings_are_rejected(log: Log, name: str, value: int, text: str) -> None:
    log.found(GIVEN)
    before = log.state.dump()
    result = log.set(name, value)
    assert result.error == "INVALID_REQUEST" and text in result.message
    assert log.state.dump() == before


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_batch_bytes": 4096},
        {**GIVEN, "no_such": 1},
        {**GIVEN, "max_batch_bytes": 1},
        {**GIVEN, "lease_lifetime_ms": 0},
    ],
)
def test_bad_first_settings_are_rejected(log: Log, given: dict[str, int]) -> None:
    assert log.found(given).error == "INVALID_REQUEST"
    assert not log.state.settings


def test_a_snapshot_brings_them(log: Log) -> None:
    log.found(GIVEN)
    other = MetadataState()
    other.load(log.state.dump(), log.index)
    assert other.settings == GIVEN and other.lease_lifetime_ms == HOUR
    assert SettingsChanged() in other.take_events()
    assert other.dump() == log.state.dump()
    snapshot: Any = pb.MetadataSnapshot.FromString(log.state.dump())
    del snapshot.settings[0]
    with pytest.raises(Exception, match="settings are not complete"):
        other.load(snapshot.SerializeToString())


def test_the_ranges_are_those_of_the_nodes_settings() -> None:
    known = {setting.name: setting for setting in node_settings.SETTINGS}
    for name, limits in SETTINGS.items():
        assert (known[name].low, known[name].high) == (limits.low, limits.high)
