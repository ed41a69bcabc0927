"""The command that raises the cluster version, as the metadata's replicas apply it."""

from __future__ import annotations

import pytest

from cluster.entries import METADATA, UPGRADE, CorruptEntryError
from cluster.features import COMMANDS, Finalized, OlderReleaseError, Release, Versions
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.state import MetadataCorruptError, MetadataState, UpgradeFinalized
from cluster.metadata.upgrade import command, node_releases
from cluster.v1 import metadata_pb2 as pb
from storage.batch import Batch
from storage.errors import CorruptionError
from tests.unit.metadata.test_features import NEW, OLD

TARGET = Finalized(2, frozenset({"a", "b"}))


class Replica:
    """A replica of the metadata on a node of a release, with two registered nodes."""

    def __init__(self, release: Release = NEW) -> None:
        self.state = MetadataState(release=release)
        self.machine = MetadataMachine(self.state, lambda index: None)
        self.index = 0
        for node_id in (1, 2):
            record = pb.RegisterNode(node_id=node_id, address=f"h{node_id}:1")
            self.apply(METADATA, pb.MetadataCommand(register_node=record))
        self.state.take_events()

    def apply(self, kind: int, command: pb.MetadataCommand) -> pb.MetadataResult:
        self.index += 1
        command.stamp_ms = 1000 * self.index
        data = bytes((kind,)) + command.SerializeToString()
        return pb.MetadataResult.FromString(self.machine.apply(self.index, 1, data, Batch()))

    def finalize(self, target: Finalized = TARGET, **nodes: Release) -> pb.MetadataResult:
        """Finalizes with these releases of n1, n2, ...; NEW where none is given."""
        known = {1: nodes.get("n1", NEW), 2: nodes.get("n2", NEW)}
        known = {node_id: release for node_id, release in known.items() if release != OLD}
        upgrade = command(target)
        upgrade.nodes.extend(node_releases(known))
        return self.apply(UPGRADE, pb.MetadataCommand(finalize_upgrade=upgrade))


def test_a_finalized_version_and_its_features() -> None:
    replica = Replica()
    assert replica.state.finalized == Finalized()
    assert not replica.finalize().error
    assert replica.state.finalized == TARGET
    assert replica.state.take_events() == [UpgradeFinalized()]
    assert replica.state.features.is_on("a") and replica.state.features.version == 2
    assert not replica.finalize().error, "again: nothing changes"
    assert replica.state.take_events() == []


def test_a_node_that_cannot_follow_is_named() -> None:
    replica = Replica()
    before = replica.state.dump()
    less = Release("2.0-dev", Versions(1, 2), frozenset({"a"}))
    cases: list[tuple[dict[str, Release], str]] = [
        ({"n2": OLD}, "node 2 is unreachable: its release is not known"),
        ({"n1": Release("1.9", Versions(1, 1))}, "node 1: release 1.9 takes part in versions 1 to"),
        ({"n2": less}, "node 2: release 2.0-dev does not know b"),
    ]
    for nodes, text in cases:
        result = replica.finalize(TARGET, **nodes)
        assert result.error == "NOT_SUPPORTED" and text in result.message
        assert replica.state.dump() == before


def test_a_version_never_falls_and_a_feature_stays() -> None:
    replica = Replica()
    replica.finalize()
    below = replica.finalize(Finalized())
    assert below.message == "version: 1 is below the cluster's, 2: it never falls"
    fewer = replica.finalize(Finalized(2, frozenset({"a"})))
    assert fewer.message == "features: b cannot be turned off"
    assert replica.state.finalized == TARGET


@pytest.mark.parametrize(
    "release", [Release("1.9", Versions(1, 1)), Release("2.0-dev", Versions(1, 2), frozenset("a"))]
)
def test_a_replica_of_an_older_release_stops(release: Release) -> None:
    """The node went back between the leader's look and the command."""
    replica = Replica(release)
    with pytest.raises(OlderReleaseError, match="upgraded to version 2: release"):
        replica.finalize()
    assert replica.state.finalized == Finalized()


def test_a_snapshot_brings_the_version_and_an_older_release_refuses_it() -> None:
    replica = Replica()
    behind = Replica().state
    replica.finalize()
    data = replica.state.dump()
    behind.load(data, replica.index)
    assert behind.finalized == TARGET and behind.dump() == data
    assert UpgradeFinalized() in behind.take_events()
    old = MetadataState(release=Release("1.9", Versions(1, 1)))
    with pytest.raises(OlderReleaseError):
        old.parse(data)
    with pytest.raises(OlderReleaseError):
        old.load(data)
    assert old.finalized == Finalized()


def test_before_the_first_upgrade_the_bytes_are_those_of_older_releases() -> None:
    """Older releases compare their states with ours."""
    snapshot = pb.MetadataSnapshot.FromString(Replica().state.dump())
    assert snapshot.cluster_version == 0 and not snapshot.features


def test_an_upgrade_has_an_entry_of_its_own_kind() -> None:
    """Older releases stop at it. In another kind they reject it: so does this one."""
    replica = Replica()
    before = replica.state.dump()
    upgrade = pb.MetadataCommand(finalize_upgrade=command(TARGET))
    assert replica.apply(METADATA, upgrade).error == "NOT_SUPPORTED"
    assert replica.state.dump() == before
    with pytest.raises(CorruptionError, match="delete_topic in the entry of an upgrade"):
        replica.apply(UPGRADE, pb.MetadataCommand(delete_topic=pb.DeleteTopic(name="a")))
    with pytest.raises(CorruptEntryError, match="entry of type 34"):
        replica.apply(0x22, upgrade)


def unknown(message: pb.MetadataCommand) -> bytes:
    """With a field of a later release: number 99, a varint."""
    return message.SerializeToString() + b"\x98\x06\x01"


def test_what_this_release_does_not_know_stops_the_replica() -> None:
    """A command, or a field of one, that others would act on."""
    replica = Replica()
    state, index = replica.state, replica.index
    whole = pb.MetadataCommand(delete_topic=pb.DeleteTopic(name="a"))
    inner = pb.MetadataCommand.FromString(b"\x22" + bytes([6]) + b"\x0a\x01a\x98\x06\x01")
    assert inner.delete_topic.name == "a"
    for data in (unknown(pb.MetadataCommand()), unknown(whole), inner.SerializeToString()):
        with pytest.raises(MetadataCorruptError, match="unknown to this release"):
            state.apply(index + 1, data)
    with pytest.raises(MetadataCorruptError, match="unknown to this release"):
        state.parse(state.dump() + b"\x98\x06\x01")


def test_a_command_before_its_feature_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "delete_topic", "a")
    replica = Replica()
    gone = pb.MetadataCommand(delete_topic=pb.DeleteTopic(name="t"))
    assert replica.apply(METADATA, gone).error == "NOT_SUPPORTED"
    replica.finalize()
    assert replica.apply(METADATA, gone).error == "UNKNOWN_TOPIC_OR_PARTITION"
