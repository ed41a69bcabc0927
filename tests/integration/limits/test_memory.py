"""A node's memory under any load: it stays below its limit, and the limit is the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from harness.api import CHANNEL_OPTIONS, batch, credentials
from harness.local_cluster import QUICK, LocalCluster
from oncelog import Admin, Producer
from oncelog.v1 import log_pb2, log_pb2_grpc
from oncelog.wire.batch import encode_payload
from tests.integration.conftest import MakeCluster
from tests.integration.limits.hostile import HalfMessages, resident
from tests.integration.waiting import eventually

MIB = 1024 * 1024
LIMIT = 512 * MIB
OFF = 1024 * 1024 * MIB
WATCHED_S = 5.0  # in which, with the limit off, each of these takes several times the limit
TOPIC = "orders"
SMALL = encode_payload([b"value"], [1])


def _log(stack: ExitStack, cluster: LocalCluster) -> log_pb2_grpc.LogServiceStub:
    address, files = cluster.bootstrap, cluster.client_files
    if files:
        channel = grpc.secure_channel(address, credentials(files), options=CHANNEL_OPTIONS)
    else:
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    stack.callback(channel.close)
    return log_pb2_grpc.LogServiceStub(channel)


def _for_ever(request: log_pb2.ProduceRequest) -> Iterator[log_pb2.ProduceRequest]:
    while True:
        yield request


def refused_batches(cluster: LocalCluster, stack: ExitStack) -> None:
    """Streams of batches that are refused at once; nobody reads the answers."""
    bad = batch(TOPIC, 0, 0, 0, SMALL, crc=1)
    request = log_pb2.ProduceRequest(batches=[bad] * 2000)
    for _ in range(4):
        stack.callback(_log(stack, cluster).ProduceStream(_for_ever(request)).cancel)


def good_batches(cluster: LocalCluster, stack: ExitStack) -> None:
    """Streams of small batches, more than a node can append."""
    request = log_pb2.ProduceRequest(batches=[batch(TOPIC, 0, 0, 0, SMALL, codec=0)] * 5000)
    for _ in range(10):
        stack.callback(_log(stack, cluster).ProduceStream(_for_ever(request)).cancel)


def unread_subscriptions(cluster: LocalCluster, stack: ExitStack) -> None:
    log = _log(stack, cluster)
    large = encode_payload([b"x" * MIB], [1])
    for _ in range(8):
        log.Produce(log_pb2.ProduceRequest(batches=[batch(TOPIC, 0, 0, 0, large, codec=0)]))
    wanted = [log_pb2.PartitionFetch(topic=TOPIC, partition=0)]
    for _ in range(100):
        stack.callback(log.Subscribe(log_pb2.SubscribeRequest(partitions=wanted)).cancel)


def half_messages(cluster: LocalCluster, stack: ExitStack) -> None:
    for method in ("ProduceStream", "Produce"):
        path = f"/oncelog.v1.LogService/{method}"
        stack.enter_context(HalfMessages(cluster.bootstrap, path, calls=30, size=60 * MIB))


Hostile = Callable[[LocalCluster, ExitStack], None]
# The first two are bounded for each stream, too (tests/unit/services/test_budget.py).
HOSTILE = [refused_batches, good_batches, unread_subscriptions, half_messages]
SECURED = (unread_subscriptions,)  # over TLS: its buffers are not counted


@contextmanager
def attacked(
    make_cluster: MakeCluster, hostile: Hostile, limit: int
) -> Iterator[tuple[LocalCluster, int]]:
    """A node under attack, and the resident memory that it may have with LIMIT."""
    settings = {**QUICK, "client_memory_bytes": limit}
    cluster = make_cluster(1, settings=settings, secured=hostile in SECURED)
    with Admin(bootstrap_servers=cluster.bootstrap, **cluster.client_files) as admin:
        admin.create_topic(TOPIC, partitions=1, replicas=1)
    with ExitStack() as stack:
        empty = resident(cluster.nodes[1].pid)
        hostile(cluster, stack)
        yield cluster, empty + LIMIT


@pytest.mark.parametrize("hostile", HOSTILE)
def test_memory_stays_below_its_limit(make_cluster: MakeCluster, hostile: Hostile) -> None:
    with attacked(make_cluster, hostile, LIMIT) as (cluster, most):
        pid, peak = cluster.nodes[1].pid, 0
        with Producer(
            bootstrap_servers=cluster.bootstrap, linger_ms=0, **cluster.client_files
        ) as producer:
            until = time.monotonic() + WATCHED_S
            while time.monotonic() < until:
                producer.send(TOPIC, b"others go on", partition=0).result(timeout=30)
                peak = max(peak, resident(pid))
    assert peak <= most, f"{peak // MIB} MiB"


@pytest.mark.parametrize("hostile", [unread_subscriptions, half_messages])
def test_without_the_limit_it_does_not(make_cluster: MakeCluster, hostile: Hostile) -> None:
    with attacked(make_cluster, hostile, OFF) as (cluster, most):
        pid = cluster.nodes[1].pid
        eventually(lambda: resident(pid) > most, f"{most // MIB} MiB are taken", 120)
