"""A console where people log in at a real OpenID provider: identities, ends of sessions, faults."""

from __future__ import annotations

import html
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, Request, expect

from harness.ports import free_ports
from oncelog.console.listening import OidcConfig
from oncelog.console.oidc import LoginAttempts, LoginError
from oncelog.console.provider import MAX_BYTES, IdentityProvider
from tests.integration.ops.browsing import flawless, watched
from tests.integration.ops.consoles import PATIENCE, Answer, Person, console, guarded
from tests.integration.ops.providers import SECRETS, Provider, consented, provider, submit
from tests.integration.ops.proxies import proxy
from tests.integration.waiting import eventually

CLUSTER = "https://cluster.example"  # the audience of the nodes
LIFE_S, BRIEF_S = 3600, 4
ATTEMPT = "__Host-oncelog_login"  # the cookie of an attempt
FONTS = "fonts.googleapis.com"  # of the provider's pages


@dataclass(frozen=True, slots=True)
class LoginSite:
    """Consoles by the name of their client, and the provider that the nodes trust.

    behind: the address of the console that has a proxy.
    """

    links: dict[str, str]
    provider: Provider
    ca: str
    behind: str

    def person(self, name: str = "console") -> Person:
        return Person(self.links[name], self.ca)

    def logged_in(self, login: str, name: str = "console") -> Person:
        person = self.person(name)
        page = consented(person, login)
        assert (page.status, "You are logged in" in page.text) == (200, True), page.text
        return person


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginSite]:
    """One node; consoles with usual tokens, behind a proxy, with brief ones, without refreshes.

    The console `opaque` names no resource, and `stray` another one, so the nodes refuse both.
    `alien` asks a provider that the nodes do not know.
    """
    root = tmp_path_factory.mktemp("oidc")
    with ExitStack() as stack:
        own, other = (stack.enter_context(provider()) for _ in range(2))
        (root / "secret").write_text(SECRETS["console"] + "\n")
        # The keys are the same before and after the provider has its clients.
        clients = {
            "console": ("--oidc-client-secret-file", str(root / "secret")), "brief": (),
            "brief-once": (), "opaque": (), "stray": (), "alien": (), "proxied": (),
        }  # fmt: skip
        port, behind = free_ports(2)
        links: dict[str, str] = {}
        keys = root / "keys"
        keys.write_text('{"keys": [' + json.dumps(UNUSED) + "]}")
        settings = {"jwt_keys": str(keys), "jwt_issuer": own.issuer, "jwt_audience": CLUSTER}
        cluster = stack.enter_context(guarded(root / "cluster", "jwt:ann", settings))
        ca = cluster.client_files["tls_ca_file"]
        tls = cluster._layout.certificates / "node-1"
        for name, more in clients.items():
            issuer = (other if name == "alien" else own).issuer
            resource = {"opaque": (), "stray": ("--oidc-resource", "https://stray.example")}.get(
                name, ("--oidc-resource", CLUSTER)
            )
            address = ["--listen", "127.0.0.1:0", "--https-cert-file", str(tls / "tls.crt"),
                       "--https-key-file", str(tls / "tls.key")]  # fmt: skip
            if name == "proxied":
                public = f"https://127.0.0.1:{port}"
                address = ["--listen", f"127.0.0.1:{behind}", "--public-url", public]
            links[name] = stack.enter_context(console(
                *address, "-b", cluster.bootstrap, "--login", "oidc", "--oidc-issuer", issuer,
                "--oidc-client-id", name, *more, *resource, "--tls-ca-file", ca,
            ))  # fmt: skip
        stack.enter_context(proxy(root / "proxy", port, behind, tls))
        lives = {name: BRIEF_S if name.startswith("brief") else LIFE_S for name in links}
        for one in (own, other):
            one.register(links, lives)
        keys.write_text(json.dumps(own.get("/jwks")))
        yield LoginSite(links, own, ca, f"http://127.0.0.1:{behind}")


# A node wants a key at its start, before the provider tells its own.
UNUSED = {
    "kty": "EC", "crv": "P-256", "kid": "unused", "alg": "ES256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}  # fmt: skip


def leads_to(page: Answer) -> str:
    """Return where a page goes on by itself."""
    (target,) = re.findall(r'http-equiv="refresh" content="0; url=([^"]*)"', page.html)
    return html.unescape(target)


def test_a_person_acts_as_itself_and_comes_back_to_its_page(site: LoginSite) -> None:
    ann = site.person()
    page = ann.get("/topics/orders/records?partition=0")
    assert parse_qs(urlsplit(page.url).query) == {"to": ["/topics/orders/records?partition=0"]}
    (begin,) = re.findall(r'href="(/oidc/login[^"]*)"', page.html)
    page = consented(ann, "ann", html.unescape(begin))
    assert leads_to(page) == "/topics/orders/records?partition=0"
    ann.until("in orders", leads_to(page))
    listed = ann.get("/topics").text
    assert "jwt:ann" in listed and "orders" in listed and "secret" not in listed
    refused = ann.get("/topics/secret")
    assert refused.status == 403 and "jwt:ann may not describe topic secret" in refused.text
    bob = site.logged_in("bob")
    assert "jwt:bob" in bob.get("/").text and "orders" not in bob.get("/topics").text


def stopped_before(person: Person, login: str) -> str:
    """Log in, but do not open the answer of the provider; return its address."""
    page = person.get("/oidc/login")
    for fields in ({}, {"login": login, "password": "any"}, {}):
        if fields or "<form" in page.html:
            page = submit(person, page, **fields)
        while page.status in (302, 303):
            target = urljoin(page.url, page.headers["location"])
            if urlsplit(target).path == "/oidc/callback":
                return target
            page = person.get(target)
    raise AssertionError(page.text)


def test_an_answer_counts_once_and_in_its_browser_only(site: LoginSite) -> None:
    """Else a stranger could log somebody in under a name of the stranger's."""
    ann, other = Person(site.links["console"], site.ca, follows=False), site.person()
    answer = stopped_before(ann, "ann")
    for victim in (other, site.person()):
        page = victim.get(answer)
        assert page.status == 400 and "This login does not go on" in page.text
    other.get("/oidc/login")  # an attempt of its own does not help, and does not end
    assert other.get(answer).status == 400
    assert [one.name for one in other.cookies if one.domain == "127.0.0.1"] == [ATTEMPT]
    assert ann.get(answer).status == 200
    assert ann.get(answer).status == 400


def test_a_code_of_another_issuer_or_none_is_refused(site: LoginSite) -> None:
    """As of RFC 9207: a provider that another console uses must not get this one's code."""
    ann = Person(site.links["console"], site.ca, follows=False)
    answer = urlsplit(stopped_before(ann, "ann"))
    query = {name: values[0] for name, values in parse_qs(answer.query).items()}
    cookies = list(ann.cookies)
    for changed, text in (
        ({"iss": "https://evil.example"}, "comes from https://evil.example"),
        ({"iss": None}, "comes from nobody"),
        ({"code": "guess"}, "invalid_grant"),
    ):
        for cookie in cookies:
            ann.cookies.set_cookie(cookie)
        sent = {name: value for name, value in {**query, **changed}.items() if value is not None}
        page = ann.get(answer.path, **sent)
        assert page.status >= 400 and text in page.text, page.text


def test_who_cancels_is_told_so(site: LoginSite) -> None:
    ann = site.person()
    page = ann.get("/oidc/login")
    (abort,) = re.findall(r'href="([^"]*/abort)"', page.html)
    page = ann.get(urljoin(page.url, abort))
    assert page.status == 403 and "did not log you in: access_denied" in page.text


def test_tokens_are_refreshed_while_the_provider_gives_some(site: LoginSite) -> None:
    ann = site.logged_in("ann", "brief")

    def renewed() -> bool:
        assert not urlsplit(ann.get("/topics").url).path.startswith("/enter")
        return site.provider.granted("refresh_token", "brief") > 0

    eventually(renewed, "a new token", PATIENCE)
    assert "jwt:ann" in ann.until("orders", "/topics").text


def test_a_session_ends_with_its_token_without_refresh(site: LoginSite) -> None:
    ann = site.logged_in("ann", "brief-once")
    eventually(lambda: "/enter?to=" in ann.get("/topics").url, "the end of the token", PATIENCE)


def test_a_logout_ends_the_session_here_and_at_the_provider(site: LoginSite) -> None:
    ann = site.logged_in("ann")
    (cookie,) = [one for one in ann.cookies if one.name == "__Host-oncelog"]
    page = ann.post("/leave", {"Origin": ann.origin})
    assert "You are logged out of the console" in page.text
    assert not [one for one in ann.cookies if one.name.startswith("__Host-")]
    ann.cookies.set_cookie(cookie)
    assert "/enter?to=" in ann.get("/topics").url
    asked = ann.get(leads_to(page))
    assert asked.url.startswith(site.provider.issuer)
    back = submit(ann, asked, logout="yes")
    assert back.url == f"{ann.origin}/enter" and back.status == 200
    assert 'name="login"' in ann.get("/oidc/login").html  # the provider asks again


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("opaque", "The token is not a JWT"),
        ("stray", "The token is for https://stray.example"),
        ("alien", "The nodes compare these with their settings jwt_audience and jwt_issuer"),
    ],
)
def test_a_token_that_the_nodes_refuse_is_explained(site: LoginSite, name: str, text: str) -> None:
    person = site.person(name)
    page = consented(person, "ann")
    assert page.status == 401 and "the nodes do not accept its access token" in page.text
    assert text in page.text, page.text
    assert "/enter" in person.get("/topics").url


def test_a_console_behind_a_proxy_has_its_address(site: LoginSite) -> None:
    ann = site.logged_in("ann", "proxied")
    assert "jwt:ann" in ann.until("orders", "/topics").text
    (cookie,) = [one for one in ann.cookies if one.name == "__Host-oncelog"]
    assert cookie.secure
    assert ann.post("/leave", {"Origin": "https://evil.example"}).status == 403
    assert ann.post("/leave", {"Origin": site.behind}).status == 403
    direct = Person(site.behind).get("/topics")
    assert direct.status == 421 and f"This console is at {ann.origin}" in direct.text
    page = ann.post("/leave", {"Origin": ann.origin})
    assert parse_qs(urlsplit(leads_to(page)).query)["post_logout_redirect_uri"] == [
        f"{ann.origin}/enter"
    ]


# --- faulty providers ---------------------------------------------------------------------


@contextmanager
def lying(answers: Callable[[str], dict[str, tuple[int, Any]]]) -> Iterator[str]:
    """Serve these answers by path; yield the issuer. answers: of an issuer."""

    class Lies(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, said = answers(issuer)[self.path]
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(said if isinstance(said, bytes) else json.dumps(said).encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Lies) as server:
        issuer = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


WHERE = "/.well-known/openid-configuration"


def metadata(issuer: str, **more: Any) -> dict[str, Any]:
    addresses = {name: f"{issuer}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
    return {"issuer": issuer, "jwks_uri": f"{issuer}/keys", **addresses, **more}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda me: (200, metadata("https://other.example")), "its name is https://other"),
        (lambda me: (200, metadata(me, token_endpoint="http://10.0.0.1/t")), "an https address"),
        (lambda me: (200, metadata(me, jwks_uri=None)), "jwks_uri of"),
        (lambda me: (200, {**metadata(me), "token_endpoint": 7}), "must be an https address"),
        (lambda me: (200, []), "is not an object"),
        (lambda me: (200, b"<html>"), "did not answer in JSON"),
        (lambda me: (200, b'"' + b"x" * MAX_BYTES + b'"'), "longer than"),
        (lambda me: (404, b"no"), "status 404"),
        (lambda me: (302, b""), "status 302"),
        (lambda me: (200, metadata(me)), "no usable keys"),
    ],
)  # fmt: skip
async def test_a_wrong_answer_of_a_provider_is_named(
    answer: Callable[[str], tuple[int, Any]], text: str
) -> None:
    with lying(lambda me: {WHERE: answer(me), "/keys": (200, {})}) as issuer:
        asked = IdentityProvider(OidcConfig(issuer, "console"))
        with pytest.raises(LoginError, match=text):
            await asked.login_url(
                LoginAttempts().begin("/"), "https://console.example/oidc/callback"
            )


async def test_a_provider_that_is_down_is_named_and_asked_again() -> None:
    keys = {"keys": [UNUSED]}
    up = False

    def answers(me: str) -> dict[str, tuple[int, Any]]:
        return {WHERE: (200 if up else 503, metadata(me)), "/keys": (200, keys)}

    now = 0.0
    with lying(answers) as issuer:
        asked = IdentityProvider(OidcConfig(issuer, "console"), lambda: now)
        attempt = LoginAttempts().begin("/")
        with pytest.raises(LoginError, match="status 503"):
            await asked.login_url(attempt, "https://console.example/oidc/callback")
        up, now = True, 10.0
        url = await asked.login_url(attempt, "https://console.example/oidc/callback")
    query = parse_qs(urlsplit(url).query)
    assert query["code_challenge_method"] == ["S256"] and query["state"] == [attempt.state]
    assert attempt.verifier not in url
    with socket.socket() as silent:  # bound, so that nobody else listens there
        silent.bind(("127.0.0.1", 0))
        asked = IdentityProvider(
            OidcConfig(f"http://127.0.0.1:{silent.getsockname()[1]}", "console")
        )
        with pytest.raises(LoginError, match=r"does not answer: .*refused") as down:
            await asked.login_url(attempt, "https://console.example/oidc/callback")
    assert down.value.status == 503


# --- a real browser -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scripts"), [("console", True), ("console", False), ("proxied", True)]
)
def test_a_browser_logs_in_from_another_site_and_out(
    site: LoginSite, browser: Browser, name: str, scripts: bool
) -> None:
    """localhost is another site than 127.0.0.1, so strict cookies do not come with its answer.

    The person clicks on the provider's page each time: Chromium sends strict cookies along a chain
    of redirects that began on the console's own page.
    """
    callbacks: list[Request] = []

    def note(request: Request) -> None:
        if urlsplit(request.url).path == "/oidc/callback":
            callbacks.append(request)

    link = site.links[name]
    options = {"ignore_https_errors": True, "java_script_enabled": scripts}
    besides = (urlsplit(site.provider.issuer).netloc, FONTS)
    with watched(browser, link, refused=True, besides=besides, **options) as page:
        page.route(f"https://{FONTS}/**", lambda route: route.fulfill(content_type="text/css"))
        page.on("request", note)
        page.goto("/topics")
        if scripts:
            flawless(page)
        for turn in range(2):
            page.get_by_role("link", name="Log in").click()
            page.locator("input[name=login]").fill("ann")
            page.locator("input[name=password]").fill("any")
            page.locator("button[type=submit]").click()
            page.locator("button[type=submit]").click()
            expect(page.locator(".who")).to_contain_text("jwt:ann")
            expect(page).to_have_url(re.compile("/topics$"))
            if not turn:
                page.context.clear_cookies(domain="localhost")
                page.goto("/enter?to=%2Ftopics")
        cookies = [request.all_headers().get("cookie", "") for request in callbacks]
        assert len(cookies) == 2
        # The second time there is a session already, and its strict cookie stays at home.
        assert all(f"{ATTEMPT}=" in sent for sent in cookies)
        assert not any("__Host-oncelog=" in sent for sent in cookies)
        page.get_by_role("button", name="Log out").click()
        page.locator("button[value=yes]").click()
        expect(page.get_by_role("link", name="Log in")).to_be_visible()
