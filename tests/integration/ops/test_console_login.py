"""A console that people log in to with tokens: each acts as itself, and the nodes decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, PermissionRule, Producer
from tests.integration.conftest import STEADY
from tests.integration.ops.consoles import Person, console
from tests.integration.waiting import eventually

SALT = b"s" * 16
SECRETS = {"boss": b"c2VjcmV0", "reader": b"b3RoZXI"}


def token_of(name: str) -> str:
    return f"oncelog.{name}.{SECRETS[name].decode()}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node that takes tokens: the boss may do all, the reader may read one topic."""
    root = tmp_path_factory.mktemp("login")
    tokens = root / "tokens"
    tokens.write_text("")
    for name, secret in SECRETS.items():
        digest = hashlib.scrypt(secret, salt=SALT, n=4096, r=8, p=1, dklen=32)
        with tokens.open("a") as file:
            file.write(f"{name} scrypt:4096:8:1:{SALT.hex()}:{digest.hex()}\n")
    settings = {
        **STEADY, "tls_ca": "", "tokens_file": str(tokens), "permissions": "true",
        "superusers": "token:boss",
    }  # fmt: skip
    made = LocalCluster(root, 1, settings=settings, secured=True)
    made._layout.make_certificates()
    try:
        made.start_nodes([1], wait=False)
        made.wait_serving([1])
        ca = made.client_files["tls_ca_file"]
        boss = {"bootstrap_servers": made.bootstrap, "tls_ca_file": ca, "token": token_of("boss")}
        with Admin(**boss) as admin, Producer(**boss) as producer:
            for topic in ("orders", "secret"):
                admin.create_topic(topic)
                producer.send(topic, b"in " + topic.encode()).result(60)
            admin.alter_permissions(
                [PermissionRule("token:reader", ("read", "describe"), "topic", "orders")]
            )
        with Admin(
            bootstrap_servers=made.bootstrap, tls_ca_file=ca, token=token_of("reader")
        ) as one:
            eventually(lambda: one.check_permission("read", "topic", "orders"), "the rule", 60)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def pages(cluster: LocalCluster) -> Iterator[tuple[str, str]]:
    """Link of a console with TLS, and its CA. The command's caller has no identity."""
    ca, own = cluster.client_files["tls_ca_file"], cluster._layout.certificates / "node-1"
    flags = (
        "--login", "token", "--https-cert-file", str(own / "tls.crt"), "--https-key-file",
        str(own / "tls.key"), "--tls-ca-file", ca,
    )  # fmt: skip
    with console("--listen", "127.0.0.1:0", "-b", cluster.bootstrap, *flags) as link:
        yield link, ca


def logged_in(pages: tuple[str, str], name: str) -> Person:
    person = Person(*pages)
    page = person.post("/enter", {"Origin": person.origin}, token=token_of(name))
    assert f"token:{name}" in page.text, page.text
    return person


def test_each_person_sees_what_its_token_may_see(pages: tuple[str, str]) -> None:
    boss, reader = logged_in(pages, "boss"), logged_in(pages, "reader")
    assert "secret" in boss.get("/topics").text
    listed = reader.get("/topics").text
    assert "orders" in listed and "secret" not in listed
    reader.until("in orders", "/topics/orders/records")
    boss.until("in secret", "/topics/secret/records")
    for path in ("/topics/secret", "/topics/secret/records", "/topics/secret/records/0/0"):
        page = reader.get(path)
        assert page.status == 403 and "in secret" not in page.text
        assert "token:reader may not" in page.text and "topic secret" in page.text


def test_a_wrong_token_and_none_get_nothing(pages: tuple[str, str]) -> None:
    person = Person(*pages)
    assert person.get("/topics").url.endswith("/enter")
    for token in ("oncelog.boss.d3Jvbmc", "", "boss", "two\nlines", "t\u00f6ken"):
        page = person.post("/enter", {"Origin": person.origin}, token=token)
        assert page.status == 401, page.text
    assert not list(person.cookies)


def test_a_session_ends_with_its_logout(pages: tuple[str, str]) -> None:
    person = logged_in(pages, "boss")
    (cookie,) = person.cookies
    assert (cookie.name, cookie.secure) == ("__Host-oncelog", True)
    person.post("/leave", {"Origin": person.origin})
    person.cookies.set_cookie(cookie)
    assert person.get("/topics").url.endswith("/enter")
