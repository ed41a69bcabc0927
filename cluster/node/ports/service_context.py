"""The node's side of `cluster/services/context.py`: the services' access to the node.

services --NodeContext--> ServiceContext --> the part of the node that knows or does it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cluster.access.budget import Budget
from cluster.config.node_config import NodeConfig
from cluster.errors import NotReadyError
from cluster.metadata.state import MetadataState
from cluster.metrics.page import Metrics
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.leadership.handover import Leaderships
from cluster.node.leadership.leaders import Leaders
from cluster.node.links.peers import Peers
from cluster.node.membership.own_node import OwnPlace
from cluster.node.metadata.producer_id_blocks import ProducerIdBlocks
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.metadata.upgrades import Upgrades
from cluster.node.replicas.driver_loop import DriverLoop
from cluster.node.replicas.sizes import ReplicaSizes
from cluster.partition.replica import Partition
from cluster.services.fair_turns import Turns
from cluster.services.newest_metadata import NewestMetadata
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult


@dataclass(slots=True)
class ServiceContext:
    """`services.context.NodeContext`, which documents each member.

    replicas: this node's, by group. why_waiting: group -> why this node, which leads it, does not
    change its replicas now.
    """

    config: NodeConfig
    founding: int
    metadata: MetadataState
    metrics: Metrics
    upgrades: Upgrades
    sizes: ReplicaSizes
    memory: Budget
    batches_under_way: Budget
    turns: Turns
    proposer: MetadataProposer
    producer_ids: ProducerIdBlocks
    leaders: Leaders
    leaderships: Leaderships
    peers: Peers
    place: OwnPlace
    clocks: ClockAgreement
    driver_loop: DriverLoop
    replicas: Mapping[int, Partition]
    why_waiting: Callable[[], Mapping[int, str]]
    newest_metadata: NewestMetadata = field(init=False)

    def __post_init__(self) -> None:
        self.newest_metadata = NewestMetadata(self)

    # -- metadata -----------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        return self.proposer.group.leader_id

    async def propose_metadata(self, command: MetadataCommand, timeout: float) -> MetadataResult:
        return await self.proposer.propose(command, timeout)

    async def next_producer_id(self) -> int:
        return await self.producer_ids.next_id()

    async def exclude_lost(self, lost: int) -> str:
        return await self.driver_loop.between_rounds(lambda: self.proposer.exclude_lost(lost))

    # -- partitions ---------------------------------------------------------------------

    def partition(self, group_id: int) -> Partition | None:
        return self.replicas.get(group_id)

    def leader_of(self, group_id: int) -> tuple[int, int]:
        return self.leaders.leader_of(group_id)

    async def wait_for_leaders(self, group_ids: Collection[int], timeout: float) -> bool:
        return await self.leaders.wait_for_leaders(group_ids, timeout)

    async def transfer_leadership(self, group_id: int, target: int) -> int:
        timeout = self.config.request_timeout_ms / 1000
        return await self.leaderships.transfer(group_id, target, timeout)

    def waiting(self, group_id: int) -> str:
        return self.why_waiting().get(group_id, "") or self.sizes.reasons.get(group_id, "")

    # -- nodes --------------------------------------------------------------------------

    def alive(self, node_id: int) -> bool:
        return self.sizes.alive(node_id)

    def insecure(self, node_id: int) -> bool:
        if node_id == self.config.node_id:
            return self.config.insecure
        return self.peers.insecure(node_id)

    def clock_disagrees(self, node_id: int) -> bool:
        if node_id == self.config.node_id:
            return self.clocks.disagrees
        return node_id in self.clocks.wrong

    async def listen_to_peers(self) -> None:
        await self.place.listen()

    def agreed_now_ms(self) -> int:
        """Return the wall clock that a majority shares. Raises NotReadyError without one."""
        now_ms = self.clocks.now_ms()
        if not self.clocks.agreed:
            raise NotReadyError("this node's wall clock is not the one a majority agrees on")
        return now_ms
