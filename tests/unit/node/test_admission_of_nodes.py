"""A node without data: the effect of others' answers, and the nodes it founds a cluster with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.config.node_config import NodeConfig
from cluster.consensus.configuration import Configuration, Member, Members, Placed
from cluster.errors import ClusterError, RemovedError
from cluster.features import THIS_RELEASE, Finalized
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import PartitionState
from cluster.node.links.addresses import asked
from cluster.node.links.peers import REFUSAL_TIMEOUT, Peers
from cluster.node.membership.find_cluster import HEAR_TIME, Admission
from cluster.node.membership.known_nodes import KnownNodes, OtherNodes
from cluster.node.membership.welcome import welcome
from cluster.transport.hellos import NodeIdentity
from cluster.transport.membership import Membership
from cluster.transport.versions import PeerVersions
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import peer_pb2 as pb

NODES = "1=h1:1,2=h2:1,3=h3:1"
NONE = pb.Welcome(why_not="it does not know its cluster yet")


@dataclass
class Directory:
    directory_id: int = 0xD1
    founding: int = 0
    instance: int = 0
    members: tuple[int, ...] = ()
    has_admitted: dict[int, int] = field(default_factory=dict)

    def admit(self, node: int, directory: int) -> bool:
        return False

    def found(self, members: Iterable[int]) -> None:
        self.note_founding(members, 0xF1)

    def note_founding(self, members: Iterable[int], founding: int) -> None:
        self.members, self.founding = tuple(members), founding

    def note_joined(self, members: Iterable[int], founding: int, instance: int) -> None:
        self.instance = instance
        self.note_founding(members, founding)


class New:
    """A node with an empty directory, and the answers it receives."""

    def __init__(self, *flags: str, node: int = 1, nodes: str = NODES, hears: bool = True) -> None:
        named = ["--nodes", nodes] if nodes else ["--listen", "h1:1", "--insecure"]
        given = [*named, "--node-id", str(node), "--insecure", *flags]
        self.config, self.directory = NodeConfig.load(given, {}), Directory()
        self.admission = Admission(self.config, self.directory)
        self.admission.hears = hears
        self.addresses = asked(self.config)

    def hears(self, *answers: pb.Welcome | None, at: float = 0.0) -> bool:
        """Gives the node an answer; returns whether it goes on."""
        given = dict(zip(self.addresses, answers, strict=True))
        return self.admission.take(at, given) is not None


def test_the_lowest_founds_when_all_others_know_no_founding() -> None:
    new = New()
    assert not new.hears(None, None) and not new.hears(NONE, None), "it may have the last copy"
    assert not new.hears(NONE, NONE), "others that joined later may look for it"
    assert new.hears(NONE, NONE, at=1.0)
    assert (new.directory.founding, new.directory.members) == (0xF1, (1, 2, 3))
    other = New(node=2)
    assert not other.hears(NONE, NONE) and other.directory.founding == 0


def test_who_does_not_answer_is_named_with_the_word_that_founds_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new = New()
    new.hears(NONE, None)
    assert not new.hears(NONE, None, at=2.0)
    assert "no answer from h3:10001, where a cluster may be known" in caplog.text
    assert f"--found {0xD1:016x}" in caplog.text
    assert New("--found", f"{0xD1:016x}", hears=False).hears(NONE, None)
    assert New("--found", f"{0xD1:016x}", node=2, hears=False).hears(None, None)
    assert not New("--found", f"{0xD2:016x}").hears(None, None), "of a directory that is lost"
    known = pb.Welcome(founding=7, members=(1, 2, 3), why_not="no", refused=True)
    assert not New("--found", f"{0xD1:016x}").hears(known, None)


def test_a_node_that_names_nobody_founds_unless_it_is_looked_for() -> None:
    alone = New(nodes="")
    assert not alone.hears() and not alone.hears(at=HEAR_TIME / 2)
    assert alone.hears(at=HEAR_TIME) and alone.directory.members == (1,)
    assert New(nodes="", hears=False).hears(), "nobody can look for it"
    replaced = New(nodes="")
    assert not replaced.hears()
    hello = pb.Hello(cluster_id="oncelog", node_id=2, founding=7, peer_address="h2:10001")
    replaced.admission.heard_of(pb.Hello(cluster_id="another", node_id=2, founding=7))
    replaced.admission.heard_of(hello)
    assert not replaced.hears(at=100.0) and replaced.directory.founding == 0


def test_what_it_is_told_is_written_only_by_who_lets_it_in() -> None:
    new = New(node=2)
    no = pb.Welcome(founding=7, members=(1, 2, 3), why_not="no")
    assert not new.hears(no, None) and new.directory.founding == 0
    others = pb.Welcome(founding=7, members=(1, 2), founds=True)
    assert not new.hears(others, None) and new.directory.founding == 0
    assert new.hears(pb.Welcome(founding=7, members=(1, 2, 3), founds=True), no)
    assert (new.directory.founding, new.directory.instance) == (7, 0)
    replaced = New(node=2)
    joined = pb.Welcome(founding=7, members=(1, 2, 3), instance=4, peers={3: "h3:10001"})
    assert replaced.hears(no, joined) and replaced.directory.instance == 4
    assert New("--join", "h9:1", nodes="").addresses == ("h9:10001",)
    assert not New("--join", "h9:1", nodes="").hears(NONE), "it joins, and founds nothing"


def test_a_refused_directory_ends_its_node() -> None:
    new, refused = New(node=2), pb.Welcome(founding=7, why_not="registered", refused=True)
    assert not new.hears(refused, None, at=1.0)
    with pytest.raises(ClusterError, match="registered"):
        new.hears(refused, None, at=2.0 + REFUSAL_TIMEOUT)


def test_new_nodes_say_to_each_other_that_they_know_nothing() -> None:
    one, other = New(), New(node=2)
    answer = one.admission.welcome(other.admission.join)
    assert not (answer.founding or answer.refused or answer.founds)
    told = New()
    told.admission.heard_of(pb.Hello(cluster_id="oncelog", node_id=3, founding=7))
    assert told.admission.welcome(other.admission.join).founding == 7, "another one must not found"
    assert not one.admission.welcome(one.admission.join).refused, "`join` may name the node itself"
    twice = New()
    twice.directory.directory_id = 0xD9
    assert one.admission.welcome(Admission(twice.config, twice.directory).join).refused
    one.directory.found((1, 2, 3))
    answer = one.admission.welcome(other.admission.join)
    assert answer.founding and not answer.founds, "it is not open yet"


# -- answers of a node in a cluster -----------------------------------------------------------

FIRST = Members(1, 0, Placed(0, 0, Configuration(0, (Member(1), Member(2), Member(3)))))


def asks(state: MetadataState, directory: int, admits: bool, founder: bool) -> pb.Welcome:
    join = pb.Join(cluster_id="c", node_id=2, directory_id=directory, address="h2:1")
    begun = ((1, 2, 3), 7, lambda node, held: admits, founder)
    answer, command = welcome(join, state, FIRST, *begun)
    assert command is None
    return answer


def test_only_who_founded_admits_whatever_the_metadata_here_lacks() -> None:
    """A node that has just started may not have applied a single command."""
    behind = MetadataState()
    assert asks(behind, 5, admits=True, founder=True).founds
    other = asks(behind, 6, admits=False, founder=True)
    assert other.refused and "registered with another data directory" in other.why_not
    unknown = asks(behind, 6, admits=False, founder=False)
    assert not (unknown.founds or unknown.refused)
    assert "the node that founded it has to admit its data directory" in unknown.why_not


def test_a_directory_that_is_registered_is_the_nodes_whoever_asks() -> None:
    state = MetadataState()
    register = meta.RegisterNode(node_id=2, address="h2:1", directory_id=5)
    state.apply(1, meta.MetadataCommand(register_node=register).SerializeToString())
    assert asks(state, 6, admits=True, founder=True).refused


def test_a_node_that_is_being_removed_gets_no_new_directory() -> None:
    state = MetadataState()
    for node in (1, 2, 3):
        register = meta.RegisterNode(node_id=node, address=f"h{node}:1")
        state.apply(node, meta.MetadataCommand(register_node=register).SerializeToString())
    tables = state.tables
    tables.own, tables.expected, tables.leaving = PartitionState(0, (1, 3)), {2}, {2}
    assert "node 2 is being removed" in asks(state, 6, admits=True, founder=True).why_not


# -- a node that founded in place of another --------------------------------------------------


def others_of(new: New, known: int = 1, removed: object = None) -> OtherNodes:
    """Another node that has founded alone, and whose metadata knows so many nodes."""
    assert new.hears(at=0.0) or new.hears(at=HEAR_TIME)
    state, directory = MetadataState(), new.directory
    for node in range(1, known + 1):
        register = meta.RegisterNode(node_id=node, address=f"h{node}:1", directory_id=node)
        state.apply(node, meta.MetadataCommand(register_node=register).SerializeToString())
    identity = NodeIdentity(
        "oncelog", 1, 11, 0xD1, Membership(directory.members, directory.founding),
        PeerVersions(THIS_RELEASE, Finalized),
    )  # fmt: skip
    peers = Peers(lambda: 0.0, lambda peer, up: None, lambda error: None)
    known_nodes = KnownNodes(identity, {}, {}, directory)
    own = SimpleNamespace(group=SimpleNamespace(removed=removed))
    return OtherNodes(new.config, known_nodes, peers, state, own)


OLDER: dict[str, Any] = {
    "cluster_id": "oncelog", "node_id": 2, "founding": 7, "instance": 3, "members": (1,),
    "peer_address": "h2:10001",
}  # fmt: skip


def test_a_node_that_founded_at_the_place_of_an_older_one_ends() -> None:
    others = others_of(New(nodes=""))
    others.heard_of(pb.Hello(**OLDER))
    with pytest.raises(ClusterError, match=r"node 2 at h2:10001 looks here .* keep its data dir"):
        others.check_place(0.0)


def test_a_removed_node_ends_for_good_when_no_link_is_left() -> None:
    others = others_of(New(nodes=""), removed="a tombstone")
    others.check_place(1.0)
    others.check_place(1.0 + REFUSAL_TIMEOUT)
    with pytest.raises(RemovedError, match="this node was removed"):
        others.check_place(1.1 + REFUSAL_TIMEOUT)


@pytest.mark.parametrize(
    "differs",
    [{"instance": 0}, {"members": (2, 3)}, {"founding": 0xF1}, {"cluster_id": "another"}],
    ids=["it is new itself", "of no such node", "of this cluster", "of another name"],
)
def test_a_sound_node_goes_on_whoever_looks_for_it(differs: dict[str, Any]) -> None:
    for others, hello in ((others_of(New(nodes="")), OLDER | differs),
                          (others_of(New(nodes=""), known=2), OLDER)):  # fmt: skip
        others.heard_of(pb.Hello(**hello))
        others.check_place(0.0)
