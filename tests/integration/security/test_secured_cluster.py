"""A cluster with TLS on all ports: it works as others do, and lets nobody else in.

The certificates are those of `oncelog certs`; a stranger's are made by hand.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import pytest

from harness.api import Api, as_call, batch, verdict
from harness.certificates import Authority, Pair, dns, replace
from harness.local_cluster import LocalCluster
from harness.ports import above
from oncelog import Admin, Producer
from oncelog.certificates import make_authorities, make_client, make_node
from oncelog.errors import BrokerUnavailableError
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.records import read_all
from tests.integration.waiting import TIMEOUT, eventually


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("secured")
    with LocalCluster(root, settings=STEADY, metrics=True, secured=True) as made:
        yield made


def refused(address: str, files: Mapping[str, str], wait: float = 1.0) -> bool:
    """True if the node does not even speak with a client that has these files."""
    with Api(address, files=files) as api:
        try:
            grpc.channel_ready_future(api.channel).result(timeout=wait)
        except grpc.FutureTimeoutError:
            return True
    return False


def files_of(directory: Path, name: str, pair: Pair, ca: Path) -> dict[str, str]:
    certificate, key = pair.write(directory, name)
    return {
        "tls_ca_file": str(ca), "tls_cert_file": str(certificate), "tls_key_file": str(key),
    }  # fmt: skip


def test_records_are_kept_once_through_a_leaders_death(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(secured=True)
    files = cluster.client_files
    with Admin(bootstrap_servers=cluster.bootstrap, **files) as admin:
        admin.create_topic("t", partitions=3, replicas=3)
    sent = [f"record {number}".encode() for number in range(3000)]
    with Producer(
        bootstrap_servers=cluster.bootstrap, linger_ms=1, batch_size=2000, **files
    ) as producer:
        for place, value in enumerate(sent):
            producer.send("t", value, partition=place % 3)
            if place == 1500:
                cluster.kill([cluster.leader("t", 0)])
        producer.flush(timeout_ms=60_000)
        down = next(node for node, process in cluster.nodes.items() if not process.running)
        cluster.start_nodes([down])
    assert sorted(record.value or b"" for record in read_all(cluster, "t", **files)) == sorted(sent)
    cluster.wait_level("t")


def test_who_has_no_certificate_of_the_clients_authority_is_refused(
    secured: LocalCluster, tmp_path: Path
) -> None:
    address = secured.addresses[1]
    good = secured.client_files
    ca = Path(good["tls_ca_file"])
    assert not refused(address, good, wait=TIMEOUT)
    assert refused(address, {}), "in the clear"
    assert refused(address, {"tls_ca_file": str(ca)}), "no certificate"
    foreign = Authority().issue([dns("tester")])
    assert refused(address, files_of(tmp_path, "foreign", foreign, ca))
    with pytest.raises(BrokerUnavailableError):
        with Admin(bootstrap_servers=secured.bootstrap, request_timeout_ms=1000) as admin:
            admin.describe_cluster()
    # The nodes do not speak with a node of another cluster either.
    (tmp_path / "other.crt").write_bytes(Authority().certificate)
    assert refused(address, {**good, "tls_ca_file": str(tmp_path / "other.crt")})


def test_a_node_of_the_peers_authority_is_no_client_and_the_other_way_round(
    secured: LocalCluster,
) -> None:
    certificates = Path(secured.client_files["tls_ca_file"]).parent.parent
    peer = certificates / "node-2"
    as_client = {
        "tls_ca_file": secured.client_files["tls_ca_file"],
        "tls_cert_file": str(peer / "peer.crt"),
        "tls_key_file": str(peer / "peer.key"),
    }
    assert refused(secured.addresses[1], as_client)
    host, _, port = above(secured.addresses[1]).rpartition(":")
    for certificate, key, comes_in in (
        (secured.client_files["tls_cert_file"], secured.client_files["tls_key_file"], False),
        (str(peer / "tls.crt"), str(peer / "tls.key"), False),
        (str(peer / "peer.crt"), str(peer / "peer.key"), True),
    ):
        context = ssl.create_default_context(cafile=str(peer / "peer-ca.crt"))
        context.check_hostname = False
        context.load_cert_chain(certificate, key)
        # With TLS 1.3 the client's side is done first: only its first read shows a refusal.
        with socket.create_connection((host, int(port))) as plain:
            with context.wrap_socket(plain) as sock:
                sock.settimeout(1.0)
                try:
                    ended = sock.recv(1) == b""
                except TimeoutError:
                    ended = False  # it waits for a Hello
                except OSError:
                    ended = True
        assert ended != comes_in, certificate


def test_certificates_and_authorities_change_while_streams_run(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, secured=True)
    files = cluster.client_files
    certs = Path(files["tls_ca_file"]).parent.parent
    with Api(cluster.addresses[1], cluster.tokens, files) as before:
        before.create_topic("t")
        lease = before.lease()
        assert verdict(before.produce(batch("t", 0, lease.producer_id, 0, b"1"))[0]) == "APPENDED"
        new = certs.parent / "new"
        make_authorities(new, days=1)
        made = [*make_node(new, 1, "oncelog", ["127.0.0.1"], 1), *make_client(new, "tester", 1)[1]]
        node = certs / "node-1"
        for path in made:
            if path.parent.name == "node-1" and path.name.startswith("tls"):
                replace(node / path.name, path.read_bytes())
        # The old client is trusted no longer; its open calls go on.
        assert refused(cluster.addresses[1], files)
        assert verdict(before.produce(batch("t", 0, lease.producer_id, 1, b"2"))[0]) == "APPENDED"
    own = new / "client-tester"
    renewed = {
        "tls_ca_file": str(own / "ca.crt"), "tls_cert_file": str(own / "client.crt"),
        "tls_key_file": str(own / "client.key"),
    }  # fmt: skip
    assert not refused(cluster.addresses[1], renewed)
    cluster.kill([1])


def test_a_clients_files_may_change_while_it_runs(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog._engine.net.channels.FILES_LOOK_S", 0.0)
    cluster = make_cluster(1, secured=True)
    files = cluster.client_files
    certs = Path(files["tls_ca_file"]).parent.parent
    with Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=5000, **files) as admin:
        admin.create_topic("t", partitions=1, replicas=1)
        new = certs.parent / "new"
        make_authorities(new, days=1)
        for path in make_node(new, 1, "oncelog", ["127.0.0.1"], 1):
            if path.name.startswith("tls"):
                replace(certs / "node-1" / path.name, path.read_bytes())
        for path in make_client(new, "tester", 1)[1]:
            replace(certs / "client-tester" / path.name, path.read_bytes())
        cluster.kill([1])
        cluster.start_nodes([1], wait=False)
        cluster.wait_serving([1])
        assert admin.list_topics() == ["t"]


def test_old_connections_end(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, secured=True, settings={**STEADY, "connection_age_ms": 1000})
    with Api(cluster.addresses[1], files=cluster.client_files) as api:
        api.describe()
        certs = Path(cluster.client_files["tls_ca_file"]).parent.parent
        replace(certs / "node-1" / "tls-ca.crt", Authority().certificate)

        def is_refused() -> bool:
            try:
                api.describe()
            except grpc.RpcError as error:
                return as_call(error).code() == grpc.StatusCode.UNAVAILABLE
            return False

        eventually(is_refused, "the connection that was trusted ends")


def test_the_metrics_page_is_for_clients_only(secured: LocalCluster) -> None:
    url = f"https://{secured.metrics_addresses[1]}/metrics"
    files = secured.client_files
    context = ssl.create_default_context(cafile=files["tls_ca_file"])
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(url, timeout=5, context=context).read()
    context.load_cert_chain(files["tls_cert_file"], files["tls_key_file"])
    host, _, port = secured.metrics_addresses[1].rpartition(":")
    with socket.create_connection((host, int(port))):  # says nothing
        with urllib.request.urlopen(url, timeout=5, context=context) as page:
            assert b"oncelog_elections_total" in page.read()


def test_the_command_line_takes_files_as_flags_and_from_the_environment(
    secured: LocalCluster,
) -> None:
    command = [sys.executable, "-m", "oncelog.cli", "cluster", "health", "-b", secured.bootstrap]
    bare = subprocess.run(
        [*command, "--request-timeout-ms", "1000"], capture_output=True, check=False
    )
    assert bare.returncode == 1
    flags = [f"--{name.replace('_', '-')}={path}" for name, path in secured.client_files.items()]
    assert subprocess.run([*command, *flags], capture_output=True, check=False).returncode == 0
    environment = {
        f"ONCELOG_CLIENT_{name.upper()}": path for name, path in secured.client_files.items()
    }
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
