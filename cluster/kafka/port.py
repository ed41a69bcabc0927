"""Port for clients of Kafka's protocol: accepts connections, and gives each a session.

node --bind, start, stop--> KafkaPort --Gate.caller--> Session of each Connection
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from cluster.access.gate import Gate
from cluster.budget import Budget
from cluster.config.addresses import host_and_port
from cluster.errors import ListenError
from cluster.kafka.frames import Connection, Exchange
from cluster.kafka.needs import Rights
from cluster.kafka.session import Session
from oncelog.errors import OncelogError

log = logging.getLogger(__name__)

BACKLOG = 1024
# Seconds, seconds, probes; not every system has all three.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class KafkaPort:
    """One listening port. limit: bytes of a request. connections: at a time."""

    def __init__(
        self,
        listen: str,
        memory: Budget,
        limit: int,
        connections: int,
        gate: Gate,
    ) -> None:
        self._listen = listen
        self._memory = memory
        self._limit = limit
        self._most = connections
        self._gate = gate
        self._open_session: Callable[[Rights], Session] | None = None
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
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

    async def start(self, open_session: Callable[[Rights], Session]) -> None:
        """Accept connections. open_session: makes the session of each."""
        assert self._socket is not None, "bound first"
        self._open_session = open_session
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=self._socket)

    async def stop(self) -> None:
        """Accept no more connections, and end all."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        for connection in list(self.connections):
            connection.close()

    def _accept(self) -> Connection:
        return Connection(self._memory, self._limit, _Client(self))

    async def admit(self, connection: Connection) -> Session | None:
        """Return a session for the connection's caller; None if it may not come in."""
        if len(self.connections) > self._most:
            log.info("too many connections of Kafka clients client=%s", connection.address)
            return None
        try:
            caller = await self._gate.caller("kafka", connection.address, "", b"")
        except OncelogError as error:
            log.info("Kafka client refused client=%s: %s", connection.address, error)
            return None
        assert self._open_session is not None, "started before it accepts"
        return self._open_session(Rights(self._gate, caller))


class _Client:
    """One connection's session, once its caller is known."""

    def __init__(self, port: KafkaPort) -> None:
        self._port = port
        self._session: Session | None = None
        self._admission: asyncio.Task[None] | None = None

    def made(self, connection: Connection) -> None:
        self._port.connections.add(connection)
        self._admission = asyncio.get_running_loop().create_task(self._admit(connection))

    def begin(self, connection: Connection, exchange: Exchange) -> None:
        assert self._session is not None, "nothing is read before"
        self._session.begin(connection, exchange)

    def ended(self, connection: Connection) -> None:
        self._port.connections.discard(connection)
        if self._admission is not None:
            self._admission.cancel()
        if self._session is not None:
            self._session.close()

    async def _admit(self, connection: Connection) -> None:
        self._session = await self._port.admit(connection)
        if self._session is None:
            connection.close()
        else:
            connection.start()
