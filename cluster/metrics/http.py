"""Small HTTP server for a node's pages: bounded in connections, threads, bytes and time.

    Prometheus, probes --GET--> Server --a thread each--> a page's function --> PageAnswer

Everybody within reach of the port may connect; each connection costs a thread and an open file.
A page takes a second at most, so beyond MOST connections one more ends the oldest. The threads
are not the event loop's: a page is answered while the loop hangs.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from socketserver import BaseRequestHandler, TCPServer, ThreadingMixIn
from typing import Any, NamedTuple

from cluster.config.addresses import ListenError, host_and_port, with_port

log = logging.getLogger(__name__)

TIMEOUT = 10.0  # seconds for a handshake, for a whole request, and for each part of an answer
MOST = 16
MAX_REQUEST_BYTES = 8192
_END = b"\r\n\r\n"
TEXT = "text/plain; charset=utf-8"


class PageAnswer(NamedTuple):
    """A page's answer."""

    status: HTTPStatus
    body: str
    content: str = TEXT


# Takes the query of the address ("detail=partition"), in a thread of the server.
Page = Callable[[str], PageAnswer]


class _PageRequest(BaseRequestHandler):
    """One request of one connection, which then ends."""

    server: PageServer

    def handle(self) -> None:
        try:
            words = _read_head(self.request).split(b"\r\n", 1)[0].decode("latin-1").split()
        except ValueError:
            answer = PageAnswer(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the request has more than {MAX_REQUEST_BYTES} bytes\n",
            )
            words = ["GET"]
        else:
            answer = self._answer(words)
        body = answer.body.encode()
        head = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
            f"Content-Type: {answer.content}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self.request.settimeout(TIMEOUT)
        self.request.sendall(head.encode() + (b"" if words[:1] == ["HEAD"] else body))

    def _answer(self, words: list[str]) -> PageAnswer:
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return PageAnswer(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1\n")
        if words[0] not in ("GET", "HEAD"):
            return PageAnswer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n")
        path, _, query = words[1].partition("?")
        page = self.server.pages.get(path)
        if page is None:
            known = ", ".join(self.server.pages)
            return PageAnswer(HTTPStatus.NOT_FOUND, f"there is no such page here, only {known}\n")
        try:
            return page(query)
        except Exception:
            log.exception("page %s failed", path)
            return PageAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, "the node's log has the reason\n")


def _read_head(sock: socket.socket) -> bytes:
    """Read a request's head. Raises OSError if it ends or takes too long, ValueError: too large."""
    deadline, data = time.monotonic() + TIMEOUT, b""
    while _END not in data:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(MAX_REQUEST_BYTES)
        if not part:
            raise ConnectionResetError("the request is not whole")
        data += part
        if len(data) > MAX_REQUEST_BYTES:
            raise ValueError("the request is too large")
    return data


class PageServer(ThreadingMixIn, TCPServer):
    """A thread for each connection, which does its handshake, too. context: None without TLS."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MOST

    def __init__(
        self,
        address: tuple[str, int],
        family: int,
        pages: Mapping[str, Page],
        context: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self.address_family = family
        self.pages = pages
        self._context = context
        # Accepted socket -> the socket in use, another one with TLS; oldest first.
        self._open: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        super().__init__(address, _PageRequest)

    def process_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(TIMEOUT)
        with self._lock:
            if len(self._open) >= MOST:
                oldest = self._open.pop(next(iter(self._open)))
                with contextlib.suppress(OSError):
                    # Its thread ends, and closes it. SSLSocket.shutdown is not for other threads.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._open[request] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._context is None:
            super().finish_request(request, client_address)
            return
        context = self._context()
        with self._lock:
            if request not in self._open:
                return  # it was the oldest meanwhile
            # The accepted socket loses its file here.
            secured = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            self._open[request] = secured
        with secured:
            try:
                secured.do_handshake()
            except OSError:
                return  # no handshake, or an untrusted client: no answer
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away: it is no fault of the node's."""


def serve_pages(
    setting: str,
    address: str,
    pages: Mapping[str, Page],
    context: Callable[[], ssl.SSLContext] | None = None,
) -> Callable[[], None]:
    """Serve pages, by path, at "host:port"; returns a function that stops it.

    setting: gives the address. context: of TLS, asked for each connection; None: http.
    Raises ListenError.
    """
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, at = found[0][0], found[0][4]
        server = PageServer((str(at[0]), port), family, pages, context)
    except OSError as error:
        raise ListenError(f"{setting}: {address} cannot be used: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name=setting, daemon=True)
    thread.start()
    bound = with_port(address, server.server_address[1])
    log.info("serving pages setting=%s listen=%s", setting, bound)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
