"""Memory accounting of each call, from its first byte to its last answer.

    gRPC --call--> Metering --> Decoding --> a service's method
                      '-- THROTTLED where the node has no memory for one more

A unary call's request counts once received, its answer until the client has taken it.
Streams count their messages themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from cluster.budget import Budget
from cluster.services.errors import abort
from oncelog.errors import ThrottledError

CALL_BYTES = 32 * 1024  # of memory that a call takes beside its messages
SMALL_BYTES = 2 * CALL_BYTES  # a smaller call is answered once received
# A request is held raw and decoded, an answer here and by gRPC.
COPIES = 2
Handler = Any  # grpc.RpcMethodHandler: only its stub is generic


class Metering(grpc.aio.ServerInterceptor):
    """Opens the account of each call; it is closed with the call's task."""

    def __init__(self, memory: Budget) -> None:
        self._memory = memory
        self._metered: dict[Handler, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        memory = self._memory
        # Health checks are always answered.
        ours = handler_call_details.method.startswith("/oncelog.")
        if ours and memory.used + CALL_BYTES > memory.limit:
            return _REFUSING
        account = memory.of_call()
        account.take(CALL_BYTES)
        if handler.request_streaming:
            return handler
        account.receiving = True
        metered = self._metered.get(handler)
        if metered is None:
            metered = self._metered[handler] = self._of_one_request(handler)
        return metered

    def _of_one_request(self, handler: Handler) -> Handler:
        coders = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_stream is not None:
            stream = self._counted(handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(stream, *coders)
        return grpc.unary_unary_rpc_method_handler(self._counted(handler.unary_unary), *coders)

    def _counted(self, call: Any) -> Any:
        memory = self._memory

        async def counted(request: Any, context: Any) -> Any:
            account = memory.of_call(context.peer())
            account.receiving = False
            if hasattr(request, "ByteSize"):  # else it could not be decoded
                account.take(COPIES * request.ByteSize())
            if memory.full and account.held > SMALL_BYTES:
                await abort(context, _refusal())
            answer = await call(request, context)
            if answer is not None:
                size = len(answer) if isinstance(answer, bytes) else answer.ByteSize()
                account.take(COPIES * size)
            account.blocked_since = asyncio.get_running_loop().time()
            return answer

        return counted


def _refusal() -> ThrottledError:
    return ThrottledError("this node's memory for clients (client_memory_bytes) is used")


async def _refuse(requests: object, context: Any) -> None:
    """Refuse before a byte of the request is taken."""
    await abort(context, _refusal())


_REFUSING: Handler = grpc.stream_stream_rpc_method_handler(_refuse)
