"""Limits of open files: the process's limit, and each part's share of it.

    hard limit of the system --> Shares --> the store, the peers' streams, clients' connections

A connection is a file like those of the store, and anyone may open connections. So clients
get the rest after all fixed shares.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.config.node_config import NodeConfig
from cluster.errors import ConfigError
from cluster.metrics.text import GAUGE, MetricFamily, gauge, labels
from cluster.node.health.memory_watch import connections

log = logging.getLogger(__name__)

LEAST = 256  # open files that a node needs
MOST = 1 << 20  # where the system sets no limit
LARGEST_SHARE = 256  # of one part of the node
OTHERS = 128  # sockets that listen, links, the metrics page, locks, pipes
PERIOD = 5.0  # seconds between two looks at the connections


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    while wanted > soft != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS takes less than its stated limit
            wanted //= 2
        else:
            return


@dataclass(frozen=True, slots=True)
class Shares:
    """limit: open files of the process. part: of the store's segments, of its tables and of the
    peers' streams, each. connections: of clients, at each of their
    ports.
    """

    limit: int
    part: int
    connections: int

    @classmethod
    def of(cls, config: NodeConfig) -> Shares:
        """Share out the limit. Raises ConfigError if it is too low."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls.within(MOST if soft == resource.RLIM_INFINITY else soft, config)

    @classmethod
    def within(cls, limit: int, config: NodeConfig) -> Shares:
        if limit < LEAST:
            raise ConfigError(
                f"open files: the limit of {limit} is below the minimum of {LEAST}; raise the "
                f"hard limit of the node's process (ulimit -n, LimitNOFILE=)"
            )
        part = min(LARGEST_SHARE, limit // 8)
        # Streams of peers have a quarter more, for handshakes.
        room = limit - 3 * part - part // 4 - min(OTHERS, limit // 4)
        if config.max_connections > room and "max_connections" in config.given:
            raise ConfigError(
                f"max_connections: {config.max_connections} is above {room}, all that the limit "
                f"of {limit} open files allows; raise that limit (ulimit -n, LimitNOFILE=)"
            )
        ports = 2 if config.kafka_listen else 1
        return cls(limit, part, min(config.max_connections, room // ports))


class ConnectionWatch:
    """Counts open connections for the metrics page, and warns when clients are refused."""

    def __init__(self, shares: Shares, ports: Sequence[int]) -> None:
        """ports: where clients are served, gRPC's first."""
        self._shares = shares
        self._ports = ports
        self._warned = False

    def families(self) -> Iterator[MetricFamily]:
        shares = self._shares
        yield gauge("process_open_fds", "Open files, connections among them", open_files())
        yield gauge("process_max_fds", "Open files that the node may have", shares.limit)
        counts = self._count()
        yield MetricFamily(
            "oncelog_client_connections",
            GAUGE,
            "Connections of clients by protocol",
            [
                (labels(protocol=protocol), counts[port])
                for protocol, port in zip(("grpc", "kafka"), self._ports, strict=False)
            ],
        )
        yield gauge(
            "oncelog_client_connections_limit",
            "Connections at a port; more are refused",
            shares.connections,
        )

    def _count(self) -> Counter[int]:
        return Counter(sock.getsockname()[1] for sock, _, _ in connections(self._ports))

    def look(self) -> None:
        most = self._shares.connections
        is_full = open_files() >= most and self._count().total() >= most
        if is_full and not self._warned:
            log.warning("max_connections: %d clients are connected, more are refused", most)
        self._warned = is_full

    async def run(self) -> None:
        """Check the connections forever."""
        while True:
            await asyncio.sleep(PERIOD)  # gRPC does not report its connections
            self.look()


def open_files() -> int:
    return len(os.listdir("/dev/fd"))
