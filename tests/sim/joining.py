"""Entry of a simulated node with a new directory: it asks the nodes that an operator named, by the
real rules, until it has an instance. A process runs only from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cluster.config.addresses import host_and_port
from cluster.config.node_config import NodeConfig
from cluster.errors import ClusterError
from cluster.features import Finalized
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.links.addresses import asked, own_stream
from cluster.node.membership.find_cluster import Admission
from cluster.transport.hellos import Acceptance, NodeIdentity
from cluster.transport.membership import Membership
from cluster.transport.versions import PeerVersions
from cluster.v1 import peer_pb2 as pb
from tests.sim.checker import Violation
from tests.sim.disk import Disk
from tests.sim.machines import Volume

if TYPE_CHECKING:
    from tests.sim.node import Node

ASK_PERIOD = 0.4
FOUNDING = 7  # the number that all members share
NEXT_DIRECTORY = 100  # a new one has a number whose last digits are the node
PORT, PEER_PORT_OFFSET = 1, 1000
MAX_ASKED = 2  # nodes that a node is told to ask
MAX_ASKS = 20  # asks, until its operator names others


class NothingLeftError(Exception):
    """All disks are lost: a newly founded cluster is another one, and harms no copy."""


class Joining:
    """A node's way into the cluster, and its `Directory`: its identity file.

    said: addresses of other nodes, as the node was told at its start.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        founding = node.cluster.founding
        self.directory_id, self.instance = node.id, 0
        self.is_done = node.id in founding
        self.founding = FOUNDING if self.is_done else 0
        # The first node has founded the cluster.
        self.has_admitted = {one: one for one in founding} if node.id == min(founding) else {}
        self.members = tuple(founding)
        self.place = 0  # how often it has moved
        self.config = self._config(founding if self.is_done else [node.id])
        self.said: dict[int, str] = {}
        self._asks, self._asked, self.keeps_first = False, 0, False
        self.stream = own_stream(self.config)
        self._admission = Admission(self.config, self)

    @property
    def is_sound(self) -> bool:
        """Tells whether the directory is the node's, and was neither given up nor put back."""
        node = self._node
        given_up = (node.id, self.directory_id) in node.cluster.removed
        return self.is_done and not (given_up or node.registering.is_copy)

    @property
    def is_asking(self) -> bool:
        """Tells whether a process runs that does not know its cluster yet."""
        return self._asks

    def admit(self, number: int, directory: int) -> bool:
        if self.has_admitted:
            self.has_admitted.setdefault(number, directory)
        return self.has_admitted.get(number) == directory

    def found(self, members: Iterable[int]) -> None:
        """Founds a cluster. No run begins without one, so there was one before.

        Where each first node lost its disk, nobody that this one may ask remembers it.
        """
        cluster = self._node.cluster
        if not any(cluster.nodes[first].joining.is_done for first in cluster.founding):
            raise NothingLeftError
        raise Violation(f"node {self._node.id} founds a second history")

    def note_founding(self, members: Iterable[int], founding: int) -> None:
        self.members, self.founding, self.is_done = tuple(members), founding, True
        self._node.cluster.trace("node %d begins with the cluster", self._node.id)

    def note_joined(self, members: Iterable[int], founding: int, instance: int) -> None:
        self.members, self.founding, self.instance = tuple(members), founding, instance
        self.is_done = True
        self._node.cluster.trace("node %d joins as instance %d", self._node.id, instance)

    def start(self) -> None:
        """Asks; with a directory that joined, only for the others' addresses."""
        if self.instance:
            self.said = self._ask_all()
        elif not self._asks and not self.is_done:
            self._configure(self.config)
            self._asks, self._asked = True, 0
            for peer in self._node.cluster.node_ids:
                if peer != self._node.id:  # nodes that look for it go on looking
                    self._node.cluster.network.connect(peer, self._node.id)
            self._node.cluster.scheduler.after(ASK_PERIOD, self._ask)

    def wipe(self) -> None:
        """Loses the disk with its promises; a new directory is in its place."""
        node, cluster = self._node, self._node.cluster
        if node.alive:
            node.crash("disk lost")
        node.volume = Volume(node.id)
        node.volume.disk = Disk()
        node.cluster_version = 1
        node.registering.wipe()
        self.directory_id += NEXT_DIRECTORY
        self.instance, self.founding, self.is_done, self.said = 0, 0, False, {}
        self.has_admitted = {}
        self._name_others()
        cluster.checker.disk_lost(node.id, node.disk)
        cluster.trace("node %d has an empty disk", node.id)

    def _config(self, nodes: Iterable[int], join: str = "") -> NodeConfig:
        number = self._node.id
        return NodeConfig(
            cluster_id="sim",
            node_id=number,
            listen=address_of(number, self.place),
            advertise=address_of(number, self.place),
            nodes={one: self._address(one) for one in nodes},
            join=join,
            peer_port_offset=PEER_PORT_OFFSET,
        )

    def _name_others(self) -> None:
        """Has an operator set the nodes to ask: all first ones, or some that are members."""
        cluster, number = self._node.cluster, self._node.id
        if number in cluster.founding and cluster.rng.random() < 0.5:
            self._configure(self._config(cluster.founding))
        else:
            there = [one for one in cluster.placement()[METADATA_GROUP] if one != number]
            self.name(cluster.rng.sample(there, min(MAX_ASKED, len(there))))

    def name(self, asked: Iterable[int]) -> None:
        """Has an operator make the node ask these, and name no other node."""
        self.keeps_first = False
        join = ",".join(map(self._address, asked))
        self._configure(self._config([self._node.id], join))

    def _address(self, number: int) -> str:
        """The node's current address."""
        place = self.place if number == self._node.id else self._node.cluster.places.get(number, 0)
        return address_of(number, place)

    def move(self) -> None:
        """Moves the machine to another address; its operator tells nobody yet."""
        assert not self._node.alive
        self.place = self._node.cluster.places[self._node.id] = self.place + 1
        self._configure(self._config([self._node.id]))

    def ask_again(self) -> list[pb.Welcome | None]:
        return [self._welcome(address) for address in asked(self.config)]

    def name_first(self) -> None:
        """Names the first nodes: the settings of the cluster's beginning, which nobody changes."""
        self._configure(self._config(self._node.cluster.founding))
        self.keeps_first = True

    def _configure(self, config: NodeConfig) -> None:
        self.config, self._admission = config, Admission(config, self)
        self.stream = own_stream(config)
        self._admission.hears = True

    def _ask(self) -> None:
        """Asks others until one answers: with an empty disk a node founds no cluster anew."""
        node, self._asks = self._node, False
        if node.alive:
            return
        if self.is_done:
            node.start()
            return
        if self._asked % MAX_ASKS == 0 and not self.keeps_first:
            self._name_others()
        try:
            self.said = self._ask_all()
        except ClusterError as error:
            node.cluster.trace("node %d ends: %s", node.id, error)
            return
        if self.founding:
            node.start()
            return
        self._asks, self._asked = True, self._asked + 1
        node.cluster.scheduler.after(ASK_PERIOD, self._ask)

    def acceptance(self) -> Acceptance:
        """Builds the acceptance of Hellos while it asks."""
        joining = self

        def version() -> Finalized:
            return Finalized(joining._node.cluster_version)

        versions, membership = PeerVersions(self._node.release, version), Membership((), 0)
        return self._admission.acceptance(
            NodeIdentity("sim", self._node.id, 0, self.directory_id, membership, versions)
        )

    def _ask_all(self) -> dict[int, str]:
        answers = {address: self._welcome(address) for address in asked(self.config)}
        return dict(self._admission.take(self._node.cluster.scheduler.now, answers) or {})

    def _welcome(self, address: str) -> pb.Welcome | None:
        cluster, number = self._node.cluster, node_at(address)
        if address != cluster.nodes[number].joining.stream:
            return None
        if not cluster.meetings.answers(self._node.id, number):
            return None
        other = cluster.nodes[number].joining
        if other.is_asking:
            return other.acceptance().answer_join(self._admission.join)
        contacts = cluster.nodes[number].running.contacts
        assert contacts is not None
        return contacts.acceptance.answer_join(self._admission.join)


def address_of(node: int, place: int) -> str:
    return f"node{node}-{place}:{PORT}" if place else f"node{node}:{PORT}"


def node_at(address: str) -> int:
    return int(host_and_port(address)[0].removeprefix("node").partition("-")[0])
