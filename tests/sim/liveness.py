"""Directed schedules: a replica, disk or loop that is ill does not keep its group from working."""

from __future__ import annotations

from tests.sim.checker import Violation
from tests.sim.disk import PlantedDamage
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage


@schedule
def a_leader_that_fails_at_rest_is_replaced() -> None:
    """Its node has to save early, finds its state damaged, and has nothing else to do."""
    stage = Stage(checkpoint_entries=1000)
    stage.elect(1)
    stage.produce(1)
    stage.run(2.0)
    assert stage.group(1).is_quiescent
    node = stage.node(1)

    def damaged() -> bytes:
        raise PlantedDamage("a damaged map")

    stage.group(1)._raft.checkpoints._dump = damaged
    node.driver.replay.limit = node.driver.replay._look_above = 1
    node.wake()
    stage.free = True
    for other in (2, 3):
        stage.group(other).core.election_deadline = stage.node(other).clock() + 1.0
        stage.node(other).driver.touch(GID)
    stage.run(10.0)
    assert type(stage.group(1).failed) is PlantedDamage
    if stage.cluster.leader(GID) is None:
        raise Violation("nobody leads in the place of a replica that has stopped")
    stage.crash(1)
    stage.start(1)
    stage.finish()
