"""Free TCP ports on loopback that stay free during a node's restart."""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
PEER_OFFSET = 10_000  # from a node's port to its port for peers' streams: the nodes' default
PROCESS_STEP = 100  # from a machine's process to its next one, of ids and ports
_LOWEST = 10_000
_SLOTS = 16  # processes that choose ports at the same time, each from its own
_next_start = 0


def free_ports(count: int, processes: int = 1) -> list[int]:
    """Finds `count` distinct free ports; the ports PEER_OFFSET above them are free, too.

    processes: of each machine; the ports of its further processes are also free.
    Both lie below the kernel's range for outgoing connections, so that no client's own
    connection takes the port of a stopped node. All ports are held until all are known. Raises
    OSError if too few are free.
    """
    reach = PROCESS_STEP * (processes - 1)
    found: list[int] = []
    with ExitStack() as held:
        for port in _candidates(reach):
            if len(found) == count:
                break
            with ExitStack() as taken:
                try:
                    for one in range(port, port + reach + 1, PROCESS_STEP):
                        for each in (one, one + PEER_OFFSET):
                            taken.enter_context(socket.socket()).bind((LOOPBACK, each))
                except OSError:
                    continue
                held.push(taken.pop_all())
                found.append(port)
        if len(found) < count:
            raise OSError(f"found only {len(found)} of {count} free ports on {LOOPBACK}")
        return found


def above(address: str) -> str:
    """Address for peers' streams of the node at "host:port"."""
    return beside(address, PEER_OFFSET)


def beside(address: str, step: int) -> str:
    """Address of the same host with a port that is `step` higher."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + step}"


def _candidates(reach: int) -> Iterator[int]:
    """Yields all ports: this process's own first, the longest unused of them before the others.

    A port may be free only because its node is restarting. reach: the ports up to so many higher
    belong to the same process, too.
    """
    global _next_start
    # The ports for peers begin at the end of these.
    span = min(_ephemeral_start() - PEER_OFFSET, _LOWEST + PEER_OFFSET) - _LOWEST
    if span < 1000:
        raise OSError("the kernel's range for outgoing connections leaves no ports to nodes")
    size = span // _SLOTS
    first = _slot() * size
    most = size - reach
    own = [first + (_next_start + step) % most for step in range(most)]
    for port in [*own, *(set(range(span - reach)) - set(own))]:
        _next_start += 1
        yield _LOWEST + port


@functools.cache
def _slot() -> int:
    """Share of the ports that belongs to this process while it lives."""
    folder = Path(tempfile.gettempdir()) / f"oncelog-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for slot in range(_SLOTS):
        file = os.open(folder / str(slot), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            return slot
    return os.getpid() % _SLOTS  # shared: so many processes are rare


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 32_768
    return int(text.split()[0])


def host_of(address: str) -> str:
    """Host of "host:port"."""
    return address.rpartition(":")[0].strip("[]")
