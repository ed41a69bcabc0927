"""Handover of leadership: of one partition on request, of all when the node stops.

TransferLeadership, Node.stop --> Leaderships --transfer--> groups that this node leads
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from cluster.config.node_config import NodeConfig
from cluster.consensus.driver import Driver
from cluster.consensus.group import Group
from cluster.errors import NotLeaderError
from cluster.metadata.state import MetadataState
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.health.node_health import NodeHealth, successor
from cluster.node.leadership.leaders import Leaders

log = logging.getLogger(__name__)

MAX_HANDOVERS = 25  # at a time: each costs its partition's writers an election
LOOK_PERIOD = 0.25  # seconds; a failed handover begins again


class Leaderships:
    """Hands over leadership of one node's groups."""

    def __init__(
        self,
        config: NodeConfig,
        driver: Driver,
        leaders: Leaders,
        clocks: ClockAgreement,
        health: NodeHealth,
        metadata: MetadataState,
    ) -> None:
        self._node_id = config.node_id
        self._driver = driver
        self._timeout = config.handover_timeout_ms / 1000
        self._leaders = leaders
        self._clocks = clocks
        self._health = health
        self._metadata = metadata

    async def transfer(self, group_id: int, target: int, timeout: float) -> int:
        """Hand over; target 0: the best. Returns the leader afterwards. Raises NotLeaderError."""
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
        """Hand over all leaderships that others can take, within `handover_timeout_ms`."""
        self._health.is_leaving = True  # no peer hands one back meanwhile
        loop = asyncio.get_running_loop()
        end, before = loop.time() + self._timeout, 0
        while left := self._begin_handovers():
            if before == 0:
                log.info("hands over leaderships=%d", left)
            before = left
            wait = min(LOOK_PERIOD, end - loop.time())
            if wait <= 0:
                log.warning("leadership was not handed over in time: %d are left", left)
                return
            await self._leaders.wait_until(partial(self._is_below, before), wait)

    def _begin_handovers(self) -> int:
        """Keep MAX_HANDOVERS in progress; returns how many are left, of those others can take."""
        under_way = sum(group.is_transferring for group in self._driver.groups.values())
        for group, target in self._to_hand_over():
            if under_way >= MAX_HANDOVERS:
                break
            if not group.is_transferring:
                group.transfer(target)
                self._driver.touch(group.config.group)
                under_way += 1
        return self._left()

    def _is_below(self, before: int) -> bool:
        return self._left() < before

    def _left(self) -> int:
        return sum(1 for _ in self._to_hand_over())

    def _to_hand_over(self) -> Iterator[tuple[Group, int]]:
        away = {*self._clocks.wrong, *self._metadata.membership.drained}
        for group in self._driver.groups.values():
            if group.is_leader:
                target = successor(group, away, self._clocks.sick)
                if target:
                    yield group, target
