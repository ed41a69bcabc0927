"""A connection that takes longer to be made than a client waits between two calls."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from harness.local_cluster import LocalCluster
from oncelog import Admin

DELAY = 1.3  # seconds; above retry_backoff_max_ms, below an attempt's limit of 2 s


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass  # the other direction has closed them
    finally:
        source.close()
        sink.close()


@contextmanager
def slow(address: str) -> Iterator[str]:
    """Forwards to the node, each connection only after the delay; gives its own address."""
    host, _, port = address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def forward(taken: socket.socket) -> None:
        sleep(DELAY)  # the fault
        node = socket.create_connection((host, int(port)))
        threading.Thread(target=_pump, args=(node, taken), daemon=True).start()
        _pump(taken, node)

    def accept() -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=forward, args=(taken,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_slow_connection_is_not_given_up_each_time(cluster: LocalCluster, topic: str) -> None:
    """Over a long line, with TLS, the first answer takes several times its latency."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    with (
        slow(cluster.addresses[1]) as address,
        Admin(bootstrap_servers=address, request_timeout_ms=10_000) as admin,
    ):
        assert admin.describe_topic(topic).partition_count == 1
