"""gRPC side of the services: each call of a .proto service is a method of the same name.

    gRPC --request, context--> a handler of this file --request--> cluster.services
                                     '<-- an answer, or an error that becomes a status

A method takes the request, or the stream of requests; a method that answers with a stream also
takes the function that writes a message. Its errors leave as gRPC statuses with
`google.rpc.ErrorInfo`, as `oncelog.wire.status` writes it. An error that no service raises on
purpose is a bug: logged with its traceback, answered INTERNAL.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from cluster.events.recorder import SLOW
from cluster.metrics.requests import CANCELLED, OK
from cluster.rpc.errors import abort
from cluster.security.caller import CALLER, UNIDENTIFIED, Caller
from cluster.services.context import NodeContext
from cluster.services.errors import ON_PURPOSE, to_public
from cluster.services.requests import Write
from oncelog.errors import InternalError

logger = logging.getLogger(__name__)

GRPC = "grpc"
SLOW_S = 1.0  # a call that takes longer is an event
_WAITING = frozenset({"Fetch", "GroupHeartbeat"})  # as long as their clients ask for


class HasNode(Protocol):
    """A service that knows the node it serves."""

    @property
    def node(self) -> NodeContext: ...


def add_service(server: grpc.aio.Server, service: HasNode) -> None:
    """Have `service` answer the calls of the .proto service with its class's name."""
    described = Default().FindServiceByName(f"oncelog.v1.{type(service).__name__}")
    handlers = {method.name: _handler(method, service) for method in described.methods}
    generic = grpc.method_handlers_generic_handler(described.full_name, handlers)
    server.add_generic_rpc_handlers((generic,))
    server.add_registered_method_handlers(described.full_name, handlers)


def answering(
    method: Callable[..., Awaitable[Any]], node: NodeContext
) -> Callable[..., Awaitable[Any]]:
    """Return a gRPC handler that answers by `method` once."""

    async def answered(request: Any, context: Any) -> Any:
        _enter(context)
        return await _answer(method.__name__, method(request), context, node, timed=True)

    return answered


def _streaming(
    method: Callable[..., Awaitable[None]], node: NodeContext
) -> Callable[..., Awaitable[None]]:
    """Return a gRPC handler for a `method` that writes its answers."""

    async def streamed(request: Any, context: Any) -> None:
        _enter(context)
        answers = method(request, writer(context, node))
        await _answer(method.__name__, answers, context, node, timed=False)

    return streamed


def _enter(context: Any) -> None:
    if CALLER.get() is UNIDENTIFIED:
        CALLER.set(Caller(address=context.peer()))


async def _answer(
    name: str, answer: Awaitable[Any], context: Any, node: NodeContext, *, timed: bool
) -> Any:
    started = time.monotonic() if timed else None
    code = CANCELLED
    try:
        answered = await answer
        code = OK
        return answered
    except ON_PURPOSE as error:
        public = to_public(error, node.metadata.nodes)
        code = public.reason
    except Exception:  # the last stop before gRPC, which logs nothing
        logger.exception("%s failed", name)
        public = InternalError(f"{name} failed; the node's log says why")
        code = public.reason
    finally:
        requests = node.metrics.requests
        if started is None:
            requests.count(GRPC, name, code)
        else:
            seconds = time.monotonic() - started
            requests.done(GRPC, name, code, seconds)
            if seconds > SLOW_S and name not in _WAITING:
                _note_slow(node, name, code, seconds)
    return await abort(context, public)


def _note_slow(node: NodeContext, name: str, code: str, seconds: float) -> None:
    caller = CALLER.get()
    node.metrics.events.note(
        SLOW,
        "cluster",
        "",
        f"{name} took {seconds:.1f} s",
        same=(name, code),
        verdict=code,
        principal=caller.principal,
        address=caller.address,
    )


def writer(context: Any, node: NodeContext) -> Write:
    """Return the function that sends one message of a stream.

    The call may be ended while its client leaves the message unread.
    """
    account = node.memory.of_call(CALLER.get().address)
    loop = asyncio.get_running_loop()

    async def write(message: Any) -> None:
        account.blocked_since = loop.time()
        try:
            await context.write(message)
            account.blocked_since = None
        except grpc.aio.InternalError as error:
            # gRPC cancels the call next; any other error here it would log as our bug.
            raise asyncio.CancelledError("the client has gone") from error

    return write


def _handler(method: MethodDescriptor, service: HasNode) -> Any:
    decode = GetMessageClass(method.input_type).FromString
    call = getattr(service, method.name)
    if method.client_streaming:
        handler = _streaming(call, service.node)
        return grpc.stream_stream_rpc_method_handler(handler, decode, _encoded)
    if method.server_streaming:
        handler = _streaming(call, service.node)
        return grpc.unary_stream_rpc_method_handler(handler, decode, _encoded)
    return grpc.unary_unary_rpc_method_handler(answering(call, service.node), decode, _encoded)


def _encoded(answer: Any) -> bytes:
    """Serialize an answer; a fetch's is bytes already."""
    data: bytes = answer if isinstance(answer, bytes) else answer.SerializeToString()
    return data
