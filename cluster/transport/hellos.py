"""Hellos between nodes: decide if a node is let in, or refused and why. Pure.

    PeerLink --NodeIdentity.hello--> PeerListener --> Acceptance --a Hello--> Answers --> up, or not
    joining node --Join--------> PeerListener --> Acceptance --> Welcome

A stranger does not name this cluster and one of its nodes; it gets no answer, not even a reason. A
member learns why it is refused: another version, a replaced data directory, or an id that another
process is connected with. The simulator's nodes meet by the same objects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.transport.frames import FrameError
from cluster.transport.membership import Membership
from cluster.transport.versions import PeerVersions
from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

NO_NODE = "it is no node of the cluster any more"


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Identity of this process, as its Hello says.

    instance: the metadata group's replica that the directory joined as; 0: a founding one.
    peer_address: the address for its peers' streams.
    write_registration: writes into a Hello which start of its directory this is.
    """

    cluster_id: str
    node_id: int
    incarnation: int
    directory_id: int
    membership: Membership
    versions: PeerVersions
    insecure: bool = False
    instance: int = 0
    peer_address: str = ""
    write_registration: Callable[[pb.Hello], None] = lambda hello: None

    def hello(self, refused: str = "") -> pb.Hello:
        hello = pb.Hello(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            incarnation=self.incarnation,
            directory_id=self.directory_id,
            refused=refused,
            members=self.membership.members,
            founding=self.membership.founding,
            insecure=self.insecure,
            instance=self.instance,
            peer_address=self.peer_address,
        )
        self.versions.write(hello)
        self.write_registration(hello)
        return hello


class Acceptance:
    """Admission of peers to one node, and the connected peers.

    peers: node ids that may connect.
    directory_of: the id of a node's data directory as the cluster knows it, by the node and its
        claimed instance; 0: any, or this node is behind and cannot know.
    welcome: answers a node with a new data directory; None: such nodes are strangers.
    put_back: why a peer's directory is an older copy, or empty.
    heard_of: takes each Hello; the node may be newer than all that is known here.
    """

    def __init__(
        self,
        identity: NodeIdentity,
        peers: Mapping[int, str],
        directory_of: Callable[[int, int], int],
        welcome: Callable[[pb.Join], pb.Welcome] | None = None,
        put_back: Callable[[pb.Hello], str] = lambda hello: "",
        heard_of: Callable[[pb.Hello], None] = lambda hello: None,
    ) -> None:
        self._identity = identity
        self._peers = peers
        self._directory_of = directory_of
        self._welcome = welcome
        self._put_back = put_back
        self._heard_of = heard_of
        # peer -> (incarnation, streams open)
        self.connected: dict[int, tuple[int, int]] = {}
        self._refused: dict[int, str] = {}  # the last refusal of each peer, logged once

    @property
    def welcomes(self) -> bool:
        return self._welcome is not None

    def answer(self, hello: pb.Hello) -> pb.Hello:
        """Answers a Hello; `refused` says why it may not connect. Raises FrameError: a stranger."""
        self._heard_of(hello)
        if self._is_stranger(hello):
            raise FrameError("hello: of a stranger")
        refused = self._why_not(hello)
        if not refused:
            self._refused.pop(hello.node_id, None)
        elif self._refused.get(hello.node_id) != refused:
            log.warning("refused node %d: %s", hello.node_id, refused)
            self._refused[hello.node_id] = refused
        return self._identity.hello(refused)

    def _is_stranger(self, hello: pb.Hello) -> bool:
        """Whether it is a stranger. A removed node is not: it must be told to end."""
        if hello.cluster_id != self._identity.cluster_id:
            return True
        is_ours = self._identity.membership.is_of(hello)
        return hello.node_id not in self._peers and not (is_ours and self._wrong_directory(hello))

    def answer_join(self, join: pb.Join) -> pb.Welcome:
        """Answers a join. Raises FrameError if the joining node is not of this cluster."""
        assert self._welcome is not None
        if join.cluster_id != self._identity.cluster_id:
            raise FrameError("join: of a stranger")
        return self._welcome(join)

    def begin(self, hello: pb.Hello) -> None:
        """Counts a stream of a peer that was let in."""
        streams = self.connected.get(hello.node_id, (0, 0))[1]
        self.connected[hello.node_id] = (hello.incarnation, streams + 1)

    def end(self, hello: pb.Hello) -> None:
        incarnation, streams = self.connected.pop(hello.node_id)
        assert incarnation == hello.incarnation and streams > 0
        if streams > 1:
            self.connected[hello.node_id] = (incarnation, streams - 1)

    def refused_by_now(self, hello: pb.Hello) -> str:
        """Returns why a connected peer would be refused by now, or an empty text."""
        if hello.node_id not in self._peers:
            return NO_NODE
        return self._identity.versions.refusal(hello) or self._wrong_directory(hello)

    def _wrong_directory(self, hello: pb.Hello) -> str:
        directory = self._directory_of(hello.node_id, hello.instance)
        if not directory or hello.directory_id == directory:
            return self._put_back(hello)
        if hello.node_id not in self._peers:
            return NO_NODE
        return (
            f"node_id {hello.node_id} is registered with another data directory: one that was "
            "emptied or replaced has forgotten votes and acknowledgements"
        )

    def _why_not(self, hello: pb.Hello) -> str:
        ours = self._identity
        refused = ours.versions.refusal(hello)
        if refused:
            return refused
        if hello.node_id == ours.node_id:
            return f"node_id {hello.node_id} is this node's own: give each node its own id"
        wrong = self._wrong_directory(hello)
        if wrong:
            return wrong
        known = self.connected.get(hello.node_id)
        if known is not None and known[0] != hello.incarnation:
            return f"node_id {hello.node_id} is connected already by another process"
        return ours.membership.refusal(hello)


class NotYetError(FrameError):
    """Every node is refused yet; it should try again."""


class NewHere(Acceptance):
    """Admission to a node that does not know its cluster, or is not open yet."""

    def answer(self, hello: pb.Hello) -> pb.Hello:
        """Refuses every Hello. Raises NotYetError."""
        self._heard_of(hello)
        raise NotYetError("hello: this node does not know its cluster yet")


class Answers:
    """Answers of one peer to this node's Hellos.

    on_refusal(peer, reason, mutual): called at each attempt that the peer refused; mutual: this
    node refuses the peer as well.
    """

    def __init__(
        self, identity: NodeIdentity, peer: int, on_refusal: Callable[[int, str, bool], None]
    ) -> None:
        self._identity = identity
        self._peer = peer
        self._on_refusal = on_refusal
        self._refusal = ""

    def accepts(self, answer: pb.Hello) -> bool:
        """Whether the link is up."""
        if not answer.refused and self._is_too_old(answer):
            return False
        membership = self._identity.membership
        refused = answer.refused or membership.refusal(answer)
        if refused:
            if refused != self._refusal:
                log.error("refused by peer=%d: %s", self._peer, refused)
            self._refusal = refused
            if answer.founding:  # else the peer is the new one
                self._on_refusal(self._peer, refused, membership.differs(answer))
            return False
        self._refusal = ""
        return True

    def _is_too_old(self, answer: pb.Hello) -> bool:
        """Whether the peer's release is too old; only the peer can fix that."""
        refused = self._identity.versions.refusal(answer)
        if refused and refused != self._refusal:
            log.error("no link to peer=%d: %s", self._peer, refused)
        self._refusal = refused or self._refusal
        return bool(refused)
