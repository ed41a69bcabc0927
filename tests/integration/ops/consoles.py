"""A real console process, and a reader of its pages without JavaScript."""

from __future__ import annotations

import hashlib
import html
import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import (
    HTTPCookieProcessor,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin, PermissionRule, Producer, ProducerLease
from oncelog.wire.batch import encode_payload
from tests.integration.conftest import STEADY
from tests.integration.waiting import eventually

PATIENCE = 60.0
SALT = b"s" * 16
SECRETS = {"boss": b"c2VjcmV0", "reader": b"b3RoZXI"}


def repeated(cluster: LocalCluster, topic: str, times: int, count: int = 10) -> ProducerLease:
    """Send a batch of a producer named `pay` this many times, then four others once."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        lease = admin.lease_producer("pay")
    for number in range(5):
        values = [b"value %d" % (number * count + n) for n in range(count)]
        payload = encode_payload(values, [1_700_000_000_000_000] * count)
        sent = batch(
            topic, 0, lease.producer_id, number * count, payload, count=count, codec=0,
            epoch=lease.epoch,
        )  # fmt: skip
        if not number:
            sent.lease_token = lease.lease_token
        said = [verdict(cluster.produce(sent)) for _ in range(times if not number else 1)]
        assert said == ["APPENDED", *["DUPLICATE"] * (len(said) - 1)]
    return lease


def token_of(name: str) -> str:
    return f"oncelog.{name}.{SECRETS[name].decode()}"


def as_person(cluster: LocalCluster, name: str) -> Any:
    """Return the settings of a client of this person."""
    ca = cluster.client_files["tls_ca_file"]
    return {
        "bootstrap_servers": cluster.bootstrap, "tls_ca_file": ca, "token": token_of(name),
    }  # fmt: skip


@contextmanager
def guarded(
    root: Path, reader: str = "token:reader", more: Mapping[str, str] | None = None
) -> Iterator[LocalCluster]:
    """One node that takes tokens: the boss may do all, the reader may read one topic.

    more: settings of the node.
    """
    root.mkdir(exist_ok=True)
    tokens = root / "tokens"
    tokens.write_text("")
    for name, secret in SECRETS.items():
        digest = hashlib.scrypt(secret, salt=SALT, n=4096, r=8, p=1, dklen=32)
        with tokens.open("a") as file:
            file.write(f"{name} scrypt:4096:8:1:{SALT.hex()}:{digest.hex()}\n")
    settings = {
        **STEADY, "tls_ca": "", "tokens_file": str(tokens), "permissions": "true",
        "superusers": "token:boss", **(more or {}),
    }  # fmt: skip
    made = LocalCluster(root, 1, settings=settings, secured=True)
    made._layout.make_certificates()
    try:
        made.start_nodes([1], wait=False)
        made.wait_serving([1])
        boss = as_person(made, "boss")
        with Admin(**boss) as admin, Producer(**boss) as producer:
            for topic in ("orders", "secret"):
                admin.create_topic(topic, partitions=1)
                producer.send(topic, b"in " + topic.encode()).result(60)
            admin.alter_permissions(
                [PermissionRule(reader, ("read", "describe"), "topic", "orders")]
            )
            eventually(
                lambda: admin.check_permission("read", "topic", "orders", principal=reader),
                "the rule", 60,
            )  # fmt: skip
        yield made
    finally:
        made.close()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str  # the page's words, without tags
    html: str
    headers: Mapping[str, str]
    url: str

    @property
    def command(self) -> str:
        """Return the command that tells the same in a terminal."""
        return html.unescape(re.findall("The same in a terminal: <code>(.*)</code>", self.html)[0])


@contextmanager
def console(*flags: str) -> Iterator[str]:
    """Run `oncelog console` on a free port; yield the link that it prints."""
    command = [sys.executable, "-m", "oncelog.cli", "console", "--format", "json", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["link"]
    finally:
        process.terminate()
        process.wait(PATIENCE)


class Stay(HTTPRedirectHandler):
    """Follows no redirect, so that other pages can be asked before."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Person:
    """A browser without scripts: cookies and redirects. ca: certificate of the pages."""

    def __init__(self, link: str, ca: str | None = None, follows: bool = True) -> None:
        self.origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
        tls = ssl.create_default_context(cafile=ca)
        self.cookies = CookieJar()
        handlers = (HTTPCookieProcessor(self.cookies), HTTPSHandler(context=tls))
        self._opener = build_opener(*handlers, *(() if follows else (Stay(),)))

    def get(self, path: str, headers: Any = None, **query: Any) -> Answer:
        url = urljoin(self.origin, path) + (f"?{urlencode(query)}" if query else "")
        return self._open(Request(url, headers=dict(headers or {})))

    def until(self, words: str, path: str, **query: Any) -> Answer:
        """Ask again until the page has these words: a busy machine may cut a lag or a search."""
        found: list[Answer] = []

        def there() -> bool:
            found.append(self.get(path, **query))
            return words in found[-1].text

        eventually(there, f"{words!r} at {path}", PATIENCE)
        return found[-1]

    def post(self, path: str, headers: Mapping[str, str] | None = None, **form: str) -> Answer:
        url = urljoin(self.origin, path)
        return self._open(Request(url, urlencode(form).encode(), dict(headers or {})))

    def _open(self, request: Request) -> Answer:
        try:
            answer = self._opener.open(request, timeout=PATIENCE)
        except HTTPError as error:
            answer = error
        with answer:
            page = answer.read().decode()
        words = html.unescape(re.sub(r"<[^>]*>", " ", page))
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status, " ".join(words.split()), page, headers, answer.url)
