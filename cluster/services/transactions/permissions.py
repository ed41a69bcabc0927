"""Permission check of calls about a transaction, on the name of its producer or sink.

    TransactionService, GroupService --check(number)--> coordinator's row --> Authorizer

The requests name the transaction only by number, so `needs.py` cannot say it.
"""

from __future__ import annotations

from cluster.security.caller import CALLER
from cluster.security.permissions import ALL, Authorizer, Need
from cluster.services.context import NodeContext
from cluster.services.requests import timeout_s
from cluster.v1 import metadata_pb2 as meta
from oncelog.errors import NotAuthorizedError


class TransactionRights:
    """permissions: None if all is allowed."""

    def __init__(self, node: NodeContext, permissions: Authorizer | None) -> None:
        self._node = node
        self._permissions = permissions

    async def check(self, operation: str, transaction_id: int) -> None:
        """Raises NotAuthorizedError, ClusterError. Anyone may ask about a forgotten transaction."""
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
        principal = CALLER.get().principal
        if self._permissions.missing(principal, (need,)) is not None:
            # The error hides the owner from a caller that may not see it.
            text = f"{principal} lacks: {operation} on the name of transaction {transaction_id}"
            raise NotAuthorizedError(
                text, principal=principal, operation=operation, kind="producer", name=ALL
            )
