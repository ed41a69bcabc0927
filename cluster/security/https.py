"""The metrics page over TLS: prometheus_client's server would stop at the first slow handshake."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

TIMEOUT = 10.0  # seconds for a handshake, and for each part of a request


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a scrape is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, which does its handshake, too."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], family: int, context: Callable[[], ssl.SSLContext]
    ) -> None:
        self.address_family = family
        self._context = context
        super().__init__(address, _Quiet)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(TIMEOUT)
        try:
            secured = self._context().wrap_socket(request, server_side=True)
        except OSError:
            return  # no handshake, or nobody that is trusted: told nothing
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no fault of the node's."""


def start_https_server(
    host: str, port: int, registry: CollectorRegistry, context: Callable[[], ssl.SSLContext]
) -> tuple[WSGIServer, threading.Thread]:
    """`context`: asked for each connection. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, at = found[0][0], found[0][4]
    server = _Server((str(at[0]), port), family, context)
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return server, thread
