"""Free TCP ports on loopback that stay free while a node is being restarted."""

from __future__ import annotations

import os
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
PEER_OFFSET = 10_000  # of a node's port for its peers' streams: the nodes' default
_LOWEST = 10_000
_next_start = 0


def free_ports(count: int) -> list[int]:
    """Returns `count` distinct ports that nobody listens at now, nor PEER_OFFSET above them.

    Both lie below the kernel's range for outgoing connections, so that no client's own
    connection takes the port of a node that is down for a moment. All are held until all
    are known. Raises OSError if there are not that many.
    """
    held: list[socket.socket] = []
    try:
        for port in _candidates():
            if len(held) == 2 * count:
                break
            pair = [socket.socket(), socket.socket()]
            try:
                pair[0].bind((LOOPBACK, port))
                pair[1].bind((LOOPBACK, port + PEER_OFFSET))
            except OSError:
                for sock in pair:
                    sock.close()
                continue
            held += pair
        if len(held) < 2 * count:
            raise OSError(f"found only {len(held) // 2} of {count} free ports on {LOOPBACK}")
        return [sock.getsockname()[1] for sock in held[::2]]
    finally:
        for sock in held:
            sock.close()


def above(address: str) -> str:
    """Where the node at "host:port" takes its peers' streams."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + PEER_OFFSET}"


def _candidates() -> list[int]:
    global _next_start
    # The ports for peers begin where these end.
    span = min(_ephemeral_start() - PEER_OFFSET, _LOWEST + PEER_OFFSET) - _LOWEST
    if span < 1000:
        raise OSError("the kernel's range for outgoing connections leaves no ports to nodes")
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


def host_of(address: str) -> str:
    """Of "host:port"."""
    return address.rpartition(":")[0].strip("[]")
