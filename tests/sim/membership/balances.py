"""Random runs in which an operator balances the cluster amid all other changes.

The plan, its time, and the outcome of a move are the nodes' own code. Partitions begin
on some of the nodes only; an operator begins and ends balances and moves partitions by hand.
Checked all the while, of the metadata as its newest replica knows it:

    a balance moves nothing that moves already, by hand or by a balance
    no more at a time than the limit, and never to another number of replicas

    of well spread replicas it puts no majority into one rack

and in the end, when all is healed: a balance ends by itself, nodes hold alike, or with racks (every
second seed) no partition has a majority in one, and the nodes of a rack hold alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cluster.consensus.group import Group
from cluster.features import REPLICA_CHANGES
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState
from cluster.node.replicas import balance as balancing
from cluster.node.replicas.balance import Balancing, Moves
from cluster.node.replicas.changes import ReplicaChanges
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.faults import Faults
from tests.sim.membership import seeds
from tests.sim.membership.nodes import records_of
from tests.sim.membership.seeds import DURATION, begin, drive, settings_of
from tests.sim.run import Clients, Result, describe
from tests.sim.schedules import limited, schedule
from tests.sim.stage import GID

PARTITIONS = (4, 8)  # of the topic, at least and at most
MAX_MOVES = 2  # at a time, instead of the nodes' 50
# A leader may go while its moves are on their way; its successor does not know of them.
MOST_MOVES = 2 * MAX_MOVES
LOOK = 0.02  # seconds between looks at the metadata
SLOW_MOVE = 10.0  # seconds before the first step of a move by hand
DIRECTED = (6, 9)  # seeds that meet the planted weaknesses
WITH_RACKS = 7
RACKS = "aabbc"

Records = Mapping[int, PartitionState]


class Watch:
    """A watch over the metadata's record of each partition, compared with its last look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._before = cluster, dict[int, PartitionState]()
        self._index = 0
        self.moves = 0  # begun by balances

    def look(self) -> None:
        self._cluster.scheduler.after(LOOK, self.look)
        states = [node.running.state for node in self._cluster.live()]
        newest = max(states, key=lambda state: state.applied_index, default=None)
        if newest is None or newest.applied_index <= self._index:
            return
        self._index, now = newest.applied_index, records_of(newest)
        for group, record in now.items():
            before = self._before.get(group)
            if record.before_balance and before is not None:
                self._compare(before, record)
        balanced = sum(bool(record.before_balance) for record in now.values())
        if balanced > MOST_MOVES:
            raise Violation(f"a balance moves {balanced} partitions at a time: {now}")
        self._before = now

    def _compare(self, before: PartitionState, now: PartitionState) -> None:
        racks = self._cluster.racks
        if now.target != before.target and in_one_rack(now.target, racks):
            if not in_one_rack(now.before_balance, racks):
                raise Violation(f"a balance puts a majority into one rack: {now}")
        if len(now.target) != len(now.before_balance):
            raise Violation(f"a balance changes how many replicas there are: {now}")
        if (now.version, now.target) == (before.version, before.target):
            return
        if before.target and now.target != before.target and now.version == before.version:
            raise Violation(f"a balance moves what moves already: {before}, then {now}")
        self.moves += not before.before_balance


class Operator:
    """An operator: begins and ends balances, and moves partitions by hand, until it is closed.

    Then it asks for one balance more, which has to end by itself.
    """

    def __init__(self, cluster: Cluster, clients: Clients, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.closed, self.balances, self.by_hand = False, 0, 0
        self.last_began = False
        self._moves = seeds.Moves(cluster, clients, rng)

    def tick(self) -> None:
        self.cluster.scheduler.after(0.3 + 2.0 * self.rng.random(), self.tick)
        leader = self.cluster.leader(METADATA_GROUP)
        if leader is None:
            return
        state, draw = leader.running.state, self.rng.random()
        if not state.features.is_on(REPLICA_CHANGES):
            self._moves.finalize(leader, state)
        elif state.partition(GID) is None:
            return
        elif len(self.cluster.racks) > len(state.membership.places):
            for node, rack in self.cluster.racks.items():
                self.cluster.command(register_node(node, rack), lambda result: None)
        elif self.closed:
            self._last(state)
        elif draw < 0.4:
            self._balance(begin=True)
        elif draw < 0.55:
            self._balance(begin=False)
            self._take_back(state)
        elif draw < 0.75:
            self._move(state)

    def _last(self, state: MetadataState) -> None:
        if not self.last_began:
            self._balance(begin=True)
        elif not state.membership.balancing and not level(records_of(state), self.cluster):
            raise Violation(f"a balance has ended, and nodes do not hold alike: {state.topics()}")

    def _balance(self, *, begin: bool) -> None:
        last = self.closed

        def done(result: bytes) -> None:
            taken = not mpb.MetadataResult.FromString(result).error
            self.balances += begin and taken
            self.last_began = self.last_began or (last and taken)

        change = mpb.ChangeBalance(balancing=begin)
        self.cluster.command(mpb.MetadataCommand(change_balance=change), done)

    def _take_back(self, state: MetadataState) -> None:
        for record in records_of(state).values():
            if record.before_balance:
                self._retarget(record, record.before_balance)

    def _move(self, state: MetadataState) -> None:
        record = self.rng.choice([*records_of(state).values()])
        size = self.rng.choice((2, 3, 3, 4)) if len(record.replicas) > 1 else 1
        self.by_hand += 1
        self._retarget(record, self.rng.sample(self.cluster.node_ids, size))

    def _retarget(self, record: PartitionState, nodes: Any) -> None:
        command = mpb.SetReplicas(
            group_id=record.group_id, replicas=nodes, expected_version=record.version
        )
        self.cluster.command(mpb.MetadataCommand(set_replicas=command), lambda result: None)


def level(records: Records, cluster: Cluster) -> bool:
    """Tells whether no node holds, or shall hold, two replicas more than another.

    With racks: than another of its rack, and no partition has a majority in one.
    """
    held = Counter(node for one in records.values() for node in one.placed)
    racks: dict[str, list[int]] = {}
    for node in cluster.node_ids:
        racks.setdefault(cluster.racks.get(node, ""), []).append(held[node])
    crowded = any(in_one_rack(one.placed, cluster.racks) for one in records.values())
    return not crowded and all(max(held) - min(held) <= 1 for held in racks.values())


def in_one_rack(replicas: Sequence[int], racks: Mapping[int, str]) -> bool:
    """Tells whether a majority of them is in one of the racks; a single one always is."""
    held = Counter(racks.get(node, str(node)) for node in replicas)
    return len(replicas) > 1 and 2 * max(held.values()) > len(replicas)


class Uneven(Clients):
    """One topic, on three nodes at first; no others come, so that a level cluster stays so."""

    def _any_command(self) -> mpb.MetadataCommand:
        ids = mpb.AllocateProducerIds(node_id=1, count=self.rng.randint(1, 100))
        return mpb.MetadataCommand(allocate_producer_ids=ids)


def run_balances(seed: int, *, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    result = Result(seed)
    settings = replace(settings_of(rng), metadata=True, smallest_majority=2)
    cluster = Cluster(settings, seed, verbose=verbose)
    if seed % 2:
        cluster.racks = dict(zip(cluster.node_ids, RACKS, strict=True))
    try:
        with limited(balancing, "MAX_MOVES", MAX_MOVES):
            operator, watch, faults = _drive(cluster, rng)
        result.injected = {
            **faults.injected, "balance": operator.balances, "change": operator.by_hand,
            "balance's move": watch.moves,
        }  # fmt: skip
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.failed(error)
    result.count(cluster)
    return result


def _drive(cluster: Cluster, rng: random.Random) -> tuple[Operator, Watch, Faults]:
    clients, some = Uneven(cluster), rng.sample(cluster.node_ids, 3)
    placements = [rng.sample(some, 3) for _ in range(rng.randint(*PARTITIONS))]
    clients.bootstrap = [
        *(register_node(node) for node in cluster.node_ids),
        create_topic(f"t{GID}", placements, cluster.settings),
    ]
    gap = 1.0 + 3.0 * cluster.rng.random()
    faults = Faults(cluster, clients, until=DURATION * 0.65, gap=gap)
    operator, watch = Operator(cluster, clients, rng), Watch(cluster)
    watch.look()
    begin(cluster)
    drive(cluster, clients, faults, operator, lambda one: _is_done(one, operator), _not_done)
    return operator, watch, faults


def _is_done(cluster: Cluster, operator: Operator) -> bool:
    leader = cluster.leader(METADATA_GROUP)
    if leader is None or not operator.last_began or not cluster.at_rest():
        return False
    state = leader.running.state
    records = records_of(state)
    moving = any(record.target for record in records.values())
    return not state.membership.balancing and not moving and level(records, cluster)


def _not_done(cluster: Cluster) -> str:
    leader = cluster.leader(METADATA_GROUP)
    if leader is None:
        return f"nobody leads the metadata: {describe(cluster)}"
    state = leader.running.state
    held = [(*one.replicas, *one.target) for one in records_of(state).values()]
    return f"the balance does not end ({state.membership.balancing}): {held}; {describe(cluster)}"


@schedule
def balances_end_and_keep_to_their_limits() -> None:
    """Few seeds of the above, for the planted weaknesses."""
    for seed in DIRECTED:
        error = run_balances(seed).error
        if error:
            raise Violation(f"seed {seed}: {error}")


@schedule
def balances_keep_partitions_spread() -> None:
    """One seed with racks."""
    error = run_balances(WITH_RACKS).error
    if error:
        raise Violation(f"seed {WITH_RACKS}: {error}")


@schedule
def a_balance_does_not_end_on_a_plan_from_before() -> None:
    """All partitions are moved by hand between an empty plan and the end that follows from it."""
    moved_by_hand(DIRECTED[0], lambda records: records, goes_on=True)


@schedule
def a_balance_does_not_end_beside_a_move() -> None:
    """One partition is on its way by hand to a majority in one rack when a plan is empty."""
    moved_by_hand(WITH_RACKS, lambda records: records[:1], goes_on=False)


def moved_by_hand(
    seed: int, of: Callable[[list[PartitionState]], list[PartitionState]], *, goes_on: bool
) -> None:
    """Moves partitions to the first nodes when the first plan behind the run is empty.

    goes_on: the balance goes on with that plan. Otherwise it draws others, and the moves wait.
    """
    begin, moved = Balancing.begin, list[int]()
    look, until = ReplicaChanges._look, [0.0]

    def late(self: Balancing, moves: Moves) -> None:
        cluster, records = self._propose.__self__._node.cluster, self._records()  # type: ignore[attr-defined]
        is_first = not moved and cluster.scheduler.now > DURATION and self.is_due
        if is_first and not moves and not any(record.target for record in records):
            for record in of(records):
                command = mpb.SetReplicas(
                    group_id=record.group_id,
                    replicas=cluster.node_ids[: len(record.replicas)],
                    expected_version=record.version,
                )
                moved.append(record.group_id)
                cluster.command(mpb.MetadataCommand(set_replicas=command), lambda result: None)
            if not goes_on:
                until[0] = cluster.scheduler.now + SLOW_MOVE
                return
        begin(self, moves)

    def slow(self: ReplicaChanges, gid: int, group: Group, record: PartitionState) -> None:
        now = self._propose.__self__.cluster.scheduler.now  # type: ignore[attr-defined]
        if gid not in moved or now >= until[0]:
            look(self, gid, group, record)

    slow_moves = limited(ReplicaChanges, "_look", slow)
    with limited(Balancing, "begin", late), limited(seeds, "REST", 300.0), slow_moves:
        error = run_balances(seed).error
    if error or not moved:
        raise Violation(error or "no plan was empty")
