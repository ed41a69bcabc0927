"""Permission check of calls about a transaction, on the name of its producer or sink.

    TransactionService, GroupService --check(number)--> coordinator's row --> Authorizer

The requests name the transaction only by number, so `needs.py` cannot say it.
"""

from __future__ import annotations

from cluster.security.caller import CALLER
from cluster.security.permissions import ALL, Authorizer, Need
from cluster.services.context import NodeContext
from oncelog.errors import NotAuthorizedError


class TransactionRights:
    """permissions: None if all is allowed."""

    def __init__(self, node: NodeContext, permissions: Authorizer | None) -> None:
        self._node = node
        self._permissions = permissions

    async def heard(self, *transaction_ids: int) -> None:
        """Wait for the newest metadata if this node has not heard of a transaction."""
        if any(map(self._node.metadata.coordinator.is_unheard, transaction_ids)):
            await self._node.newest_metadata.wait()

    async def check(self, operation: str, *transaction_ids: int, is_heard: bool = False) -> None:
        """Raises NotAuthorizedError, ClusterError. Anyone may ask about a forgotten transaction.

        is_heard: the caller has waited for `heard`.
        """
        if self._permissions is None:
            return
        if not is_heard:
            await self.heard(*transaction_ids)
        coordinator = self._node.metadata.coordinator
        principal = CALLER.get().principal
        for number in transaction_ids:
            if coordinator.is_forgotten(number):
                continue
            row = coordinator.get(number)
            kind = "sink" if row is not None and row.sink else "producer"
            need = Need(operation, kind, ALL if row is None else row.owner)
            if self._permissions.missing(principal, (need,)) is not None:
                # The error hides the owner from a caller that may not see it.
                text = f"{principal} lacks: {operation} on the name of transaction {number}"
                raise NotAuthorizedError(
                    text, principal=principal, operation=operation, kind="producer", name=ALL
                )
