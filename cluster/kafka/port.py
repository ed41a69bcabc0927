"""Port for clients of Kafka's protocol: accepts connections, over TLS or not.

    node --bind, start, stop--> KafkaPort --Handshakes, with TLS--> Connection --> Login of each

The port knows its strangers, connections of which nobody knows the caller yet: one too many ends
the oldest, as a client that may come in is known within milliseconds. Each handshake takes the
certificates of its moment; a connection that a CA let in ends when the CAs change, and one that a
static token let in ends when the token's line goes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from cluster.access.budget import Budget
from cluster.access.gate import Gate
from cluster.config.addresses import ListenError, host_and_port
from cluster.kafka.frames import Connection
from cluster.kafka.login import STRANGER_S, Login
from cluster.kafka.needs import Rights
from cluster.kafka.sent import Sent
from cluster.kafka.session import Session
from cluster.security.certificates import Certificates
from cluster.security.contexts import Contexts
from cluster.security.handshakes import Handshakes

log = logging.getLogger(__name__)

BACKLOG = 1024
MAX_STRANGERS = 256  # and as many handshakes; at most a quarter of all connections
MAX_TOLD = 20  # lines about clients' ends in TOLD_S seconds: without identities anybody makes them
TOLD_S = 10.0
LOOK_AT_CAS = 2.0  # seconds between looks whether the CAs have changed, as between nodes
# Seconds, seconds, probes; not every system has all three.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class KafkaPort:
    """One listening port.

    limit: bytes of a request. connections: at a time. certificates: None without TLS.
    """

    def __init__(
        self,
        listen: str,
        memory: Budget,
        limit: int,
        connections: int,
        gate: Gate,
        certificates: Certificates | None = None,
    ) -> None:
        self._listen = listen
        self._memory = memory
        self._limit = limit
        self._most = connections
        self._most_strangers = max(1, min(MAX_STRANGERS, connections // 4))
        self.gate = gate
        self._contexts: Contexts | None = None
        if certificates is not None:
            # Clients of TLS 1.2 exist, as at the port of gRPC.
            self._contexts = Contexts(certificates, ssl.TLSVersion.TLSv1_2)
        self._open_session: Callable[[Rights], Session] | None = None
        self._new_sent: Callable[[], Sent] | None = None
        self._logins: dict[Login, None] = {}
        self._strangers: dict[Login, None] = {}  # oldest first
        self._server: asyncio.Server | Handshakes | None = None
        self._socket: socket.socket | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._told = 0
        self._told_since = float("-inf")
        self.port = 0

    def bind(self) -> None:
        """Take the port; connections wait until `start`. Raises ListenError."""
        host, port = host_and_port(self._listen)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ListenError(f"kafka_listen: {self._listen} cannot be used: {error}") from error
        # Connections inherit it: a client that vanished without closing is noticed in a minute.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.port = self._socket.getsockname()[1]

    async def start(
        self, open_session: Callable[[Rights], Session], new_sent: Callable[[], Sent]
    ) -> None:
        """Accept connections. open_session: makes the session of each. new_sent: see `sent`."""
        assert self._socket is not None, "bound first"
        self._open_session = open_session
        self._new_sent = new_sent
        if self._contexts is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accept, sock=self._socket)
        else:
            server = self._contexts.server
            self._server = Handshakes(
                self._socket, server, self._accept, STRANGER_S, self._most_strangers
            )
            self._look_at_cas(self._contexts, server())

    async def stop(self) -> None:
        """Accept no more connections, and end all."""
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        for login in list(self._logins):
            login.close("")

    def _accept(self) -> Connection:
        return Connection(self._memory, self._limit, Login(self))

    # -- the logins' calls --------------------------------------------------------------

    def opened(self, login: Login) -> None:
        """Keep a stranger for a while."""
        self._logins[login] = None
        if len(self._logins) > self._most:
            login.close("too many connections of Kafka clients")
            return
        if not self.gate.identifies:
            return
        self._strangers[login] = None
        if len(self._strangers) > self._most_strangers:
            next(iter(self._strangers)).close("too many clients have not logged in")

    def known(self, login: Login) -> None:
        """It is no stranger any more."""
        self._strangers.pop(login, None)

    def closed(self, login: Login) -> None:
        self._logins.pop(login, None)
        self._strangers.pop(login, None)

    def may_tell(self) -> bool:
        """Return whether the log may have another line about a client's end."""
        now = asyncio.get_running_loop().time()
        if now - self._told_since >= TOLD_S:
            self._told = 0
            self._told_since = now
        self._told += 1
        return self._told <= MAX_TOLD

    def session(self, rights: Rights) -> Session:
        """Begin a known caller's session."""
        assert self._open_session is not None, "started before it accepts"
        return self._open_session(rights)

    def sent(self) -> Sent:
        """Return the record of a new connection's calls."""
        assert self._new_sent is not None, "started before it accepts"
        return self._new_sent()

    # -- CAs and static tokens ----------------------------------------------------------

    def _look_at_cas(self, contexts: Contexts, known: ssl.SSLContext) -> None:
        """End the connections whose callers were proven by CAs, or tokens, that were replaced."""
        self.gate.look()
        for login in list(self._logins):
            if not login.stands:
                login.close("its token is not in tokens_file any more")
        current = contexts.server()
        if current is not known:
            for login in list(self._logins):
                proof = login.trusted_by
                if proof is not None and not contexts.trusts_as(proof):
                    login.close("the CAs of clients have changed")
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_AT_CAS, self._look_at_cas, contexts, current)
