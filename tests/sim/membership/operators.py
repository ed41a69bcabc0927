"""Random runs with operators that act at any node, at once, in any order, and often wrongly.

    operator --ChangeNode--> the node that is asked: the services' own rules, by its own copy
             --some time later--> the metadata's leader
    operator: wipes disks, of any number of nodes; puts older directories back

One promise: no acknowledged record is lost, unless the answer said so before. So where too many
disks of a group were lost nobody may lead it, and it need not come to rest; the others must. In two
of three runs no disk is lost that a group needs. A wiped node asks the nodes of its first settings,
or those of a new setting `join`.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from cluster.consensus.group import Group
from cluster.features import REPLICA_CHANGES
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import Rejected
from cluster.services.admin import node_changes
from cluster.v1 import metadata_pb2 as mpb
from oncelog.v1 import cluster_pb2 as pb
from tests.sim.checker import Violation
from tests.sim.client import Producer
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.faults import Faults
from tests.sim.membership import nodes
from tests.sim.membership.harm import Harm, Unrest
from tests.sim.membership.nodes import Whole, is_whole
from tests.sim.membership.seeds import DURATION, begin, drive, settings_of
from tests.sim.node import METADATA_ENTRIES, Node
from tests.sim.registering import Stored
from tests.sim.run import Result
from tests.sim.stage import GID

LONGEST_DELAY = 3.0  # seconds from an answer to the command that follows from it


class Asked:
    """The node that is asked, as the services see it: `NodeContext`, as far as needed."""

    def __init__(self, node: Node) -> None:
        self._node, self.config = node, node.joining.config
        self.metadata: MetadataState = node.running.state

    @property
    def _group(self) -> Group:
        found = self._node.machines[METADATA_GROUP].group
        assert found is not None
        return found

    @property
    def controller_id(self) -> int:
        return self._group.leader_id

    def alive(self, number: int) -> bool:
        return number == self._node.id or number in self._node.running.linked_since

    async def listen_to_peers(self) -> None:
        """Listens already."""

    async def propose_metadata(self, command: mpb.MetadataCommand, timeout: float) -> Any:
        self._node.cluster.command(command, lambda result: None)
        return mpb.MetadataResult()

    async def exclude_lost(self, number: int) -> str:
        voters = self._group.members.configuration.voters
        why_not = self._group.exclude_lost({one[:2] for one in voters if one.node == number})
        self._node.driver.touch(METADATA_GROUP)
        return why_not


class Operators(nodes.Operator):
    """Operators at any node until they are closed; then one goes on by the runbooks.

    careful: no disk is lost that a group needs.
    """

    def __init__(
        self, cluster: Cluster, clients: Patient, rng: random.Random, *, demotes: bool,
        careful: bool,
    ) -> None:  # fmt: skip
        super().__init__(cluster, clients, rng, demotes=demotes)
        self.harm, self.careful = clients.harm, careful
        self.refused, self.put_back = 0, 0
        self._copies: dict[int, tuple[Any, Stored]] = {}

    def _change(self, state: MetadataState) -> None:
        """Does nothing: operators of the other runs have changes of their own."""

    def tick(self) -> None:
        if self.closed or self.rng.random() < 0.1:
            super().tick()
            return
        self.cluster.scheduler.after(0.3 + 1.5 * self.rng.random(), self.tick)
        leader = self.cluster.leader(METADATA_GROUP)
        state = None if leader is None else leader.running.state
        if leader is not None and state is not None:
            if not state.features.is_on(REPLICA_CHANGES):
                if len(state.nodes) == len(self.cluster.founding) and state.partition(GID):
                    self._moves.finalize(leader, state)
                return
            if state.partition(GID) is None:
                return
        elif not self.changes:
            return
        self._act(state)

    def _act(self, state: MetadataState | None) -> None:
        draw, rng = self.rng.random(), self.rng
        self._copy(rng.choice(self.cluster.node_ids))
        if draw < 0.1:
            self._wipe(state, rng.choice(self.cluster.node_ids))
        elif draw < 0.25:
            self._put_back(state, rng.choice(self.cluster.node_ids))
        elif draw < 0.31:
            node = self.cluster.nodes[rng.choice(self.cluster.node_ids)]
            if node.alive:
                node.crash("an operator stops it")
                self.cluster.scheduler.after(4.0 * rng.random(), node.restart)
        elif self.demotes and draw < 0.45:
            leader = self.cluster.leader(METADATA_GROUP)
            if leader is not None:
                self._demote(leader)
        else:
            self._ask()

    def _wipe(self, state: MetadataState | None, number: int) -> None:
        """Loses a node's disk, or has an operator delete it; the node starts with an empty one."""
        node = self.cluster.nodes[number]
        if not node.joining.is_done:
            return
        if not self._may_lose(state, number):
            return
        node.joining.wipe()
        self._copies.pop(number, None)
        if number in self.cluster.founding and self.rng.random() < 0.6:
            node.joining.name_first()
        self.lost_disks += 1
        self._lost.add(number)
        self.cluster.scheduler.after(4.0 * self.rng.random(), self._start, node)

    @staticmethod
    def _start(node: Node) -> None:
        if not (node.alive or node.joining.is_asking or node.volume.is_lost):
            node.start()

    def _may_lose(self, state: MetadataState | None, number: int) -> bool:
        """Notes the groups that need this disk; tells whether it is lost nevertheless."""
        harmed = self.harm.of_loss(state, number, self._lost)
        if harmed and self.careful:
            return False
        self.harm.may_stand_still(harmed, Unrest.NOBODY_LED if state is None else Unrest.LOST)
        return True

    def _is_whole(self, state: MetadataState) -> bool:
        """Tells whether the cluster bears the loss of one disk. A copy is as good as lost."""
        copies = any(node.registering.is_copy for node in self.cluster.nodes.values())
        return not (copies or self._lost) and is_whole(self.cluster, state)

    def _copy(self, number: int) -> None:
        """Copies a node's data directory, for a later day."""
        node = self.cluster.nodes[number]
        if node.joining.is_done and number not in self._copies:
            self._copies[number] = node.registering.copied()

    def _put_back(self, state: MetadataState | None, number: int) -> None:
        """Puts an older copy in the directory's place."""
        node, taken = self.cluster.nodes[number], self._copies.pop(number, None)
        if taken is None or not node.joining.is_done:
            return
        confirmed = node.registering.stored.known
        if confirmed in (taken[1].known, taken[1].begun):
            return  # it is not told from the newest one
        if state is None or not self._is_whole(state) or not self._all_know(number, confirmed):
            return  # nodes that remember the newer start may be away
        if node.alive:
            node.crash("an older copy is put back")
        node.registering.put_back(taken)
        self.put_back += 1
        self._lost.add(number)
        self.cluster.scheduler.after(4.0 * self.rng.random(), node.restart)

    def _all_know(self, number: int, registration: int) -> bool:
        """Tells whether all other voters of the metadata know of this start of the node."""
        others = [one for one in self.cluster.nodes.values() if METADATA_GROUP in one.machines]
        last = [one.running.state.membership.registration_of(number) for one in others]
        return all(one is not None and one.id == registration for one in last)

    def _ask(self) -> None:
        """Asks some node; it answers by its own knowledge."""
        rng, there = (
            self.rng,
            [one for one in self.cluster.live() if METADATA_GROUP in one.machines],
        )
        if not there:
            return
        asked, number = rng.choice(there), rng.choice(self.cluster.node_ids)
        lost = sorted(self._lost)
        action = rng.choice(
            (pb.NODE_ACTION_REPLACE, pb.NODE_ACTION_REPLACE, pb.NODE_ACTION_ADD,
             pb.NODE_ACTION_ADD, pb.NODE_ACTION_REMOVE, pb.NODE_ACTION_KEEP,
             pb.NODE_ACTION_DRAIN, pb.NODE_ACTION_UNDRAIN)
        )  # fmt: skip
        if action == pb.NODE_ACTION_REPLACE and lost and rng.random() < 0.7:
            number = rng.choice(lost)
        request = pb.ChangeNodeRequest(node_id=number, action=action)
        context: Any = Asked(asked)
        if action == pb.NODE_ACTION_REPLACE and rng.random() < 0.15:
            request.accept_loss = True
            request.directory_id = max(0, context.metadata.directory_of(number))
        try:
            change = _now(node_changes.command(context, request))
            said = node_changes.effects(context, change)
        except Rejected as error:
            self.refused += 1
            self.cluster.trace("asked of node %d: %s", asked.id, error)
            return
        self.harm.told(context.metadata, said)
        self.cluster.trace("asked of node %d: %s", asked.id, said)
        delay = LONGEST_DELAY * rng.random()
        self.cluster.scheduler.after(delay, self._propose, change)

    def _propose(self, change: mpb.ChangeNode) -> None:
        node, leader = self.cluster.nodes[change.node_id], self.cluster.leader(METADATA_GROUP)
        is_lost = change.action == mpb.NODE_ACTION_REPLACE and node.joining.is_done
        is_fewer = change.action == mpb.NODE_ACTION_REMOVE and self._lost
        if is_lost and leader is not None:
            if not self._may_lose(leader.running.state, change.node_id):
                return
        elif is_fewer and leader is not None:
            if self.careful:
                return
            self.harm.may_stand_still({METADATA_GROUP}, Unrest.REMOVED)
        self._command(
            change.node_id, change.action, change.directory_id, accept_loss=change.accept_loss
        )


def _now(coroutine: Coroutine[Any, Any, mpb.ChangeNode]) -> mpb.ChangeNode:
    """Runs a coroutine that never waits here."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: mpb.ChangeNode = done.value
        return result
    raise AssertionError("it waits")


class Patient(Whole):
    """Clients that do not wait for groups that may stand still."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.harm = Harm(cluster)

    def unfinished(self) -> list[Producer]:
        waiting = [] if self.harm.is_stuck else super().unfinished()
        return [one for one in waiting if one.gid not in self.harm.groups]


class Mender(Operators):
    """Operators, followed by an operator that does as the runbooks say."""

    def tick(self) -> None:
        leader = self.cluster.leader(METADATA_GROUP)
        if self.closed and leader is not None:
            self._mend(leader.running.state)
        super().tick()

    def _replace(self, state: MetadataState, node: int) -> None:
        """Gives a lost disk up, and with it partitions that are lost already."""
        self.accepts_loss = self.closed and bool(self.harm.groups)
        if self.accepts_loss:
            self.harm.gives_up(state, node)
        super()._replace(state, node)

    def _mend(self, state: MetadataState) -> None:
        """Replaces directories that never count again by empty ones, which ask to join."""
        expected = state.membership.expected
        self._lost &= {*state.nodes, *state.membership.own.replicas, *expected}
        for node in self.cluster.nodes.values():
            joining = node.joining
            if joining.is_done and (node.registering.is_copy or node.id in expected):
                joining.wipe()
                self._copies.pop(node.id, None)
                self._lost.add(node.id)
            if not joining.is_done:
                joining.keeps_first = False
                self._start(node)


def is_careful(seed: int) -> bool:
    """Tells whether no disk is lost in this run that a group needs."""
    return seed % 3 > 0


def run_operators(seed: int, *, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    result = Result(seed)
    settings = replace(
        settings_of(rng),
        metadata=True,
        smallest_majority=1,
        founding=rng.choice((2, 3, 3)),
        repair_after=2.0,
        registers=True,
        news=True,
        metadata_entries=rng.choice((METADATA_ENTRIES, 1000)),
    )
    cluster = Cluster(settings, seed, verbose=verbose)
    cluster.checker.majorities[METADATA_GROUP] = 1
    try:
        careful = is_careful(seed)
        operators, faults = _drive(cluster, rng, demotes=seed % 4 < 2, careful=careful)
        result.injected = {
            **faults.injected, "change": operators.changes, "lost disk": operators.lost_disks,
            "put back": operators.put_back, "harmed": bool(operators.harm.groups),
            "refused": operators.refused, "demotion": operators.demotions,
            **dict.fromkeys(operators.harm.unrest, 1),
        }  # fmt: skip
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.failed(error)
    result.count(cluster)
    return result


def _drive(
    cluster: Cluster, rng: random.Random, *, demotes: bool, careful: bool
) -> tuple[Mender, Faults]:
    clients = Patient(cluster)
    harm = clients.harm
    clients.bootstrap = [
        *(register_node(node) for node in cluster.founding),
        create_topic(f"t{GID}", [cluster.founding], cluster.settings),
    ]
    faults = Faults(cluster, clients, until=DURATION * 0.65, gap=2.0 + 4.0 * cluster.rng.random())
    operators = Mender(cluster, clients, rng, demotes=demotes, careful=careful)

    def is_over(one: Cluster) -> bool:
        return harm.is_over(is_mended=not operators._lost)

    def check_end(one: Cluster) -> None:
        harm.check_end()

    try:
        founded = partial(harm.unrest.add, Unrest.FOUNDED)
        with nodes.ended_by_another_founding(cluster, harm.groups, founded):
            begin(cluster)
            drive(cluster, clients, faults, operators, is_over, nodes._describe, check_end)
    except Violation as error:
        if not harm.forgives(error):
            raise
    return operators, faults
