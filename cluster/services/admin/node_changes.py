"""ChangeNode and ListNodes: changes of nodes, and their progress.

ChangeNode --check on a copy--> effects --ChangeNode--> metadata --> leaders, step by step
ListNodes <-- this node's copy of the metadata, its links, the groups it leads
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from cluster.errors import ClusterError
from cluster.metadata import nodes as rules
from cluster.metadata.places import NodePlace
from cluster.metadata.repairs import outlook
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState, invalid
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.requests import timeout_s
from cluster.services.slices import in_slices
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import cluster_pb2 as pb

MAX_NAMED = 20  # partitions in an answer for people
METADATA = "the metadata"


async def command(node: NodeContext, request: pb.ChangeNodeRequest) -> meta.ChangeNode:
    """Return the command to propose. Raises Rejected."""
    number, action = request.node_id, request.action
    if action not in pb.NodeAction.values() or action == pb.NODE_ACTION_UNSPECIFIED:
        raise invalid("action", f"{action} is not supported")
    change = meta.ChangeNode(node_id=number, action=meta.NodeAction.Name(action))
    if action == pb.NODE_ACTION_ADD:
        # The settings name only the nodes that the cluster began with; later the metadata decides.
        if number in node.config.nodes and not node.metadata.membership.own.replicas:
            raise invalid("node_id", f"{number} is a node of the cluster")
        try:
            await node.listen_to_peers()
        except ClusterError as error:
            text = f"node {node.config.node_id} was alone, and cannot have peers: {error}"
            raise invalid("node_id", text) from error
    if action == pb.NODE_ACTION_REPLACE:
        if node.alive(number):
            raise invalid("node_id", f"{number} is running: stop it before it is replaced")
        if _never_came(node, number) and not request.dry_run:
            await _register(node, number)
        change.directory_id = max(0, node.metadata.directory_of(number))
        change.accept_loss = request.accept_loss
        if decides_alone(node, number):
            effects(node, change)  # rejects as the metadata would
            await _exclude_lost(node, request, change.directory_id)
    return change


def _never_came(node: NodeContext, number: int) -> bool:
    """Return whether it is a founding node that never came; a removed one is forgotten."""
    view = node.metadata.membership
    known = view.own.replicas or number in {*node.metadata.nodes, *view.expected}
    return number in node.config.nodes and not known


async def _register(node: NodeContext, number: int) -> None:
    """Register a founding node that never came."""
    record = meta.RegisterNode(node_id=number, address=node.config.nodes[number])
    command = meta.MetadataCommand(register_node=record)
    accepted(await node.propose_metadata(command, timeout_s(0, node)))


def decides_alone(node: NodeContext, lost: int) -> bool:
    """Return whether this node alone can decide that the other of two metadata voters is lost."""
    voters, controller = node.metadata.membership.voters, node.controller_id
    if controller and node.alive(controller):
        return False
    return {lost, node.config.node_id} == {*(voters or node.config.nodes)}


async def _exclude_lost(node: NodeContext, request: pb.ChangeNodeRequest, directory: int) -> None:
    """Exclude the lost voter.

    Raises Rejected unless the request accepts the loss, and if the lost node may have decided more.
    """
    number = request.node_id
    if not request.accept_loss or request.directory_id != directory:
        given = f", not {request.directory_id:016x}" if request.directory_id else ""
        text = (
            f"{number} is one of two nodes: without it node {node.config.node_id} decides alone. "
            f"{_two_clusters(node, number)}. Be sure that it has stopped for good, then set "
            f"accept_loss, and directory_id to that of its data directory: {directory:016x}{given}"
        )
        raise invalid("node_id", text)
    if request.dry_run:
        return
    why_not = await node.exclude_lost(number)
    if why_not:
        text = (
            f"without {number} node {node.config.node_id} cannot decide alone: {why_not}. "
            f"Start node {number} with its directory"
        )
        raise invalid("node_id", text)


def _two_clusters(node: NodeContext, lost: int) -> str:
    return (
        f"If node {lost} still runs, and is told the same about node {node.config.node_id}, each "
        "acknowledges records that the other one lacks, and one side's are lost"
    )


def effects(node: NodeContext, change: meta.ChangeNode) -> list[str]:
    """List the change's effects, for people. Raises Rejected if it would be refused."""
    tables = node.metadata.tables.trial()
    if _never_came(node, change.node_id):
        tables.nodes[change.node_id] = node.config.nodes[change.node_id]
    number = change.node_id
    if change.action == meta.NODE_ACTION_REPLACE and number not in tables.expected:
        return _replacing(node, change, rules.check_replace(tables, change))
    if not rules.change(tables, change):
        return ["nothing: it is so already"]
    match change.action:
        case meta.NODE_ACTION_ADD:
            own, alone = node.config, len(node.config.nodes) == 1 and not node.config.join
            later = [
                f"node {own.node_id} names no other node in its settings: set `join` there to the "
                "addresses of others before its next start"
            ]
            return [
                f"node {number} may join: start it with an empty data directory and `join` set to "
                "the address of any node",
                *(later if alone else []),
            ]
        case meta.NODE_ACTION_REMOVE:
            return [
                f"{rules.held_by(tables, number)} replicas move to other nodes",
                *_gives_vote(node, number),
                f"then node {number} is forgotten, and ends: its data directory is of no more use",
            ]
        case meta.NODE_ACTION_KEEP:
            return [f"node {number} stays; replicas that have moved do not come back"]
        case meta.NODE_ACTION_DRAIN:
            return [
                f"node {number} leads nothing, until it is undrained",
                *_last_vote(node, number),
            ]
    return [f"node {number} leads its preferred partitions again"]


def _gives_vote(node: NodeContext, number: int) -> list[str]:
    view = node.metadata.membership
    if number not in view.voters or not view.learners:
        return []  # it has none to give, or no other node takes it
    return [f"another node votes on the metadata in place of node {number}"]


def _last_vote(node: NodeContext, number: int) -> list[str]:
    """Warn if a stop of the drained node would stop the metadata."""
    voters = node.metadata.membership.voters or node.config.nodes
    silent = [one for one in voters if one != number and not node.alive(one)]
    if number not in voters or not silent or 2 * (len(silent) + 1) < len(voters):
        return []
    return [
        f"do not stop node {number} before nodes {silent} are back: without it the metadata has no "
        f"majority of its {len(voters)} voters, and accepts no change"
    ]


def _replacing(node: NodeContext, change: meta.ChangeNode, lost: Sequence[str]) -> list[str]:
    number, held = change.node_id, rules.held_by(node.metadata.tables, change.node_id)
    found = [f"the records of {name} are lost: no other replica has all of them" for name in lost]
    if len(found) > MAX_NAMED:
        found = [*found[:MAX_NAMED], f"and of {len(found) - MAX_NAMED} partitions more"]
    if decides_alone(node, number):
        found.append(f"node {node.config.node_id} decides alone. {_two_clusters(node, number)}")
    return [
        *found,
        f"the data directory of node {number}, {change.directory_id:016x}, never counts again: "
        f"{held} replicas, and that of the metadata, are removed from their groups. Where it is "
        "still there, keep it aside under another name",
        *_gives_vote(node, number),
        _after_replacing(node, number),
    ]


def _after_replacing(node: NodeContext, number: int) -> str:
    if number not in node.metadata.membership.leaving:
        return f"then node {number} may join: start it with an empty data directory"
    return (
        f"then node {number} is forgotten, as it is being removed; until then no new directory of "
        f"it joins. If it shall stay, cancel the removal before you replace it (`oncelog node "
        f"remove {number} --cancel`), or add it again afterwards"
    )


async def statuses(node: NodeContext, copied: Mapping[int, tuple[int, int]]) -> list[pb.NodeStatus]:
    """List the nodes' statuses. copied: node -> (total bytes, bytes so far) that move to it."""
    view, state = node.metadata.membership, node.metadata
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    coming: Counter[int] = Counter()
    going: Counter[int] = Counter()
    waits = _Waits(node)
    async for name, record in in_slices(partitions(node)):
        leaders[node.leader_of(record.group_id)[0]] += 1
        replicas.update(record.replicas)
        lost = {held for held, _ in record.to_remove}
        if record.target:
            coming.update(coming_of(record))
            lost |= {*record.replicas} - {*record.target}
        going.update(lost)
        waits.look(name, record)
    filled = {one for one in view.learners if (METADATA_GROUP, one) in node.sizes.lags}
    coming.update({*coming_of(view.own), *view.without_vote, *filled})
    known = {*node.config.nodes, *state.nodes, *view.expected, *view.own.replicas}
    if view.own.replicas:
        known -= {*node.config.nodes} - {*state.nodes, *view.expected, *view.own.replicas}
    return [
        pb.NodeStatus(
            node_id=number,
            address=state.nodes.get(number, ""),
            alive=node.alive(number),
            expected=number in view.expected,
            joining=number in view.joining,
            leaving=number in view.leaving,
            drained=number in view.drained,
            replicas=replicas[number],
            leaderships=leaders[number],
            coming=coming[number],
            going=going[number],
            waits_for=waits.of(number, holds=replicas[number] > 0),
            coming_bytes=copied.get(number, (0, 0))[0],
            copied_bytes=copied.get(number, (0, 0))[1],
            rack=view.places.get(number, NodePlace()).rack,
            machine=view.places.get(number, NodePlace()).machine,
            metadata_learner=number in view.learners,
        )
        for number in sorted(known)
    ]


def coming_of(record: PartitionState) -> set[int]:
    """Return the nodes whose replica may not count yet, until all are reported as voters.

    A node that came earlier stays included while another comes, so that progress only grows.
    """
    if not record.target:
        return set()
    held = {*record.replicas} - {node for node, _ in record.to_remove}
    return {node for node in record.target if node not in held or record.instance_of(node)}


class _Waits:
    """Reasons why changes of nodes wait, at most MAX_NAMED for each node."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._found: dict[int, list[str]] = {}
        self._behind: dict[int, list[tuple[int, int]]] = {}  # group -> (node, entries)
        for (group, number), lag in node.sizes.lags.items():
            self._behind.setdefault(group, []).append((number, lag))

    def look(self, name: str, record: PartitionState) -> None:
        """Note the reasons why this partition waits."""
        moved = {held for held, _ in record.to_remove}
        if record.target:
            moved |= {*record.replicas} ^ {*record.target}
        for number in moved:
            self._note(number, partial(why, self._node, name, record, number))
        for number, lag in self._behind.get(record.group_id, ()):
            if number not in moved and number in record.counting and self._node.alive(number):
                text = f"{name}: its replica is {lag} entries behind"
                self._note(number, partial(str, text))

    def _note(self, number: int, text: Callable[[], str]) -> None:
        found = self._found.setdefault(number, [])
        if len(found) <= MAX_NAMED:  # one more than is shown
            found.append(text())

    def of(self, number: int, *, holds: bool) -> list[str]:
        """List the node's reasons. holds: partitions have replicas there."""
        found = [*_own_waits(self._node, number, holds=holds), *self._found.get(number, [])]
        return found if len(found) <= MAX_NAMED else [*found[:MAX_NAMED], "and more"]


def _own_waits(node: NodeContext, number: int, *, holds: bool) -> list[str]:
    """Return the reasons of the node itself, and of its metadata replica."""
    view = node.metadata.membership
    if number in view.expected and number in view.own.replicas:
        return [why(node, METADATA, view.own, number)]
    if view.awaits(number):
        return ["it has to be started with an empty data directory"]
    if number in view.joining and not node.alive(number):
        return ["it does not answer"]
    lag = node.sizes.lags.get((METADATA_GROUP, number))
    if lag is not None and number in view.learners:
        return [f"{METADATA}: its replica is {lag} entries behind"]
    has_left = view.own.replicas and number not in view.own.replicas and not holds
    if number in view.leaving and has_left:
        away = [one for one in view.own.replicas if not node.alive(one)]
        return [
            f"nodes {away} have not heard that it is removed: bring them back, or remove them, too"
            if away
            else "the others hear that it is removed"
        ]
    return []


def why(node: NodeContext, name: str, record: PartitionState, number: int) -> str:
    leader = node.leader_of(record.group_id)[0]
    dead = [one for one in record.replicas if not node.alive(one)]
    lost = any(held == number for held, _ in record.lost)
    if lost and len(record.replicas) == 1:
        return f"{name}: its only replica was lost; delete the topic"
    said = node.waiting(record.group_id)
    if said:
        return f"{name}: {said}"
    if not leader:
        return f"{name}: no leader; of its replicas {list(record.replicas)} {dead} do not answer"
    where = f"{name}: node {leader}, which leads it, is at it"
    absent = [one for one in record.target if not node.alive(one)]
    return f"{where}; nodes {absent} do not answer" if absent else where


async def damaged(node: NodeContext) -> list[str]:
    """Return a line for each replica that has stopped for damage, at most MAX_NAMED."""
    found = [
        f"{name}: the replica on node {one.node} is damaged: {outlook(record, one)}"
        async for name, record in in_slices(partitions(node))
        for one in record.damaged
    ]
    return found if len(found) <= MAX_NAMED else [*found[:MAX_NAMED], "and more"]


async def crowded(node: NodeContext) -> list[str]:
    """Return a line for each partition with a majority in one rack that a balance can spread.

    At most MAX_NAMED, one line for all that no balance can spread, and one for the metadata.
    """
    view = node.metadata.membership
    if not view.places:
        return []
    spread, holders, stuck = view.spread, view.holders(), 0
    least: dict[int, int] = {}
    found = []
    async for name, record in in_slices(partitions(node)):
        placed = record.placed
        beyond = spread.cost(placed)[0]
        if beyond and len(placed) not in least:
            least[len(placed)] = spread.least(holders, len(placed))[0]
        if beyond > least.get(len(placed), 0):
            found.append(f"{name}: {spread.fullest(placed)}: run `oncelog cluster balance`")
        elif beyond:
            stuck += 1
    shown = (
        found
        if len(found) <= MAX_NAMED
        else [*found[:MAX_NAMED], f"and {len(found) - MAX_NAMED} more partitions"]
    )
    if stuck:
        text = (
            "partitions have a majority in one rack: for another spread, add nodes in other racks"
        )
        shown.append(f"{stuck} {text}")
    voters = view.voters or tuple(node.config.nodes)
    if spread.rests_on_one(voters):
        text = "without them it accepts no change; add nodes in other racks"
        shown.append(f"metadata: {spread.fullest(voters, 'voters')}: {text}")
    return shown


def partitions(node: NodeContext) -> Iterable[tuple[str, PartitionState]]:
    for topic in node.metadata.topics():
        for number, record in enumerate(topic.partitions):
            yield f"{topic.name}-{number}", record
