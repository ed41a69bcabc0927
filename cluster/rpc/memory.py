"""Memory accounting of each call, from its first byte to its last answer.

    gRPC --call--> Metering --> Decoding --> a service's method
                      '-- THROTTLED where the node has no memory for one more

A unary call's request counts once received, its answer until the client has taken it.
Streams count their messages themselves.
"""

from __future__ import annotations

import functools
from typing import Any

import grpc

from cluster.access.budget import Budget
from cluster.access.memory import CALL_BYTES, NO_MEMORY, answered, has_room, received
from cluster.access.quotas import size_of
from cluster.rpc.errors import abort
from cluster.rpc.handlers import Continuation, Handler, is_ours
from oncelog.errors import ThrottledError


class Metering(grpc.aio.ServerInterceptor):
    """Opens the account of each call; it is closed with the call's task."""

    def __init__(self, memory: Budget) -> None:
        self._memory = memory
        self._metered = functools.cache(self._of_one_request)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        memory = self._memory
        # Health checks are always answered.
        if is_ours(handler_call_details.method) and not has_room(memory):
            return _REFUSING
        account = memory.of_call()
        account.take(CALL_BYTES)
        if handler.request_streaming:
            return handler
        account.receiving = True
        return self._metered(handler)

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
            try:
                received(memory, account, size_of(request))
            except ThrottledError as error:
                await abort(context, error)
            answer = await call(request, context)
            answered(account, 0 if answer is None else size_of(answer))
            return answer

        return counted


async def _refuse(requests: object, context: Any) -> None:
    """Refuse before a byte of the request is taken."""
    await abort(context, ThrottledError(NO_MEMORY))


_REFUSING: Handler = grpc.stream_stream_rpc_method_handler(_refuse)
