"""A secured cluster that enforces permissions: the rights of each principal, and the audit log."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from harness.api import Api, batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, PermissionRule, Producer, Quota
from oncelog.certificates import make_client
from oncelog.errors import (
    DeliveryError,
    NotAuthorizedError,
    ProducerFatalError,
    UnauthenticatedError,
)
from oncelog.v1.producer_pb2 import LeaseProducerRequest
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

ROOT = "dns:tester"  # the client of a secured cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("permissions")
    tokens = root / "tokens"
    tokens.write_text("")
    settings = {
        **STEADY, "permissions": "true", "superusers": ROOT, "tokens_file": str(tokens),
        "audit_file": str(root / "audit"),
    }  # fmt: skip
    with LocalCluster(root, settings=settings, secured=True) as made:
        with Admin(bootstrap_servers=made.bootstrap, **made.client_files) as admin:
            admin.create_topic("orders", partitions=1, replicas=3)
            admin.create_topic("secret", partitions=1, replicas=3)
        yield made


@pytest.fixture
def root(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap, **cluster.client_files) as admin:
        yield admin


def files_of(cluster: LocalCluster, name: str) -> dict[str, Any]:
    """Files of a client with a certificate of its own."""
    authority = Path(cluster.client_files["tls_ca_file"]).parent.parent
    make_client(authority, name, days=1)
    own = authority / f"client-{name}"
    return {
        "tls_ca_file": str(own / "ca.crt"), "tls_cert_file": str(own / "client.crt"),
        "tls_key_file": str(own / "client.key"),
    }  # fmt: skip


def allow(principal: str, operations: str, kind: str, name: str, **more: bool) -> PermissionRule:
    return PermissionRule(principal, tuple(operations.split(",")), kind, name, **more)


def wait_for(cluster: LocalCluster, files: dict[str, Any], *need: str) -> None:
    """Waits until every node has the rule: asks each for the caller's own permission."""
    for address in cluster.addresses.values():
        with Admin(bootstrap_servers=address, **files) as one:
            eventually(partial(one.check_permission, *need), f"{need} at {address}")


def test_what_no_rule_allows_is_denied_and_named(cluster: LocalCluster, root: Admin) -> None:
    files = files_of(cluster, "newcomer")
    with Admin(bootstrap_servers=cluster.bootstrap, **files) as admin:
        assert admin.list_topics() == []
        for name in ("orders", "nowhere"):
            with pytest.raises(NotAuthorizedError) as raised:
                admin.describe_topic(name)
            error = raised.value
            assert (error.principal, error.operation, error.kind, error.name) == (
                "dns:newcomer", "describe", "topic", name,
            )  # fmt: skip
        with pytest.raises(NotAuthorizedError, match="create on topic 'mine'"):
            admin.create_topic("mine")
        with pytest.raises(NotAuthorizedError, match="alter on cluster"):
            admin.alter_permissions(add=[allow("dns:newcomer", "*", "topic", "*")])
    assert root.list_topics() == ["orders", "secret"]
    assert root.list_permissions().caller == ROOT


def test_a_writer_writes_and_a_reader_reads(cluster: LocalCluster, root: Admin) -> None:
    writer, reader = files_of(cluster, "writer"), files_of(cluster, "reader")
    root.alter_permissions(
        add=[
            allow("dns:writer", "write", "topic", "ord", prefix=True),
            allow("dns:writer", "write", "producer", "w1"),
            allow("dns:reader", "read", "topic", "orders"),
            allow("dns:reader", "read,describe", "group", "g"),
        ]
    )
    wait_for(cluster, writer, "write", "producer", "w1")
    wait_for(cluster, reader, "read", "group", "g")
    with Producer(
        bootstrap_servers=cluster.bootstrap, producer_name="w1", linger_ms=0, **writer
    ) as producer:
        for number in range(200):
            producer.send("orders", str(number).encode())
        producer.flush(timeout_ms=30_000)
    # A name goes on where it was; a name of another principal does not.
    with Producer(
        bootstrap_servers=cluster.bootstrap, producer_name="w1", linger_ms=0, **writer
    ) as producer:
        producer.send("orders", b"200").result(30)
    with Producer(bootstrap_servers=cluster.bootstrap, producer_name="w2", **writer) as producer:
        with pytest.raises((ProducerFatalError, NotAuthorizedError, DeliveryError)):
            producer.send("orders", b"x").result(30)
    with Consumer(
        "orders", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest",
        group_id="g", consumer_timeout_ms=60_000, **reader,
    ) as consumer:  # fmt: skip
        read = [record.value for record in islice(consumer, 201)]
        assert read == [str(n).encode() for n in range(201)]
        assert consumer.lag(("orders", 0)) == 0
        consumer.commit()
    with Producer(
        bootstrap_servers=cluster.bootstrap, delivery_timeout_ms=20_000, **reader
    ) as producer:
        with pytest.raises((ProducerFatalError, NotAuthorizedError, DeliveryError), match="write"):
            producer.send("orders", b"x").result(30)
    with Admin(bootstrap_servers=cluster.bootstrap, **writer) as admin:
        with pytest.raises(NotAuthorizedError, match="fence on producer 'w1'"):
            admin.fence_producer("w1")


def send_for_ever(producer: Producer) -> None:
    for _ in range(10_000):
        producer.send("orders", b"y").result(30)


def test_a_right_that_is_taken_away_ends_a_producer(cluster: LocalCluster, root: Admin) -> None:
    files = files_of(cluster, "former")
    rule = allow("dns:former", "write", "topic", "orders")
    root.alter_permissions(add=[rule])
    wait_for(cluster, files, "write", "topic", "orders")
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, **files) as producer:
        producer.send("orders", b"x").result(30)
        root.alter_permissions(remove=[rule])
        with pytest.raises((ProducerFatalError, DeliveryError), match="write on topic 'orders'"):
            send_for_ever(producer)


def test_the_command_line_manages_rules_and_tokens(cluster: LocalCluster) -> None:
    environment = {
        f"ONCELOG_CLIENT_{name.upper()}": path for name, path in cluster.client_files.items()
    }

    def run(*words: str, command: str = "acl") -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "oncelog.cli", command, *words], text=True, check=False,
            capture_output=True, env=environment,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    at = ("-b", cluster.bootstrap)
    given = ("token:billing", "streams=5", "in_bytes_per_s=0")
    assert run("set", *given, *at, command="quota") == (0, "set\n")
    code, shown = run("list", *at, command="quota")
    assert code == 0 and re.search(r"token:billing +in_bytes_per_s +no limit\n", shown)
    assert run("set", "x", "streams=five", *at, command="quota")[0] == 2
    assert "name: 'bytes' must be one of" in run("set", "x", "bytes=5", *at, command="quota")[1]
    assert run("remove", "token:billing", "streams", *at, command="quota") == (0, "removed\n")
    assert "streams" not in run("list", *at, command="quota")[1]
    assert run("add", "token:billing", "read", "topic", "ord", "--prefix", *at) == (0, "added\n")
    assert (
        run("add", "token:billing", "read", "topic", "ord", "--prefix", *at)[1] == "it was there\n"
    )
    code, shown = run("list", *at)
    assert code == 0 and re.search(r"allow.*token:billing.*read.*topic.*ord\.\.\.", shown)
    assert "enforced: yes; you are dns:tester" in shown
    assert run("add", "x", "reed", "topic", "t", *at)[0] == 1
    assert run("check", "write", "topic", "orders", "--principal", "token:billing", *at)[0] == 1
    # The token's two lines go to its owner and to the nodes; nodes accept it at once.
    secret, line = run("token", "billing")[1].splitlines()
    tokens = cluster.root / "tokens"
    tokens.write_text(line + "\n")
    token = cluster.root / "billing.token"
    token.write_text(secret)
    files = cluster.client_files
    with Admin(bootstrap_servers=cluster.bootstrap, **files, token_file=str(token)) as admin:
        assert admin.list_topics() == ["orders"]
        assert admin.check_permission("read", "topic", "orders")
        assert not admin.check_permission("write", "topic", "orders")
    token.write_text(secret[:-1])
    with Admin(bootstrap_servers=cluster.bootstrap, **files, token_file=str(token)) as admin:
        with pytest.raises(UnauthenticatedError, match="the token is not known"):
            admin.list_topics()
    assert run("remove", "token:billing", "read", "topic", "ord", "--prefix", *at)[1] == "removed\n"


def test_quotas_hold_at_the_nodes(cluster: LocalCluster, root: Admin) -> None:
    """Producer ids in a partition, bytes that are staged: shown without the quota first."""
    files = files_of(cluster, "busy")
    root.create_topic("busy", partitions=1, replicas=1)
    root.alter_permissions(
        add=[
            allow("dns:busy", "write", "topic", "busy"), allow("dns:busy", "*", "producer", "*")
        ]
    )  # fmt: skip
    wait_for(cluster, files, "write", "topic", "busy")
    wait_for(cluster, files, "write", "producer", "*")
    leader = cluster.addresses[cluster.leader("busy", 0)]
    with Api(leader, files=files) as api:

        def first_batch() -> str:
            lease = api.producers.LeaseProducer(LeaseProducerRequest(), timeout=10)
            first = batch("busy", 0, lease.producer_id, 0, b"x")
            first.lease_token = lease.lease_token
            return verdict(api.produce(first)[0])

        assert [first_batch() for _ in range(3)] == ["APPENDED"] * 3
        root.alter_quotas([Quota("dns:busy", "producer_ids", 4)])
        with Admin(bootstrap_servers=leader, **cluster.client_files) as at_leader:
            eventually(lambda: bool(at_leader.list_quotas("dns:busy")), "the leader knows it")
        found = [first_batch() for _ in range(6)]
        assert found == ["APPENDED"] * 4 + ["THROTTLED"] * 2, "counted since there is a quota"
        root.alter_quotas(remove=[("dns:busy", "")])
        eventually(lambda: first_batch() == "APPENDED", "the quota is gone")


def noted(cluster: LocalCluster) -> set[tuple[str, tuple[str, ...], str]]:
    lines = map(json.loads, (cluster.root / "audit").read_text().splitlines())
    return {(one["principal"], tuple(one["needs"]), one["result"]) for one in lines}


def test_the_audit_log_names_who_did_what(cluster: LocalCluster, root: Admin) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap, **files_of(cluster, "curious")) as admin:
        with pytest.raises(NotAuthorizedError):
            admin.delete_topic("secret")
    root.create_topic("noted", partitions=1, replicas=1)
    wanted = {
        ("dns:curious", ("delete on topic 'secret'",), "NOT_AUTHORIZED"),
        (ROOT, ("create on topic 'noted'",), "ok"),
    }
    # A node does not wait for its audit log.
    eventually(lambda: wanted <= noted(cluster), "both calls are noted")
    text = (cluster.root / "audit").read_text()
    assert "BEGIN" not in text and "oncelog.billing" not in text


def test_tokens_alone_are_enough_and_are_needed(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """Without a CA for clients: TLS identifies the node, tokens identify the caller."""
    secret = "oncelog.solo.c2VjcmV0"
    digest = hashlib.scrypt(b"c2VjcmV0", salt=b"s" * 16, n=4096, r=8, p=1, dklen=32)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"solo scrypt:4096:8:1:{(b's' * 16).hex()}:{digest.hex()}\n")
    cluster = make_cluster(
        1, start=False, secured=True,
        settings={**STEADY, "tls_ca": "", "tokens_file": str(tokens)},
    )  # fmt: skip
    cluster._layout.make_certificates()
    cluster.start_nodes([1], wait=False)
    cluster.wait_serving([1])
    ca = cluster.client_files["tls_ca_file"]
    with Admin(bootstrap_servers=cluster.bootstrap, tls_ca_file=ca) as nobody:
        with pytest.raises(UnauthenticatedError, match="is needed"):
            nobody.list_topics()
    with Admin(bootstrap_servers=cluster.bootstrap, tls_ca_file=ca, token=secret) as admin:
        admin.create_topic("t", partitions=1, replicas=1)
        assert admin.list_permissions().caller == "token:solo"
    with Producer(bootstrap_servers=cluster.bootstrap, tls_ca_file=ca, token=secret) as producer:
        producer.send("t", b"x").result(30)
