"""Checks of lease tokens, for batches that begin a chain and for OpenProducer.

    Appender, ProducerService --check--> metadata.lease_tokens.proves
    Resolver ----------------is_issued-'--> the metadata leader, where this node is behind

An invalid token costs one HMAC and is answered at once. Only a proven id newer than this
node's metadata is waited for: a leader must know whether a name holds it.
"""

from __future__ import annotations

import asyncio

from cluster.dedup.verdict import KAFKA_IDS, KAFKA_PROOF_BITS, Kind, Verdict
from cluster.errors import ClusterError
from cluster.metadata.lease_tokens import TOKEN_BYTES, proves
from cluster.security.caller import CALLER
from cluster.services.context import NodeContext

CATCH_UP = 1.0  # seconds that a proven id is waited for


class Leases:
    """Checks leases for one node's services."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._behind_until = 0.0  # the loop's time; no new wait before

    def proven(self, token: bytes, producer_id: int, epoch: int) -> bool:
        """Return whether the token proves the lease, and this node's metadata knows the id."""
        metadata = self._node.metadata
        return metadata.is_issued(producer_id) and proves(
            metadata.lease_secret, token, producer_id, epoch, CALLER.get().principal
        )

    def owned(self, token: bytes, producer_id: int, epoch: int) -> Verdict | None:
        """Return why the caller may not continue as this producer; None if it owns the lease.

        For batches that begin no chain. Without identities, knowing the epoch is enough. Ids of
        Kafka clients are never a caller's.
        """
        if producer_id >= KAFKA_IDS:
            return unproven(token, producer_id, epoch)
        principal = CALLER.get().principal
        if not principal or proves(
            self._node.metadata.lease_secret, token, producer_id, epoch, principal
        ):
            return None
        return unproven(token, producer_id, epoch)

    async def check(self, token: bytes, producer_id: int, epoch: int) -> Verdict | None:
        """Return why this id and epoch may not begin here; None if they may."""
        if self.proven(token, producer_id, epoch):
            return None
        secret, principal = self._node.metadata.lease_secret, CALLER.get().principal
        if len(token) == TOKEN_BYTES and (
            not secret or proves(secret, token, producer_id, epoch, principal)
        ):
            if not await self.caught_up():
                text = f"this node's metadata is behind the lease of producer_id {producer_id}"
                return Verdict(Kind.NOT_READY, message=text)
            if self.proven(token, producer_id, epoch):
                return None
        return unproven(token, producer_id, epoch)

    async def is_issued(self, producer_id: int) -> bool:
        """Return whether the metadata leader ever issued the id. Raises ClusterError."""
        metadata, number = self._node.metadata, producer_id
        if producer_id >= KAFKA_IDS:
            number = (producer_id - KAFKA_IDS) >> KAFKA_PROOF_BITS
        if not metadata.is_issued(number):
            await self._node.newest_metadata.wait()
        return metadata.is_issued(number)

    async def caught_up(self) -> bool:
        """Wait to catch up, but not again for a while after a failure: a stream waits, too."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._behind_until:
            return False
        try:
            async with asyncio.timeout(CATCH_UP):
                await self._node.newest_metadata.wait()
        except (ClusterError, TimeoutError):
            self._behind_until = loop.time() + CATCH_UP
            return False
        return True


def unproven(token: bytes, producer_id: int, epoch: int) -> Verdict:
    """Return UNKNOWN_PRODUCER for an id and epoch without proof of a lease."""
    fault = "does not prove" if token else "missing; only it proves"
    text = f"lease_token: {fault} that producer_id {producer_id} was leased with epoch {epoch}"
    return Verdict(Kind.UNKNOWN_PRODUCER, message=text)
