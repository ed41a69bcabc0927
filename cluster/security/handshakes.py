"""Connections of a listener up to TLS: accepts them and runs a bounded number of handshakes.

    socket --accept--> handshake --> PeerStream (nodes), Connection (Kafka's clients)

An unfinished handshake costs buffers and may stay for a while. So their number is limited: one more
ends the oldest, since a sound one takes milliseconds. Each gets the TLS context of its moment, so
that a removed CA no longer counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_HANDSHAKES = 64
ACCEPT_PAUSE = 0.1  # seconds after the system had no room for a connection


class Handshakes:
    """Handshakes of one listening socket, which it closes.

    context: asked for each handshake.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: Callable[[], ssl.SSLContext],
        make_stream: Callable[[], asyncio.BaseProtocol],
        timeout: float,
        most: int = MAX_HANDSHAKES,
    ) -> None:
        self._most = most
        self._sock = sock
        self._context = context
        self._make_stream = make_stream
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], None] = {}  # oldest first
        sock.setblocking(False)
        self._accepting = self._loop.create_task(self._accept())

    def close(self) -> None:
        self._accepting.cancel()
        for task in list(self._under_way):
            task.cancel()
        self._sock.close()

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(self._sock)
            except OSError as error:
                log.warning("a connection was not accepted: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            if len(self._under_way) >= self._most:
                oldest = next(iter(self._under_way))
                del self._under_way[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._shake(sock))
            self._under_way[task] = None
            task.add_done_callback(lambda task: self._under_way.pop(task, None))

    async def _shake(self, sock: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(sock.close)
            try:
                await self._loop.connect_accepted_socket(
                    self._make_stream,
                    sock,
                    ssl=self._context(),
                    ssl_handshake_timeout=self._timeout,
                    ssl_shutdown_timeout=self._timeout,
                )
            except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
                log.debug("a handshake failed: %s", error)
                return
            stack.pop_all()  # the transport has the socket now
