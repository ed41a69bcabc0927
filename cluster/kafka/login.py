"""One connection's way in: its certificate or its token, and the session of a known caller.

    Connection --Exchange--> Login --certificate, token--> Gate --> Caller
                               '--once the caller is known--> Session

Before the caller is known only ApiVersions and SASL are answered, a request is small, and the
connection is one of a few strangers that the port keeps for a short while. A certificate is
enough; a token by SASL counts in its place, if it comes first. A caller by token logs in again
before the token is over (KIP-368), and stays the same principal: requests in work are its own.

Each request counts for its principal's quotas. Over a rate, the answer says how long it takes, and
the connection is not read meanwhile (KIP-219).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import ceil, inf
from typing import Protocol

from cluster.access.gate import Gate
from cluster.access.quotas import Pace
from cluster.kafka import sasl
from cluster.kafka.codec import CodecError, Source, decode, encode
from cluster.kafka.errors import Error, text_of
from cluster.kafka.frames import Connection, Exchange
from cluster.kafka.messages import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from cluster.kafka.needs import ACTIONS, Rights
from cluster.kafka.paces import PACES
from cluster.kafka.sent import Sent
from cluster.kafka.session import Session
from cluster.kafka.versions import Head, api_versions, read_head
from cluster.security.caller import Caller
from cluster.security.quotas import ExceededError, Usage
from oncelog.errors import OncelogError, UnauthenticatedError

log = logging.getLogger(__name__)

STRANGER_BYTES = 16 * 1024  # of a request before the caller is known; a token has half of it
STRANGER_REQUESTS = 16  # a client that logs in needs five; one may cost 0.1 ms
STRANGER_S = 10.0  # seconds until the caller is known, or a refused one has its answer
LOOK_S = 3600.0  # seconds between looks at a proof that holds for longer
MAX_LIFETIME_MS = 2**31 - 1  # that a client is told; it may log in again earlier
OVER = "the token, or the certificate, is over"
_CONNECT = "kafka/connect"


class Admits(Protocol):
    """The port of a connection."""

    gate: Gate

    def opened(self, login: Login) -> None:
        """Keep a stranger for a while."""

    def known(self, login: Login) -> None:
        """It is no stranger any more."""

    def closed(self, login: Login) -> None: ...

    def may_tell(self) -> bool:
        """Return whether the log may have another line about a client's end."""

    def session(self, rights: Rights) -> Session: ...

    def sent(self) -> Sent:
        """Return the record of a new connection's calls."""


class Login:
    """The client of one connection."""

    def __init__(self, port: Admits) -> None:
        self._port = port
        self._gate = port.gate
        self._connection: Connection | None = None
        self._sent: Sent | None = None  # once there is a connection
        self._limit = 0  # of a known caller's request
        self._caller: Caller | None = None
        self._by_certificate = False
        self._rights: Rights | None = None  # with the session, at the first request
        self._session: Session | None = None
        self._mechanism = ""  # chosen by a handshake, for one message
        self._is_raw = False  # the next frame is that message alone (SaslHandshake v0)
        self._asked = 0  # requests before the caller was known
        self._is_pausing = False  # a quota's wait is under way
        self._timer: asyncio.TimerHandle | None = None  # of its end
        self._counted = ExitStack()  # in the caller's quotas

    # -- the connection's calls ---------------------------------------------------------

    def made(self, connection: Connection) -> None:
        self._connection = connection
        self._sent = self._port.sent()
        self._limit = connection.limit
        self._port.opened(self)
        if not self._gate.identifies:
            self._enter(connection, Caller(address=connection.address))
            return
        connection.limit = STRANGER_BYTES
        self._end_in(STRANGER_S, self.close, "it did not log in in time")
        connection.hold(self._identify(connection))

    def begin(self, connection: Connection, exchange: Exchange) -> None:
        if self._caller is None:
            self._asked += 1
            if self._asked > STRANGER_REQUESTS:
                raise CodecError(f"more than {STRANGER_REQUESTS} requests before a login")
        if self._is_raw:
            self._count(connection, exchange, SASL_AUTHENTICATE.key)
            self._begin_login(connection, exchange, bytes(exchange.request), None)
            return
        source = Source(exchange.request)
        head = read_head(source)
        self._count(connection, exchange, head.call.key)
        if head.call is API_VERSIONS:
            if head.is_known:
                asked = decode(ApiVersionsRequest, source, head.version, flexible=head.flexible)
                connection.software = asked.client_software_name
            out = api_versions(head)
            wait_ms = exchange.wait_ms(len(out))
            exchange.answer((api_versions(head, wait_ms) if wait_ms else out,))
        elif head.call is SASL_HANDSHAKE:
            self._shake_hands(connection, exchange, head, source)
        elif head.call is SASL_AUTHENTICATE:
            sent = decode(SaslAuthenticateRequest, source, head.version, flexible=head.flexible)
            self._begin_login(connection, exchange, sent.auth_bytes, head)
        elif self._caller is None:
            text = f"{head.call.name} before the caller is known"
            unknown = self._gate.unknown(ACTIONS[head.call.key], connection.address, text)
            raise CodecError(str(unknown))
        elif self._gate.left(self._caller) <= 0:
            self.close(OVER)
        else:
            session = self._session or self._open(self._caller)
            session.begin(connection, exchange, head, source)

    def refused(self, connection: Connection, reason: str) -> None:
        self.close(reason)

    def ended(self, connection: Connection) -> None:
        self._port.closed(self)
        self._counted.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None:
            self._session.close()

    # -- the port's calls ---------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End the connection. Empty reason: nothing is logged."""
        if self._connection is not None:
            if reason:
                # Anybody can be a stranger, as often as they like: no line for each.
                tells = self._caller is not None and self._port.may_tell()
                level = logging.INFO if tells else logging.DEBUG
                log.log(level, "Kafka client ended client=%s: %s", self._connection.address, reason)
            self._connection.close()

    @property
    def trusted_by(self) -> ssl.SSLContext | None:
        """Return the context whose CAs proved the caller; None: a token did, or nothing."""
        tls = None if self._connection is None else self._connection.tls
        return tls.context if tls is not None and self._by_certificate else None

    @property
    def stands(self) -> bool:
        """Return whether the caller's static token is still one; a stranger has none."""
        return self._caller is None or self._gate.stands(self._caller)

    # -- the caller's proof -------------------------------------------------------------

    async def _identify(self, connection: Connection) -> None:
        """Take the caller from the certificate; a client without one logs in."""
        gate, certificate = self._gate, connection.certificate
        if gate.takes_tokens and not certificate:
            return  # it logs in
        try:
            self._enter(
                connection, await gate.caller(_CONNECT, connection.address, "", certificate)
            )
            self._by_certificate = bool(certificate)
        except (OncelogError, ExceededError) as error:
            if not (gate.takes_tokens and isinstance(error, UnauthenticatedError)):
                self.close(str(error))

    def _shake_hands(
        self, connection: Connection, exchange: Exchange, head: Head, source: Source
    ) -> None:
        asked = decode(SaslHandshakeRequest, source, head.version, flexible=head.flexible)
        # In the clear tokens are anybody's.
        takes_tokens = self._gate.takes_tokens and connection.tls is not None
        offered = list(sasl.MECHANISMS) if takes_tokens else []
        error = Error.NONE if asked.mechanism in offered else Error.UNSUPPORTED_SASL_MECHANISM
        if not error:
            self._mechanism = asked.mechanism
            self._is_raw = head.version == 0
        _answer(exchange, head, SaslHandshakeResponse(error, offered))

    def _begin_login(
        self, connection: Connection, exchange: Exchange, data: bytes, head: Head | None
    ) -> None:
        """Take a mechanism's message. head: None for a frame that has none."""
        mechanism = self._mechanism
        self._mechanism = ""
        self._is_raw = False
        connection.hold(self._log_in(connection, exchange, mechanism, data, head))

    async def _log_in(
        self,
        connection: Connection,
        exchange: Exchange,
        mechanism: str,
        data: bytes,
        head: Head | None,
    ) -> None:
        answer = SaslAuthenticateResponse(error_message=None)
        try:
            caller = await self._proven(connection, mechanism, data)
            self._enter(connection, caller)
            self._by_certificate = False
        except UnauthenticatedError as error:
            answer.error_code = Error.SASL_AUTHENTICATION_FAILED
            if not mechanism:
                answer.error_code = Error.ILLEGAL_SASL_STATE
            answer.error_message = text_of(error)
        except (OncelogError, ExceededError) as error:  # no final answer: the client tries again
            self.close(str(error))
            return
        else:
            left = self._gate.left(caller) * 1000
            answer.session_lifetime_ms = 0 if left == inf else int(min(left, MAX_LIFETIME_MS))
        if head is not None:
            _answer(exchange, head, answer)
        else:
            exchange.answer(() if answer.error_code else (b"",))
        if answer.error_code:
            log.debug("login refused client=%s: %s", connection.address, answer.error_message)
            connection.finish()
            self._end_in(STRANGER_S, connection.close)

    async def _proven(self, connection: Connection, mechanism: str, data: bytes) -> Caller:
        """Return the caller by its token. Raises UnauthenticatedError, ThrottledError."""
        action, address = ACTIONS[SASL_AUTHENTICATE.key], connection.address
        unknown = partial(self._gate.unknown, action, address)
        if not mechanism:
            raise unknown("SaslHandshake must come before each SaslAuthenticate")
        try:
            proof = sasl.read(mechanism, data)
        except sasl.SaslError as error:
            raise unknown(str(error)) from None
        caller = await self._gate.caller(action, address, proof.authorization, b"")
        if self._gate.left(caller) <= 0:  # a token that was valid once is not read again
            raise unknown(OVER)
        if proof.authzid not in ("", caller.principal):
            raise unknown(f"authzid: the token is of {caller.principal}")
        if self._rights is not None and self._rights.caller.principal != caller.principal:
            raise unknown(f"this connection is of {self._rights.caller.principal}")
        return caller

    def _enter(self, connection: Connection, caller: Caller) -> None:
        """Let the caller's requests in. Raises ExceededError."""
        self._counted.close()
        if caller.usage is not None:
            self._counted.enter_context(caller.usage.call(connection.address, stream=False))
        self._caller = caller
        if self._rights is not None and self._session is not None:
            self._rights.caller = caller
            self._session.renew(caller)
        connection.limit = self._limit
        self._port.known(self)
        self._watch()

    def _open(self, caller: Caller) -> Session:
        assert self._sent is not None
        self._rights = Rights(self._gate, caller, self._sent)
        self._session = self._port.session(self._rights)
        return self._session

    # -- its end ------------------------------------------------------------------------

    def _end_in(self, seconds: float, end: Callable[..., object], *arguments: object) -> None:
        """Replace the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds != inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, end, *arguments)

    def _watch(self) -> None:
        """End the connection when the caller's proof is over."""
        assert self._caller is not None
        left = self._gate.left(self._caller)
        if left <= 0:
            self.close(OVER)
        else:
            self._end_in(left if left == inf else min(left, LOOK_S), self._watch)

    # -- quotas -------------------------------------------------------------------------

    def _count(self, connection: Connection, exchange: Exchange, key: int) -> None:
        """Count a known caller's request."""
        usage = None if self._caller is None else self._caller.usage
        if usage is None or not usage.limits():
            return
        pace = PACES[key]
        pace.received(usage, exchange.size)
        exchange.charge = partial(self._charge, connection, usage, pace)
        self._charge(connection, usage, pace, 0)

    def _charge(self, connection: Connection, usage: Usage, pace: Pace, size: int) -> int:
        """Count an answer of `size` bytes; returns the wait until the connection is read, in ms."""
        pace.answered(usage, size)
        seconds = pace.wait(usage)
        if seconds and not self._is_pausing:
            self._is_pausing = True
            connection.hold(self._pause(usage, pace))
        return ceil(seconds * 1000)

    async def _pause(self, usage: Usage, pace: Pace) -> None:
        await pace.pause(usage)
        self._is_pausing = False


def _answer(
    exchange: Exchange, head: Head, message: SaslHandshakeResponse | SaslAuthenticateResponse
) -> None:
    out = head.begin_answer()
    encode(message, out, head.version, flexible=head.flexible)
    exchange.wait_ms(len(out))  # told by the next answer: these have no field for it
    exchange.answer((out,))
