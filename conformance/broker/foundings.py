"""Founding of each node, by the interceptor of the nodes.

case: {cluster = "found_anew", node = 1, founding = 2} --> NodeFounding --> OneFounding
"""

from __future__ import annotations

import grpc
import grpc.aio

from cluster.rpc.foundings import OneFounding
from cluster.rpc.handlers import Continuation, Handler

FIRST = 1


class NodeFounding(grpc.aio.ServerInterceptor):
    """Founding of one node."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._present: OneFounding | None = None
        self.number = 0
        self.found(FIRST)

    def found(self, founding: int) -> None:
        """Sets the node's founding; 0: its release names none."""
        self.number = founding
        self._present = OneFounding(founding, f"node {self._node_id}") if founding else None

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if self._present is None:
            return await continuation(handler_call_details)
        return await self._present.intercept_service(continuation, handler_call_details)
