"""Random runs in which members change amid all other events: one seed, one run.

run_changes   any step, at any time: an operator in the place of the metadata group;
              it is never wrong, and nodes hear of it late
run_moves     the real metadata group: moves drawn at random, leaders go there by themselves
Faults, Clients: those of `run.py`
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from cluster.consensus.configuration import (
    NOBODY,
    ChangeRefusedError,
    ChangeStep,
    Configuration,
    ConfigurationChange,
)
from cluster.consensus.group import Group
from cluster.consensus.survivor import is_unconfirmed, who_else_decides
from cluster.entries import UPGRADE
from cluster.features import REPLICA_CHANGES, THIS_RELEASE, Release
from cluster.metadata.placement import resized
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState, TopicState
from cluster.metadata.upgrade import command, node_releases, plan
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.client import Producer
from tests.sim.cluster import Cluster, create_topic
from tests.sim.faults import Faults
from tests.sim.membership.stage import Changing
from tests.sim.node import Node, Settings
from tests.sim.run import Clients, Result, describe
from tests.sim.stage import GID

DURATION = 40.0
REST = 60.0
MAX_PARTITIONS = 5  # of the topic; each has a producer


class Operator:
    """An operator: draws steps until closed; then finishes begun ones, and tells all nodes.

    demotes: voters become learners, too, and learners may stay learners.
    """

    def __init__(self, stage: Changing, rng: random.Random, *, demotes: bool) -> None:
        self.stage, self.rng, self.demotes = stage, rng, demotes
        self.closed = False
        self.steps = self.demotions = self.lost_disks = 0
        self.may_wait = False  # for ever: nobody knows which node may decide
        self._gone: set[int] = set()  # their disks are to be replaced

    def start(self) -> None:
        self.stage.cluster.scheduler.after(1.0, self._tick)

    def _tick(self) -> None:
        self.stage.cluster.scheduler.after(0.2 + self.rng.random(), self._tick)
        if not self.closed and self.rng.random() < 0.3 and self._lose_disk():
            return
        leader = self.stage.cluster.leader(GID)
        if leader is not None and leader.paused_until <= self.stage.cluster.scheduler.now:
            group = self.stage.group(leader.id)
            if group.members.version > self.stage.record.version:
                self.stage.reported(leader.id)
            self._step(group, leader.id)
        told = [
            node.id
            for node in self.stage.cluster.live()
            if self.closed or (self.rng.random() < 0.7 and not node.driver.storage_full)
        ]
        self.stage.tell(*told)
        self._replace_disks()

    def _step(self, group: Group, leader: int) -> None:
        now = group.members.configuration
        lost = [one.node for one in now.voters if one[:2] in self.stage.record.lost]
        unfinished = now.learners and not self.demotes
        if self.closed and not (unfinished or lost):
            return
        step, node = (ChangeStep.REMOVE, lost[0]) if lost else self._draw(now)
        unconfirmed = is_unconfirmed(group.members, group.journal.configurations)
        if unconfirmed and not lost and self.rng.random() < 0.5:
            step, node = ChangeStep.CONFIRM, leader
        change = ConfigurationChange(step, node, now.version, directory=node)
        try:
            group.change(change, lambda outcome: None)
        except ChangeRefusedError:
            return
        self.steps += 1
        self.demotions += step is ChangeStep.DEMOTE
        self.stage.cluster.trace("%s of node %d at node %d, after %s", step.value, node, leader,
                                 now)  # fmt: skip
        self.stage.node(leader).driver.touch(GID)

    def _draw(self, now: Configuration) -> tuple[ChangeStep, int]:
        rng = self.rng
        voters = [one.node for one in now.voters]
        spare = [node for node in self.stage.cluster.node_ids if now.member(node) is None]
        if self.demotes and rng.random() < 0.4:
            return ChangeStep.DEMOTE, rng.choice(voters)
        if now.learners and (self.closed or rng.random() < 0.7):
            return ChangeStep.PROMOTE, now.learners[-1 if self.demotes else 0].node
        if spare and rng.random() < 0.5:
            return ChangeStep.ADD, rng.choice(spare)
        return ChangeStep.REMOVE, rng.choice([*voters, *(one.node for one in now.learners)])

    def _lose_disk(self) -> bool:
        """Loses one of two voters' disks, while no change is in progress: the other one has all.

        It goes on if it can know that.
        """
        stage, record = self.stage, self.stage.record
        groups = [stage.group(node.id) for node in stage.cluster.live() if stage.holds(node.id)]
        known = [one.configuration for group in groups for one in group.journal.configurations]
        newest = max(known, key=lambda one: one.version, default=NOBODY)
        held = {one.node for one in newest.voters}
        in_force = [
            one
            for one in groups
            if one.members.configuration == newest and one.config.node_id in held
        ]
        leading = [one._leading for one in groups if one._leading is not None]
        settled = newest.version == record.version and not record.lost
        settled = settled and not any(one._change_queued for one in leading)
        everybody = len(stage.cluster.live()) == len(stage.cluster.node_ids)
        if len(newest.voters) != 2 or len(in_force) < 2 or not (settled and everybody):
            return False
        gone = self.rng.choice(newest.voters)
        node = stage.cluster.nodes[gone.node]
        stage.cluster.trace("the disk of node %d is lost, of %s", gone.node, newest)
        stage.wipe(gone.node)
        stage.record = replace(record, lost=(gone[:2],))
        stage.tell()  # nodes that start from now on know it
        self.lost_disks += 1
        left = [one for one in in_force if one.config.node_id != gone.node]
        unknown = (who_else_decides(one.members, one.journal.configurations) for one in left)
        self.may_wait = self.may_wait or any(unknown)
        stage.cluster.scheduler.after(5.0 * self.rng.random(), node.restart)
        return True

    def _replace_disks(self) -> None:
        """Puts an empty disk into a node that is in no configuration any more."""
        record, rng = self.stage.record, self.rng
        for node in self.stage.cluster.live():
            out = node.id not in record.replicas and not self.stage.holds(node.id)
            if out and record.version and rng.random() < 0.05:
                self.stage.wipe(node.id)
                node.start()
                self.stage.cluster.trace("node %d has an empty disk", node.id)


def settings_of(rng: random.Random) -> Settings:
    election = 1.0 + rng.random()
    retention = rng.random() < 0.7
    return Settings(
        nodes=5,
        smallest_majority=1,
        streams=rng.random() < 0.4,
        election_timeout=election,
        heartbeat=election / 3.2,
        checkpoint_entries=rng.choice((8, 20, 60)),
        tail_bytes=rng.choice((0, 500, 100_000)),
        retention_bytes=rng.choice((0, 600, 2000)) if retention else -1,
        retention_check=1.0 + 2.0 * rng.random() if retention else 0.0,
        sync_time=rng.choice((0.001, 0.002, 0.01)),
    )


def run_changes(seed: int, *, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    result = Result(seed)
    founding = rng.choice((1, 2, 3, 3, 4, 5))
    stage = Changing.at_random(founding, settings_of(rng), seed, verbose=verbose)
    try:
        operator = Operator(stage, rng, demotes=seed % 4 < 2)
        faults = _drive(stage, operator)
        result.injected = {
            **faults.injected, "change": operator.steps, "lost disk": operator.lost_disks,
            "demotion": operator.demotions,
        }  # fmt: skip
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.failed(error)
    result.count(stage.cluster)
    return result


def _drive(stage: Changing, operator: Operator) -> Faults:
    cluster = stage.cluster
    clients = Clients(cluster)
    faults = Faults(cluster, clients, until=DURATION * 0.65, gap=0.8 + 2.0 * cluster.rng.random())
    clients.start()
    faults.start()
    operator.start()
    scheduler = cluster.scheduler
    scheduler.run_until(DURATION * 0.67)
    cluster.trace("everything heals")
    cluster.heal()
    scheduler.run_until(DURATION * 0.72)
    before = cluster.checker.models[GID].next_offset
    scheduler.run_until(DURATION)
    writing = [
        producer for producer in clients.producers if not (producer.stopped or producer.opening)
    ]
    clients.close()
    operator.closed = True
    end = DURATION
    while end < DURATION + REST and not (_at_rest(stage, operator) and not clients.unfinished()):
        end += 0.5
        scheduler.run_until(end)
    if operator.may_wait and not _at_rest(stage, operator):
        return faults
    if not _at_rest(stage, operator):
        raise Violation(f"replicas do not converge: {stage.describe()}")
    unfinished: list[Producer] = clients.unfinished()
    if unfinished:
        raise Violation(f"{unfinished[0].waits_for()} is never stored; {stage.describe()}")
    if writing and before == cluster.checker.models[GID].next_offset:
        raise Violation(f"no progress after healing; {stage.describe()}")
    for node in stage.members():
        cluster._check_replica(cluster.nodes[node], GID, cluster.checker.models[GID])
    return faults


def _at_rest(stage: Changing, operator: Operator) -> bool:
    """Tells whether there are a leader, equal members, no other holders, and what may stay."""
    if not stage.is_settled(()) or len(stage.present(())) != len(stage.members()):
        return False
    leader = stage.cluster.leader(GID)
    assert leader is not None
    if stage.group(leader.id).members.configuration.learners and not operator.demotes:
        return False
    held = {node.id for node in stage.cluster.live() if stage.holds(node.id)}
    return held == set(stage.members()) and not any(
        node.open_calls for node in stage.cluster.nodes.values()
    )


# -- with the metadata group --------------------------------------------------------------


def added(topic: TopicState, *placements: Sequence[int]) -> mpb.MetadataCommand:
    """Builds a command that adds so many partitions."""
    command = mpb.AddPartitions(
        name=topic.name,
        topic_id=topic.topic_id,
        expected_partitions=len(topic.partitions),
        placements=[mpb.Placement(replicas=nodes) for nodes in placements],
    )
    return mpb.MetadataCommand(add_partitions=command)


def replicas_asked(
    topic: TopicState, moves: Iterable[tuple[PartitionState, Sequence[int]]]
) -> mpb.MetadataCommand:
    targets = [
        mpb.SetReplicas(group_id=record.group_id, replicas=target, expected_version=record.version)
        for record, target in moves
    ]
    command = mpb.SetTopicReplicas(name=topic.name, topic_id=topic.topic_id, partitions=targets)
    return mpb.MetadataCommand(set_topic_replicas=command)


class Moves:
    """A cluster whose nodes know of changes; draws the nodes of its partition.

    Its topic gets more partitions now and then, and all of them another number of replicas.
    """

    def __init__(self, cluster: Cluster, clients: Clients, rng: random.Random) -> None:
        self.cluster, self.clients, self.rng = cluster, clients, rng
        self.closed, self.asked, self.added = False, 0, 0

    def tick(self) -> None:
        self.cluster.scheduler.after(0.5 + 4.0 * self.rng.random(), self.tick)
        leader = self.cluster.leader(METADATA_GROUP)
        if leader is None or self.closed:
            return
        state = leader.running.state
        if not state.features.is_on(REPLICA_CHANGES):
            self.finalize(leader, state)
            return
        found, draw = state.partition(GID), self.rng.random()
        if found is not None and draw < 0.15 and len(found[0].partitions) < MAX_PARTITIONS:
            self.cluster.command(added(found[0], self._three(), self._three()), self._grown)
        elif found is not None and draw < 0.35:
            size, nodes = self.rng.choice((3, 3, 4, 5)), self.cluster.node_ids
            live = [node for node in nodes if self.rng.random() < 0.8]
            moves = resized(found[0], size, nodes, live, {}, state.tables.loads)
            self.cluster.command(replicas_asked(found[0], moves), self._done)
        elif found is not None:
            size = self.rng.choice((3, 3, 3, 4, 5))
            target = self.rng.sample(self.cluster.node_ids, size)
            command = mpb.SetReplicas(
                group_id=GID, replicas=target, expected_version=found[2].version
            )
            self.cluster.command(mpb.MetadataCommand(set_replicas=command), self._done)

    def _three(self) -> list[int]:
        return self.rng.sample(self.cluster.node_ids, 3)

    def _grown(self, result: bytes) -> None:
        self.added += not mpb.MetadataResult.FromString(result).error

    def _done(self, result: bytes) -> None:
        self.asked += not mpb.MetadataResult.FromString(result).error

    def finalize(self, leader: Node, state: MetadataState, release: Release = THIS_RELEASE) -> None:
        """Proposes the upgrade to the version of `release`."""
        if len(state.nodes) < len(self.cluster.founding):
            return
        known = dict.fromkeys(state.nodes, release)
        upgrade = command(plan(state.finalized, known).target)
        upgrade.nodes.extend(node_releases(known))
        entry = mpb.MetadataCommand(finalize_upgrade=upgrade).SerializeToString()
        group = leader.machines[METADATA_GROUP].group
        assert group is not None
        group.propose(bytes((UPGRADE,)) + entry, lambda outcome: None)
        leader.driver.touch(METADATA_GROUP)


def run_moves(seed: int, *, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    result = Result(seed)
    settings = replace(settings_of(rng), metadata=True, smallest_majority=2)
    cluster = Cluster(settings, seed, verbose=verbose)
    try:
        moves, faults = _drive_moves(cluster, rng)
        result.injected = {**faults.injected, "change": moves.asked, "grown": moves.added}
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.failed(error)
    result.count(cluster)
    return result


def _drive_moves(cluster: Cluster, rng: random.Random) -> tuple[Moves, Faults]:
    clients = Clients(cluster)
    three = rng.sample(cluster.node_ids, 3)
    clients.bootstrap[-1] = create_topic(f"t{GID}", [three], cluster.settings)
    faults = Faults(cluster, clients, until=DURATION * 0.65, gap=0.8 + 2.0 * cluster.rng.random())
    moves = Moves(cluster, clients, rng)
    begin(cluster)
    drive(cluster, clients, faults, moves, _has_moved, _not_moved)
    return moves, faults


class Drawing(Protocol):
    """A drawer of changes, until it is closed."""

    closed: bool

    def tick(self) -> None: ...


def begin(cluster: Cluster) -> None:
    """Starts all nodes with this release."""
    for node in cluster.nodes.values():
        node.release = THIS_RELEASE
        cluster.upgraded.add(node.id)
    cluster.start()


def drive(
    cluster: Cluster,
    clients: Clients,
    faults: Faults,
    changes: Drawing,
    is_done: Callable[[Cluster], bool],
    otherwise: Callable[[Cluster], str],
    check_end: Callable[[Cluster], None] | None = None,
) -> None:
    """Runs with the metadata group: all draw, then it heals, and all targets are reached.

    The cluster has begun. check_end: in the place of `check_topics`, where more is lost than the
    cluster bears.
    """
    clients.start()
    faults.start()
    changes.tick()
    scheduler = cluster.scheduler
    began = scheduler.now
    scheduler.run_until(began + DURATION * 0.67)
    cluster.trace("everything heals")
    cluster.heal()
    scheduler.run_until(began + DURATION)
    clients.close()
    changes.closed = True
    end = began + DURATION
    while end < began + DURATION + REST and not (is_done(cluster) and not clients.unfinished()):
        end += 0.5
        scheduler.run_until(end)
    if not is_done(cluster):
        raise Violation(otherwise(cluster))
    if clients.unfinished():
        raise Violation(f"{clients.unfinished()[0].waits_for()} is never stored")
    (check_end or check_topics)(cluster)


def check_topics(cluster: Cluster, harmed: Collection[int] = ()) -> None:
    """Checks that each node has the partitions that were made, and each replica the records.

    harmed: partitions that may have lost theirs.
    """
    check_partitions(cluster)
    for gid, holders in cluster.placement().items():
        for holder in holders if gid not in {METADATA_GROUP, *harmed} else ():
            cluster._check_replica(cluster.nodes[holder], gid, cluster.checker.models[gid])


def check_partitions(cluster: Cluster) -> None:
    """Checks the members' partitions; a removed node hears of no new ones."""
    members = cluster.placement()[METADATA_GROUP]
    for node in cluster.live():
        for topic in node.running.state.topics() if node.id in members else ():
            groups = [one.group_id for one in topic.partitions]
            cluster.checker.metadata.check_partitions(topic.name, groups)


def _not_moved(cluster: Cluster) -> str:
    return f"the partition is not where it shall be: {describe(cluster)}"


def _has_moved(cluster: Cluster) -> bool:
    """Tells whether the target is reached, replicas are equal, and each node holds its groups."""
    if GID not in cluster.placement() or not cluster.at_rest():
        return False
    states = [node.running.state for node in cluster.live()]
    records = [one for state in states for topic in state.topics() for one in topic.partitions]
    return bool(records) and not any(record.target for record in records)
