"""Rejection of clients that began with another founding of the cluster.

    gRPC --> OneFounding --another founding is named--> OTHER_CLUSTER
                 '--none is named--> the service; its answer names this one, in trailing metadata

gRPC connects again by itself, so a client cannot tell which node answers at an address.
"""

from __future__ import annotations

import functools
from typing import Any

import grpc

from cluster.rpc.errors import abort
from cluster.rpc.handlers import Continuation, Handler
from oncelog.errors import OtherClusterError
from oncelog.wire.foundings import KEY, founding_text, named_founding


class OneFounding(grpc.aio.ServerInterceptor):
    """node: its name in an error."""

    def __init__(self, founding: int, node: str) -> None:
        self._own = founding_text(founding)
        self._node = node
        self._telling = functools.cache(self._tells)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        named = named_founding(handler_call_details.invocation_metadata)
        if named and named != self._own:
            return self._rejecting(named)
        handler = await continuation(handler_call_details)
        if named or handler is None or handler.unary_unary is None:
            return handler
        return self._telling(handler)

    def _rejecting(self, named: str) -> Handler:
        error = OtherClusterError(
            f"{self._node} is of the cluster founded as {self._own}, this client began with the "
            f"one founded as {named}. Start the nodes of {named}; to use {self._own} instead, "
            f"restart the client"
        )

        async def reject(requests: object, context: Any) -> None:
            await abort(context, error)

        return grpc.stream_stream_rpc_method_handler(reject)

    def _tells(self, handler: Handler) -> Handler:
        call, told = handler.unary_unary, ((KEY, self._own),)

        @functools.wraps(call)
        async def telling(request: Any, context: Any) -> Any:
            context.set_trailing_metadata(told)
            return await call(request, context)

        return grpc.unary_unary_rpc_method_handler(
            telling, handler.request_deserializer, handler.response_serializer
        )
