"""What all services need of the node they run in. `cluster/node/service_context.py` provides it.

A protocol and no class: the services are tested with a real `MetadataState`
behind a small context, and the node is free to change how it does these things.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cluster.budget import Budget
from cluster.config import NodeConfig
from cluster.features import Release
from cluster.metadata.state import MetadataState
from cluster.metadata.upgrade import Plan
from cluster.metrics import Metrics
from cluster.partition.replica import Partition
from cluster.services.turns import Turns
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult


class Upgrades(Protocol):
    """What the nodes run, as the answering node knows it."""

    def plan(self) -> Plan: ...
    def release_of(self, node_id: int) -> Release | None: ...


class Sizes(Protocol):
    """How much each replica holds."""

    @property
    def lags(self) -> Mapping[tuple[int, int], int]:
        """(group, node) -> committed entries that its replica lacks, if many; as asked last."""

    async def ask(self) -> Mapping[int, Mapping[int, int]]:
        """Node -> group -> bytes, of the nodes that answer."""


class NodeContext(Protocol):
    """The node. Timeouts are in seconds."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def metadata(self) -> MetadataState: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def upgrades(self) -> Upgrades: ...

    @property
    def sizes(self) -> Sizes: ...

    memory: Budget  # in bytes, for what clients have under way
    batches_under_way: Budget
    turns: Turns

    async def propose_metadata(self, command: MetadataCommand, timeout: float) -> MetadataResult:
        """Have `command` stamped, committed and applied on this node.

        A rejection is in the result. Raises NotReadyError, NotLeaderError or
        ProposalTimeoutError (the outcome is not known).
        """

    def leader_of(self, group_id: int) -> tuple[int, int]:
        """(leader's node id, 0 if none is known; its term)."""

    @property
    def controller_id(self) -> int:
        """The node that leads the metadata group; 0 if none is known."""

    def alive(self, node_id: int) -> bool:
        """Whether this node hears the other; of itself, always."""

    def clock_disagrees(self, node_id: int) -> bool:
        """Whether the node's wall clock is known to differ from a majority's."""

    async def exclude_lost(self, lost: int) -> str:
        """Of two nodes that hold the metadata the other one is lost: this one decides alone.

        Returns why it cannot; nothing: it does.
        """

    async def listen_to_peers(self) -> None:
        """A node that was alone takes its peers' streams from now on. Raises ConfigError,
        ListenError.
        """

    def waiting(self, group_id: int) -> str:
        """Why the group's leader does not change its replicas now; or nothing.

        Of other nodes, as `sizes` asked them last.
        """

    def insecure(self, node_id: int) -> bool:
        """Whether the node is known to listen without TLS beyond its machine."""

    def partition(self, group_id: int) -> Partition | None:
        """This node's replica, if it has one."""

    async def transfer_leadership(self, group_id: int, target: int) -> int:
        """Hand a group that this node leads to `target` (0: the most caught-up replica).

        Returns the new leader. Raises NotLeaderError, NotReadyError, ProposalTimeoutError.
        """

    async def next_producer_id(self) -> int:
        """A fresh producer id (`ProducerIdBlocks`). Raises as `propose_metadata` does."""

    async def wait_for_leaders(self, group_ids: list[int], timeout: float) -> bool:
        """Wait until each group has a leader; whether that happened in time."""
