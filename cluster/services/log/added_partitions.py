"""Registration of a transaction's partitions with its coordinator, before it stages there.

Appender, GroupService --register--> metadata (one command for each transaction and partition)
"""

from __future__ import annotations

from cluster.dedup.verdict import Kind, Verdict
from cluster.errors import ClusterError
from cluster.services.context import NodeContext
from cluster.transactions.types import (
    FENCED,
    TRANSACTION_ABORTED,
    TRANSACTION_ENDED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNKNOWN_TRANSACTION,
    Holder,
)
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import transactions_pb2 as tpb

_VERDICTS = {
    FENCED: Kind.FENCED,
    TRANSACTION_ABORTED: Kind.TRANSACTION_ABORTED,
    TRANSACTION_ENDED: Kind.TRANSACTION_ENDED,
    UNKNOWN_TOPIC_OR_PARTITION: Kind.UNKNOWN_TOPIC_OR_PARTITION,
    UNKNOWN_TRANSACTION: Kind.TRANSACTION_ENDED,
}


class AddedPartitions:
    """Registers partitions for one node's services."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    async def register(
        self, group: int, transaction_id: int, producer_id: int, epoch: int
    ) -> Verdict | None:
        """Register the group; returns why the transaction may not stage there, else None."""
        row = self._node.metadata.coordinator.get(transaction_id)
        if row is not None and row.takes(group, Holder(producer_id, epoch)):
            return None  # already registered, and stays so
        register = tpb.RegisterTransaction(
            transaction_id=transaction_id, producer_id=producer_id, epoch=epoch, groups=(group,)
        )
        command = meta.MetadataCommand(transaction=tpb.TransactionCommand(register=register))
        timeout = self._node.config.request_timeout_ms / 1000
        try:
            result = await self._node.propose_metadata(command, timeout)
        except ClusterError as error:
            return Verdict(Kind.NOT_READY, message=str(error))
        if not result.error:
            return None
        kind = _VERDICTS.get(result.error, Kind.INVALID_BATCH)
        return Verdict(kind, message=f"transaction_id: {result.message}")
