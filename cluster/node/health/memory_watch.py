"""Memory watch: keeps the node below its limit by closing clients' connections.

    twenty times a second --> Budget.hog, resident memory --> connections of clients are closed

`Budget` counts decoded, appended, read and sent bytes. Two things escape it. Answers that a
client leaves unread stay in memory, and gRPC can take one back only with its connection. And
gRPC does not report the size of an incomplete message: so when resident memory has grown to the
limit, connections with calls that wait for a message are closed. The rest is no unfinished
message but, say, the node's own state, which is no reason to close more (docs/adr/0034).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import logging
import os
import resource
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from cluster.access.budget import Budget
from cluster.config.addresses import host_and_port
from cluster.config.node_config import NodeConfig
from cluster.metrics.page import Metrics
from cluster.metrics.process import resident_bytes

log = logging.getLogger(__name__)

PERIOD = 0.05  # seconds between two looks
LEAST = 256 * 1024 * 1024  # for clients: some of the largest messages
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
SETTLE = 0.1  # seconds until released memory is given back


class MemoryWatch:
    """Compares counted and resident memory with the limit.

    limit:    bytes that the process may grow by.
    resident: bytes that it has now. trim: gives back free memory.
    close(client): ends its connection, or those of all clients if it is None.
    """

    def __init__(
        self,
        budget: Budget,
        limit: int,
        clock: Callable[[], float],
        resident: Callable[[], int],
        trim: Callable[[], None],
        close: Callable[[str | None], None],
    ) -> None:
        self._budget = budget
        self._limit = limit
        self._clock = clock
        self._resident = resident
        self._trim = trim
        self._close = close
        self._floor = self._empty = resident()  # growth up to here is not the clients'
        self._settles_at = 0.0
        self._to_close = 1  # clients at a time; twice as many each time that it was not enough
        self.closed = 0  # for lack of memory; all at once count as one

    def look(self) -> None:
        now = self._clock()
        if now < self._settles_at:
            return
        hog = self._budget.hog(now)
        if hog:
            log.warning("memory is scarce and %s does not read its answers: closed", hog)
            self._end([hog])
            self._settles_at = now + SETTLE
        elif self._is_over():
            self._close_receivers()
            self._settles_at = now + SETTLE
        else:
            self._to_close = 1

    def _is_over(self) -> bool:
        if self._resident() - self._floor <= self._limit:
            return False
        self._trim()
        return self._resident() - self._floor > self._limit

    def _close_receivers(self) -> None:
        """Close the clients with the most calls that wait for messages first, then all."""
        grown, counted = self._resident() - self._floor, self._budget.used
        if not self._to_close:
            # Nothing unfinished is left, so this is the node's own.
            log.warning("memory has grown for good: bytes=%d counted=%d", grown, counted)
            self._floor = max(self._empty, self._resident() - counted)
            self._to_close = 1
            return
        clients = self._budget.receiving()
        clients.pop("", 0)
        worst = [client for client, _ in clients.most_common(self._to_close)]
        enough = len(worst) == self._to_close
        log.warning(
            "memory has grown by %d bytes, of which %d are counted: closed the most of the "
            "unfinished calls, those of %s; the heap: %s",
            grown,
            counted,
            worst if enough else "all clients",
            heap(),
        )
        self._end(worst if enough else [None])
        self._to_close = 2 * self._to_close if enough else 0

    def _end(self, clients: Sequence[str | None]) -> None:
        for client in clients:
            self._close(client)
        self.closed += len(clients)

    async def run(self) -> None:
        """Check memory forever."""
        while True:
            await asyncio.sleep(PERIOD)  # memory gives no event
            self.look()


def client_memory(config: NodeConfig, room: int) -> int:
    """Return the memory for clients. room: bytes that the machine's processes may grow by.

    The default is half of the room at most: a node in a small container would be killed before
    it reached the default.
    """
    wanted, room = config.client_memory_bytes, room // config.processes
    if "client_memory_bytes" in config.given or room // 2 >= wanted:
        return wanted
    if room // 2 < LEAST:
        log.warning(
            "memory: the node may grow by %d bytes, and clients may make it use "
            "client_memory_bytes = %d: give it more memory",
            room,
            LEAST,
        )
    return max(LEAST, room // 2)


def memory_room() -> int:
    """Return the bytes that this process may grow by: of the machine, container, user's limit."""
    used = resident_bytes()
    rooms = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") - used]
    for path in _CONTAINER_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            rooms.append(int(path.read_text()) - used)  # "max" is no number
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError, ValueError, IndexError):
            data = int(Path("/proc/self/statm").read_text().split()[5])
            rooms.append(limit - data * os.sysconf("SC_PAGE_SIZE"))
    return min(rooms)


def memory_budget(limit: int, metrics: Metrics) -> Budget:
    """Return the budget; a quarter is left for uncounted messages, copies, free memory."""
    budget = Budget(limit * 3 // 4, limit // 2)
    metrics.memory = budget
    return budget


def watch_memory(budget: Budget, ports: Collection[int]) -> MemoryWatch:
    """Return the watch of a node that has just started: its memory is at its lowest.

    ports: where clients are served.
    """
    return MemoryWatch(
        budget,
        budget.limit,
        time.monotonic,
        resident_bytes,
        trim_heap,
        lambda client: close_connections(ports, client),
    )


def trim_heap() -> None:
    """Give free memory back to the system, if its C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _Mallinfo2(ctypes.Structure):
    """glibc's `struct mallinfo2` (mallinfo(3)), all in bytes but the counts."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap() -> str:
    """Describe malloc's memory for the log: in use, free, and mapped."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return "not known"
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return f"used={info.uordblks} free={info.fordblks} mapped={info.hblkhd}"


def close_connections(ports: Collection[int], client: str | None) -> None:
    """Shut down connections to our ports: the client's, as gRPC names it, or all.

    gRPC has no call for it. It takes this as the end of any other connection.
    """
    end = None if client is None else _end_of(client)
    for sock, host, theirs in connections(ports):
        if end in (None, (_plain(host), theirs)):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def connections(ports: Collection[int]) -> Iterator[tuple[socket.socket, str, int]]:
    """Yield connections to our ports, each with its remote host and port."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), _connection(int(name)) as sock:
            if sock.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            if sock.getsockname()[1] in ports:
                host, theirs = sock.getpeername()[:2]  # a listening socket has none
                yield sock, host, theirs


def _connection(number: int) -> socket.socket:
    """Return a socket of its own for a file of this process. Raises OSError if it is no socket."""
    copy = os.dup(number)  # the number may be reused meanwhile
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _end_of(client: str) -> tuple[str, int]:
    """ "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000" -> host, port."""
    host, port = host_and_port(unquote(client).partition(":")[2])
    return _plain(host), port


def _plain(host: str) -> str:
    """Return a host's text; an IPv4 address on an IPv6 socket gives the same."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
