"""Server of the metrics page, over TLS or not: bounded in connections, threads and time.

Anyone who reaches the port may connect, and each connection costs a thread and an open file.
A scrape takes a second at most, so beyond MOST connections one more ends the oldest.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

TIMEOUT = 10.0  # seconds for a handshake, and for each part of a request
MOST = 16


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, which does its handshake, too. context: None without TLS."""

    daemon_threads = True
    request_queue_size = MOST

    def __init__(
        self, address: tuple[str, int], family: int, context: Callable[[], ssl.SSLContext] | None
    ) -> None:
        self.address_family = family
        self._context = context
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        super().__init__(address, _Quiet)

    def process_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(TIMEOUT)
        with self._lock:
            if len(self._open) >= MOST:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread ends, and closes it
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._context is None:
            super().finish_request(request, client_address)
            return
        try:
            secured = self._context().wrap_socket(request, server_side=True)
        except OSError:
            return  # no handshake, or an untrusted client: no answer
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away: it is no fault of the node's."""


def start_page(
    host: str,
    port: int,
    registry: CollectorRegistry,
    context: Callable[[], ssl.SSLContext] | None,
) -> tuple[WSGIServer, threading.Thread]:
    """Start the page. context: of TLS, asked for each connection; None: http. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, at = found[0][0], found[0][4]
    server = _Server((str(at[0]), port), family, context)
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return server, thread
