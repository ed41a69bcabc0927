"""The services' view of their node; `cluster/node/ports/service_context.py` provides it.

A protocol instead of a class: tests run the services with a real `MetadataState`
behind a small context, and the node may change its implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cluster.access.budget import Budget
from cluster.config.node_config import NodeConfig
from cluster.features import Release
from cluster.metadata.state import MetadataState
from cluster.metadata.upgrade import Plan
from cluster.metrics.page import Metrics
from cluster.partition.replica import Partition
from cluster.services.fair_turns import Turns
from cluster.services.newest_metadata import NewestMetadata
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult


class NodeReleases(Protocol):
    """The releases that nodes run, as far as the answering node knows."""

    def plan(self) -> Plan: ...
    def release_of(self, node_id: int) -> Release | None: ...


class Sizes(Protocol):
    """The size of each replica."""

    @property
    def lags(self) -> Mapping[tuple[int, int], int]:
        """(group, node) -> committed entries that its replica lacks, if many; of the last `ask`."""

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
    def upgrades(self) -> NodeReleases: ...

    @property
    def sizes(self) -> Sizes: ...

    founding: int  # of the cluster
    memory: Budget  # in bytes, for clients' requests and answers in progress
    batches_under_way: Budget
    turns: Turns
    newest_metadata: NewestMetadata

    async def propose_metadata(self, command: MetadataCommand, timeout: float) -> MetadataResult:
        """Have `command` stamped, committed and applied on this node.

        A rejection is in the result. Raises NotReadyError, NotLeaderError or
        ProposalTimeoutError (the outcome is not known).
        """

    def leader_of(self, group_id: int) -> tuple[int, int]:
        """(leader's node id, 0 if none is known; its term)."""

    @property
    def controller_id(self) -> int:
        """Return the node that leads the metadata group; 0 if none is known."""

    def alive(self, node_id: int) -> bool:
        """Return whether this node hears the other; always True for itself."""

    def clock_disagrees(self, node_id: int) -> bool:
        """Return whether the node's wall clock is known to differ from a majority's."""

    async def exclude_lost(self, lost: int) -> str:
        """Remove the lost one of two metadata voters, so that this node decides alone.

        Returns the reason if that is impossible, else nothing.
        """

    async def listen_to_peers(self) -> None:
        """Accept peers' streams on a node that was alone. Raises ConfigError, ListenError."""

    def waiting(self, group_id: int) -> str:
        """Return why the group's leader does not change its replicas now; or nothing.

        For groups led elsewhere it is the answer to the last `sizes.ask`.
        """

    def insecure(self, node_id: int) -> bool:
        """Return whether the node is known to listen without TLS beyond its machine."""

    def partition(self, group_id: int) -> Partition | None:
        """Return this node's replica, if it has one."""

    async def transfer_leadership(self, group_id: int, target: int) -> int:
        """Hand a group that this node leads to `target` (0: the most caught-up replica).

        Returns the new leader. Raises NotLeaderError, NotReadyError, ProposalTimeoutError.
        """

    async def next_producer_id(self) -> int:
        """Return a fresh producer id (`ProducerIdBlocks`). Raises as `propose_metadata` does."""

    async def wait_for_leaders(self, group_ids: list[int], timeout: float) -> bool:
        """Wait until each group has a leader; returns whether that happened in time."""
