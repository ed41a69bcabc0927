"""Free TCP ports on loopback that stay free while a node is being restarted."""

from __future__ import annotations

import os
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST = 20_000
_next_start = 0


def free_ports(count: int) -> list[int]:
    """Returns `count` distinct ports that nobody listens at now.

    They lie below the kernel's range for outgoing connections, so that no client's own
    connection takes the port of a node that is down for a moment. All are held until all
    are known. Raises OSError if there are not that many.
    """
    held: list[socket.socket] = []
    try:
        for port in _candidates():
            if len(held) == count:
                break
            sock = socket.socket()
            try:
                sock.bind((LOOPBACK, port))
            except OSError:
                sock.close()
                continue
            held.append(sock)
        if len(held) < count:
            raise OSError(f"found only {len(held)} of {count} free ports on {LOOPBACK}")
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()


def _candidates() -> list[int]:
    global _next_start
    span = _ephemeral_start() - _LOWEST
    if span < 1000:
        return [0] * 1000
    # Runs side by side begin at different places, and a run never looks twice at one.
    start = (os.getpid() * 97 + _next_start) % span
    _next_start += 50
    return [_LOWEST + (start + step) % span for step in range(span)]


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 32_768
    return int(text.split()[0])
