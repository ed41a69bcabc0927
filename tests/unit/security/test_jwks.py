"""Keys of a provider by HTTPS: rolled, cached, not there; and nobody else chooses the place."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from cluster.errors import ConfigError
from cluster.security import jwks
from cluster.security.identities import Identities, UnknownCallerError
from cluster.security.jwks import REFRESH_S, RETRY_S, STALE_S, UrlKeys, fetcher, parsed
from cluster.security.jwts import Jwts
from cluster.security.tokens import TokenError, TokensBusyError
from harness.certificates import Authority
from tests.unit.security import test_identities
from tests.unit.security.test_identities import AUDIENCE, FORGED, ISSUER, Issuer


class Provider:
    """An HTTPS server at loopback that answers as a test wants."""

    def __init__(self, directory: Path) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler], object] = self.missing
        self.asked = 0
        authority = Authority()
        pair = authority.issue([x509.IPAddress(ip_address("127.0.0.1"))])
        self.ca = directory / "provider.ca"
        self.ca.write_bytes(authority.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair.write(directory, "provider"))
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                provider.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def has(self, issuer: Issuer, *kids: str) -> None:
        keys = [key for key in issuer.jwks()["keys"] if not kids or key["kid"] in kids]
        data = json.dumps({"keys": keys}).encode()
        self.answer = lambda request: body(request, data)

    def missing(self, request: BaseHTTPRequestHandler) -> None:
        request.send_error(503)


def body(request: BaseHTTPRequestHandler, data: bytes) -> None:
    request.send_response(200)
    request.end_headers()
    request.wfile.write(data)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    made = Provider(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


class World:
    def __init__(self, provider: Provider) -> None:
        self.now = 1000.0
        self.keys = UrlKeys(fetcher(provider.url, provider.ca), lambda: self.now)
        self.jwts = Jwts(self.keys, ISSUER, AUDIENCE)

    async def refreshed(self) -> None:
        """Waits for the refresh in the background."""
        if self.keys._task is not None:
            await self.keys._task


@pytest.fixture
def world(provider: Provider) -> World:
    return World(provider)


ISSUED = Issuer()


async def test_keys_are_fetched_with_the_first_token_and_then_kept(
    provider: Provider, world: World
) -> None:
    provider.has(ISSUED)
    callers = await asyncio.gather(*(world.jwts.caller(ISSUED.token(kid)) for kid in ISSUED.keys))
    assert {caller.principal for caller in callers} == {"jwt:billing"}
    for _ in range(10):
        await world.jwts.caller(ISSUED.token(jti="another"))
    assert provider.asked == 1
    world.now += REFRESH_S
    await world.jwts.caller(ISSUED.token("rsa"))
    await world.refreshed()
    assert provider.asked == 2


async def test_keys_roll_over(provider: Provider, world: World) -> None:
    """A new key is taken with the first token that has it; an old one ends with the next set."""
    provider.has(ISSUED, "ec")
    old = ISSUED.token("ec")
    await world.jwts.caller(old)
    provider.has(ISSUED, "ec", "rsa")
    world.now += RETRY_S
    assert (await world.jwts.caller(ISSUED.token("rsa"))).principal == "jwt:billing"
    await world.jwts.caller(old)
    provider.has(ISSUED, "rsa")
    world.now += REFRESH_S
    await world.jwts.caller(old)  # the set is being fetched, and nobody waits for it
    await world.refreshed()
    with pytest.raises(TokenError, match="not one of the issuer's"):
        await world.jwts.caller(old)


async def test_tokens_with_unknown_keys_are_no_flood_for_the_provider(
    provider: Provider, world: World
) -> None:
    provider.has(ISSUED, "ec")
    stranger = Issuer()
    stranger.keys = {f"x{n}": stranger.keys["ec"] for n in range(100)}
    tokens = [stranger.token(kid) for kid in stranger.keys]
    found = await asyncio.gather(*map(world.jwts.caller, tokens), return_exceptions=True)
    assert all(isinstance(one, TokenError) for one in found) and provider.asked == 1
    world.now += RETRY_S
    with pytest.raises(TokenError):
        await world.jwts.caller(tokens[0])
    assert provider.asked == 2


async def test_a_provider_that_is_away_is_no_reason_to_forget_its_keys(
    provider: Provider, world: World
) -> None:
    with pytest.raises(TokensBusyError, match="keys are not loaded yet"):  # try again, it says
        await world.jwts.caller(ISSUED.token())
    provider.has(ISSUED)
    with pytest.raises(TokensBusyError):  # the provider was asked just now
        await world.jwts.caller(ISSUED.token())
    world.now += RETRY_S
    await world.jwts.caller(ISSUED.token())
    provider.answer = provider.missing
    world.now += STALE_S - 1
    await world.jwts.caller(ISSUED.token("rsa"))
    await world.refreshed()
    world.now += 1
    with pytest.raises(TokensBusyError):
        await world.jwts.caller(ISSUED.token("ed"))
    provider.has(ISSUED)
    world.now += RETRY_S
    await world.jwts.caller(ISSUED.token("ed"))


def _endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b" " * 65536)
    except OSError:
        pass


def _elsewhere(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "file:///etc/passwd")
    request.end_headers()


OF_NO_USE: dict[str, Callable[[BaseHTTPRequestHandler], object]] = {
    "an error": lambda request: request.send_error(500),
    "no JSON": lambda request: body(request, b"<html>"),
    "no keys": lambda request: body(request, b'{"keys": []}'),
    "a secret": lambda request: body(request, b'{"keys": [{"kty": "oct", "k": "AA"}]}'),
    "no HTTP": lambda request: request.wfile.write(b"hello\n"),
    "no end": _endless,
    "another place": _elsewhere,
}


@pytest.mark.parametrize("what", OF_NO_USE)
async def test_an_answer_that_is_of_no_use_changes_nothing(
    provider: Provider, world: World, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider.has(ISSUED, "ec")
    await world.jwts.caller(ISSUED.token("ec"))
    provider.answer = OF_NO_USE[what]
    for _ in range(2):
        world.now += RETRY_S
        with pytest.raises(TokenError):
            await world.jwts.caller(ISSUED.token("rsa"))
    await world.jwts.caller(ISSUED.token("ec", jti="a new one"))
    assert caplog.text.count("jwt_keys_url: no new keys") == 1, "once for each reason"


async def test_a_redirect_is_followed_without_the_check(
    provider: Provider, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack is real: urllib goes where it is sent."""

    def elsewhere(request: BaseHTTPRequestHandler) -> None:
        if request.path != "/keys":
            body(request, json.dumps(ISSUED.jwks()).encode())
            return
        request.send_response(302)
        request.send_header("Location", "/anywhere")
        request.end_headers()

    provider.answer = elsewhere
    with pytest.raises(TokensBusyError):
        await world.jwts.caller(ISSUED.token())
    monkeypatch.delattr(jwks._NoRedirects, "redirect_request")
    world.now += RETRY_S
    await world.jwts.caller(ISSUED.token())


async def test_a_server_that_is_not_the_providers_is_not_believed(
    provider: Provider, tmp_path: Path
) -> None:
    provider.has(ISSUED)
    other = tmp_path / "other.ca"
    other.write_bytes(Authority().certificate)
    with pytest.raises(OSError, match="certificate verify failed"):
        fetcher(provider.url, other)()
    with pytest.raises(OSError, match="certificate"):
        fetcher(provider.url.replace("127.0.0.1", "localhost"), provider.ca)()
    assert parsed(fetcher(provider.url, provider.ca)())
    with pytest.raises(ConfigError, match="jwt_keys_ca: "):
        fetcher(provider.url, tmp_path / "nothing")


@pytest.mark.parametrize("what", FORGED)
async def test_forged_tokens_are_nobodys_with_fetched_keys_too(
    provider: Provider, world: World, what: str
) -> None:
    provider.has(test_identities.ISSUED)
    await world.jwts.caller(test_identities.ISSUED.token())
    with pytest.raises(UnknownCallerError, match="authorization: "):
        await Identities(None, world.jwts).caller(f"Bearer {FORGED[what]()}", b"")
