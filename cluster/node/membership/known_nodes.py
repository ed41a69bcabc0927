"""Registry of the other nodes and their addresses: from settings first, then from the metadata.

    settings `nodes`, Welcome, Hello --addresses--> OtherNodes --> links, accepted peers
    metadata: JoinNode ----------------------'     '--JoinNode--> metadata (where this node is)
    joining node --Join--> OtherNodes.welcome --Welcome-->

An address in the settings counts before a node's own. A Join or a Welcome counts before the
metadata, until that has heard of a change: all nodes may have moved at once, and none could lead
before the links go to the new addresses (ADR 95). While the metadata here is behind other nodes',
it removes no node: a missing node's entry may be on its way from a node unknown here. Nothing here
waits or touches a socket: the simulator's nodes use the same objects. Slow work is in `own_place`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from cluster.config.node_config import MAX_NODES, NodeConfig
from cluster.consensus.group import Group
from cluster.errors import ClusterError, RemovedError
from cluster.metadata.state import MetadataState
from cluster.node.links.addresses import join_of, named, own_stream
from cluster.node.links.peers import REFUSAL_TIMEOUT, Peers
from cluster.node.membership.welcome import welcome
from cluster.transport.hellos import NodeIdentity
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from storage.errors import StorageError

log = logging.getLogger(__name__)

ASK_AGAIN = 3.0  # seconds without a leader


@dataclass(frozen=True, slots=True)
class KnownNodes:
    """A node's knowledge of nodes before it opens its replicas.

    addresses: nodes that its listener lets in; changes in place.
    said: peers' addresses, as the node was told when it joined.
    founder: admits directories of the nodes that the cluster begins with, if it founded it.
    """

    identity: NodeIdentity
    addresses: dict[int, str]
    said: Mapping[int, str]
    founder: Founder


class Founder(Protocol):
    """`storage.identity.DirectoryLock` is one."""

    @property
    def has_admitted(self) -> Mapping[int, int]: ...
    def admit(self, node: int, directory: int) -> bool: ...


@dataclass(slots=True)
class Told:
    """A node's address, from itself or from a node that it had asked.

    index: of the last entry of the metadata's log here, then: a newer entry may know better.
    before: the metadata's address here then, as far as known.
    """

    address: str
    index: int
    before: str


class Proposer(Protocol):
    """propose(command, done): to the metadata group; `done` is called once."""

    group: Group

    def propose(self, command: mpb.MetadataCommand, done: Callable[[], None]) -> None: ...


class OtherNodes:
    """Addresses of the other nodes, kept by one node."""

    def __init__(
        self,
        config: NodeConfig,
        known: KnownNodes,
        peers: Peers,
        metadata: MetadataState,
        proposer: Proposer,
    ) -> None:
        self._config = config
        self._identity = known.identity
        self._peers = peers
        self._addresses = known.addresses
        self._named = named(config)
        self._metadata = metadata
        self._proposer = proposer
        self._founder = known.founder
        self._said = {node: at for node, at in known.said.items() if node != config.node_id}
        self._said_version = self._identity.instance  # of the configuration that `said` is from
        self._gone_since: float | None = None
        self._told: dict[int, Told] = {}
        self._led_until = self._asked_at = float("-inf")
        for node, at in self._said.items():
            self._tell(node, at)
        self._older: pb.Hello | None = None  # of a node of a cluster that was here before
        self._proposing: set[int] = set()

    def follow(self) -> None:
        """Follow the metadata, which may name other nodes than before."""
        view = self._metadata.membership
        is_behind = view.own.version < self._said_version
        if view.own.replicas and not is_behind:
            known = {*self._metadata.nodes, *view.own.replicas}
        else:
            known = {*self._metadata.nodes, *self._named, *self._said, *view.peers}
        older, newer = (view.peers, self._said) if is_behind else (self._said, view.peers)
        found = {**older, **newer, **self._told_now(), **self._named}
        others = sorted(known - {self._config.node_id})
        self._addresses.clear()
        self._addresses.update({node: found[node] for node in others if node in found})
        self._peers.connect_to(self._addresses)

    def _told_now(self) -> dict[int, str]:
        """Return the addresses newer than the metadata here."""
        peers, index = self._metadata.membership.peers, self._metadata.applied_index
        for node, told in list(self._told.items()):
            now = peers.get(node, "")
            if index <= told.index:
                told.before = now
            elif now != told.before:
                del self._told[node]
        return {node: told.address for node, told in self._told.items()}

    def _tell(self, node: int, address: str) -> None:
        before = self._metadata.membership.peers.get(node, "")
        last = self._proposer.group.journal.last_index
        if node != self._config.node_id and address and address != before:
            self._told[node] = Told(address, last, before)

    def is_lost(self, now: float) -> bool:
        """Return whether to ask for the others' addresses again: no node leads."""
        if self._proposer.group.leader_id or not self._identity.instance:
            self._led_until = now
            return False
        self._led_until = now if self._led_until == float("-inf") else self._led_until
        if now - max(self._led_until, self._asked_at) < ASK_AGAIN:
            return False
        self._asked_at = now
        return True

    def told(self, answers: Iterable[pb.Welcome | None]) -> None:
        """Take the addresses told by the nodes that were asked again."""
        founding = self._identity.membership.founding
        for answer in answers:
            if answer is not None and answer.founding == founding and answer.instance:
                for node, at in answer.peers.items():
                    if self._addresses.get(node) != at and node in self._addresses:
                        log.info("node %d is at %s, as another one says", node, at)
                        self._tell(node, at)
        self.follow()

    @property
    def join(self) -> pb.Join:
        """This node's question to others."""
        config = self._config
        return join_of(config, self._identity.directory_id, self._identity.instance)

    def heard_of(self, hello: pb.Hello) -> None:
        """Take another node's Hello. A node that joined later than all known here is let in.

        So is a member whose address no other node could tell: a node that joined, and found no
        peer when it started again, knows no addresses.
        """
        ours, address = self._identity, hello.peer_address
        if self._is_of_older(hello):
            self._older = hello
        is_ours = hello.cluster_id == ours.cluster_id and ours.membership.is_of(hello)
        if not is_ours or hello.node_id == ours.node_id:
            return
        view = self._metadata.membership
        is_member = hello.node_id in {*self._metadata.nodes, *view.own.replicas}
        may_be = is_member or view.own.version < self._said_version
        is_lost = may_be and hello.node_id not in self._addresses
        if not address or (hello.instance <= view.own.version and not is_lost):
            return
        if hello.node_id not in self._said and len(self._said) >= MAX_NODES:
            return
        if self._said.get(hello.node_id) == address and hello.instance <= self._said_version:
            return
        log.info("node %d is at %s, as it says: nobody else did", hello.node_id, address)
        self._said[hello.node_id] = address
        self._said_version = max(self._said_version, hello.instance)
        self.follow()

    def _is_of_older(self, hello: pb.Hello) -> bool:
        """Return whether a node of a grown cluster looks for this node, which has no peers.

        That cluster began with this node's id, and added the other. So this one replaced an older
        node, and has founded anew, with an empty directory.
        """
        ours, own = self._identity, self._config.node_id
        view = self._metadata.membership
        is_alone = {*self._metadata.nodes, *view.own.replicas, *view.expected} <= {own}
        is_other = hello.founding not in (0, ours.membership.founding)
        is_named = hello.cluster_id == ours.cluster_id and own in hello.members
        return is_alone and is_other and is_named and hello.instance > 0 and hello.node_id != own

    def welcome(self, join: pb.Join) -> pb.Welcome:
        """Answer a node with a new directory; its role is proposed."""
        if join.node_id == self._config.node_id:
            return pb.Welcome(why_not=f"node_id {join.node_id} is its own", refused=True)
        ours = self._identity.membership
        group = self._proposer.group.members
        begun = (ours.members, ours.founding, self._founder.admit)
        is_founder = bool(self._founder.has_admitted)
        try:
            answer, command = welcome(join, self._metadata, group, *begun, is_founder)
        except StorageError as error:
            return pb.Welcome(why_not=f"it cannot be admitted now: {error}")
        if answer.instance:
            # An absent node may not have told its address, and others have moved.
            known = {**self._addresses, **answer.peers, **self._told_now()}
            known[self._config.node_id] = own_stream(self._config)
            answer.peers.update(known)
            # Other nodes do not look at its new address: no leader would hear it from itself.
            self._tell(join.node_id, join.peer_address)
            self.follow()
            self._say_anew(join.node_id, join.directory_id, join.address, join.peer_address)
        if command is not None:
            self._propose_once(command)
        return answer

    def look(self) -> None:
        """Report this node's address periodically, if the metadata has another.

        It also reports addresses that absent nodes have not: a node that joins meanwhile, and
        leads, could neither reach them nor be heard by them.
        """
        view, own = self._metadata.membership, self._config.node_id
        if not view.is_changing:
            return
        ours = (self._config.advertised, own_stream(self._config))
        self._say_anew(own, self._identity.directory_id, *ours)
        for node, at in self._addresses.items():
            if node not in view.peers and node in self._metadata.nodes:
                self._say(node, self._metadata.directory_of(node), self._metadata.nodes[node], at)

    def _say_anew(self, node: int, directory: int, address: str, peer_address: str) -> None:
        """Report a node's address, if the metadata has another."""
        known = (self._metadata.nodes.get(node), self._metadata.membership.peers.get(node))
        if known != (address, peer_address):
            self._say(node, directory, address, peer_address)

    def _say(self, node: int, directory: int, address: str, peer_address: str) -> None:
        """Propose the address, unless the directory has no place: `welcome` proposes that."""
        if directory == self._metadata.directory_of(node) > 0:
            self._propose_once(
                mpb.JoinNode(
                    node_id=node,
                    directory_id=directory,
                    address=address,
                    peer_address=peer_address,
                    addresses_only=True,
                )
            )

    def check_place(self, now: float) -> None:
        """Raises ClusterError if this node has no place.

        It was removed, and no other node needs its word for it, or it founded a cluster though
        others know it by an older one.
        """
        if self._older is not None:
            raise ClusterError(_founded_twice(self._identity, self._older))
        if self._proposer.group.removed is None or self._peers.linked_since:
            self._gone_since = None
            return
        self._gone_since = self._gone_since or now
        if now - self._gone_since > REFUSAL_TIMEOUT:
            text = "this node was removed from its cluster: its data directory is of no more use"
            raise RemovedError(text)

    def _propose_once(self, command: mpb.JoinNode) -> None:
        node = command.node_id
        if node not in self._proposing:
            self._proposing.add(node)
            self._proposer.propose(
                mpb.MetadataCommand(join_node=command), lambda: self._proposing.discard(node)
            )


def _founded_twice(ours: NodeIdentity, older: pb.Hello) -> str:
    return (
        f"node {older.node_id} at {older.peer_address} looks here for node {ours.node_id} of "
        f"cluster {ours.cluster_id!r}, founded as {older.founding:016x}. This node founded another "
        f"one, as {ours.membership.founding:016x}: keep its data directory aside, and start "
        f"it with an empty one and `join` set to the addresses of the other nodes"
    )
