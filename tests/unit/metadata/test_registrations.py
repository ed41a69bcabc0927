"""Starts of a node: accepted and refused registrations, and the directory's record."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.metadata import nodes
from cluster.metadata.registrations import Registration, RegistrationClaim, is_put_back, registered
from cluster.metadata.snapshot import load_tables, packed_tables
from cluster.metadata.tables import Tables
from cluster.metadata.topics import PartitionState, Rejected
from cluster.v1 import metadata_pb2 as pb
from storage.errors import CorruptionError
from storage.registrations import StoredRegistrations

LAST = Registration(70, 3, 900)


def start(begun: int, known: int = 0, incarnation: int = 1, directory: int = 5) -> pb.RegisterNode:
    return pb.RegisterNode(
        node_id=1, address="h:1", directory_id=directory,
        registration=begun, known_registration=known, incarnation=incarnation,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("last", "command", "after"),
    [
        (None, start(0), None),
        (None, start(70), Registration(70, 1, 1)),
        (LAST, start(80, 70), Registration(80, 4, 1)),
        (LAST, start(70, 60), Registration(70, 3, 1)),
    ],
    ids=["before registrations", "the first", "the next", "said again, perhaps by another process"],
)
def test_what_is_registered(
    last: Registration | None, command: pb.RegisterNode, after: Registration
) -> None:
    assert registered(1, last, command) == after


@pytest.mark.parametrize("command", [start(80, 60), start(60), start(0), start(0, 70)])
def test_a_copy_from_before_is_refused(command: pb.RegisterNode) -> None:
    with pytest.raises(Rejected, match=r"an older copy.*`oncelog node replace 1`"):
        registered(1, LAST, command)


@pytest.mark.parametrize(
    ("claim", "put_back"),
    [
        (RegistrationClaim(80, 70, 3, 1), False),
        (RegistrationClaim(70, 60, 2, 1), False),
        (RegistrationClaim(80, 60, 2, 1), True),
        (RegistrationClaim(0, 0, 0, 1), True),
        (RegistrationClaim(90, 80, 4, 1), False),
        (RegistrationClaim(60, 50, 1, 900), False),
    ],
    ids=[
        "it knows it", "it has begun it", "a copy", "from before registrations",
        "this node is behind", "its process has renewed it since",
    ],
)  # fmt: skip
def test_whom_peers_refuse(claim: RegistrationClaim, put_back: bool) -> None:
    assert is_put_back(LAST, claim) is put_back
    assert not is_put_back(None, claim)


def test_a_new_directory_has_registrations_of_its_own() -> None:
    tables = Tables(own=PartitionState(0, (1, 2)), nodes={1: "h:1", 2: "h:2"})
    assert nodes.register(tables, start(70)) is False, "its address is known"
    assert tables.registrations == {1: Registration(70, 1, 1)}
    loaded = load_tables(b"".join(packed_tables(tables)))
    assert loaded.registrations == tables.registrations
    replace = pb.ChangeNode(node_id=1, action=pb.NODE_ACTION_REPLACE, directory_id=5)
    assert nodes.change(tables, replace) and not tables.registrations
    tables.own = PartitionState(0, (2,))
    joined = pb.JoinNode(node_id=1, directory_id=6, address="h:1", peer_address="h:3")
    assert nodes.join(tables, joined)
    nodes.register(tables, start(80, directory=6))
    assert tables.registrations[1].number == 1


def test_who_is_behind_knows_no_registration_of_a_newer_directory() -> None:
    tables = Tables(nodes={1: "h:1"})
    for begun, known in ((70, 0), (80, 70)):
        nodes.register(tables, start(begun, known))
    view, claim = nodes.NodesView(tables), RegistrationClaim(90, 85, 1, 2)
    assert view.put_back(1, 5, claim) and not view.put_back(1, 6, claim)


def test_a_directory_keeps_its_registrations(tmp_path: Path) -> None:
    stored = StoredRegistrations(tmp_path / "lives")
    assert (stored.known, stored.number, stored.begun) == (0, 0, 0)
    stored.begin()
    begun = stored.begun
    stored.close()
    stored = StoredRegistrations(tmp_path / "lives")
    assert (stored.known, stored.begun) == (0, begun) and begun
    stored.confirm(4)
    stored.begin()
    stored.close()
    size = (tmp_path / "lives").stat().st_size
    stored = StoredRegistrations(tmp_path / "lives")
    assert (stored.known, stored.number) == (begun, 4) and stored.begun not in (0, begun)
    assert (tmp_path / "lives").stat().st_size == size, "it does not grow"
    stored.close()


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 36])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "lives").write_bytes(damage)
    with pytest.raises(CorruptionError, match="lives is damaged"):
        StoredRegistrations(tmp_path / "lives")
