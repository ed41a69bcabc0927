"""Hands leadership over: of one partition when asked, of all when the node stops.

TransferLeadership, Node.stop --> Leaderships --transfer--> groups that this node leads
"""

from __future__ import annotations

import logging

from cluster.consensus.driver import Driver
from cluster.errors import NotLeaderError
from cluster.node.clock_agreement import ClockAgreement
from cluster.node.health import successor
from cluster.node.leaders import Leaders

log = logging.getLogger(__name__)

HANDOVER_TIMEOUT = 3.0  # seconds


class Leaderships:
    """Of one node."""

    def __init__(
        self, node_id: int, driver: Driver, leaders: Leaders, clocks: ClockAgreement
    ) -> None:
        self._node_id, self._driver = node_id, driver
        self._leaders, self._clocks = leaders, clocks

    async def transfer(self, group_id: int, target: int, timeout: float) -> int:
        """target: 0: the best. Returns the leader afterwards. Raises NotLeaderError."""
        group, leader_of = self._driver.groups.get(group_id), self._leaders.leader_of
        if group is None or not group.is_leader:
            leader = leader_of(group_id)[0]
            raise NotLeaderError("this node does not lead the partition", leader)
        target = target or successor(group, self._clocks.wrong, self._clocks.sick)
        if target and target != self._node_id:
            group.transfer(target)
            self._driver.touch(group_id)
            await self._leaders.wait_until(
                lambda: leader_of(group_id)[0] not in (0, self._node_id), timeout
            )
        return leader_of(group_id)[0]

    async def hand_over(self) -> None:
        """All that this node leads, to whoever can take it, for HANDOVER_TIMEOUT at most."""
        led = [group for group in self._driver.groups.values() if group.is_leader]
        wrong = self._clocks.wrong
        for group in led:
            target = successor(group, wrong, self._clocks.sick)
            if target:
                group.transfer(target)
                self._driver.touch(group.config.group)
        if not await self._leaders.wait_until(
            lambda: not any(group.is_leader and group.best_successor(wrong) for group in led),
            HANDOVER_TIMEOUT,
        ):
            log.warning("leadership was not handed over in time")
