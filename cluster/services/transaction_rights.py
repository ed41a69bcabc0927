"""What a call about a transaction needs: a right on its own producer's, or sink's, name.

    TransactionService, GroupService --check(number)--> coordinator's row --> Permissions

The requests name the transaction only by number, so `needs.py` cannot say it.
"""

from __future__ import annotations

from cluster.security.caller import PRINCIPAL
from cluster.security.permissions import ALL, Need, Permissions
from cluster.services.context import NodeContext
from cluster.services.requests import timeout_s
from cluster.v1 import metadata_pb2 as meta
from oncelog.errors import NotAuthorizedError


class TransactionRights:
    """permissions: None where all may do all."""

    def __init__(self, node: NodeContext, permissions: Permissions | None) -> None:
        self._node, self._permissions = node, permissions

    async def check(self, operation: str, transaction_id: int) -> None:
        """Raises NotAuthorizedError, ClusterError. What nobody remembers is free to ask about."""
        if self._permissions is None:
            return
        coordinator = self._node.metadata.coordinator
        if coordinator.get(transaction_id) is None:
            command = meta.MetadataCommand()
            await self._node.propose_metadata(command, timeout_s(0, self._node))
            coordinator = self._node.metadata.coordinator
            if coordinator.is_forgotten(transaction_id):
                return
        row = coordinator.get(transaction_id)
        kind = "sink" if row is not None and row.sink else "producer"
        need = Need(operation, kind, ALL if row is None else row.owner)
        principal = PRINCIPAL.get()
        if self._permissions.missing(principal, (need,)) is not None:
            # Whose it is, is not for who may not see it.
            text = f"{principal} lacks: {operation} on the name of transaction {transaction_id}"
            raise NotAuthorizedError(
                text, principal=principal, operation=operation, kind="producer", name=ALL
            )
