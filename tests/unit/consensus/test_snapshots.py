"""Invalid snapshots: refused before anything of the old state goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.consensus import group as group_module
from cluster.consensus.group import Group
from cluster.consensus.message import Snapshot, SnapshotError, checksum_of
from cluster.consensus.snapshots import checking
from cluster.metadata.tables import METADATA_GROUP
from storage.errors import CorruptionError
from tests.sim.cluster import Cluster
from tests.sim.node import Node, Settings

Damage = Callable[[Snapshot], Snapshot]


def sealed(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the checksum of its present contents."""
    place = (snapshot.group, snapshot.index, snapshot.index_term)
    return replace(snapshot, checksum=checksum_of(*place, snapshot.state))


DAMAGE: dict[str, Damage] = {
    "garbage": lambda s: replace(s, state=b"garbage"),
    "garbage that was meant": lambda s: sealed(replace(s, state=b"garbage")),
    "nothing": lambda s: sealed(replace(s, state=b"")),
    "half of it": lambda s: replace(s, state=s.state[: len(s.state) // 2]),
    "of another group": lambda s: replace(sealed(replace(s, group=17)), group=s.group),
    "of another index": lambda s: replace(s, index=s.index + 1),
    "of index 0": lambda s: sealed(replace(s, index=0)),
    "beyond all indexes": lambda s: sealed(replace(s, index=2**63)),
    "of a term to come": lambda s: sealed(replace(s, index_term=s.term + 1)),
}


@pytest.fixture
def cluster() -> Cluster:
    """Three nodes with a metadata group that has a leader."""
    cluster = Cluster(Settings(metadata=True), seed=1)
    cluster.start()
    cluster.scheduler.run_until(10.0)
    return cluster


def metadata(cluster: Cluster, node: int) -> Group:
    return cluster.nodes[node].driver.groups[METADATA_GROUP]


def ahead(cluster: Cluster, node: int) -> Snapshot:
    """A snapshot that another node could send to this one: beyond its log."""
    group, machine = metadata(cluster, node), cluster.nodes[node].running.metadata
    assert machine is not None
    index, term = group.journal.last_index + 100, group.term
    return sealed(Snapshot(METADATA_GROUP, term, index, term, machine.dump(), 0))


def install(node: Node, sender: int, snapshot: Snapshot) -> bool:
    """Installs it as soon as it is checked, between two rounds."""
    machine = node.driver.groups[snapshot.group].machine
    return node.driver.install(sender, checking(machine, snapshot)())


def test_an_installation_loads_no_state(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has loaded it: the node's loop only takes it."""
    node, sound, leader = cluster.nodes[3], ahead(cluster, 3), cluster.leader(METADATA_GROUP)
    assert leader is not None
    checked = checking(metadata(cluster, 3).machine, sound)()
    monkeypatch.setattr(metadata(cluster, 3).machine, "load", None)
    assert node.driver.install(leader.id, checked)
    assert metadata(cluster, 3).failed is None
    assert metadata(cluster, 3).applied_index == sound.index


def test_a_sound_one_is_installed(cluster: Cluster) -> None:
    sound, leader = ahead(cluster, 3), cluster.leader(METADATA_GROUP)
    assert leader is not None
    assert install(cluster.nodes[3], leader.id, sound)
    assert metadata(cluster, 3).journal.last_index == sound.index


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_unsound_snapshot_of_the_metadata(cluster: Cluster, damage: str) -> None:
    node = cluster.nodes[3]
    group = metadata(cluster, 3)
    term, last, applied = group.term, group.journal.last_index, group.applied_index
    bad = DAMAGE[damage](ahead(cluster, 3))
    with pytest.raises(SnapshotError):
        install(node, 1, bad)
    assert group.failed is None
    assert (group.term, group.journal.last_index, group.applied_index) == (term, last, applied)
    node.crash("to see what is on its disk")
    node.start()
    assert metadata(cluster, 3).failed is None
    assert metadata(cluster, 3).journal.last_index == last


def test_what_cannot_be_read_back_stops_one_replica_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*args: object) -> None:
        raise CorruptionError("a damaged checkpoint")

    monkeypatch.setattr(group_module, "open_raft", damaged)
    install(cluster.nodes[3], 1, ahead(cluster, 3))
    assert isinstance(metadata(cluster, 3).failed, CorruptionError)
    cluster.nodes[3].driver.begin()
