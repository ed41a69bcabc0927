"""Login by OpenID Connect without a provider: attempts, ID tokens, settings, renewed sessions."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request

from oncelog.aio import Admin
from oncelog.cli.console import console as command
from oncelog.config import AdminConfig
from oncelog.console.app import Console
from oncelog.console.listening import ConsoleConfig, OidcConfig
from oncelog.console.oidc import (
    ATTEMPT_S,
    GrantedTokens,
    GrantEndedError,
    LoginAttempts,
    LoginError,
    claims_of,
    local_path,
    refusal,
)
from oncelog.console.provider import (
    IdentityProvider,
    ProviderMetadata,
    id_token_claims,
    parsed_keys,
)
from oncelog.console.sessions import EARLY_S, RETRY_S, BrowserSession, Sessions
from oncelog.errors import ClientClosedError, ConfigError, MissingExtraError, UnauthenticatedError

ISSUER = "https://login.example"
OIDC = OidcConfig(ISSUER, "console")
SECURED = AdminConfig(bootstrap_servers=("127.0.0.1:1",), tls=True)
CONFIG = ConsoleConfig("127.0.0.1", 1, SECURED, "oidc", oidc=OIDC)
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGE = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return {**found, "kid": "k1"}


KEYS = parsed_keys({"keys": [public(KEY)]})


def id_token(key: Any = KEY, algorithm: str = "RS256", kid: str = "k1", **claims: Any) -> str:
    now = int(time.time())
    said = {"iss": ISSUER, "aud": "console", "sub": "ann", "iat": now, "exp": now + 60, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, {"kid": kid})


@pytest.mark.parametrize(
    "claims",
    [{}, {"azp": "console"}, {"aud": ["console"]}, {"aud": ["x", "console"], "azp": "console"}],
)
def test_an_id_token_of_the_provider_is_valid(claims: dict[str, Any]) -> None:
    assert id_token_claims(id_token(**claims), KEYS, OIDC)["sub"] == "ann"


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (lambda: id_token(iss="https://evil.example"), "by the issuer https://evil"),
        (lambda: id_token(aud="other"), "for the client other, but --oidc-client-id is console"),
        (lambda: id_token(aud=["console", "other"]), "for the client"),
        (lambda: id_token(azp="other"), "for the client"),
        (lambda: id_token(exp=int(time.time()) - 3600), "Set the clocks of both machines"),
        (lambda: id_token(iat=int(time.time()) + 3600), "Set the clocks of both machines"),
        (lambda: id_token(exp="soon"), "not valid"),
        (lambda: id_token(sub=None), 'missing the "sub" claim'),
        (lambda: id_token(exp=None), 'missing the "exp" claim'),
        (lambda: id_token(STRANGE), "Signature verification failed"),
        (lambda: id_token(kid="k2"), "not signed with a key of the provider"),
        (lambda: id_token(None, "none"), "not valid"),
        (lambda: id_token("a secret of 32 letters and more..", "HS256"), "not valid"),
        (lambda: id_token(algorithm="RS384"), "not valid"),
        (lambda: "opaque", "not a JWT"),
    ],
)  # fmt: skip
def test_another_id_token_is_refused(token: Callable[[], str], text: str) -> None:
    with pytest.raises(LoginError, match=text.replace("(", r"\(")):
        id_token_claims(token(), KEYS, OIDC)


def test_keys_of_a_provider_for_other_uses_do_not_count() -> None:
    secret = {"kty": "oct", "k": "YSBzZWNyZXQgb2YgMzIgbGV0dGVycyBhbmQgbW9yZS4u", "kid": "k2"}
    encrypts = {**public(STRANGE), "kid": "k3", "use": "enc"}
    assert list(parsed_keys({"keys": [secret, encrypts, public(KEY)]})) == ["k1"]
    wrong: dict[str, Any]
    for wrong in ({}, {"keys": []}, {"keys": "x"}, {"keys": [1]}, {"keys": [{"kty": "odd"}]}):
        with pytest.raises(LoginError, match="no usable keys"):
            parsed_keys(wrong)


def test_an_attempt_is_of_its_browser_and_ends() -> None:
    now = 100.0
    attempts, others = LoginAttempts(lambda: now), LoginAttempts(lambda: now)
    one, two = attempts.begin("/topics/a.b?x=%20y&z=."), attempts.begin("/")
    assert attempts.resume(one.cookie, one.state) == one
    assert one.path == "/topics/a.b?x=%20y&z=."
    told = {one.state, one.nonce, one.verifier, two.state, two.nonce, two.verifier}
    assert len(told) == 6 and all(len(value) == 43 for value in told)
    moved = one.cookie.partition("%2F")[0] + "%2Fother"
    for cookie, state in (
        (two.cookie, one.state), ("", one.state), (one.cookie, ""), (moved, one.state),
        (one.cookie, "\u00e9"), ("1e3" + one.cookie[3:], one.state), ("", ""),
    ):  # fmt: skip
        with pytest.raises(LoginError, match="does not go on"):
            attempts.resume(cookie, state)
    with pytest.raises(LoginError, match="does not go on"):
        others.resume(one.cookie, one.state)
    now += ATTEMPT_S
    assert attempts.resume(one.cookie, one.state) == one
    now += 1
    with pytest.raises(LoginError, match="does not go on"):
        attempts.resume(one.cookie, one.state)


@pytest.mark.parametrize(
    "given",
    ["//evil.example", "https://evil.example", "/\\evil.example", "", "x", "/a\nb", "/" * 2000],
)
def test_a_login_leads_to_no_other_site(given: str) -> None:
    assert local_path(given) == "/" == LoginAttempts().begin(given).path
    assert local_path("/topics/x?to=//y") == "/topics/x?to=//y"


def test_a_refusal_of_the_nodes_names_what_they_compare() -> None:
    said = refusal(ISSUER, "Invalid issuer", id_token(aud=["a", "b"])).text
    assert "Invalid issuer. The token is for a, b, by the issuer https://login.example" in said
    assert "jwt_audience and jwt_issuer" in said
    assert "is not a JWT" in refusal(ISSUER, "no", "opaque").text
    for token in ("a.b.c", "..", "a.bnVsbA.c", "a.\u00e9.c"):
        assert claims_of(token) == {}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"issuer": "http://login.example"}, "must be an https address"),
        ({"issuer": "login.example"}, "must be an https address"),
        ({"issuer": "https://ann@login.example"}, "must be an https address"),
        ({"issuer": "https://[x"}, "must be an https address"),
        ({"issuer": "https://login.example?realm=a"}, "must be an https address"),
        ({"resource": ""}, "leave it out"),
        ({"client_id": ""}, "oidc_client_id: is empty"),
        ({"scopes": "profile"}, "lacks the scope openid"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, str], text: str) -> None:
    OidcConfig("http://127.0.0.1:8080/realm", "console")
    with pytest.raises(ConfigError, match=text):
        OidcConfig(**{"issuer": ISSUER, "client_id": "console", **settings})


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://console.example", "must be an address such as"),
        ("console.example", "must be an address such as"),
        ("https://console.example/oncelog", "without a path"),
        ("https://console.example?", "without a path"),
        ("https://console.example:x", "must be an address such as"),
        ("https://ann@console.example", "must be an address such as"),
        ("", "must be an address such as"),
    ],
)
def test_an_unusable_public_address_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        replace(CONFIG, public_url=url)


def test_a_public_address_makes_nobody_the_caller_and_no_listener_safe() -> None:
    public = "https://console.example"
    with pytest.raises(ConfigError, match="everybody at the proxy would act as you"):
        ConsoleConfig("127.0.0.1", 1, SECURED, public_url=public)
    with pytest.raises(ConfigError, match="--insecure behind a proxy with TLS"):
        replace(CONFIG, host="0.0.0.0", public_url=public)
    assert replace(CONFIG, host="0.0.0.0", insecure=True, public_url=public).secured


@pytest.mark.parametrize("given", ["https://Console.Example", "https://console.example:443/"])
def test_requests_name_the_public_address(given: str) -> None:
    config = replace(CONFIG, public_url=given)
    assert config.url(8470) == "https://console.example/"
    for host in ("console.example", "CONSOLE.example:443"):
        assert config.names_host(host)
    for host in ("localhost", "127.0.0.1:8470", "console.example:80", "x@console.example", ""):
        assert not config.names_host(host)
    other = replace(CONFIG, public_url="https://[::1]:8443")
    assert other.names_host("[::1]:8443") and not other.names_host("[::1]")


def test_a_provider_belongs_to_its_login() -> None:
    for login, oidc in (("oidc", None), ("own", OIDC), ("token", OIDC)):
        with pytest.raises(ConfigError, match="oidc needs oidc_issuer"):
            ConsoleConfig("127.0.0.1", 1, SECURED, login, oidc=oidc)  # type: ignore[arg-type]
    plain = AdminConfig(bootstrap_servers=("127.0.0.1:1",))
    with pytest.raises(ConfigError, match="over TLS only"):
        ConsoleConfig("127.0.0.1", 1, plain, "oidc", oidc=OIDC)


@pytest.mark.parametrize("login", ["own", "token"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--oidc-issuer", ISSUER), ("--oidc-client-id", "console"),
        ("--oidc-client-secret-file", __file__), ("--oidc-scopes", "openid"),
        ("--oidc-resource", ISSUER), ("--oidc-ca-file", __file__), ("--oidc-issuer", ""),
    ],
)  # fmt: skip
def test_an_option_of_another_login_is_refused(login: str, option: str, value: str) -> None:
    refused(login, option, value, "oidc")


@pytest.mark.parametrize("login", ["oidc", "token"])
@pytest.mark.parametrize("option", ["--token-file", "--tls-cert-file", "--tls-key-file"])
def test_an_identity_that_no_session_has_is_refused(login: str, option: str) -> None:
    refused(login, option, __file__, "own")


def refused(login: str, option: str, value: str, wanted: str) -> None:
    serves_not = ("--listen", "nowhere")  # a command that takes the option ends as well
    done = CliRunner().invoke(command, ["--login", login, "--tls", *serves_not, option, value])
    assert isinstance(done.exception, ConfigError), done.output
    text = f"--login {login} does not use {option}; leave it out, or use --login {wanted}"
    assert text in str(done.exception)


class Renewals:
    """Answers of a provider to refresh tokens, each by hand."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.begun = asyncio.Event()
        self.answer: asyncio.Future[GrantedTokens] = asyncio.Future()

    async def refresh(self, held: GrantedTokens) -> GrantedTokens:
        self.asked.append(held.refresh)
        self.begun.set()
        return await self.answer


def tokens(number: int, refresh: bool = True, life_s: float = 300.0) -> GrantedTokens:
    return GrantedTokens(f"a{number}", "id", f"r{number}" if refresh else "", life_s, "ann")


class Clocked:
    """Sessions with a clock, and one that holds the tokens a1 and r1 since 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.provider = Renewals()
        self.sessions = Sessions(CONFIG, self.provider, clock=lambda: self.now)

    async def enter(self, held: GrantedTokens) -> str:
        settings = CONFIG.settings(held.access)
        session = BrowserSession(Admin(**settings), settings, "jwt:ann", True)
        session.hold(held, self.now)
        return await self.sessions._add(session)


async def test_a_session_ends_with_its_token() -> None:
    clocked = Clocked()
    once = await clocked.enter(tokens(1, refresh=False))
    forever = await clocked.enter(tokens(1, refresh=False, life_s=math.inf))
    clocked.now = 299.0
    assert await clocked.sessions.use(once) is not None
    clocked.now = 300.0
    assert await clocked.sessions.use(once) is None
    assert await clocked.sessions.use(forever) is not None
    await clocked.sessions.end_idle()
    assert len(clocked.sessions) == 1 and not clocked.provider.asked
    await clocked.sessions.close()


async def test_a_token_is_renewed_once_before_its_end() -> None:
    clocked = Clocked()
    cookie = await clocked.enter(tokens(1))
    clocked.now = 300.0 - EARLY_S
    asking = [asyncio.create_task(clocked.sessions.use(cookie)) for _ in range(5)]
    await clocked.provider.begun.wait()
    before = clocked.sessions.find(cookie)
    assert before is not None
    old = before.admin
    clocked.provider.answer.set_result(tokens(2))
    found = await asyncio.gather(*asking)
    assert clocked.provider.asked == ["r1"] and set(found) == {before}
    assert before.settings["token"] == "a2" and before.admin is not old
    clocked.now += 300.0 - EARLY_S
    clocked.provider.answer = asyncio.Future()
    clocked.provider.answer.set_result(tokens(3, refresh=False))
    await clocked.sessions.use(cookie)
    assert clocked.provider.asked == ["r1", "r2"] and before.settings["token"] == "a3"
    with pytest.raises(ClientClosedError):  # no page can use it any more
        await old.list_topics()
    clocked.now += 300.0
    assert await clocked.sessions.use(cookie) is None
    await clocked.sessions.close()


async def test_a_provider_that_is_away_is_no_end_while_the_token_is_valid() -> None:
    clocked = Clocked()
    cookie = await clocked.enter(tokens(1))
    clocked.provider.answer.set_exception(LoginError("does not answer", 503))
    clocked.now = 300.0 - EARLY_S
    for _ in range(2):
        assert await clocked.sessions.use(cookie) is not None
    assert clocked.provider.asked == ["r1"]  # not again at once
    clocked.now += RETRY_S
    assert await clocked.sessions.use(cookie) is not None
    assert clocked.provider.asked == ["r1", "r1"]
    clocked.now = 300.0
    with pytest.raises(LoginError, match="does not answer"):
        await clocked.sessions.use(cookie)
    clocked.provider.answer = asyncio.Future()
    clocked.provider.answer.set_result(tokens(2))
    assert await clocked.sessions.use(cookie) is not None
    await clocked.sessions.close()


async def test_a_grant_that_ended_ends_the_session() -> None:
    clocked = Clocked()
    cookie = await clocked.enter(tokens(1))
    clocked.now = 299.0
    clocked.provider.answer.set_exception(GrantEndedError("ended", 401))
    assert await clocked.sessions.use(cookie) is None
    assert len(clocked.sessions) == 0


async def test_a_logout_is_not_undone_by_a_renewal() -> None:
    clocked = Clocked()
    cookie = await clocked.enter(tokens(1))
    clocked.now = 299.0
    asking = asyncio.create_task(clocked.sessions.use(cookie))
    await clocked.provider.begun.wait()
    await clocked.sessions.leave(cookie)
    clocked.provider.answer.set_result(tokens(2))
    assert await asking is None and len(clocked.sessions) == 0


async def test_a_page_that_outlives_its_token_is_asked_again() -> None:
    """Nodes refuse the token of a slow page; the session may have another one by then."""
    console = Console(CONFIG)
    clocked = Clocked()
    console.sessions = clocked.sessions
    cookie = await clocked.enter(tokens(1))

    async def ask(takes_s: float, method: str = "GET") -> tuple[int, str | None]:
        async def page(session: BrowserSession, request: Request) -> str:
            clocked.now += takes_s
            raise UnauthenticatedError("the token has ended")

        sent = f"{console._cookie}={cookie}".encode()
        scope = {
            "type": "http", "method": method, "path": "/groups", "raw_path": b"/groups",
            "query_string": b"live=1", "headers": [(b"cookie", sent)],
        }  # fmt: skip
        answer = await console._page(page)(Request(scope))
        return answer.status_code, answer.headers.get("location")

    assert await ask(300.0) == (303, "/groups?live=1")
    clocked.provider.answer.set_result(tokens(2))
    assert await ask(0.0) == (401, None)  # renewed, and refused all the same
    assert len(clocked.sessions) == 0
    cookie = await clocked.enter(tokens(3))
    assert await ask(300.0, "POST") == (401, None)  # a form that went out is not repeated
    assert len(clocked.sessions) == 1
    clocked.provider.answer = asyncio.Future()
    clocked.provider.answer.set_result(tokens(4))
    # Nodes refuse the token before its end, as of this clock. A token that never ends may end so.
    for held, renewed in ((tokens(5), 303), (tokens(5, refresh=False), 401)):
        cookie = await clocked.enter(held)
        clocked.now += RETRY_S
        assert (await ask(0.0))[0] == renewed
    clocked.provider.asked.clear()
    cookie = await clocked.enter(tokens(6))
    clocked.now += RETRY_S
    assert (await ask(0.0))[0] == 303
    clocked.provider.answer = asyncio.Future()
    clocked.provider.answer.set_exception(LoginError("does not answer", 503))
    assert await ask(0.0) == (503, None) and cookie in clocked.sessions._sessions
    clocked.provider.answer = asyncio.Future()
    clocked.provider.answer.set_result(tokens(7))
    assert await ask(0.0) == (401, None)  # this one is new
    assert clocked.provider.asked == ["r6", "r6"]
    await clocked.sessions.close()


async def test_a_login_counts_the_life_of_its_token_from_the_providers_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a session shows a token that ended while the nodes were asked for its principal."""
    clocked = Clocked()

    async def slow(admin: Admin) -> str:
        clocked.now += 20.0
        return "jwt:ann"

    monkeypatch.setattr("oncelog.console.sessions.principal_of", slow)
    cookie = await clocked.sessions.enter_by_grant(tokens(1, refresh=False))
    clocked.now = 299.0
    assert await clocked.sessions.use(cookie) is not None
    clocked.now = 300.0
    assert await clocked.sessions.use(cookie) is None
    await clocked.sessions.close()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="its monotonic clock does that")
def test_sessions_grow_old_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 7.0, time.CLOCK_MONOTONIC: 5.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert Sessions(CONFIG)._clock() == 7.0


@pytest.mark.parametrize("scopes", ["openid", "openid offline_access"])
async def test_a_login_asks_for_consent_to_offline_access(scopes: str) -> None:
    """Without it providers must ignore that scope, and give no refresh token."""
    provider = IdentityProvider(replace(OIDC, scopes=scopes))
    provider._metadata = ProviderMetadata(f"{ISSUER}/auth", "", "", False, True, KEYS)
    provider._fetched_at = provider._clock()
    url = await provider.login_url(LoginAttempts().begin("/"), "https://console.example/callback")
    query = parse_qs(urlsplit(url).query)
    assert query["scope"] == [scopes]
    assert query.get("prompt") == (["consent"] if "offline_access" in scopes else None)


@pytest.mark.parametrize("login", ["own", "token", "oidc"])
def test_a_login_without_a_provider_needs_no_package_for_tokens(
    login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.cli.console.find_spec", lambda name: None if name == "jwt" else 1)
    done = CliRunner().invoke(command, ["--login", login, "--listen", "nowhere"])
    wanted = MissingExtraError if login == "oidc" else ConfigError
    assert type(done.exception) is wanted, done.output
