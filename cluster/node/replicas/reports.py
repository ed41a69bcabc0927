"""Schedule of a node's replica changes, and delivery of their reports to the metadata group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from cluster.config.node_config import NodeConfig
from cluster.consensus.driver import Driver
from cluster.errors import ClusterError
from cluster.metadata.state import MetadataState
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.replicas.balance import Balancing
from cluster.node.replicas.changes import ReplicaChanges
from cluster.node.replicas.node_changes import NodeChanges
from cluster.node.replicas.repairs import Repairs
from cluster.node.replicas.replicas import Replicas
from cluster.node.replicas.sizes import ReplicaSizes, largest
from cluster.node.replicas.votes import MetadataVotes
from cluster.node.tasks import LOOK_PERIOD, Tasks, every
from cluster.v1 import metadata_pb2 as mpb

log = logging.getLogger(__name__)

BALANCE_PERIOD = 1.0  # seconds
REPORT_TIMEOUT = 5.0  # seconds; the next look sends it again


class ReplicaDuties:
    """Brings groups to their targets in the metadata, as far as this node leads.

    It also reports this node's damaged replicas.
    """

    def __init__(
        self,
        config: NodeConfig,
        driver: Driver,
        metadata: MetadataState,
        proposer: MetadataProposer,
        replicas: Replicas,
        sizes: ReplicaSizes,
    ) -> None:
        self._proposer = proposer
        self._tasks = Tasks()
        delay = config.repair_after_ms / 1000
        self.repairs = Repairs(
            config.node_id, delay, replicas, metadata, time.monotonic, self._propose
        )
        votes = MetadataVotes(time.monotonic)
        self.changes = ReplicaChanges(driver, metadata, metadata.directory_of, self._propose, votes)
        self._nodes = NodeChanges(driver, metadata, self._propose, config.wanted_replicas)
        self._sizes = sizes
        self._balancing = Balancing(driver, metadata, sizes.alive, self._propose)

    def start(self) -> None:
        self._tasks.spawn(every(LOOK_PERIOD, self.changes.look))
        self._tasks.spawn(every(LOOK_PERIOD, self._nodes.look))
        self._tasks.spawn(self._balance())
        self._tasks.spawn(every(LOOK_PERIOD, self.repairs.look))

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _balance(self) -> None:
        while True:
            await asyncio.sleep(BALANCE_PERIOD)
            if self._balancing.is_due:
                held = await self._sizes.ask()
                draw = self._balancing.draw(largest(held.values()))
                self._balancing.begin(await asyncio.to_thread(draw))

    def _propose(self, command: mpb.MetadataCommand, done: Callable[[], None]) -> None:
        self._tasks.spawn(self._report(command, done))

    async def _report(self, command: mpb.MetadataCommand, done: Callable[[], None]) -> None:
        try:
            await self._proposer.propose(command, REPORT_TIMEOUT)
        except ClusterError as error:
            log.info("replicas were not reported this time: %s", error)
        finally:
            done()
