"""`python -m cluster --health HOST:PORT`: asks a node's gRPC health service, without gRPC.

Containers run this every few seconds. gRPC alone takes 0.4 s of processor to import, so this
speaks the few frames of HTTP/2 itself (RFC 9113; grpc.health.v1.Health/Check).
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from collections.abc import Mapping

from cluster.config.addresses import host_and_port

TIMEOUT = 3.0  # seconds for each step
SERVING = 1
_ENV = "ONCELOG_CLIENT_"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBI")  # length (24 bits), kind, flags, stream
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_PADDED = 8
_EMPTY_MESSAGE = bytes(5)  # not compressed, no bytes


def check(address: str, environ: Mapping[str, str]) -> int:
    """Check the node as a client: TLS by its variables, ONCELOG_CLIENT_*. Returns the exit code."""
    try:
        host, port = host_and_port(address)
        with _connected(host, port, environ) as sock:
            status = _status(sock, address)
    except (OSError, ValueError) as error:
        print(f"oncelog: {address}: {error}", file=sys.stderr)
        return 1
    print("SERVING" if status == SERVING else "NOT_SERVING")
    return 0 if status == SERVING else 1


def _connected(host: str, port: int, environ: Mapping[str, str]) -> socket.socket:
    sock = socket.create_connection((host.strip("[]"), port), TIMEOUT)
    ca, cert, key = (environ.get(f"{_ENV}TLS_{name}_FILE") for name in ("CA", "CERT", "KEY"))
    if not (ca or cert or environ.get(_ENV + "TLS") == "true"):
        return sock
    context = ssl.create_default_context(cafile=ca or None)
    context.set_alpn_protocols(["h2"])
    if cert:
        context.load_cert_chain(cert, key)
    return context.wrap_socket(sock, server_hostname=host.strip("[]"))


def _status(sock: socket.socket, authority: str) -> int:
    """Return the node's status. Raises OSError, or ValueError if it is no node."""
    headers = b"".join(
        _literal(name, value)
        for name, value in (
            (":method", "POST"),
            (":scheme", "https" if isinstance(sock, ssl.SSLSocket) else "http"),
            (":path", "/grpc.health.v1.Health/Check"),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
    )
    sock.sendall(
        _PREFACE
        + _frame(_SETTINGS)
        + _frame(_HEADERS, headers, _END_HEADERS, 1)
        + _frame(_DATA, _EMPTY_MESSAGE, _END_STREAM, 1)
    )
    answer = b""
    while True:
        kind, flags, stream, body = _read(sock)
        if kind == _SETTINGS and not flags & _ACK:
            sock.sendall(_frame(_SETTINGS, flags=_ACK))
        elif kind == _PING and not flags & _ACK:
            sock.sendall(_frame(_PING, body, _ACK))
        elif kind == _DATA and stream == 1:
            answer += body[1 : len(body) - body[0]] if flags & _PADDED else body
        if kind in (_RESET, _GO_AWAY) or (stream == 1 and flags & _END_STREAM):
            return _decoded(answer)


def _decoded(answer: bytes) -> int:
    """Decode a HealthCheckResponse: one small number, left out if it is 0."""
    if len(answer) < len(_EMPTY_MESSAGE):
        raise ValueError("the node did not answer the health check")
    message = answer[len(_EMPTY_MESSAGE) :]
    return message[1] if message[:1] == b"\x08" and len(message) == 2 else 0


def _read(sock: socket.socket) -> tuple[int, int, int, bytes]:
    high, low, kind, flags, stream = _HEAD.unpack(_exactly(sock, _HEAD.size))
    size = high << 16 | low
    if kind > 16 or size > 1 << 20:
        raise ValueError("this is no gRPC port")
    return kind, flags, stream & 0x7FFF_FFFF, _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = sock.recv(size - len(received))
        if not part:
            raise ValueError("the connection was closed")
        received += part
    return received


def _literal(name: str, value: str) -> bytes:
    """Encode a header outside HPACK's tables (RFC 7541, 6.2.2)."""
    text = b"\0"
    for part in (name.encode(), value.encode()):
        if len(part) > 126:
            raise ValueError("the address is too long")
        text += bytes([len(part)]) + part
    return text


def _frame(kind: int, body: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return _HEAD.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body
