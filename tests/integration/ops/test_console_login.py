"""A console that people log in to with tokens: each acts as itself, and the nodes decide."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from harness.local_cluster import LocalCluster
from oncelog.console.server import MAX_CONNECTIONS
from tests.integration.ops.consoles import Person, console, guarded, token_of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with guarded(tmp_path_factory.mktemp("login")) as made:
        yield made


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


def test_silent_connections_keep_nobody_out(pages: tuple[str, str]) -> None:
    """Strangers that send nothing, or half a request, make room for people that ask."""
    person = logged_in(pages, "boss")
    address = urlsplit(pages[0])
    assert address.hostname is not None and address.port is not None
    tls = ssl.create_default_context(cafile=pages[1])
    with ExitStack() as silent:
        for n in range(MAX_CONNECTIONS + 5):
            raw = silent.enter_context(
                socket.create_connection((address.hostname, address.port), timeout=60)
            )
            wrapped = silent.enter_context(tls.wrap_socket(raw, server_hostname=address.hostname))
            if n % 2:
                wrapped.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert "orders" in person.get("/topics").text
