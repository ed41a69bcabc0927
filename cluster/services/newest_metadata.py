"""Waits for the newest metadata, before a call is refused for what this node lacks.

    services --wait--> NewestMetadata --one empty command for all that wait--> MetadataProposer

Each command is an entry of the metadata's log, with an fsync. So callers that ask in a loop for
what does not exist cost one command at a time, however many they are.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.config.node_config import NodeConfig
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult


class Proposing(Protocol):
    """The part of a NodeContext that proposes."""

    @property
    def config(self) -> NodeConfig: ...
    async def propose_metadata(self, command: MetadataCommand, timeout: float) -> MetadataResult:
        """See NodeContext."""


class NewestMetadata:
    """One node's callers that wait for the newest metadata."""

    def __init__(self, node: Proposing) -> None:
        self._node = node
        self._round: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return when this node has applied all that was committed before the call.

        Raises ClusterError.
        """
        before = self._round
        if before is not None and not before.done():
            # It may have been proposed before the newest command was committed.
            await asyncio.wait([before])
        if self._round is before:
            self._round = asyncio.create_task(self._ask())
            # All waiters may have given up; no one is left to take the error.
            self._round.add_done_callback(lambda task: task.cancelled() or task.exception())
        assert self._round is not None
        await asyncio.shield(self._round)

    async def _ask(self) -> None:
        """Propose an empty command: all replicas refuse it, but only after all earlier commands."""
        timeout = self._node.config.request_timeout_ms / 1000
        await self._node.propose_metadata(MetadataCommand(), timeout)
