"""Guard of every gRPC call before its service: passes its caller and needs through the gate.

    gRPC --> Guarding --NEEDS--> Gate --> the service, or a status
                 '--Limited--> Quotas

One guard for all services, so that none can leave it out: a method missing from the table of
needs is refused. A stream is checked message by message, so a revoked right or an expired token
ends it; the client may open it again with a valid token. A node without identities has no guard.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from cluster.access.gate import NOBODY_MAY, Gate, Needs
from cluster.access.quotas import throttled
from cluster.metrics.requests import CANCELLED
from cluster.rpc.errors import abort
from cluster.rpc.handlers import Continuation, Handler, is_ours
from cluster.rpc.quotas import Limited
from cluster.rpc.required_permissions import ALLOWED, NEEDS, OPEN
from cluster.security.caller import CALLER, RULES_VERSION, Caller
from cluster.security.permissions import Need
from cluster.security.quotas import ExceededError, Usage
from cluster.services.requests import Undecodable
from oncelog.errors import OncelogError


class Guarding(grpc.aio.ServerInterceptor):
    """Guards the calls of one server."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._guarded = functools.cache(self._guard)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method in OPEN:
            return handler
        return self._guarded(method, handler)

    # -- one call -----------------------------------------------------------------------

    async def _caller(self, method: str, context: Any) -> Caller:
        """Return the caller, and set it for the call's task. Ends the call if there is none."""
        # Servers differ on whether the first or the last of two headers counts: joined, neither
        # does.
        authorization = ",".join(
            str(value)
            for key, value in context.invocation_metadata() or ()
            if key == "authorization"
        )
        certificates = context.auth_context().get("x509_pem_cert", ())
        certificate = certificates[0] if certificates else b""
        try:
            caller = await self._gate.caller(method, context.peer(), authorization, certificate)
        except OncelogError as error:
            await abort(context, error)
        CALLER.set(caller)
        return caller

    def needs(self, method: str, request: Any) -> Needs:
        """Return the needs of a message, computed once, and only if something checks them."""
        needs = NEEDS.get(method)
        if needs is None:
            return NOBODY_MAY
        return tuple(needs(request)) if self._gate.reads_needs else ()

    async def _let_in(
        self, method: str, caller: Caller, request: Any, context: Any
    ) -> Sequence[Need]:
        """Return the call's needs. Ends the call if the caller lacks one of them.

        An undecodable message needs nothing.
        """
        if isinstance(request, Undecodable):
            return ()
        needs = self.needs(method, request)
        try:
            self._gate.admit(method, caller, needs)
        except OncelogError as error:
            await abort(context, error)
        return needs or ()

    # -- handlers -----------------------------------------------------------------------

    def _guard(self, method: str, handler: Handler) -> Handler:
        decode, encode = handler.request_deserializer, handler.response_serializer
        if handler.stream_stream is not None:
            stream: Any = self._stream(method, handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(stream, decode, encode)
        if handler.unary_stream is not None:
            answers: Any = self._answers(method, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(answers, decode, encode)
        assert handler.unary_unary is not None, "no service takes a stream and answers once"
        unary: Any = self._unary(method, handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(unary, decode, encode)

    def _unary(self, method: str, call: Any) -> Any:
        gate, limited = self._gate, Limited(method)

        @functools.wraps(call)
        async def guarded(request: Any, context: Any) -> Any:
            caller = await self._caller(method, context)
            needs = await self._let_in(method, caller, request, context)
            RULES_VERSION.set(gate.rules_version())
            usage, result = caller.usage, CANCELLED  # a client that went: it may be done even so
            try:
                if usage is None:
                    answer = await call(request, context)
                else:
                    with usage.call(caller.address, stream=False):
                        answer = await limited.answer(
                            usage, request, functools.partial(call, request, context)
                        )
                result = "ok"
            except ExceededError as error:
                await abort(context, throttled(error))
            finally:
                # An error is already sent: gRPC has its code.
                code = context.code()
                gate.ended(
                    method, caller, needs, str(getattr(code, "name", code)) if code else result
                )
            shown = ALLOWED.get(method)
            if shown is not None and gate.permissions is not None:
                shown(answer, functools.partial(gate.permissions.allows, caller.principal))
            return answer

        return guarded

    def _answers(self, method: str, call: Any) -> Any:
        gate, limited = self._gate, Limited(method)

        @functools.wraps(call)
        async def guarded(request: Any, context: Any) -> Any:
            caller = await self._caller(method, context)
            needs = await self._let_in(method, caller, request, context)
            usage = caller.usage
            check = functools.partial(gate.go_on, method, caller, needs)
            watched = _WatchedContext(context, check, limited, usage)
            if usage is None:
                return await call(request, watched)
            try:
                with usage.call(caller.address, stream=True):
                    limited.received(usage, request)
                    return await call(request, watched)
            except ExceededError as error:
                await abort(context, throttled(error))

        return guarded

    def _stream(self, method: str, call: Any) -> Any:
        limited = Limited(method)

        @functools.wraps(call)
        async def guarded(requests: AsyncIterator[Any], context: Any) -> Any:
            caller = await self._caller(method, context)
            allowed = self._allowed(method, caller, requests)
            usage = caller.usage
            if usage is None:
                return await call(allowed, context)
            try:
                with usage.call(caller.address, stream=True):
                    return await call(limited.messages(usage, allowed), context)
            except ExceededError as error:
                await abort(context, throttled(error))

        if is_ours(method):
            return guarded

        @functools.wraps(call)
        async def foreign(requests: AsyncIterator[Any], context: Any) -> Any:
            """Guard gRPC's own services, which yield: their messages name nothing of ours."""
            caller = await self._caller(method, context)
            await self._let_in(method, caller, None, context)
            async for answer in call(requests, context):
                yield answer

        return foreign

    async def _allowed(
        self, method: str, caller: Caller, requests: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Yield messages until one asks for something forbidden, and raise its error.

        A message that names nothing continues with the needs of the message before it.
        """
        asked: Needs = ()
        first = True
        async for request in requests:
            if not isinstance(request, Undecodable):
                needs = self.needs(method, request)
                asked = asked if needs == () else needs
                if first:
                    self._gate.admit(method, caller, asked)
                else:
                    self._gate.go_on(method, caller, asked, needs or ())
                first = False
            yield request


class _WatchedContext:
    """A call's context that checks before each written message, at its principal's read rate.

    usage: None without quotas.
    """

    def __init__(
        self, context: Any, check: Callable[[], None], limited: Limited, usage: Usage | None
    ) -> None:
        self._context = context
        self._check = check
        self._limited = limited
        self._usage = usage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Raises NotAuthorizedError, NotReadyError."""
        usage = self._usage
        if usage is not None:
            await self._limited.pause(usage)
            self._limited.answered(usage, message)
        self._check()
        await self._context.write(message)
