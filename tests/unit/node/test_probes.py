"""Probes of a node: their answers, and the bounds of their server."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.config.addresses import ListenError
from cluster.consensus.replication import KEEPS_UP
from cluster.metrics import http
from cluster.metrics.http import MAX_REQUEST_BYTES, MOST, TEXT, PageAnswer, serve_pages
from cluster.node.health.probes import HANGS, Probes
from cluster.node.health.readiness import FAR_BEHIND, SETTLING, Readiness
from cluster.security.certificates import CertificateFiles, Certificates
from cluster.security.contexts import Contexts
from harness.certificates import Authority, dns
from harness.ports import free_ports

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0  # seconds for an answer on a busy machine


def asked(probes: Probes, page: str) -> tuple[int, str]:
    status, body, content = probes.pages[page]("")
    assert content == TEXT
    return status, body


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_loop_that_turns_is_alive_and_one_that_hangs_is_not():
    clock = Clock()
    probes = Probes(clock)
    clock.now += 1000
    resting = (200, "alive: it starts or stops\n")
    assert asked(probes, "/livez") == resting, "a start may take long"
    probes.faults = tuple
    probes.turned()
    clock.now += HANGS
    assert asked(probes, "/livez") == (200, "alive\n")
    assert asked(probes, "/readyz") == (200, "ready\n")
    clock.now += 1
    told = "- its event loop has not turned for 6 seconds (limit 5)\n"
    assert asked(probes, "/livez") == (503, f"not alive:\n{told}")
    assert asked(probes, "/readyz") == (503, f"not ready:\n{told}")
    probes.turned()
    assert asked(probes, "/livez") == (200, "alive\n")


def test_a_node_that_starts_or_stops_is_alive_but_not_ready():
    clock = Clock()
    probes = Probes(clock)
    assert asked(probes, "/readyz") == (503, "not ready:\n- it is starting\n")
    probes.faults = tuple
    probes.turned()
    probes.stop()
    probes.turned()  # the watch of the loop ends later
    clock.now += 1000
    assert asked(probes, "/livez") == (200, "alive: it starts or stops\n")
    assert asked(probes, "/readyz") == (503, "not ready:\n- it is stopping\n")


def replica(
    *, number: int = 1, voter: bool = True, behind: int = 0, leader: int = 1, stopped: bool = False
):
    return SimpleNamespace(
        config=SimpleNamespace(group=number),
        failed=OSError("damage") if stopped else None,
        members=SimpleNamespace(is_voter=voter),
        entries_behind=behind,
        leader_id=leader,
        is_stopped=stopped,
    )


class Node:
    """A node without faults; a test changes one fact."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.server = SimpleNamespace(is_serving=True)
        self.clocks = SimpleNamespace(disagrees=False)
        self.disk = SimpleNamespace(storage_full=False)
        self.sync = SimpleNamespace(hangs=False, under_way=0.0)
        self.replicas = {1: replica(), 2: replica(behind=FAR_BEHIND)}
        self.broken: list[int] = []
        self.readiness = Readiness(
            self.clock, self.server, self.clocks, self.disk, self.sync, self.replicas,
            self.broken,
        )  # fmt: skip
        self.clock.now += SETTLING

    def faults(self) -> list[str]:
        return list(self.readiness.faults())


def test_each_own_fault_is_named_alone():
    node = Node()
    assert node.faults() == []
    node.server.is_serving = False
    assert node.faults() == ["it does not serve clients: it is not registered yet, or hands over"]
    node = Node()
    node.clocks.disagrees = True
    assert node.faults() == ["its wall clock is not the one a majority agrees on: set the clock"]
    node = Node()
    node.disk.storage_full = True
    assert node.faults() == ["its disk is full: make space"]
    node = Node()
    node.sync.hangs, node.sync.under_way = True, 4.2
    assert node.faults() == ["its disk has not finished an fsync for 4 seconds"]
    node = Node()
    node.replicas[0] = replica(number=0, voter=False)  # of the metadata
    node.replicas[1] = replica(stopped=True, voter=False, behind=1000, leader=0)
    told = "stopped after a fault: see `oncelog cluster health`"
    assert node.faults() == [f"1 replica here is {told}"]
    node.broken.append(7)
    assert node.faults() == [f"2 replicas here are {told}"]
    node = Node()
    node.replicas[1] = replica(voter=False)
    assert node.faults() == ["1 replica here is still being filled"]
    node = Node()
    node.replicas[1] = node.replicas[3] = replica(behind=FAR_BEHIND + 1)
    assert node.faults() == ["2 replicas here are more than 64 entries behind the leader"]


def test_a_learner_of_the_metadata_may_lack_what_it_gets_at_once():
    node = Node()
    node.replicas[0] = replica(number=0, voter=False, behind=KEEPS_UP)
    assert node.faults() == []
    late = ["1 replica here is more than 64 entries behind the leader"]
    node.replicas[0] = replica(number=0, voter=False, behind=KEEPS_UP + 1)
    assert node.faults() == late
    node.replicas[0] = replica(number=0, behind=KEEPS_UP)
    assert node.faults() == late, "a voter gets each one at once"


def test_a_missing_leader_counts_only_just_after_the_start():
    waits = ["1 replica here is without a leader since the start"]
    for settles in (True, False):
        node = Node()
        node.clock.now -= 1
        node.replicas[1] = replica(leader=0)
        assert node.faults() == waits
        if settles:
            node.replicas[1] = replica()
            assert node.faults() == []
            node.replicas[1] = replica(leader=0)
        else:
            node.clock.now += 1
        assert node.faults() == [], "its others are down"


def exchanged(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(request)
        answer = b""
        while part := sock.recv(65536):
            answer += part
        return answer


@pytest.fixture
def served():
    """Port of a server with one page, and with one that fails."""
    (port,) = free_ports(1)

    def fails(query: str) -> PageAnswer:
        raise KeyError(query)

    pages = {"/page": lambda query: PageAnswer(HTTPStatus.OK, f"page {query}\n"), "/fails": fails}
    close = serve_pages("health_listen", f"127.0.0.1:{port}", pages)
    yield port
    close()


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /page HTTP/1.1", b"200 OK", b"page \n"),
        (b"GET /page?a=b HTTP/1.0", b"200 OK", b"page a=b\n"),
        (b"HEAD /page HTTP/1.1", b"200 OK", b""),
        (b"GET /healthz HTTP/1.1", b"404 Not Found", b"no such page here, only /page, /fails"),
        (b"POST /page HTTP/1.1", b"405 Method Not Allowed", b"only GET and HEAD"),
        (b"GET /page", b"400 Bad Request", b"no request of HTTP/1"),
        (b"", b"400 Bad Request", b"no request of HTTP/1"),
        (b"GET /fails HTTP/1.1", b"500 Internal Server Error", b"the node's log has the reason"),
    ],
)
def test_requests_and_their_answers(served, request_line, status, body):
    head, _, found = exchanged(served, request_line + b"\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert body in found and bool(body) == bool(found)


def test_a_request_without_end_is_refused_at_its_limit(served):
    answer = exchanged(served, b"GET /page HTTP/1.1\r\n" + b"x" * MAX_REQUEST_BYTES)
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_silent_connections_do_not_keep_a_probe_out(served, monkeypatch):
    monkeypatch.setattr(http, "TIMEOUT", 600.0)  # it ends none of them
    address = ("127.0.0.1", served)
    silent = [socket.create_connection(address, PATIENCE) for _ in range(MOST + 1)]
    assert silent[0].recv(1) == b"", "the oldest had to go"
    assert b" 200 OK" in exchanged(served, b"GET /page HTTP/1.1\r\n\r\n")
    for sock in silent:
        sock.close()


@pytest.mark.parametrize("shakes", [True, False])
def test_silent_connections_do_not_keep_one_out_with_tls(tmp_path, monkeypatch, shakes):
    monkeypatch.setattr(http, "TIMEOUT", 600.0)
    authority = Authority()
    files = authority.issue([dns("node")]).write(tmp_path, "node")
    context = Contexts(Certificates(CertificateFiles("tls", *files, None))).server
    (port,) = free_ports(1)
    pages = {"/page": lambda query: PageAnswer(HTTPStatus.OK, "page\n")}
    close = serve_pages("metrics_listen", f"127.0.0.1:{port}", pages, context)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def opened(secured):
        sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        return trusting.wrap_socket(sock) if secured else sock

    try:
        silent = [opened(shakes) for _ in range(MOST + 1)]
        assert silent[0].recv(1) == b"", "the oldest had to go"
        asked = opened(True)
        asked.sendall(b"GET /page HTTP/1.1\r\n\r\n")
        assert asked.recv(100).startswith(b"HTTP/1.1 200 OK")
        for sock in (*silent, asked):
            sock.close()
    finally:
        close()


def test_a_port_in_use_is_named():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(ListenError, match=f"health_listen: {address} cannot be used"):
            serve_pages("health_listen", address, {})


def checked(address: str) -> subprocess.CompletedProcess[str]:
    """Runs the containers' health check as they do."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "cluster/health_check.py")],
        env={**os.environ, "ONCELOG_HEALTH_LISTEN": address},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_the_containers_check_follows_readyz():
    (port,) = free_ports(1)
    probes = Probes(Clock())
    close = serve_pages("health_listen", f"127.0.0.1:{port}", probes.pages)
    try:
        done = checked(f"0.0.0.0:{port}")
        assert (done.returncode, done.stdout) == (1, "not ready:\n- it is starting\n")
        probes.faults = tuple
        done = checked(f"127.0.0.1:{port}")
        assert (done.returncode, done.stdout) == (0, "ready\n")
    finally:
        close()
    assert checked(f"127.0.0.1:{port}").returncode == 1
    done = checked("")
    assert done.returncode == 1 and "ONCELOG_HEALTH_LISTEN: '' must be host:port" in done.stdout
