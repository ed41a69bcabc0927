"""Random runs in which nodes come, go and lose their disks: one seed, one run.

The metadata group is real and changes its own members; a node with an empty disk asks for its
identity, by the real rules (`tests/sim/joining.py`). An operator adds, removes, replaces and drains
nodes. After a lost disk it waits until all records are on their full number of disks again. In half
of the runs it takes voters of the metadata their votes; its leader gives them back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cluster.consensus.configuration import (
    ChangeRefusedError,
    ChangeStep,
    Configuration,
    ConfigurationChange,
)
from cluster.consensus.group import Group
from cluster.features import REPLICA_CHANGES
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.disk import PlantedDamage
from tests.sim.faults import Faults
from tests.sim.joining import NothingLeftError
from tests.sim.membership.seeds import DURATION, Moves, begin, drive, settings_of
from tests.sim.network import split
from tests.sim.node import METADATA_ENTRIES, Node
from tests.sim.run import Clients, Result, describe
from tests.sim.stage import GID

FOUNDING = 3


class Operator:
    """An operator: changes nodes until it is closed.

    demotes: voters of the metadata, too, while enough stay for the loss of one disk.
    """

    def __init__(
        self, cluster: Cluster, clients: Clients, rng: random.Random, *, demotes: bool = False
    ) -> None:
        self.cluster, self.rng, self.demotes = cluster, rng, demotes
        self.closed, self.changes, self.lost_disks, self.damages = False, 0, 0, 0
        self.absences = self.demotions = 0
        self.accepts_loss = False
        self._moves = Moves(cluster, clients, rng)
        self._lost: set[int] = set()  # disks that are not replaced yet
        self._away = 0  # a node that misses many changes

    def tick(self) -> None:
        self.cluster.scheduler.after(0.3 + 2.0 * self.rng.random(), self.tick)
        leader = self.cluster.leader(METADATA_GROUP)
        if leader is None:
            return
        state = leader.running.state
        if not state.features.is_on(REPLICA_CHANGES):
            # The bootstrap adds nodes without a registration; from then on that is refused.
            if len(state.nodes) == FOUNDING and state.partition(GID) is not None:
                self._moves.finalize(leader, state)
            return
        if state.partition(GID) is None:
            return
        self._clean_up(state)
        for node in sorted(self._lost):
            self._replace(state, node)
        if self.demotes and not self.closed and self.rng.random() < 0.4:
            self._demote(leader)
        if not self.closed and not self._lost:
            self._change(state)

    def _demote(self, leader: Node) -> None:
        """Takes a voter of the metadata its vote; the next look at its group gives it back."""
        group = leader.machines[METADATA_GROUP].group
        assert group is not None
        now = group.members.configuration
        if len(now.voters) <= FOUNDING:
            return
        node = self.rng.choice(now.voters).node
        try:
            change = ConfigurationChange(ChangeStep.DEMOTE, node, now.version)
            group.change(change, lambda outcome: None)
        except ChangeRefusedError:
            return
        self.demotions += 1
        self.cluster.trace("demote of node %d at node %d, after %s", node, leader.id, now)
        leader.driver.touch(METADATA_GROUP)

    def _change(self, state: MetadataState) -> None:
        draw, rng = self.rng.random(), self.rng
        there = sorted(state.membership.own.replicas or self.cluster.founding)
        if draw < 0.3 and is_whole(self.cluster, state, self._away):
            bears = [one for one in there if not shared(state, one, self._away)]
            if bears:
                node = rng.choice(bears)
                self.cluster.nodes[node].joining.wipe()
                self.lost_disks += 1
                self._lost.add(node)
            return
        if 0.5 <= draw < 0.6 and not self._away and self.cluster.nodes[there[-1]].alive:
            self._take_away(rng.choice(there))
            return
        if draw < 0.5 and is_whole(self.cluster, state):
            self._damage(state)
            return
        action = rng.choice(
            (mpb.NODE_ACTION_ADD, mpb.NODE_ACTION_ADD, mpb.NODE_ACTION_REMOVE,
             mpb.NODE_ACTION_KEEP, mpb.NODE_ACTION_DRAIN, mpb.NODE_ACTION_UNDRAIN)
        )  # fmt: skip
        view = state.membership
        stay = {*(view.own.replicas or self.cluster.founding)} - {*view.leaving}
        if action != mpb.NODE_ACTION_REMOVE or len(stay) >= 3:  # two stay, and both count
            self._command(rng.choice(self.cluster.node_ids), action)

    def _take_away(self, number: int) -> None:
        """Stops a node, or cuts it off, until much has changed."""
        node, cluster = self.cluster.nodes[number], self.cluster
        pairs = split([number], [one for one in cluster.node_ids if one != number])
        self._away, self.absences = number, self.absences + 1
        cluster.trace("node %d is away", number)
        if self.rng.random() < 0.5:
            cluster.network.block(pairs, noticed=self.rng.random() < 0.5)
        elif node.alive:
            node.crash("stopped")

        def back() -> None:
            cluster.network.unblock(pairs)
            node.restart()
            self._away = 0

        cluster.scheduler.after(5.0 + 15.0 * self.rng.random(), back)

    def _damage(self, state: MetadataState) -> None:
        """Damages one replica. It is then rebuilt by itself."""
        record = self.rng.choice([one for topic in state.topics() for one in topic.partitions])
        node = self.rng.choice(record.replicas)
        self.cluster.trace("node %d: group %d is damaged", node, record.group_id)
        partition = self.cluster.nodes[node].partitions[record.group_id]
        partition.unreadable(PlantedDamage("a damaged entry"))
        self.damages += 1
        self.cluster.scheduler.after(
            15.0, self._look_at, node, self.cluster.nodes[node].incarnation
        )

    def _look_at(self, number: int, incarnation: int) -> None:
        """Has the operator look at a disk that was rebuilt too often, or had no majority."""
        node = self.cluster.nodes[number]
        if node.alive and node.incarnation == incarnation:
            node.crash("an operator looks at its disk")
            node.restart()

    def _replace(self, state: MetadataState, node: int) -> None:
        directory, joining = state.directory_of(node), self.cluster.nodes[node].joining
        is_known = joining.is_done or directory == joining.directory_id
        if node in state.membership.expected or is_known:
            self._lost.discard(node)
            self.cluster.nodes[node].restart()
            return
        self._command(
            node, mpb.NODE_ACTION_REPLACE, max(0, directory), accept_loss=self.accepts_loss
        )

    def _command(
        self, node: int, action: Any, directory: int = 0, *, accept_loss: bool = False
    ) -> None:
        change = mpb.ChangeNode(
            node_id=node, action=action, directory_id=directory, accept_loss=accept_loss
        )
        name = mpb.NodeAction.Name(action)

        def done(result: bytes) -> None:
            error = mpb.MetadataResult.FromString(result).message
            self.changes += not error
            self.cluster.trace("%s of node %d: %s", name, node, error or "taken")

        self.cluster.command(mpb.MetadataCommand(change_node=change), done)

    def _clean_up(self, state: MetadataState) -> None:
        """Ends a forgotten node; it may be added again with an empty disk."""
        view = state.membership
        for node in self.cluster.nodes.values() if view.own.replicas else ():
            if not node.joining.is_done or node.id in self._lost:
                continue
            gone = node.id not in view.own.replicas and node.id not in state.nodes
            if gone and not view.admits(node.id, node.joining.directory_id):
                node.joining.wipe()
                node.start()


class Whole(Clients):
    """Clients that make no topics with one replica: the loss of one disk would end those."""

    def _any_command(self) -> mpb.MetadataCommand:
        command = super()._any_command()
        for placement in command.create_topic.placements:
            others = [node for node in self.cluster.node_ids if node not in placement.replicas]
            if len(placement.replicas) == 1:
                placement.replicas.append(self.rng.choice(others))
        return command


def is_steady(record: PartitionState) -> bool:
    """Tells whether nothing is to be done with the partition's replicas."""
    return not (record.target or record.lost or record.damaged)


def shared(state: MetadataState, one: int, away: int) -> bool:
    """Tells whether a record may be on these two only, of all disks: one cannot be lost then."""
    records = [record for topic in state.topics() for record in topic.partitions]
    both = {one, away}
    return away > 0 and (
        one == away
        or (away in state.membership.voters and len(state.membership.voters) <= FOUNDING)
        or any(both <= {*record.replicas} for record in records)
    )


def records_of(state: MetadataState) -> dict[int, PartitionState]:
    return {one.group_id: one for topic in state.topics() for one in topic.partitions}


def is_whole(cluster: Cluster, state: MetadataState, away: int = 0) -> bool:
    """Tells whether each group bears the loss of one disk.

    away: a node that cannot be looked at, although its disk is sound.
    """
    groups = (METADATA_GROUP, *records_of(state))
    return all(bears_loss(cluster, state, gid, away) for gid in groups)


def bears_loss(cluster: Cluster, state: MetadataState, gid: int, away: int = 0) -> bool:
    """Tells whether the group has all its replicas, so that it bears the loss of one disk."""
    nodes: Collection[int]
    if gid == METADATA_GROUP:
        view = state.membership
        nodes = view.own.replicas or tuple(cluster.founding)
        is_quiet = not (view.expected or view.leaving or view.joining) and len(nodes) >= FOUNDING
    else:
        record = records_of(state)[gid]
        nodes, is_quiet = record.replicas, is_steady(record) and len(record.replicas) > 1
    groups = [_group(cluster.nodes[node], gid) for node in nodes if node != away]
    return is_quiet and all(
        group is not None
        and group.failed is None
        and is_reached(cluster, gid, nodes, group.members.configuration)
        for group in groups
    )


def is_reached(
    cluster: Cluster, gid: int, nodes: Collection[int], configuration: Configuration
) -> bool:
    """Tells whether these nodes hold the group, and as many vote as shall."""
    voters, learners = configuration.voters, configuration.learners
    most = cluster.settings.voters if gid == METADATA_GROUP else len(nodes)
    members = {one.node for one in voters + learners}
    return members == set(nodes) and len(voters) == min(len(nodes), most)


def run_nodes(seed: int, *, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    result = Result(seed)
    settings = replace(
        settings_of(rng),
        metadata=True,
        smallest_majority=2,
        founding=FOUNDING,
        repair_after=2.0,
        registers=True,
        metadata_entries=rng.choice((METADATA_ENTRIES, 1000)),
        voters=FOUNDING if seed % 4 in (1, 2) else 9,
        news=True,
    )
    cluster = Cluster(settings, seed, verbose=verbose)
    cluster.checker.majorities[METADATA_GROUP] = 2
    cluster.racks = {node: "abc"[node % 3] for node in cluster.node_ids}
    try:
        operator, faults = _drive(cluster, rng, demotes=seed % 4 < 2)
        result.injected = {
            **faults.injected, "change": operator.changes, "lost disk": operator.lost_disks,
            "damage": operator.damages, "away": operator.absences,
            "demotion": operator.demotions,
        }  # fmt: skip
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.failed(error)
    result.count(cluster)
    return result


def _drive(cluster: Cluster, rng: random.Random, *, demotes: bool) -> tuple[Operator, Faults]:
    clients = Whole(cluster)
    clients.bootstrap = [
        *(register_node(node) for node in cluster.founding),
        create_topic(f"t{GID}", [cluster.founding], cluster.settings),
    ]
    faults = Faults(cluster, clients, until=DURATION * 0.65, gap=1.0 + 3.0 * cluster.rng.random())
    operator = Operator(cluster, clients, rng, demotes=demotes)
    begin(cluster)
    with ended_by_another_founding(cluster, ()):
        drive(
            cluster,
            clients,
            faults,
            operator,
            lambda one: not operator._lost and is_done(one),
            _describe,
        )
    return operator, faults


@contextmanager
def ended_by_another_founding(
    cluster: Cluster, harmed: Collection[int], on_end: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Ends a run where the first nodes' disks are all gone and one of these founds a cluster anew.

    The present cluster has grown meanwhile, and lives on: its disks must have all.
    """
    try:
        yield
    except NothingLeftError:
        on_end()
        check_disks(cluster, harmed)


def check_disks(cluster: Cluster, harmed: Collection[int]) -> None:
    """Checks that the nodes' disks have the committed entries of all groups but the harmed ones."""
    counting = [node.id for node in cluster.nodes.values() if not node.registering.is_copy]
    for gid in cluster.checker.logs.keys() - {*harmed}:
        cluster.checker.keeps(gid, counting)


def is_done(cluster: Cluster, harmed: Collection[int] = ()) -> bool:
    """Tells whether targets are reached and all replicas are in place, equal, and serve.

    harmed: partitions that may stand still, as nodes may that shall leave and hold them.
    """
    leader, placement = cluster.leader(METADATA_GROUP), cluster.placement()
    if leader is None or GID not in placement:
        return False
    placement = {gid: nodes for gid, nodes in placement.items() if gid not in harmed}
    view = leader.running.state.membership
    if view.joining or {*view.expected, *view.leaving} - {*(view.leaving if harmed else ())}:
        return False
    if not all(cluster.nodes[node].registering.takes_part for node in placement[METADATA_GROUP]):
        return False
    if not all(is_at_rest(cluster, gid, nodes) for gid, nodes in placement.items()):
        return False
    records = records_of(leader.running.state).items()
    calls = [call.gid for node in cluster.nodes.values() for call in node.open_calls.values()]
    idle = not {*calls} - {*harmed}
    # Streams lose no notice of a leader, but with the link. Datagrams do.
    if cluster.settings.streams:
        idle = idle and cluster.know_all_leaders(placement[METADATA_GROUP], placement)
    return idle and all(is_steady(one) for gid, one in records if gid not in harmed)


def is_at_rest(cluster: Cluster, gid: int, nodes: Collection[int]) -> bool:
    """Tells whether a leader serves the group, and these replicas have applied all of its log.

    Equal logs are not enough: restarted replicas learn of commits only from a leader.
    """
    groups = [_group(cluster.nodes[node], gid) for node in nodes]
    marks = {None if one is None or one.failed else (one.applied_index, one.journal.last_index,
             one.members.version) for one in groups}  # fmt: skip
    now = groups[0]
    if now is None or len(marks) != 1 or cluster.leader(gid) is None:
        return False
    is_applied = now.failed is None and now.applied_index == now.journal.last_index
    return is_applied and is_reached(cluster, gid, nodes, now.members.configuration)


def _group(node: Node, gid: int) -> Group | None:
    machine = node.machines.get(gid)
    return None if machine is None else machine.group


def _describe(cluster: Cluster) -> str:
    leader = cluster.leader(METADATA_GROUP)
    if leader is None:
        return f"the nodes are not what they shall be: {describe(cluster)}"
    view = leader.running.state.membership
    marks = {name: sorted(getattr(view, name)) for name in ("expected", "joining", "leaving")}
    groups = [
        f"{node.id}/{gid}: {group.members.configuration} applied {group.applied_index} "
        f"last {group.journal.last_index} {'removed' if group.removed else ''} "
        f"leader {group.leader_id}"
        for node in cluster.live()
        for gid in node.machines
        if (group := _group(node, gid)) is not None
    ]
    records = [one for topic in leader.running.state.topics() for one in topic.partitions]
    waits = [node.running.changes.waiting for node in cluster.live()]
    return (
        f"the nodes are not what they shall be: {marks}, own {view.own}, {records}, {waits}; "
        + "; ".join(groups)
    )
