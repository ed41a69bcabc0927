"""Meetings of simulated nodes: by the nodes' own code, over the simulated network.

    Network.connect --> Contacts.meet: NodeIdentity.hello --> Acceptance --> Answers --> the link
    Joining --> Contacts.welcome: Join --> Acceptance --> OtherNodes --> Welcome
    metadata --> OtherNodes.follow --> Peers.connect_to --> the links

Acceptance, Answers, Peers and OtherNodes are the product's objects; only the connection is
simulated. A link that is up goes on without a new Hello until it breaks; the listener looks
again at each of them now and then, and hears late that one broke. A node that is refused for too
long ends, and that is a violation if its directory is sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.consensus.group import Group
from cluster.metadata.state import MetadataState
from cluster.node.links.addresses import named, own_stream
from cluster.node.links.peers import Peers
from cluster.node.membership.known_nodes import KnownNodes, OtherNodes
from cluster.node.membership.registration import refusal, write_claim
from cluster.transport.frames import FrameError
from cluster.transport.hellos import Acceptance, Answers, NodeIdentity
from cluster.transport.membership import Membership
from cluster.transport.stream import MISSED_PINGS, PING_EVERY
from cluster.transport.versions import PeerVersions
from cluster.v1 import peer_pb2 as pb
from tests.sim.checker import Violation

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.node import Node

NOTICED = 0.02  # seconds until a listener knows that a connection was closed
UNNOTICED = PING_EVERY * MISSED_PINGS  # at most, where nothing passes


class SimLink:
    """Stands for a PeerLink."""

    is_closed = True

    def __init__(self, node: Node, identity: NodeIdentity, peer: int, address: str,
                 on_refusal: Any) -> None:  # fmt: skip
        self.address, self.answers = address, Answers(identity, peer, on_refusal)
        self._network, self._ends = node.cluster.network, (node.id, peer)
        node.cluster.scheduler.after(0.0, self._network.connect, *self._ends)

    def stop(self) -> None:
        self._network.reset(*self._ends)


class Contacts:
    """Contacts of one process."""

    def __init__(self, node: Node, state: MetadataState, peers: Peers, group: Group) -> None:
        joining = node.joining

        def make_link(peer: int, address: str, on_link: Any, on_refusal: Any) -> Any:
            return SimLink(node, self.identity, peer, address, on_refusal)

        def write_registration(hello: pb.Hello) -> None:
            claim = node.registering.claim()
            write_claim(hello, claim.begun, claim.known, claim.number)

        self.identity: NodeIdentity = NodeIdentity(
            joining.config.cluster_id,
            node.id,
            node.incarnation,
            joining.directory_id,
            Membership(joining.members, joining.founding),
            PeerVersions(node.release, lambda: state.finalized),
            instance=joining.instance,
            peer_address=own_stream(joining.config),
            write_registration=write_registration,
        )
        addresses = {**joining.said, **named(joining.config)}
        self.group, self.propose = group, node.propose_metadata
        known = KnownNodes(self.identity, addresses, joining.said, joining)
        self.others = OtherNodes(joining.config, known, peers, state, self)
        self.acceptance = Acceptance(
            self.identity,
            addresses,
            lambda peer, instance: state.directory_of(peer, instance),  # noqa: PLW0108
            self.others.welcome,
            lambda hello: refusal(state.membership, hello),
            self.others.heard_of,
        )
        peers.open(make_link)
        self.others.follow()


class Meetings:
    """Meetings of a cluster: the network asks here before a link is up, and reports broken ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[tuple[int, int], tuple[Acceptance, pb.Hello]] = {}

    def _contacts(self, node: int) -> Contacts:
        found = self._cluster.nodes[node].running.contacts
        assert found is not None
        return found

    def answers(self, sender: int, receiver: int) -> bool:
        """Tells whether a node that connects to the receiver hears from it."""
        links, node = self._cluster.network.links, self._cluster.nodes[receiver]
        is_open = not (links[sender, receiver].blocked or links[receiver, sender].blocked)
        there = node.alive or node.joining.is_asking
        return is_open and there and self._cluster.scheduler.now >= node.paused_until

    def wants(self, sender: int, receiver: int) -> bool:
        """Tells whether the sender knows the receiver as a node of its cluster, and its address."""
        process, joining = (
            self._cluster.nodes[sender].process,
            self._cluster.nodes[receiver].joining,
        )
        link = None if process is None else process.peers.links.get(receiver)
        return link is not None and link.address == joining.stream

    def hears(self, node: int) -> bool:
        """Tells whether a process is there that does not know its cluster, and takes Hellos."""
        return self._cluster.nodes[node].joining.is_asking

    def meet(self, sender: int, receiver: int) -> bool:
        """Connects two nodes, which exchange Hellos; returns whether the link is up then."""
        cluster = self._cluster
        now, node = cluster.scheduler.now, cluster.nodes[sender]
        there = self.wants(sender, receiver) and self.answers(sender, receiver)
        if now < node.paused_until or not there:
            return False
        hello = self._contacts(sender).identity.hello()
        is_open, joining = cluster.nodes[receiver].alive, cluster.nodes[receiver].joining
        acceptance = self._contacts(receiver).acceptance if is_open else joining.acceptance()
        try:
            answer = acceptance.answer(hello)
        except FrameError:
            return False
        link: Any = node.running.peers.links.get(receiver)
        if link is None or not link.answers.accepts(answer):
            return False
        assert not answer.refused
        acceptance.begin(hello)
        self._open[sender, receiver] = (acceptance, hello)
        cluster.scheduler.after(PING_EVERY, self._look_again, sender, receiver, hello)
        return True

    def parted(self, sender: int, receiver: int) -> None:
        """Breaks the connection, if there was one."""
        found = self._open.pop((sender, receiver), None)
        if found is not None:
            cluster = self._cluster
            passes = not cluster.network.links[sender, receiver].blocked
            longest = NOTICED if passes else UNNOTICED
            cluster.scheduler.after(longest * cluster.rng.random(), found[0].end, found[1])

    def _look_again(self, sender: int, receiver: int, hello: pb.Hello) -> None:
        acceptance, current = self._open.get((sender, receiver), (None, None))
        if current is not hello or acceptance is None:
            return
        cluster = self._cluster
        refused = acceptance.refused_by_now(hello)
        if refused and cluster.scheduler.now >= cluster.nodes[receiver].paused_until:
            cluster.trace("node %d closes the stream of %d: %s", receiver, sender, refused)
            cluster.network.reset(sender, receiver)
            return
        cluster.scheduler.after(PING_EVERY, self._look_again, sender, receiver, hello)


def failed(node: Node, error: BaseException) -> None:
    """Ends a failed process; it may be in the middle of something."""
    node.cluster.scheduler.after(0.0, _end, node, node.incarnation, str(error))


def _end(node: Node, incarnation: int, why: str) -> None:
    if node.alive and node.incarnation == incarnation:
        if node.joining.is_sound:
            raise Violation(f"node {node.id} ends, and its directory is sound: {why}")
        node.crash(why)
