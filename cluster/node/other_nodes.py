"""Which other nodes there are and where: by the settings at first, then by the metadata.

    settings `nodes`, Welcome, Hello --addresses--> OtherNodes --> links, who may connect
    metadata: JoinNode ----------------------'     '--JoinNode--> metadata (where this node is)
    joining node --Join--> OtherNodes.welcome --Welcome-->

An address that the settings name counts before what a node says of itself. As long as the
metadata here is behind what other nodes say, it takes nobody away: what it lacks may be on its
way from a node that it does not know yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from cluster.config import MAX_NODES, NodeConfig, check_peer_ports
from cluster.errors import ClusterError
from cluster.exposure import check_exposure
from cluster.metadata.state import MetadataState
from cluster.node.joining import welcome
from cluster.node.maintenance_loop import Tasks
from cluster.node.metadata_proposer import MetadataProposer
from cluster.node.peers import REFUSAL_TIMEOUT, Peers
from cluster.node.places import named, own_listen, own_stream
from cluster.transport.link import Identity
from cluster.transport.listener import PeerListener
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from storage.lives import Lives

log = logging.getLogger(__name__)

LOOK_PERIOD = 0.5  # seconds
COMMAND_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Places:
    """What a node has before it opens its replicas.

    addresses: nodes that its listener lets in; changes in place.
    said: where peers are, as the node was told when it joined.
    """

    identity: Identity
    listener: PeerListener
    addresses: dict[int, str]
    said: Mapping[int, str]
    lives: Lives


class OtherNodes:
    """Of one node. on_failure(error): the node must end."""

    def __init__(
        self,
        config: NodeConfig,
        places: Places,
        peers: Peers,
        metadata: MetadataState,
        proposer: MetadataProposer,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config, self._identity, self._listener = config, places.identity, places.listener
        self._addresses, self._peers, self._on_failure = places.addresses, peers, on_failure
        self._metadata, self._proposer, self._group = metadata, proposer, proposer.group
        self._named = named(config)
        self._said = {node: at for node, at in places.said.items() if node != config.node_id}
        self._said_version = self._identity.instance  # of the configuration that `said` is from
        self._gone_since: float | None = None
        self._is_removed = False
        self._proposing: set[int] = set()
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.stop()

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
        if command is not None and command.node_id not in self._proposing:
            self._proposing.add(command.node_id)
            self._tasks.spawn(self._propose(command))
        return answer

    async def _propose(self, command: mpb.JoinNode) -> None:
        try:
            result = await self._proposer.propose(
                mpb.MetadataCommand(join_node=command), COMMAND_TIMEOUT
            )
        except ClusterError as error:
            log.info("node %d was not taken in this time: %s", command.node_id, error)
        else:
            if result.error:
                log.info("node %d has to wait: %s", command.node_id, result.message)
        finally:
            self._proposing.discard(command.node_id)

    async def watch(self, stop_serving: Callable[[], Awaitable[None]]) -> None:
        """Now and then: says where this node is, listens, ends a node that was removed.

        What such a node knows is out of date: its clients have to ask others.
        """
        node_id = self._config.node_id
        while True:
            view = self._metadata.membership
            if view.is_changing and not self._listener.is_bound:
                try:
                    await self.listen()
                except ClusterError as error:
                    self._on_failure(error)
                    return
            own, directory_id = own_stream(self._config), self._identity.directory_id
            known = self._metadata.directory_of(node_id) == directory_id
            if view.is_changing and known and view.peers.get(node_id) != own:
                await self._propose(
                    mpb.JoinNode(
                        node_id=node_id,
                        directory_id=directory_id,
                        address=self._config.advertised,
                        peer_address=own,
                    )
                )
            if self._group.removed is not None and not self._is_removed:
                log.warning("this node was removed from its cluster: it serves no clients any more")
                self._is_removed = True
                await stop_serving()
            self._end_if_removed()
            await asyncio.sleep(LOOK_PERIOD)

    async def listen(self) -> None:
        """A node that was alone may have peers. Raises ConfigError, ListenError."""
        if not self._listener.is_bound:
            check_peer_ports(self._config, self._config.nodes)
            check_exposure(self._config, alone=False)
            self._listener.bind(own_listen(self._config))
            await self._listener.start()

    def _end_if_removed(self) -> None:
        """Not at once: others may need its word that the removal is in force."""
        now = asyncio.get_running_loop().time()
        if self._group.removed is None or self._peers.linked_since:
            self._gone_since = None
            return
        self._gone_since = self._gone_since or now
        if now - self._gone_since > REFUSAL_TIMEOUT:
            text = "this node was removed from its cluster: its data directory is of no more use"
            self._on_failure(ClusterError(text))
