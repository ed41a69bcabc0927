"""Limits of the machine as faults: nobody without a password may end a node.

Each node is a process under a small limit of the shell's; each attack is run against a node
without the protection as well, and bites there.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from harness.local_cluster import QUICK, LocalCluster
from harness.node_process import NodeProcess
from harness.ports import LOOPBACK
from oncelog import Admin, Producer, RecordMetadata
from oncelog.errors import OncelogError, UndeliveredRecordsError
from tests.integration.conftest import MakeCluster
from tests.integration.limits.hostile import HalfMessages

FILES = 512
FLOOD = 600  # connections to each port
MIB = 1024 * 1024
LITTLE_KIB = 900 * 1024  # an empty node has a quarter of it
NEXT_SEGMENT = 70  # batches of 1 MiB, which the commit log needs a new file for


def within(node: NodeProcess, script: str) -> None:
    """Has a shell start the node: `exec "$@"` is the node's command."""
    node.spec = dataclasses.replace(node.spec, within=("sh", "-c", script, "sh"))


def limited(make_cluster: MakeCluster, limits: str, *, protected: bool = True) -> LocalCluster:
    """A node started by a shell that runs `ulimit LIMITS` first."""
    cluster = make_cluster(1, start=False, metrics=True, settings=QUICK)
    node = cluster.nodes[1]
    within(node, f'ulimit {limits}; exec "$@"')
    if not protected:
        node.spec = dataclasses.replace(node.spec, module="tests.integration.limits.unprotected")
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
        stack.enter_context(Admin(bootstrap_servers=cluster.bootstrap)).create_topic(
            "t", partitions=1, replicas=1
        )
        producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0)
        stack.callback(producer.close, timeout_ms=0)
        producer.send("t", b"first", partition=0).result(timeout=30)
        for address in (cluster.metrics_addresses[1], cluster.addresses[1]):
            connected(stack, address, FLOOD)
        yield [producer.send("t", bytes(MIB), partition=0) for _ in range(NEXT_SEGMENT)]


def test_connections_leave_the_store_its_descriptors(make_cluster: MakeCluster) -> None:
    cluster = limited(make_cluster, f"-n {FILES}")
    with flooded(cluster) as sent:
        for future in sent:
            future.result(timeout=30)
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as other:  # there is room again
        other.send("t", b"last", partition=0).result(timeout=30)


def test_without_shares_connections_end_the_node(make_cluster: MakeCluster) -> None:
    cluster = limited(make_cluster, f"-n {FILES}", protected=False)
    with pytest.raises(UndeliveredRecordsError), flooded(cluster):
        assert cluster.nodes[1].wait() == 1


def test_a_full_pipe_behind_stderr_holds_up_nobody(make_cluster: MakeCluster) -> None:
    """A node that waits for the reader of its log answers nobody, and does not end."""
    cluster = make_cluster(1, start=False, settings={**QUICK, "log_level": "debug"})
    node = cluster.nodes[1]
    node.spec.log_file.parent.mkdir()
    os.mkfifo(node.spec.log_file)
    reader = os.open(node.spec.log_file, os.O_RDWR | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(reader, bytes(4096))
        node.start()
        node.spec.log_file.unlink()  # the node has it open; a failed test must not wait for it
        with (
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
            Producer(bootstrap_servers=cluster.bootstrap) as producer,
        ):
            admin.create_topic("t", partitions=1, replicas=1)
            producer.send("t", b"stored", partition=0).result(timeout=30)
        assert node.terminate() == 0
    finally:
        os.close(reader)


def test_standard_descriptors_that_are_missing_are_no_files_of_the_store(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, start=False)
    node = cluster.nodes[1]
    within(node, 'exec "$@" <&- >&- 2>&-')
    cluster.start()
    for number in range(3):
        assert os.readlink(f"/proc/{node.pid}/fd/{number}") == os.devnull
    assert node.terminate() == 0


SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_a_node_that_reads_its_settings(
    make_cluster: MakeCluster, number: signal.Signals, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    os.mkfifo(settings)
    node = make_cluster(1, start=False, settings={"config": str(settings)}).nodes[1]
    node.start()
    with settings.open("w"):  # blocks until the node reads it
        node.signal(number)
        assert node.wait() == 0
    assert node.log_text() == ""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_a_node_that_waits_for_its_cluster(
    make_cluster: MakeCluster, number: signal.Signals
) -> None:
    with socket.create_server((LOOPBACK, 0)) as peer:
        peer.settimeout(30)
        settings = {"join": f"{LOOPBACK}:{peer.getsockname()[1] - 1}", "peer_port_offset": 1}
        node = make_cluster(1, start=False, settings=settings).nodes[1]
        node.start()
        peer.accept()  # it asks to join
        node.signal(number)
        assert node.wait() == 0
    assert "Traceback" not in node.log_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_node_that_runs(make_cluster: MakeCluster, number: signal.Signals) -> None:
    node = make_cluster(1).nodes[1]
    node.signal(number)
    assert node.wait() == 0
    assert "node stopped" in node.log_text()


def test_a_node_under_nohup_goes_on(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, start=False)
    node = cluster.nodes[1]
    within(node, 'trap "" HUP; exec "$@"')
    cluster.start()
    node.signal(signal.SIGHUP)
    cluster.api(1).create_topic("t")
    assert node.terminate() == 0


@pytest.mark.parametrize("protected", [True, False])
def test_a_node_whose_system_has_no_thread_left(
    make_cluster: MakeCluster, tmp_path: Path, protected: bool
) -> None:
    """Threads that the node needs, such as the one that draws plans, exist already."""
    settings: dict[str, str | int] = {**QUICK, "test_threadless": str(tmp_path / "none")}
    if not protected:
        settings["test_unprotected"] = 1
    cluster = make_cluster(1, start=False, settings=settings)
    node = cluster.nodes[1]
    node.spec = dataclasses.replace(node.spec, module="tests.integration.limits.threadless")
    cluster.start()
    cluster.api(1).create_topic("t", 1)
    (tmp_path / "none").touch()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        if protected:
            assert admin.plan_balance().settled
        else:
            with pytest.raises(OncelogError, match="BalanceCluster failed"):
                admin.plan_balance()


@pytest.mark.parametrize("protected", [True, False])
def test_a_node_with_little_memory(make_cluster: MakeCluster, protected: bool) -> None:
    """By default clients may make it use half of the memory, and no more than 1 GiB."""
    cluster = make_cluster(1, start=False, settings=dict(QUICK))
    node = cluster.nodes[1]
    within(node, f'ulimit -d {LITTLE_KIB}; exec "$@"')
    if not protected:
        settings = {**QUICK, "client_memory_bytes": 1024 * MIB}  # the default elsewhere
        node.spec = dataclasses.replace(node.spec, settings=settings)
    cluster.start()
    cluster.api(1).create_topic("t", 1)
    path, size = "/oncelog.v1.LogService/Produce", 60 * MIB
    with HalfMessages(cluster.bootstrap, path, calls=60, size=size) as attack:
        if protected:
            assert attack.lost.wait(60), "the node ends the connection"
        else:
            assert node.wait() != 0
            return
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as other:
        other.send("t", b"others go on", partition=0).result(timeout=30)
