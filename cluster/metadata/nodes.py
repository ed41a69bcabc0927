"""Nodes of the cluster: members, nodes that may join, nodes that leave. Pure.

    ChangeNode --expected, leaving--> leaders of groups, step by step --> their logs
    JoinNode (a new data directory) --> nodes, directories --> a learner of the metadata group

A node is identified by its data directory. A node with a lost directory is *expected*: the old
directory is void, and its replicas are lost in all groups. A new directory may join once the
metadata group itself has removed the old replica (`Tables.own`), so that no empty replica can vote
in its place. An added node is expected from the beginning. A node is *joining* from its directory's
acceptance until the metadata group has it.

A removed node is *leaving*: its partitions go to other nodes, then its replica of the metadata is
removed, then it is forgotten. Its directory never comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cluster.features import KAFKA, METADATA_LEARNERS, PLACES
from cluster.metadata.node_loads import MANY_NODES, MAX_NEIGHBOURS, NodeLoads
from cluster.metadata.places import MAX_LABEL_CHARS, NodePlace, Spread
from cluster.metadata.registrations import (
    Registration,
    RegistrationClaim,
    is_put_back,
    put_back,
    registered,
)
from cluster.metadata.tables import Tables
from cluster.metadata.topics import NOT_SUPPORTED, PartitionState, Rejected, invalid, is_internal
from cluster.metadata.voters import MOST
from cluster.v1 import metadata_pb2 as pb

MAX_NODES = 64  # that a cluster may begin with
MAX_GROWN = 32  # nodes to which a cluster may grow, see docs/how-large.md
MAX_VOTING = 9  # the same where all nodes vote on the metadata: its group takes no more voters
MAX_NODE_ID = 1_000_000
MAX_ADDRESS_CHARS = 255
MAX_NAMED = 20  # partitions in an error
UNKNOWN_DIRECTORY = -1  # as a directory's id: no directory is let in


def change(tables: Tables, command: pb.ChangeNode) -> bool:
    """Changes the nodes; returns whether it changed something. Raises Rejected."""
    node = command.node_id
    if command.action == pb.NODE_ACTION_ADD:
        return _add(tables, node)
    _check_known(tables, node)
    match command.action:
        case pb.NODE_ACTION_REPLACE:
            return _replace(tables, command)
        case pb.NODE_ACTION_REMOVE:
            return _remove(tables, node)
        case pb.NODE_ACTION_KEEP:
            if node in tables.leaving and node not in tables.own.replicas and tables.own.replicas:
                raise invalid("node_id", f"{node} is already removed; add it again")
            return _moved(tables.leaving, node, there=False)
        case pb.NODE_ACTION_DRAIN:
            return _moved(tables.drained, node, there=True)
        case pb.NODE_ACTION_UNDRAIN:
            return _moved(tables.drained, node, there=False)
        case pb.NODE_ACTION_FORGET:
            return _forget(tables, node)
    raise invalid("action", f"{command.action} is not supported by this release")


def join(tables: Tables, command: pb.JoinNode) -> bool:
    """Lets a directory join; returns whether it changed something. Raises Rejected."""
    node, directory = command.node_id, command.directory_id
    for name, address in (("address", command.address), ("peer_address", command.peer_address)):
        if not 1 <= len(address) <= MAX_ADDRESS_CHARS:
            raise invalid(name, f"must have 1..{MAX_ADDRESS_CHARS} characters")
    owners = [known for known, held in tables.directories.items() if held == directory]
    if not directory:
        raise invalid("directory_id", "must not be 0")
    if owners not in ([], [node]):
        raise invalid("directory_id", f"{directory} belongs to node {owners[0]}")
    if not owners:
        if node not in tables.expected:
            raise Rejected(NOT_SUPPORTED, not_expected(tables, node))
        if not tables.own.replicas or node in tables.own.replicas:
            text = f"the metadata group has not removed the old replica of node {node} yet"
            raise Rejected(NOT_SUPPORTED, text)
        tables.joining.add(node)
        tables.registrations.pop(node, None)
    before = (tables.nodes.get(node), tables.peers.get(node), owners)
    tables.expected.discard(node)
    tables.directories[node] = directory
    tables.nodes[node], tables.peers[node] = command.address, command.peer_address
    return before != (command.address, command.peer_address, [node])


def not_expected(tables: Tables, node: int) -> str:
    """Returns the next step before a new directory of the node may join."""
    if node in tables.expected & tables.leaving:
        return f"node {being_removed(node)}"
    if node in tables.nodes or node in tables.own.replicas:
        return other_directory(node)
    return f"node {node} is not expected: `oncelog node add {node}` comes first"


def being_removed(node: int) -> str:
    return (
        f"{node} is being removed, and no new directory of it joins: when `oncelog node list` no "
        f"longer shows it, `oncelog node add {node}` lets one join"
    )


def other_directory(node: int) -> str:
    return (
        f"node_id {node} is registered with another data directory: one that was emptied or "
        f"replaced has forgotten votes and acknowledgements. If the old one is lost, say so: "
        f"`oncelog node replace {node}`"
    )


def register(tables: Tables, command: pb.RegisterNode) -> bool:
    """Registers a node's addresses and labels. Returns whether they are new. Raises Rejected."""
    node = command.node_id
    if node < 1:
        raise invalid("node_id", f"{node} must be at least 1")
    if not 1 <= len(command.address) <= MAX_ADDRESS_CHARS:
        raise invalid("address", f"must have 1..{MAX_ADDRESS_CHARS} characters")
    if len(command.kafka_address) > MAX_ADDRESS_CHARS:
        raise invalid("kafka_address", f"must have ..{MAX_ADDRESS_CHARS} characters")
    if command.kafka_address and not tables.finalized.has(KAFKA):
        raise Rejected(NOT_SUPPORTED, f"kafka_address: needs the feature {KAFKA!r}")
    place = _place(tables, command)
    if node not in tables.nodes and len(tables.nodes) >= MAX_NODES:
        raise invalid("node_id", f"the cluster has {MAX_NODES} nodes, which is the limit")
    known = directory_of(tables, node)
    if known and command.directory_id != known:
        raise invalid("directory_id", f"node {node} is registered with another data directory")
    registration = registered(node, tables.registrations.get(node), command)
    if registration is not None:
        tables.registrations[node] = registration
    if command.directory_id:
        tables.directories[node] = command.directory_id
    before = (
        tables.nodes.get(node),
        tables.kafka.get(node, ""),
        tables.places.get(node, NodePlace()),
    )
    if before == (command.address, command.kafka_address, place):
        return False
    tables.nodes[node] = command.address
    tables.kafka.pop(node, None)
    if command.kafka_address:
        tables.kafka[node] = command.kafka_address
    tables.places.pop(node, None)
    if any(place):
        tables.places[node] = place
    return True


def _place(tables: Tables, command: pb.RegisterNode) -> NodePlace:
    """Returns the node's labels. Raises Rejected."""
    place = NodePlace(command.rack, command.machine)
    for name, label in place._asdict().items():
        if len(label) > MAX_LABEL_CHARS:
            raise invalid(name, f"must have ..{MAX_LABEL_CHARS} characters")
        if label and not tables.finalized.has(PLACES):
            raise Rejected(NOT_SUPPORTED, f"{name}: needs the feature {PLACES!r}")
    return place


def directory_of(tables: Tables, node: int, instance: int = 0) -> int:
    """Returns the only directory that may speak for the node; 0: any, it is a founding node.

    instance: the directory says that it joined with this number of the cluster. If that is newer
    than all configurations known here, so may be the directory: any may speak.
    """
    if instance > tables.own.version:
        return 0
    known = tables.directories.get(node, 0)
    if known or not (tables.own.replicas or node in tables.expected):
        return known
    begun = node in tables.own.replicas and not tables.own.instance_of(node)
    return 0 if begun and node not in tables.expected else UNKNOWN_DIRECTORY


def holders(tables: Tables) -> Collection[int]:
    """Returns the nodes that new replicas may be placed on."""
    return [node for node in tables.nodes if node not in tables.leaving | tables.expected]


def holds(tables: Tables, node: int) -> bool:
    """Whether the node has a partition, or is the target of one."""
    return any(
        node in record.replicas or node in record.target
        for topic in tables.topics.values()
        for record in topic.partitions
    )


def held_by(tables: Tables, node: int) -> int:
    """Returns how many replicas the node has, without those it is to get."""
    return sum(
        node in record.replicas for topic in tables.topics.values() for record in topic.partitions
    )


def own_target(tables: Tables) -> tuple[int, ...]:
    """Returns the target nodes of the metadata: all with a known directory that stay."""
    gone = {node for node in tables.leaving if not holds(tables, node)}
    return tuple(sorted({*tables.own.replicas, *tables.joining} - tables.expected - gone))


def own_reported(tables: Tables, own: PartitionState, learners: tuple[int, ...]) -> bool:
    """Takes the metadata group's reported replicas. Returns whether they are new."""
    if (own, learners) == (tables.own, tables.learners):
        return False
    # A removed replica's directory cannot come back, so its removal cannot be cancelled now.
    gone = {*tables.own.replicas} - {*own.replicas} - tables.expected
    tables.leaving |= gone & tables.nodes.keys()
    tables.joining -= {*own.replicas}
    tables.own, tables.learners = own, learners
    return True


def _add(tables: Tables, node: int) -> bool:
    if not 1 <= node <= MAX_NODE_ID:
        raise invalid("node_id", f"{node} must be 1..{MAX_NODE_ID}")
    if node in tables.expected and node not in tables.nodes:
        return False
    everybody = {*tables.nodes, *tables.own.replicas, *tables.expected}
    if node in everybody:
        is_leaving = node in tables.leaving
        text = being_removed(node) if is_leaving else f"{node} is a node of the cluster"
        raise invalid("node_id", text)
    most = MAX_GROWN if tables.finalized.has(METADATA_LEARNERS) else MAX_VOTING
    if len(everybody) >= most:
        text = f"the cluster has {len(everybody)} nodes; it can grow to {most}"
        raise invalid("node_id", text)
    tables.expected.add(node)
    return True


def _replace(tables: Tables, command: pb.ChangeNode) -> bool:
    node = command.node_id
    if node in tables.expected:
        return False
    check_replace(tables, command)
    tables.directories.pop(node, None)
    tables.registrations.pop(node, None)
    tables.expected.add(node)
    for topic in list(tables.topics.values()):
        partitions = tuple(_without_directory(record, node) for record in topic.partitions)
        tables.put_topic(replace(topic, partitions=partitions))
    return True


def check_replace(tables: Tables, command: pb.ChangeNode) -> list[str]:
    """Returns the names of the partitions that end if the node is replaced. Raises Rejected."""
    node, directory = command.node_id, command.directory_id
    _check_known(tables, node)
    _check_joined(tables, node)
    current = tables.directories.get(node, 0)
    if directory != current:
        text = (
            f"{directory} is not the directory of node {node}, {current}; list the nodes and repeat"
        )
        raise invalid("directory_id", text)
    _check_others(tables, node)
    lost = _ended(tables, node)
    if lost and not command.accept_loss:
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        text = (
            f"{node} has replicas without which these partitions end, with all that is in them: "
            f"{', '.join(lost[:MAX_NAMED])}{more}. Put its directory back if you can; "
            "else set accept_loss"
        )
        raise invalid("node_id", text)
    return lost


def _ended(tables: Tables, node: int) -> list[str]:
    """Returns the names of the partitions that cannot go on without the node's replica."""
    return [
        f"{topic.name}-{number}"
        for topic in tables.topics_by_name()
        for number, record in enumerate(topic.partitions)
        if node in record.replicas and not goes_on(record, node)
    ]


def goes_on(record: PartitionState, node: int) -> bool:
    """Whether the partition can go on without the node's replica: of two, the other has all.

    The group may be one step ahead of the report: a replica that is to go may have gone.
    """
    if not (record.target or record.lost or record.damaged):  # at rest, as nearly all are
        return _is_enough(len(record.replicas) - 1, len(record.replicas))
    voters, target = {*record.replicas} - {record.learner}, {*record.target}
    # A replica goes once all targets have a vote; a dead one goes before a learner has it.
    goes = target <= voters or (record.learner and len(voters) > 2)
    leaving = [{one} for one in voters - target - {node}] if target and goes else []
    return all(
        _is_enough(len(record.counting - {node} - gone), len(voters - gone))
        for gone in (set(), *leaving)
    )


def _is_enough(left: int, voters: int) -> bool:
    return left > 0 if voters == 2 else left > voters // 2


def _without_directory(record: PartitionState, node: int) -> PartitionState:
    """Marks the node's replica as lost: removed, and rebuilt if the node is still a target."""
    if node not in record.replicas:
        return record
    lost = (*record.lost, (node, record.instance_of(node)))
    return replace(record, target=record.placed, lost=lost)


def _remove(tables: Tables, node: int) -> bool:
    if node not in tables.nodes and node not in tables.own.replicas:
        tables.expected.discard(node)  # it never joined
        return True
    if node in tables.leaving:
        return False
    _check_joined(tables, node)
    _check_others(tables, node)
    left = [one for one in holders(tables) if one != node]
    for topic in tables.topics_by_name():
        if is_internal(topic.name):
            continue  # it has as many replicas as nodes allow
        replicas = max(len(record.placed) for record in topic.partitions)
        if replicas > len(left):
            text = f"{topic.name!r} has {replicas} replicas, and {len(left)} nodes would be left"
            raise invalid("node_id", text)
    tables.leaving.add(node)
    return True


def _check_known(tables: Tables, node: int) -> None:
    if not any(node in known for known in (tables.nodes, tables.own.replicas, tables.expected)):
        raise invalid("node_id", f"{node} is not a node of the cluster")


def _check_joined(tables: Tables, node: int) -> None:
    if node in tables.joining:
        raise invalid("node_id", f"{node} is being added; repeat when it has joined")


def _check_others(tables: Tables, node: int) -> None:
    if not any(one != node for one in holders(tables)):
        raise invalid("node_id", f"{node} is the last node")


def _forget(tables: Tables, node: int) -> bool:
    if node not in tables.leaving or not tables.own.replicas:
        raise invalid("node_id", f"{node} was not removed")
    if node in tables.own.replicas or holds(tables, node):
        raise invalid("node_id", f"{node} holds replicas")
    known = (tables.nodes, tables.directories, tables.peers, tables.kafka, tables.places)
    for table in (*known, tables.registrations):
        table.pop(node, None)
    for nodes in (tables.leaving, tables.drained, tables.expected, tables.joining):
        nodes.discard(node)
    return True


def _moved(nodes: set[int], node: int, *, there: bool) -> bool:
    if (node in nodes) == there:
        return False
    (nodes.add if there else nodes.discard)(node)
    return True


class NodesView:
    """Read access to the nodes for the rest of the node."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.expected: Collection[int] = tables.expected
        self.leaving: Collection[int] = tables.leaving
        self.drained: Collection[int] = tables.drained
        self.joining: Collection[int] = tables.joining
        self.peers: Mapping[int, str] = tables.peers
        self.kafka: Mapping[int, str] = tables.kafka
        self.places: Mapping[int, NodePlace] = tables.places
        self.own = tables.own
        self.learners: Collection[int] = tables.learners
        self.balancing = tables.balancing
        self.layout_version = tables.layout_version

    @property
    def is_changing(self) -> bool:
        """Whether the metadata group's replicas are being changed, or ever were."""
        return bool(self.expected or self.leaving or self.own.replicas)

    @property
    def lost(self) -> Collection[tuple[int, int]]:
        """Returns (node, instance) of the metadata's replicas with a lost data directory."""
        own, begun = self.own, not self.own.replicas  # the group begins with instances of 0
        held = self._tables.nodes if begun else own.replicas
        lost = self._tables.expected.intersection(held)
        return [(node, 0 if begun else own.instance_of(node)) for node in lost]

    @property
    def voters(self) -> Collection[int]:
        """Returns the nodes that vote on the metadata; none before its first change."""
        return [node for node in self.own.replicas if node not in self.learners]

    @property
    def without_vote(self) -> Collection[int]:
        """Returns the nodes that shall vote on the metadata and do not yet, as far as it is known.

        In a cluster with more nodes than voters, a learner may as well stay one.
        """
        return self.learners if len(self.own.replicas) <= MOST else ()

    @property
    def loads(self) -> NodeLoads:
        """Returns a copy of the nodes' loads; in a large cluster neighbours should be few."""
        few = self._tables.finalized.has(METADATA_LEARNERS)
        is_large = few and len(self._tables.nodes) >= MANY_NODES
        return self._tables.loads.copy(MAX_NEIGHBOURS if is_large else 0)

    def admits(self, node: int, directory: int) -> bool:
        """Whether this directory may hold the node's replicas."""
        return directory_of(self._tables, node) in (0, directory)

    def awaits(self, node: int) -> bool:
        """Whether a new directory of the node may join. A removal goes on when a disk is lost."""
        return node in self.expected and node not in self.leaving

    def given_up(self, command: pb.JoinNode) -> str:
        """Returns why the metadata's leader does not propose the command; empty: it does.

        A node that was given up, and has not heard of it, tells the addresses of its directory.
        Proposed now, that directory would join as the new one. The leader has applied all that
        lets a new directory join, so its copy is the one to ask.
        """
        known = self._tables.directories.get(command.node_id, 0)
        is_other = command.addresses_only and known != command.directory_id
        return other_directory(command.node_id) if is_other else ""

    def registration_of(self, node: int) -> Registration | None:
        """Returns the node's last registered start."""
        return self._tables.registrations.get(node)

    def put_back(self, node: int, directory: int, claim: RegistrationClaim) -> str:
        """Returns why a start of the node may not take part, as far as is known here; empty: it
        may.

        No registration is known for a directory that is newer than the state here.
        """
        if self._tables.directories.get(node, 0) != directory:
            return ""
        return put_back(node) if is_put_back(self.registration_of(node), claim) else ""

    def holders(self) -> Collection[int]:
        return holders(self._tables)

    @property
    def spread(self) -> Spread:
        return Spread(self.places)

    def holds(self, node: int) -> bool:
        return holds(self._tables, node)

    def own_target(self) -> tuple[int, ...]:
        return own_target(self._tables)

    def not_expected(self, node: int) -> str:
        return not_expected(self._tables, node)
