"""Undecodable messages: answered INVALID_REQUEST, without a traceback.

gRPC answers UNKNOWN if a deserializer raises, and logs a fault of the node. So a
deserializer here returns the fault, and the call ends with it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.rpc.errors import abort
from cluster.rpc.handlers import Continuation, Handler, is_ours
from cluster.services.requests import Undecodable


class Decoding(grpc.aio.ServerInterceptor):
    """Ends calls with requests that cannot be decoded.

    Only our own services take a stream of requests: they call `decoded` for each.
    """

    def __init__(self) -> None:
        self._safe = functools.cache(_safe)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        if handler.request_streaming and not is_ours(handler_call_details.method):
            return handler
        return self._safe(handler)


def _safe(handler: Handler) -> Handler:
    deserializer: Any = handler.request_deserializer
    serializer = handler.response_serializer

    def decode(data: bytes) -> Any:
        try:
            return deserializer(data)
        except DecodeError as error:
            return Undecodable(error)

    if handler.stream_stream is not None:
        return grpc.stream_stream_rpc_method_handler(handler.stream_stream, decode, serializer)
    if handler.unary_stream is not None:
        stream: Any = _checked(handler.unary_stream)
        return grpc.unary_stream_rpc_method_handler(stream, decode, serializer)
    assert handler.unary_unary is not None, "no service takes a stream and answers once"
    unary: Any = _checked(handler.unary_unary)
    return grpc.unary_unary_rpc_method_handler(unary, decode, serializer)


def _checked(call: Any) -> Any:
    assert inspect.iscoroutinefunction(call), "streams of answers are written, not yielded"

    @functools.wraps(call)
    async def checked(request: Any, context: Any) -> Any:
        if isinstance(request, Undecodable):
            await abort(context, request.error)
        return await call(request, context)

    return checked
