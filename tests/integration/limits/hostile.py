"""Greedy clients that give nothing back: for tests of a node's memory.

`HalfMessages` speaks HTTP/2 itself: no gRPC client begins large messages and never ends them.
"""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path
from typing import Self

from cluster.config.addresses import host_and_port

_DATA, _HEADERS, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 4, 6, 7, 8
_END_HEADERS, _ACK = 4, 1
_WINDOW_BYTES = 65_535  # HTTP/2's initial window, before any update of it
_FRAME_BYTES = 16_384
_HEAD = struct.Struct(">BHBBI")  # length (24 bits), kind, flags, stream


def resident(pid: int) -> int:
    """Memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no VmRSS")


def _literal(name: str, value: str) -> bytes:
    """A header as HPACK writes one that is in no table (RFC 7541, 6.2.2)."""
    text = b"\0"
    for part in (name.encode(), value.encode()):
        assert len(part) < 127
        text += bytes([len(part)]) + part
    return text


class HalfMessages:
    """Calls of one connection: each announces a message of `size` bytes, and sends all but one.

    It sends as much as the node lets it; `sent` grows meanwhile, until the connection is lost.
    """

    def __init__(self, address: str, method: str, calls: int, size: int) -> None:
        self.sent, self.lost = 0, threading.Event()
        self._sock = socket.create_connection(host_and_port(address))
        self._windows = {2 * call + 1: _WINDOW_BYTES for call in range(calls)}
        self._windows[0] = _WINDOW_BYTES
        self._left = dict.fromkeys(sorted(self._windows)[1:], size - 1)
        self._initial = _WINDOW_BYTES
        headers = b"".join(
            _literal(name, value)
            for name, value in (
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", address),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
            )
        )
        self._sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(_SETTINGS))
        for stream in self._left:
            self._sock.sendall(
                self._frame(_HEADERS, headers, stream, _END_HEADERS)
                + self._frame(_DATA, struct.pack(">BI", 0, size), stream)
            )
            self._spend(stream, 5)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._sock.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._send_all_that_may_be_sent()
                self._read_one()
        except OSError:
            self.lost.set()

    def _send_all_that_may_be_sent(self) -> None:
        self._sock.settimeout(None)
        for stream, left in self._left.items():
            size = min(left, self._windows[stream], self._windows[0], _FRAME_BYTES)
            if size > 0:
                self._sock.sendall(self._frame(_DATA, bytes(size), stream))
                self._left[stream] -= size
                self._spend(stream, size)
                self.sent += size
        if any(min(self._windows[s], left) > 0 for s, left in self._left.items()):
            self._sock.settimeout(0.0001 if self._windows[0] > 0 else None)

    def _read_one(self) -> None:
        try:
            head = self._receive(9)
        except TimeoutError:
            return
        self._sock.settimeout(None)
        high, low, kind, flags, stream = _HEAD.unpack(head)
        body = self._receive(high << 16 | low)
        if kind == _WINDOW:
            self._windows[stream] = self._windows.get(stream, 0) + struct.unpack(">I", body)[0]
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(body)
            self._sock.sendall(self._frame(_SETTINGS, flags=_ACK))
        elif kind == _PING and not flags & _ACK:
            self._sock.sendall(self._frame(_PING, body, flags=_ACK))

    def _set(self, settings: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", settings):
            if name == 4:  # the window that each stream begins with
                for stream in self._left:
                    self._windows[stream] += value - self._initial
                self._initial = value

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self._sock.recv(size - len(received))
            if not part:
                raise ConnectionError("closed")
            received += part
        return received

    def _spend(self, stream: int, size: int) -> None:
        self._windows[stream] -= size
        self._windows[0] -= size

    @staticmethod
    def _frame(kind: int, body: bytes = b"", stream: int = 0, flags: int = 0) -> bytes:
        return _HEAD.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body
