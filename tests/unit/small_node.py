"""A small node behind the metadata services: real state, and others as the test sets them.

It applies commands at once. The test sets the state of other nodes: leaders, living nodes. The same
services in real nodes are tested in tests/integration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from cluster.access.budget import Budget
from cluster.config.node_config import NodeConfig
from cluster.dedup.last_seen import LastSeen
from cluster.features import THIS_RELEASE, Release
from cluster.metadata import upgrade
from cluster.metadata.state import MetadataState
from cluster.metrics.page import Metrics
from cluster.node.metadata.producer_id_blocks import ProducerIdBlocks
from cluster.rpc.services import add_service
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.fair_turns import Turns
from cluster.services.newest_metadata import NewestMetadata
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import cluster_pb2 as cpb
from oncelog.v1 import cluster_pb2_grpc, producer_pb2_grpc
from oncelog.wire.status import from_rpc_error

NODES = "1=host1:1,2=host2:1,3=host3:1"
LIFETIME = 10_000


@dataclass
class Group:
    is_ready: bool = True
    is_leader: bool = True


@dataclass
class Replica:
    high_watermark: int = 7
    log_start_offset: int = 2
    cleaned_offset: int | None = None
    last_seen: LastSeen = field(default_factory=LastSeen)
    group: Group = field(default_factory=Group)
    closed: bool = False


class Node:
    """Node 1 of three: `services.context.NodeContext`."""

    def __init__(self, *flags: str) -> None:
        self.config = NodeConfig.load(
            ["--nodes", NODES, "--node-id", "1", "--lease-lifetime-ms", str(LIFETIME), *flags], {}
        )
        self.metadata = MetadataState(lease_lifetime_ms=LIFETIME)
        self.founding = 1
        self.metrics = Metrics()
        self.memory = Budget(1 << 40, 1 << 39)
        self.batches_under_way = Budget(1 << 40, 1 << 39)
        self.turns = Turns()
        self.newest_metadata = NewestMetadata(self)
        self.upgrades = self.sizes = self
        self.held: dict[int, dict[int, int]] = {}  # node -> group -> bytes
        self.lags: dict[tuple[int, int], int] = {}
        self.lost: list[int] = []  # nodes without which this one decides alone
        self.why_not_alone = ""
        self.releases: dict[int, Release | None] = dict.fromkeys((1, 2, 3), THIS_RELEASE)
        self.controller_id = 2
        self.now_ms = 1_000_000
        self.wrong_clocks: set[int] = set()
        self.dead: set[int] = set()
        self.leaders: dict[int, int] = {}
        self.replicas: dict[int, Replica] = {}
        self.transferred: list[tuple[int, int]] = []
        self.proposal_error: Exception | None = None
        self.proposed = 0
        self.has_leaders = True
        self._ids = ProducerIdBlocks(self._allocate, 100, 60, lambda: self.now_ms / 1000)
        self.nonce = 0

    def apply(self, command: meta.MetadataCommand) -> meta.MetadataResult:
        command.stamp_ms = self.now_ms
        index = self.metadata.applied_index + 1
        is_upgrade = command.WhichOneof("command") == "finalize_upgrade"
        if is_upgrade:
            command.finalize_upgrade.nodes.extend(upgrade.node_releases(self.releases))
        answer = self.metadata.apply(index, command.SerializeToString(), upgrade=is_upgrade)
        return meta.MetadataResult.FromString(answer)

    def register(self, *node_ids: int) -> None:
        for node_id in node_ids:
            record = meta.RegisterNode(node_id=node_id, address=f"public{node_id}:1")
            self.apply(meta.MetadataCommand(register_node=record))

    async def propose_metadata(self, command: meta.MetadataCommand, timeout: float):
        self.proposed += 1
        if self.proposal_error is not None:
            raise self.proposal_error
        result = self.apply(command)
        for topic in self.metadata.topics():
            for partition in topic.partitions:
                self.leaders.setdefault(partition.group_id, partition.replicas[0])
        return result

    async def _allocate(self) -> int:
        command = meta.AllocateProducerIds(node_id=1, count=100)
        result = await self.propose_metadata(
            meta.MetadataCommand(allocate_producer_ids=command), 1.0
        )
        return int(result.first_producer_id)

    def leader_of(self, group_id: int) -> tuple[int, int]:
        return self.leaders.get(group_id, 0), 4

    async def listen_to_peers(self) -> None:
        """Does nothing: the node has no peers."""

    async def ask(self) -> dict[int, dict[int, int]]:
        return self.held

    def waiting(self, group_id: int) -> str:
        return ""

    async def exclude_lost(self, lost: int) -> str:
        self.lost.append(lost)
        self.controller_id = 1
        return self.why_not_alone

    def insecure(self, node_id: int) -> bool:
        return node_id == 3

    def release_of(self, node_id: int) -> Release | None:
        return self.releases[node_id]

    def plan(self) -> upgrade.Plan:
        return upgrade.plan(self.metadata.finalized, self.releases)

    def clock_disagrees(self, node_id: int) -> bool:
        return node_id in self.wrong_clocks

    def alive(self, node_id: int) -> bool:
        return node_id not in self.dead

    def partition(self, group_id: int) -> Any:  # the parts of a replica that these calls read
        return self.replicas.get(group_id)

    async def transfer_leadership(self, group_id: int, target: int) -> int:
        self.transferred.append((group_id, target))
        return target or 3

    async def next_producer_id(self) -> int:
        return await self._ids.next_id()

    async def wait_for_leaders(self, group_ids: list[int], timeout: float) -> bool:
        if not self.has_leaders:
            self.leaders.pop(group_ids[-1], None)
        return self.has_leaders

    def new_nonce(self) -> int:
        self.nonce += 1
        return self.nonce


class Client:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.cluster: Any = cluster_pb2_grpc.ClusterServiceStub(channel)
        self.producer: Any = producer_pb2_grpc.ProducerServiceStub(channel)


def registered() -> Node:
    """A node that knows all three."""
    node = Node()
    node.register(1, 2, 3)
    return node


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[Client]:
    """A client of the node's services over real gRPC."""
    server = grpc.aio.server()
    add_service(server, ClusterService(node))
    add_service(server, ProducerService(node, now_ms=lambda: node.now_ms, new_nonce=node.new_nonce))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Client(channel)
    await server.stop(None)


async def refused(call: Awaitable[Any]) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def create(client: Client, name: str = "orders", **fields: Any) -> Awaitable[Any]:
    call: Awaitable[Any] = client.cluster.CreateTopic(cpb.CreateTopicRequest(name=name, **fields))
    return call
