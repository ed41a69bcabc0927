"""An operator that rolls nodes to a newer release and back, and an upgrade amid it all.

Operator --kill, another program--> Node      leaders --PROBE, if the gate says so--> groups
         --FinalizeUpgrade, by the real plan--> metadata group
"""

from __future__ import annotations

import random
from typing import Any

from cluster.entries import UPGRADE
from cluster.features import Release
from cluster.metadata import upgrade
from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.cluster import Cluster, register_node
from tests.sim.node import Node, Settings
from tests.sim.releases import FEATURE, NEW, OLD, PROBE, replace_program
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage


class Operator:
    """An operator: replaces programs until `until`, finalizes, has leaders write PROBEs."""

    def __init__(self, cluster: Cluster, rng: random.Random, *, until: float, end: float) -> None:
        self.cluster, self.rng, self.until, self.end = cluster, rng, until, end
        self.probes = 0

    def start(self) -> None:
        for node in self.cluster.nodes.values():
            assert not node.alive
            node.release = OLD if self.rng.random() < 0.8 else NEW
        self.cluster.scheduler.after(1.0, self._act)
        self.cluster.scheduler.after(1.0, self._write)

    def _act(self) -> None:
        now = self.cluster.scheduler.now
        if now >= self.end:
            return
        if now < self.until and self.rng.random() < 0.5:
            self._roll(NEW if self.rng.random() < 0.75 else OLD)
        elif now >= self.until:
            self._roll(NEW)
        self._refuse()
        if self.rng.random() < 0.4:
            self._finalize()
        self.cluster.scheduler.after(0.5 + self.rng.random(), self._act)

    def _roll(self, release: Release) -> None:
        others = [node for node in self.cluster.live() if node.release is not release]
        # Now and then somebody tries the older release after the upgrade, too.
        if others and (not self._is_upgraded(release) or self.rng.random() < 0.2):
            node = others[self.rng.randrange(len(others))]
            replace_program(node, node.incarnation, release)

    def _is_upgraded(self, release: Release) -> bool:
        return bool(release.lacks(self.cluster.checker.metadata.finalized))

    def _refuse(self) -> None:
        """Refuses as the Hellos do: a node of the older release ends and is upgraded."""
        versions = [node.cluster_version for node in self.cluster.live()]
        for node in self.cluster.live():
            if max(versions) not in node.release.versions:
                replace_program(node, node.incarnation, NEW)

    def _finalize(self) -> None:
        """Finalizes. The leader's look at the nodes may be old when its command is proposed."""
        leader = self.cluster.leader(METADATA_GROUP)
        if leader is None or leader.release is not NEW:
            return
        state = leader.running.state
        heard = {node.id: node.release for node in self.cluster.live()}
        nodes = {node_id: heard.get(node_id) for node_id in state.nodes}
        plan = upgrade.plan(state.finalized, nodes)
        if plan.is_pending and (plan.is_ready or self.rng.random() < 0.3):
            command = upgrade.command(plan.target)
            command.nodes.extend(upgrade.node_releases(nodes))
            delay = self.rng.random()
            self.cluster.scheduler.after(delay, self._propose, leader, leader.incarnation, command)

    def _propose(self, leader: Node, incarnation: int, command: mpb.FinalizeUpgrade) -> None:
        if leader.incarnation != incarnation or not leader.running.clocks.agreed:
            return
        group = leader.machines[METADATA_GROUP].group
        assert group is not None
        self.cluster.trace("node %d: %s", leader.id, str(command).replace("\n", " "))
        stamped = mpb.MetadataCommand(
            stamp_ms=leader.running.clocks.now_ms(), finalize_upgrade=command
        )
        group.propose(bytes((UPGRADE,)) + stamped.SerializeToString(), lambda outcome: None)
        leader.driver.touch(METADATA_GROUP)

    def _write(self) -> None:
        if self.cluster.scheduler.now >= self.end:
            return
        for gid in self.cluster.groups:
            leader = self.cluster.leader(gid)
            if leader is not None:
                self.probes += write_probe(leader, gid)
        self.cluster.scheduler.after(0.3 + 0.5 * self.rng.random(), self._write)


def write_probe(leader: Node, gid: int) -> bool:
    """Proposes a PROBE if the gate says that all replicas can read it."""
    if not leader.running.state.features.is_on(FEATURE):
        return False
    group: Any = leader.partitions[gid].group
    group.propose(bytes((PROBE,)), lambda outcome: None)
    leader.driver.touch(gid)
    return True


# -- directed ----------------------------------------------------------------------------------


@schedule
def nothing_new_is_written_before_the_upgrade() -> None:
    """Node 3 still runs the older release; the leader runs the newer one."""
    stage = Stage()
    stage.crash(3)
    stage.node(3).release = OLD
    stage.start(3)
    stage.elect(1)
    stage.produce(1)
    assert stage.node(1).release is NEW
    write_probe(stage.node(1), GID)
    stage.produce(1)
    stage.run(1.0)
    stage.finish()


@schedule
def an_older_release_does_not_go_on_beyond_an_upgrade() -> None:
    """Node 3 has run the newer one, is put back to the older, and the upgrade comes."""
    cluster = Cluster(Settings(metadata=True), seed=1)
    cluster.start()
    cluster.scheduler.run_until(10.0)
    for node_id in cluster.node_ids:
        cluster.command(register_node(node_id), lambda result: None)
        cluster.scheduler.run_until(cluster.scheduler.now + 2.0)
    leader = cluster.leader(METADATA_GROUP)
    assert leader is not None
    behind = next(node for node in cluster.live() if node is not leader)
    replace_program(behind, behind.incarnation, OLD)
    cluster.scheduler.run_until(cluster.scheduler.now + 5.0)
    assert behind.alive and behind.release is OLD
    state = leader.running.state
    nodes = dict.fromkeys(state.nodes, NEW)
    assert len(nodes) == 3
    command = upgrade.command(upgrade.plan(state.finalized, nodes).target)
    command.nodes.extend(upgrade.node_releases(nodes))
    operator = Operator(cluster, random.Random(1), until=0.0, end=0.0)
    operator._propose(leader, leader.incarnation, command)
    cluster.scheduler.run_until(cluster.scheduler.now + 10.0)
    assert OLD.lacks(state.finalized), "the upgrade was applied"
    assert behind.alive and behind.release is NEW, "the older one has ended"
