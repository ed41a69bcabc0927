"""Which other nodes there are and where: by the settings at first, then by the metadata.

    settings `nodes`, Welcome, Hello --addresses--> OtherNodes --> links, who may connect
    metadata: JoinNode ----------------------'     '--JoinNode--> metadata (where this node is)
    joining node --Join--> OtherNodes.welcome --Welcome-->

An address that the settings name counts before what a node says of itself. As long as the
metadata here is behind what other nodes say, it takes nobody away: what it lacks may be on its
way from a node that it does not know yet. Nothing here waits or touches a socket: the
simulator's nodes meet by the same objects. What takes time is in `own_place`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.config import MAX_NODES, NodeConfig
from cluster.consensus.group import Group
from cluster.errors import ClusterError
from cluster.metadata.state import MetadataState
from cluster.node.joining import welcome
from cluster.node.peers import REFUSAL_TIMEOUT, Peers
from cluster.node.places import named, own_stream
from cluster.node.replica_changes import Propose
from cluster.transport.hellos import Identity
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Places:
    """What a node knows of nodes before it opens its replicas.

    addresses: nodes that its listener lets in; changes in place.
    said: where peers are, as the node was told when it joined.
    """

    identity: Identity
    addresses: dict[int, str]
    said: Mapping[int, str]


class OtherNodes:
    """Of one node. propose(command, done): to the metadata group; `done` is called once."""

    def __init__(
        self,
        config: NodeConfig,
        places: Places,
        peers: Peers,
        metadata: MetadataState,
        group: Group,
        propose: Propose,
    ) -> None:
        self._config, self._identity, self._peers = config, places.identity, peers
        self._addresses, self._propose = places.addresses, propose
        self._metadata, self._group = metadata, group
        self._named = named(config)
        self._said = {node: at for node, at in places.said.items() if node != config.node_id}
        self._said_version = self._identity.instance  # of the configuration that `said` is from
        self._gone_since: float | None = None
        self._proposing: set[int] = set()

    def follow(self) -> None:
        """The metadata may name other nodes than before."""
        view = self._metadata.membership
        is_behind = view.own.version < self._said_version
        if view.own.replicas and not is_behind:
            known = {*self._metadata.nodes, *view.own.replicas}
        else:
            known = {*self._metadata.nodes, *self._named, *self._said, *view.peers}
        older, newer = (view.peers, self._said) if is_behind else (self._said, view.peers)
        found = {**older, **newer, **self._named}
        others = sorted(known - {self._config.node_id})
        self._addresses.clear()
        self._addresses.update({node: found[node] for node in others if node in found})
        self._peers.connect_to(self._addresses)

    def heard_of(self, hello: pb.Hello) -> None:
        """Of another node of this cluster. One that joined later than all known here is let in."""
        ours, address = self._identity, hello.peer_address
        founding = ours.membership.founding
        is_ours = hello.cluster_id == ours.cluster_id and hello.founding == founding != 0
        if not is_ours or hello.node_id == ours.node_id:
            return
        if hello.instance <= self._metadata.membership.own.version or not address:
            return
        if hello.node_id not in self._said and len(self._said) >= MAX_NODES:
            return
        if self._said.get(hello.node_id) == address and hello.instance <= self._said_version:
            return
        log.info("node %d is at %s, as it says: this node is behind", hello.node_id, address)
        self._said[hello.node_id] = address
        self._said_version = max(self._said_version, hello.instance)
        self.follow()

    def welcome(self, join: pb.Join) -> pb.Welcome:
        """Answers a node with a new directory; what it may become is proposed."""
        if join.node_id == self._config.node_id:
            return pb.Welcome(why_not=f"node_id {join.node_id} is its own", refused=True)
        ours = self._identity.membership
        group = self._group.members
        answer, command = welcome(join, self._metadata, group, ours.members, ours.founding)
        if answer.instance:
            # One that is away may not have said itself where it is.
            known = {**self._addresses, self._config.node_id: own_stream(self._config)}
            answer.peers.update(
                {node: at for node, at in known.items() if node not in answer.peers}
            )
        if command is not None:
            self._propose_once(command)
        return answer

    def look(self) -> None:
        """Now and then: says where this node is, if the metadata has it otherwise."""
        node_id, directory_id = self._config.node_id, self._identity.directory_id
        view, own = self._metadata.membership, own_stream(self._config)
        known = self._metadata.directory_of(node_id) == directory_id
        if view.is_changing and known and view.peers.get(node_id) != own:
            self._propose_once(
                mpb.JoinNode(
                    node_id=node_id,
                    directory_id=directory_id,
                    address=self._config.advertised,
                    peer_address=own,
                )
            )

    def check_removed(self, now: float) -> None:
        """Raises ClusterError where this node was removed, and no other needs its word for it."""
        if self._group.removed is None or self._peers.linked_since:
            self._gone_since = None
            return
        self._gone_since = self._gone_since or now
        if now - self._gone_since > REFUSAL_TIMEOUT:
            text = "this node was removed from its cluster: its data directory is of no more use"
            raise ClusterError(text)

    def _propose_once(self, command: mpb.JoinNode) -> None:
        node = command.node_id
        if node not in self._proposing:
            self._proposing.add(node)
            self._propose(
                mpb.MetadataCommand(join_node=command), lambda: self._proposing.discard(node)
            )
