"""Length of a group's time without a leader, if both followers notice its death at once."""

from __future__ import annotations

import pytest

from tests.sim.stage import GID, Stage


@pytest.mark.parametrize("apart", [0.0, 0.0005, 0.001, 0.002])
def test_a_split_vote_after_a_lost_link_costs_no_whole_timeout(apart: float) -> None:
    """Both followers stand `apart` seconds from each other, so that neither may win at first."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.free = True
    stage.crash(1)
    for node_id, wait in ((2, 0.1), (3, 0.1 + apart)):
        node, group = stage.node(node_id), stage.group(node_id)
        group.set_link(1, False)
        group.core.election_deadline = node.clock() + wait
        node.driver.touch(GID)
    began, timeout = stage.cluster.scheduler.now, stage.group(2).config.election_timeout
    while not any(stage.group(node_id).is_ready for node_id in (2, 3)):
        stage.run(0.01)
        assert stage.cluster.scheduler.now - began < timeout, "nobody leads"
    stage.start(1)
    stage.finish()
