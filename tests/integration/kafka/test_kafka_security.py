"""Kafka's own clients against nodes with TLS, SASL, permissions and quotas."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import jwt
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from cluster.kafka.login import OVER
from harness.local_cluster import LocalCluster
from oncelog import Admin, PermissionRule, Quota
from oncelog.certificates import make_client
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.kafka.kafka_rig import create, done, idempotent, read_with, send, servers
from tests.integration.waiting import TIMEOUT, eventually

ROOT = "dns:tester"
KEY = ec.generate_private_key(ec.SECP256R1())
STATIC = "oncelog.billing.secret"
MINUTE = 60.0
NO_CONNECTION = (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def settings_of(root: Path) -> dict[str, str | int]:
    """Settings of nodes that take tokens of both kinds, and enforce permissions."""
    digest = hashlib.scrypt(b"secret", salt=b"s" * 16, n=4096, r=8, p=1, dklen=32).hex()
    (root / "tokens").write_text(f"billing scrypt:4096:8:1:{(b's' * 16).hex()}:{digest}\n")
    public = jwt.get_algorithm_by_name("ES256").to_jwk(KEY.public_key(), as_dict=True)
    (root / "keys").write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))
    return {
        **STEADY, "permissions": "true", "superusers": ROOT, "audit_file": str(root / "audit"),
        "tokens_file": str(root / "tokens"), "jwt_keys": str(root / "keys"),
        "jwt_issuer": "i", "jwt_audience": "a",
    }  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Clients need a certificate; a token counts in its place."""
    root = tmp_path_factory.mktemp("secured")
    with LocalCluster(root, settings=settings_of(root), kafka=True, secured=True) as made:
        yield made


@pytest.fixture(scope="module")
def root(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap, **cluster.client_files) as admin:
        yield admin


def token(subject: str, seconds: float = 10 * MINUTE) -> tuple[str, float]:
    """A token of the provider, and when it ends."""
    ends = int(time.time() + seconds)
    claims = {"iss": "i", "aud": "a", "sub": subject, "exp": ends}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "k"}), ends


def by_certificate(cluster: LocalCluster, name: str = "") -> dict[str, Any]:
    """librdkafka's settings of a client with a certificate. name: "" is the administrator."""
    files = cluster.client_files
    if name:
        authority = Path(files["tls_ca_file"]).parent.parent
        own = authority / f"client-{name}"
        if not own.exists():
            make_client(authority, name, days=1)
        files = {"tls_ca_file": own / "ca.crt", "tls_cert_file": own / "client.crt",
                 "tls_key_file": own / "client.key"}  # fmt: skip
    return {
        "bootstrap.servers": servers(cluster), "security.protocol": "SSL",
        "ssl.ca.location": str(files["tls_ca_file"]),
        "ssl.certificate.location": str(files["tls_cert_file"]),
        "ssl.key.location": str(files["tls_key_file"]),
    }  # fmt: skip


def by_plain(cluster: LocalCluster, password: str = STATIC) -> dict[str, Any]:
    return {
        **by_certificate(cluster, "anybody"), "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN", "sasl.username": "token", "sasl.password": password,
    }  # fmt: skip


def by_oauth(cluster: LocalCluster, subject: str, seconds: float = 10 * MINUTE) -> dict[str, Any]:
    return {
        **by_certificate(cluster, "anybody"), "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": lambda _: token(subject, seconds),
    }  # fmt: skip


def allow(root: Admin, principal: str, operations: str, kind: str, name: str) -> PermissionRule:
    rule = PermissionRule(principal, tuple(operations.split(",")), kind, name)
    root.alter_permissions(add=[rule])
    return rule


def first_error(settings: Mapping[str, Any]) -> KafkaError:
    """The first error that a client reports about its connection."""
    found: list[KafkaError] = []
    client = AdminClient({**settings, "error_cb": found.append})
    eventually(lambda: client.poll(0.1) is not None and bool(found), "the client is told")
    return found[0]


@pytest.mark.parametrize("who", ["certificate", "plain", "oauth"])
def test_each_proof_writes_and_reads(
    cluster: LocalCluster, root: Admin, topic: str, who: str
) -> None:
    name = topic.replace("[", "-").replace("]", "")
    settings, principal = {
        "certificate": (by_certificate(cluster, "shop"), "dns:shop"),
        "plain": (by_plain(cluster), "token:billing"),
        "oauth": (by_oauth(cluster, "etl"), "jwt:etl"),
    }[who]
    create(AdminClient(by_certificate(cluster)), name, partitions=2)
    allow(root, principal, "read,write", "topic", name)
    allow(root, principal, "read", "group", "readers")
    values = [b"%d" % number for number in range(200)]
    producer = idempotent({**settings, "linger.ms": 5})
    eventually(partial(is_shown, settings, name), "all nodes know the rules")
    for partition in range(2):
        assert send(producer, name, values, partition) == list(range(200))
        found = read_with(settings, name, partition, 200)
        assert [one.value() for one in found] == values


def is_shown(settings: Mapping[str, Any], topic: str) -> bool:
    """Whether each node shows the topic to the client."""
    config = {key: value for key, value in settings.items() if key != "bootstrap.servers"}
    for address in settings["bootstrap.servers"].split(","):
        client = AdminClient({**config, "bootstrap.servers": address})
        if topic not in client.list_topics(timeout=TIMEOUT).topics:
            return False
    return True


WRONG = {
    "a wrong token": (lambda c: by_plain(c, STATIC + "x"), "the token is not known"),
    "another user": (lambda c: {**by_plain(c), "sasl.username": "alice"}, "the user must be"),
    "a token that is over": (lambda c: by_oauth(c, "late", -MINUTE), "expired"),
    "another mechanism": (
        lambda c: {**by_plain(c), "sasl.mechanisms": "SCRAM-SHA-256"}, "OAUTHBEARER,PLAIN",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_proof_is_told(cluster: LocalCluster, what: str) -> None:
    settings, text = WRONG[what]
    if "over" in what:
        # librdkafka itself sends no token that is over: another client does.
        late = python_oauth(cluster, token("late", -MINUTE)[0])
        with pytest.raises(kafka.errors.KafkaError):
            kafka.KafkaAdminClient(**late, bootstrap_timeout_ms=2000)
        wanted = "UNAUTHENTICATED"
        lines = cluster.root / "audit"
        eventually(lambda: wanted in lines.read_text(), "the refusal is noted")
        return
    error = first_error(settings(cluster))
    assert error.code() == KafkaError._AUTHENTICATION and text in error.str()


def python_oauth(cluster: LocalCluster, value: str) -> dict[str, Any]:
    """kafka-python's settings of a client with a token."""
    files = by_certificate(cluster, "anybody")

    class Provider(PythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return value

    return {
        "bootstrap_servers": servers(cluster).split(","), "security_protocol": "SASL_SSL",
        "ssl_cafile": files["ssl.ca.location"], "ssl_certfile": files["ssl.certificate.location"],
        "ssl_keyfile": files["ssl.key.location"], "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }  # fmt: skip


def test_kafka_python_and_aiokafka_log_in(cluster: LocalCluster, root: Admin, topic: str) -> None:
    create(AdminClient(by_certificate(cluster)), topic)
    allow(root, "jwt:py", "read,write", "topic", topic)
    allow(root, "token:billing", "read,write", "topic", topic)
    for settings in (by_plain(cluster), by_oauth(cluster, "py")):
        eventually(partial(is_shown, settings, topic), "all nodes know the rule")
    producer = kafka.KafkaProducer(**python_oauth(cluster, token("py")[0]))
    assert producer.send(topic, b"1", partition=0).get(TIMEOUT).offset == 0
    producer.close()


async def test_aiokafka_logs_in(cluster: LocalCluster, root: Admin, topic: str) -> None:
    create(AdminClient(by_certificate(cluster)), topic)
    allow(root, "jwt:aio", "write", "topic", topic)
    eventually(partial(is_shown, by_oauth(cluster, "aio"), topic), "all nodes know the rule")
    files = by_certificate(cluster, "anybody")
    context = ssl.create_default_context(cafile=files["ssl.ca.location"])
    context.load_cert_chain(files["ssl.certificate.location"], files["ssl.key.location"])

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token("aio")[0]

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers(cluster), security_protocol="SASL_SSL", ssl_context=context,
        sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider(), enable_idempotence=True,
    )  # fmt: skip
    async with producer:
        assert (await producer.send_and_wait(topic, b"1", partition=0)).offset == 0


def test_who_has_no_certificate_of_the_authority_is_refused(cluster: LocalCluster) -> None:
    bare = {key: value for key, value in by_certificate(cluster).items()
            if key not in ("ssl.certificate.location", "ssl.key.location")}  # fmt: skip
    plain = {"bootstrap.servers": servers(cluster)}
    for settings in (bare, plain):
        assert first_error(settings).code() in NO_CONNECTION
        with pytest.raises(KafkaException):
            AdminClient(settings).list_topics(timeout=1.0)


def test_tokens_need_no_certificate_where_none_is_demanded(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(1, settings=settings_of(tmp_path), kafka=True, secured=True)
    cluster.kill([1])
    more = {"tls_ca": "", "superusers": "token:billing"}
    cluster.change_spec(1, settings={**cluster.nodes[1].spec.settings, **more})
    cluster.start_nodes([1], wait=False)  # no call of the harness shows a token
    cluster.wait_serving([1])
    settings = {key: value for key, value in by_plain(cluster).items()
                if key not in ("ssl.certificate.location", "ssl.key.location")}  # fmt: skip
    create(AdminClient(settings), "t", replicas=1)
    assert send(idempotent(settings), "t", [b"1", b"2"]) == [0, 1]


def test_each_right_is_asked_for(cluster: LocalCluster, root: Admin, topic: str) -> None:
    client = AdminClient(by_certificate(cluster))
    create(client, topic)
    create(client, f"{topic}-hidden")
    settings = by_certificate(cluster, "guest")
    guest = AdminClient(settings)
    assert not guest.list_topics(timeout=TIMEOUT).topics, "a list shows what one may describe"
    for name in (topic, "nowhere"):
        error = guest.list_topics(name, TIMEOUT).topics[name].error
        assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as raised:
        done(guest.delete_topics([topic]))
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as raised:
        create(guest, "mine")
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**settings, "group.id": "foreign"})
    allow(root, "dns:guest", "read", "topic", topic)
    allow(root, "dns:guest", "describe", "group", "foreign")
    eventually(partial(is_shown, settings, topic), "all nodes know the rule")
    assert list(guest.list_topics(timeout=TIMEOUT).topics) == [topic]
    with pytest.raises(KafkaException) as raised:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    with pytest.raises(AssertionError, match="Topic authorization failed"):
        send(Producer(settings), topic, [b"x"])
    wanted = {
        ("kafka/DeleteTopics", "dns:guest", "NOT_AUTHORIZED"),
        ("kafka/CreateTopics", "dns:guest", "NOT_AUTHORIZED"),
        ("kafka/Produce", "dns:guest", "NOT_AUTHORIZED"),
        ("kafka/CreateTopics", ROOT, "ok"),
    }
    eventually(lambda: wanted <= noted(cluster), "refusals and changes are noted")
    assert f"{topic}-hidden" not in " ".join(needs_of(cluster, "dns:guest"))


def noted(cluster: LocalCluster) -> set[tuple[str, str, str]]:
    lines = map(json.loads, (cluster.root / "audit").read_text().splitlines())
    return {(one["method"], one["principal"], one["result"]) for one in lines}


def needs_of(cluster: LocalCluster, principal: str) -> set[str]:
    lines = map(json.loads, (cluster.root / "audit").read_text().splitlines())
    return {need for one in lines if one["principal"] == principal for need in one["needs"]}


def test_a_right_that_is_taken_away_ends_an_open_connection(
    cluster: LocalCluster, root: Admin, topic: str
) -> None:
    create(AdminClient(by_certificate(cluster)), topic)
    settings = by_oauth(cluster, "former")
    rule = allow(root, "jwt:former", "write", "topic", topic)
    eventually(partial(is_shown, settings, topic), "all nodes know the rule")
    producer = idempotent(settings)
    assert send(producer, topic, [b"1"]) == [0]
    root.alter_permissions(remove=[rule])
    # The client refuses by itself once its metadata does.
    with pytest.raises((AssertionError, KafkaException), match="Topic authorization failed"):
        send(producer, topic, (b"x" for _ in range(100_000)))


def has_quota(cluster: LocalCluster, address: str, principal: str) -> bool:
    """Whether a node knows a quota of the principal."""
    with Admin(bootstrap_servers=address, **cluster.client_files) as admin:
        return bool(admin.list_quotas(principal))


def test_a_producer_outlives_its_tokens(cluster: LocalCluster, root: Admin, topic: str) -> None:
    """Its connection would end 10 s after its first token: it logs in again (KIP-368)."""
    create(AdminClient(by_certificate(cluster)), topic)
    settings = by_oauth(cluster, "short")
    allow(root, "jwt:short", "write", "topic", topic)
    eventually(partial(is_shown, settings, topic), "all nodes know the rule")
    ends: list[float] = []
    lost: list[KafkaError] = []

    def fresh(_: str) -> tuple[str, float]:
        made = token("short", 3.0)
        ends.append(made[1])
        return made

    more = {"oauth_cb": fresh, "error_cb": lost.append, "linger.ms": 50}
    producer = idempotent({**settings, **more})
    sent = 0
    while sent < 100 or time.time() < ends[0] + 12:
        assert send(producer, topic, [b"x"] * 10) == list(range(sent, sent + 10))
        sent += 10
    assert len(ends) > 2 and not lost
    for node in cluster.nodes:
        assert OVER not in (cluster.root / f"node{node}.log").read_text()


def test_a_producer_over_its_quota_is_slowed_and_loses_nothing(
    cluster: LocalCluster, root: Admin, topic: str
) -> None:
    create(AdminClient(by_certificate(cluster)), topic)
    settings = by_certificate(cluster, "busy")
    allow(root, "dns:busy", "write", "topic", topic)
    eventually(partial(is_shown, settings, topic), "all nodes know the rule")
    root.alter_quotas([Quota("dns:busy", "in_bytes_per_s", 20_000)])
    leader = cluster.addresses[cluster.leader(topic, 0)]
    eventually(partial(has_quota, cluster, leader, "dns:busy"), "the leader knows it")
    told: list[float] = []
    producer = idempotent(
        {**settings, "batch.size": 5000, "linger.ms": 5, "compression.type": "none",
         "throttle_cb": lambda event: told.append(event.throttle_time)}
    )  # fmt: skip
    values = [b"%06d" % number + b"x" * 94 for number in range(600)]
    assert send(producer, topic, values) == list(range(600))
    assert max(told) > 0, "throttle_time_ms"
    root.alter_quotas(remove=[("dns:busy", "")])
    found = read_with(by_certificate(cluster), topic, 0, 600)
    assert [one.value() for one in found] == values


def test_open_transactions_of_a_principal_are_counted(
    cluster: LocalCluster, root: Admin, topic: str
) -> None:
    create(AdminClient(by_certificate(cluster)), topic)
    settings = by_certificate(cluster, "teller")
    allow(root, "dns:teller", "write", "topic", topic)
    allow(root, "dns:teller", "write", "producer", "*")
    eventually(partial(is_shown, settings, topic), "all nodes know the rules")
    first, second = (
        Producer({**settings, "transactional.id": f"{topic}-{name}"}) for name in ("a", "b")
    )
    for producer in (first, second):
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        producer.produce(topic, b"1", partition=0)
        assert producer.flush(TIMEOUT) == 0, "without a quota"
        producer.commit_transaction(TIMEOUT)
    root.alter_quotas([Quota("dns:teller", "open_transactions", 1)])
    for address in cluster.addresses.values():
        eventually(partial(has_quota, cluster, address, "dns:teller"), f"{address} knows the quota")
    for producer in (first, second):
        producer.begin_transaction()
        producer.produce(topic, b"2", partition=0)
        if producer is first:
            assert first.flush(TIMEOUT) == 0
    assert second.flush(2.0) == 1, "it asks again and again"
    first.commit_transaction(TIMEOUT)
    second.commit_transaction(TIMEOUT)
    root.alter_quotas(remove=[("dns:teller", "")])
    assert len(read_with(by_certificate(cluster), topic, 0, 4)) == 4


def test_staged_bytes_of_a_principal_are_counted(
    cluster: LocalCluster, root: Admin, topic: str
) -> None:
    """A batch behind them is sent again until a transaction ends, and nothing is lost.

    Without the quota it is staged beside them.
    """
    create(AdminClient(by_certificate(cluster)), topic)
    settings = by_certificate(cluster, "stager")
    allow(root, "dns:stager", "write", "topic", topic)
    allow(root, "dns:stager", "write", "producer", "*")
    eventually(partial(is_shown, settings, topic), "all nodes know the rules")
    first, second = (
        Producer({**settings, "transactional.id": f"{topic}-{name}"}) for name in ("a", "b")
    )
    for producer in (first, second):
        producer.init_transactions(TIMEOUT)
    for limited in (False, True):
        if limited:
            root.alter_quotas([Quota("dns:stager", "staged_bytes", 1000)])
            for address in cluster.addresses.values():
                eventually(partial(has_quota, cluster, address, "dns:stager"), f"{address} knows")
        for producer, value in ((first, b"1" * 2000), (second, b"2")):
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            if producer is first:
                assert first.flush(TIMEOUT) == 0, "below the quota, when it came"
        if limited:
            assert second.flush(2.0) == 1, "it asks again and again"
        else:
            assert second.flush(TIMEOUT) == 0, "without a quota"
        first.commit_transaction(TIMEOUT)
        second.commit_transaction(TIMEOUT)
    root.alter_quotas(remove=[("dns:stager", "")])
    found = read_with(by_certificate(cluster), topic, 0, 4)
    assert [one.value() for one in found] == [b"1" * 2000, b"2"] * 2
