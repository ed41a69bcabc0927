"""Limits of the machine as faults: nobody without a password may end a node.

Each node is a process under a small limit of the shell's; each attack is run against a node
without the protection as well, and bites there.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

import pytest

from harness.local_cluster import QUICK, LocalCluster
from oncelog import Admin, Producer, RecordMetadata
from oncelog.errors import UndeliveredRecordsError
from tests.integration.conftest import MakeCluster

FILES = 512
FLOOD = 600  # connections to each port
MIB = 1024 * 1024
NEXT_SEGMENT = 70  # batches of 1 MiB, which the commit log needs a new file for


def limited(make_cluster: MakeCluster, limits: str, *, protected: bool = True) -> LocalCluster:
    """A node whose shell says `ulimit LIMITS` first."""
    cluster = make_cluster(1, start=False, metrics=True, settings=QUICK)
    node = cluster.nodes[1]
    within = ("sh", "-c", f'ulimit {limits}; exec "$@"', "sh")
    module = "cluster" if protected else "tests.integration.unprotected"
    node.spec = dataclasses.replace(node.spec, within=within, module=module)
    cluster.start()
    return cluster


def connected(stack: ExitStack, address: str, count: int) -> None:
    """Connections that say nothing, begun: a node without descriptors accepts none."""
    host, _, port = address.rpartition(":")
    for _ in range(count):
        sock = stack.enter_context(socket.socket())
        sock.setblocking(False)
        sock.connect_ex((host, int(port)))


@contextmanager
def flooded(cluster: LocalCluster) -> Iterator[list[Future[RecordMetadata]]]:
    """Takes each descriptor that the node gives away, and makes it open files."""
    with ExitStack() as stack:
        stack.enter_context(Admin(cluster.bootstrap)).create_topic("t", partitions=1, replicas=1)
        producer = Producer(cluster.bootstrap, linger_ms=0)
        stack.callback(producer.close, timeout=0)
        producer.send("t", b"first", partition=0).result(timeout=30)
        for address in (cluster.metrics_addresses[1], cluster.addresses[1]):
            connected(stack, address, FLOOD)
        yield [producer.send("t", bytes(MIB), partition=0) for _ in range(NEXT_SEGMENT)]


def test_connections_leave_the_store_its_descriptors(make_cluster: MakeCluster) -> None:
    cluster = limited(make_cluster, f"-n {FILES}")
    with flooded(cluster) as sent:
        for future in sent:
            future.result(timeout=30)
    with Producer(cluster.bootstrap, linger_ms=0) as other:  # there is room again
        other.send("t", b"last", partition=0).result(timeout=30)


def test_without_shares_connections_end_the_node(make_cluster: MakeCluster) -> None:
    cluster = limited(make_cluster, f"-n {FILES}", protected=False)
    with pytest.raises(UndeliveredRecordsError), flooded(cluster):
        assert cluster.nodes[1].wait() == 1
