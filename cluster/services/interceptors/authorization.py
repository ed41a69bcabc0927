"""Guard of every call before its service: identifies the caller, checks permissions, audits.

    gRPC --> Guarding --Identities--> Caller --NEEDS, Permissions--> the service, or a status
                 '--> Audit           '--Limited--> Quotas

One guard for all services, so that none can leave it out: a method missing from the table of
needs is refused. A stream is checked message by message, so a revoked right or an expired token
ends it; the client may open it again with a valid token. A node without identities has no guard.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc

from cluster.security.audit import Audit
from cluster.security.caller import PRINCIPAL, RULES_VERSION, Caller
from cluster.security.identities import Identities, UnknownCallerError
from cluster.security.permissions import Need, Permissions
from cluster.security.quotas import OUT_BYTES, USAGE, ExceededError, Quotas, Usage
from cluster.security.tokens import TokensBusyError
from cluster.services.errors import abort
from cluster.services.interceptors.decoding import Undecodable
from cluster.services.interceptors.quotas import Limited, size_of, throttled
from cluster.services.interceptors.required_permissions import ALLOWED, NEEDS, OPEN
from oncelog.errors import (
    NotAuthorizedError,
    NotReadyError,
    OncelogError,
    ThrottledError,
    UnauthenticatedError,
)

Handler = Any  # grpc.RpcMethodHandler: only its stub is generic
_ANYBODY = Caller("")
_OVER = "the token, or the certificate, is over"
# A call that needs one of these changes something that others rely on.
_NOTED = frozenset({"create", "alter", "delete", "fence", "abort"})


class Guarding(grpc.aio.ServerInterceptor):
    """identities, quotas: None without caller identities. permissions: None if all may do all."""

    def __init__(
        self,
        identities: Identities | None,
        permissions: Permissions | None,
        audit: Audit | None,
        quotas: Quotas | None = None,
        wall_clock: Callable[[], float] = time.time,
        rules_version: Callable[[], int] = lambda: 0,
    ) -> None:
        assert permissions is None or identities is not None, "nobody would be let in"
        self._identities, self._permissions = identities, permissions
        self._audit, self._quotas, self._wall_clock = audit, quotas, wall_clock
        self._rules_version = rules_version
        self._guarded: dict[tuple[str, Handler], Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method in OPEN:
            return handler
        key = method, handler
        guarded = self._guarded.get(key)
        if guarded is None:
            guarded = self._guarded[key] = self._guard(method, handler)
        return guarded

    # -- one call -----------------------------------------------------------------------

    async def caller(self, method: str, context: Any) -> Caller:
        """Return the caller. Ends the call with UNAUTHENTICATED if there is none."""
        if self._identities is None:
            return _ANYBODY
        # Servers differ on whether the first or the last of two headers counts: joined, neither
        # does.
        authorization = ",".join(
            str(value)
            for key, value in context.invocation_metadata() or ()
            if key == "authorization"
        )
        certificates = context.auth_context().get("x509_pem_cert", ())
        try:
            return await self._identities.caller(
                authorization, certificates[0] if certificates else b""
            )
        except TokensBusyError as error:
            await abort(context, ThrottledError(f"authorization: {error}"))
        except UnknownCallerError as error:
            self._note(method, "", context, (), UnauthenticatedError.reason)
            await abort(context, UnauthenticatedError(str(error)))

    def refusal(self, method: str, caller: Caller, request: Any) -> OncelogError | None:
        """Return the reason to reject this message of the caller; None: there is none."""
        return self._refusal(method, caller, self._needs(method, request))

    def _needs(self, method: str, request: Any) -> Sequence[Need]:
        """Return the needs of a message, computed once, and only if something checks them."""
        needs = NEEDS.get(method)
        if needs is None or (self._permissions is None and self._audit is None):
            return ()
        return tuple(needs(request))

    def _refusal(self, method: str, caller: Caller, needs: Sequence[Need]) -> OncelogError | None:
        if self._is_over(caller):
            return UnauthenticatedError(_OVER)
        if method not in NEEDS:
            return NotAuthorizedError(f"{method} is for nobody")
        if self._permissions is None:
            return None
        missing = self._permissions.missing(caller.principal, needs)
        if missing is None:
            return None
        text = f"{caller.principal} lacks: {missing}"
        return NotAuthorizedError(
            text, principal=caller.principal, operation=missing.operation,
            kind=missing.kind, name=missing.name,
        )  # fmt: skip

    def _stops(self, method: str, caller: Caller, needs: Sequence[Need]) -> OncelogError | None:
        """Return why an admitted stream must end now."""
        if self._is_over(caller):
            return NotReadyError(f"{_OVER}: open the stream anew, with a new one")
        return self._refusal(method, caller, needs)

    def _is_over(self, caller: Caller) -> bool:
        return self._wall_clock() >= caller.expires

    def _note(
        self, method: str, principal: str, context: Any, needs: Sequence[Need], result: str
    ) -> None:
        if self._audit is not None:
            self._audit.note(method, principal, context.peer(), needs, result)

    async def _let_in(
        self, method: str, caller: Caller, request: Any, context: Any
    ) -> Sequence[Need]:
        """Return the call's needs. Ends the call if the caller lacks one of them.

        An undecodable message needs nothing.
        """
        if isinstance(request, Undecodable):
            return ()
        needs = self._needs(method, request)
        refused = self._refusal(method, caller, needs)
        if refused is not None:
            self._note(method, caller.principal, context, needs, refused.reason)
            await abort(context, refused)
        return needs

    def _usage(self, caller: Caller) -> Usage | None:
        if self._quotas is None or not caller.principal:
            return None
        return self._quotas.usage(caller.principal)

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
        limited = Limited(method)

        @functools.wraps(call)
        async def guarded(request: Any, context: Any) -> Any:
            caller = await self.caller(method, context)
            needs = await self._let_in(method, caller, request, context)
            usage = _enter(caller, self._usage(caller))
            RULES_VERSION.set(self._rules_version())
            try:
                if usage is None:
                    answer = await call(request, context)
                else:
                    with usage.call(context.peer(), stream=False):
                        answer = await limited.answer(
                            usage, request, functools.partial(call, request, context)
                        )
            except ExceededError as error:
                await abort(context, throttled(error))
            finally:
                if any(need.operation in _NOTED for need in needs):
                    # The error is already sent: gRPC has its code.
                    code = context.code()
                    result = "ok" if not code else str(getattr(code, "name", code))
                    self._note(method, caller.principal, context, needs, result)
            shown = ALLOWED.get(method)
            if shown is not None and self._permissions is not None:
                allows = functools.partial(self._permissions.allows, caller.principal)
                shown(answer, allows)
            return answer

        return guarded

    def _answers(self, method: str, call: Any) -> Any:
        limited = Limited(method)

        @functools.wraps(call)
        async def guarded(request: Any, context: Any) -> Any:
            caller = await self.caller(method, context)
            needs = await self._let_in(method, caller, request, context)
            usage = _enter(caller, self._usage(caller))

            def check() -> None:
                refused = self._stops(method, caller, needs)
                if refused is not None:
                    self._note(method, caller.principal, context, (), refused.reason)
                    raise refused

            watched = _Watched(context, check, limited, usage)
            if usage is None:
                return await call(request, watched)
            try:
                with usage.call(context.peer(), stream=True):
                    limited.received(usage, request)
                    return await call(request, watched)
            except ExceededError as error:
                await abort(context, throttled(error))

        return guarded

    def _stream(self, method: str, call: Any) -> Any:
        limited = Limited(method)

        @functools.wraps(call)
        async def guarded(requests: AsyncIterator[Any], context: Any) -> Any:
            caller = await self.caller(method, context)
            usage = _enter(caller, self._usage(caller))
            allowed = self._allowed(method, caller, requests, context)
            if usage is None:
                return await call(allowed, context)
            try:
                with usage.call(context.peer(), stream=True):
                    return await call(limited.messages(usage, allowed), context)
            except ExceededError as error:
                await abort(context, throttled(error))

        if method.startswith("/oncelog."):
            return guarded

        @functools.wraps(call)
        async def foreign(requests: AsyncIterator[Any], context: Any) -> Any:
            """Guard gRPC's own services, which yield: their messages name nothing of ours."""
            caller = await self.caller(method, context)
            await self._let_in(method, caller, None, context)
            async for answer in call(requests, context):
                yield answer

        return foreign

    async def _allowed(
        self, method: str, caller: Caller, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        """Yield messages until one asks for something forbidden, and raise its error.

        A message that names nothing continues with the needs of the message before it.
        """
        asked: Sequence[Need] = ()
        first = True
        async for request in requests:
            if not isinstance(request, Undecodable):
                needs = self._needs(method, request)
                asked = needs or asked
                check = self._refusal if first else self._stops
                first, refused = False, check(method, caller, asked)
                if refused is not None:
                    self._note(method, caller.principal, context, needs, refused.reason)
                    raise refused
            yield request


def _enter(caller: Caller, usage: Usage | None) -> Usage | None:
    """Set the caller that the current task answers from now on."""
    PRINCIPAL.set(caller.principal)
    USAGE.set(usage)
    return usage


class _Watched:
    """A call's context that checks before each written message, at its principal's read rate.

    usage: None without quotas.
    """

    def __init__(
        self, context: Any, check: Callable[[], None], limited: Limited, usage: Usage | None
    ) -> None:
        self._context, self._check, self._limited, self._usage = context, check, limited, usage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Raises NotAuthorizedError, UnauthenticatedError."""
        usage = self._usage
        if usage is not None:
            await self._limited.pause(usage)
            if OUT_BYTES in usage.limits():
                usage.take(OUT_BYTES, size_of(message))
        self._check()
        await self._context.write(message)
