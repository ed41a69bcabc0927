"""Address, login and certificate of a console: the settings that bound its callers.

Place in the flow: `oncelog console` makes a `ConsoleConfig`, `server` listens by it, `sessions`
logs people in by it. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from oncelog.config import AdminConfig
from oncelog.console.masks import Mask
from oncelog.errors import ConfigError
from oncelog.settings import ClientSettings

Login = Literal["own", "token", "oidc"]
DEFAULT_LISTEN = "127.0.0.1:8470"
REQUEST_MS = 10_000  # longest attempt of one call to a node
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({"localhost", LOOPBACK, "[::1]"})


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """The provider where people log in, and the console as its client. Raises ConfigError.

    client_secret: None: a public client. resource: of the access token (RFC 8707), for providers
    that make one for a named resource only. ca_file: CAs of the provider; None: the system's.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: str = "openid"
    resource: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if not is_guarded_url(self.issuer) or "?" in self.issuer:
            raise ConfigError(
                f"oidc_issuer: {self.issuer!r} must be an https address without a query (http is "
                "for loopback only); give --oidc-issuer the provider's own name",
                "oidc_issuer",
            )
        if not self.client_id:
            text = "oidc_client_id: is empty; give --oidc-client-id the console's name there"
            raise ConfigError(text, "oidc_client_id")
        if "openid" not in self.scopes.split():
            text = f"oidc_scopes: {self.scopes!r} lacks the scope openid; add it to --oidc-scopes"
            raise ConfigError(text, "oidc_scopes")
        if self.resource is not None and ":" not in self.resource:
            raise ConfigError(
                f"oidc_resource: {self.resource!r} is not an absolute URI; give --oidc-resource "
                "one, or leave it out",
                "oidc_resource",
            )


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """Settings of a console. Raises ConfigError.

    login: "own", everyone with the printed link acts as the caller of the command; "token", each
    person pastes a token, and the nodes decide by it; "oidc", each person logs in at a provider,
    whose access token goes to the nodes. allows_changes: else the pages only read. insecure: other
    addresses than loopback without TLS, for a container whose port is published on loopback only.
    public_url: of the proxy in front; None: browsers reach the console itself.
    """

    host: str
    port: int
    clients: AdminConfig  # of the command's caller
    login: Login = "own"
    cert_file: str | None = None
    key_file: str | None = None
    allows_changes: bool = False
    insecure: bool = False
    masks: tuple[Mask, ...] = ()
    oidc: OidcConfig | None = None
    public_url: str | None = None

    def __post_init__(self) -> None:
        if self.public_url is not None:
            self._check_public_url(self.public_url)
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError(
                "https_cert_file and https_key_file belong together",
                "https_cert_file", "https_key_file",
            )  # fmt: skip
        if (self.login == "oidc") != (self.oidc is not None):
            raise ConfigError(
                "login: oidc needs oidc_issuer and oidc_client_id, and other logins take no "
                "setting of a provider",
                "login", "oidc_issuer", "oidc_client_id",
            )  # fmt: skip
        if self.login != "own" and not self.clients.secured:
            raise ConfigError(
                "login: tokens go to nodes over TLS only; add --tls or --tls-ca-file",
                "login",
                "tls",
            )
        if self.is_loopback or self.insecure:
            return
        if self.login == "own":
            raise ConfigError(
                f"listen: {self.host} is not this machine's loopback, and with --login own other "
                f"machines would act as you; listen on 127.0.0.1, or use --login token or oidc",
                "listen", "login",
            )  # fmt: skip
        if self.cert_file is None:
            raise ConfigError(
                f"listen: {self.host} is not this machine's loopback, so tokens need TLS; add "
                f"--https-cert-file and --https-key-file, or --insecure behind a proxy with TLS",
                "listen", "https_cert_file",
            )  # fmt: skip

    def _check_public_url(self, url: str) -> None:
        is_origin = re.fullmatch("[^/]+//[^/?]+/?", url) is not None and origin_of(url) != ""
        if not (is_origin and is_guarded_url(url)):
            raise ConfigError(
                f"public_url: {url!r} must be an address such as https://console.example.org, "
                "without a path (http is for loopback only); give --public-url the address that "
                "people open",
                "public_url",
            )
        if self.login == "own":
            raise ConfigError(
                "public_url: with --login own everybody at the proxy would act as you; use --login "
                "token or oidc, or leave --public-url out",
                "public_url", "login",
            )  # fmt: skip

    @property
    def is_loopback(self) -> bool:
        return is_loopback_host(self.host)

    @property
    def secured(self) -> bool:
        """Tell whether browsers reach the pages by TLS, here or at the proxy."""
        if self.public_url is not None:
            return self.public_origin.startswith("https:")
        return self.cert_file is not None

    @property
    def public_origin(self) -> str:
        """Return the origin of the proxy as browsers write it; empty: there is none."""
        return "" if self.public_url is None else origin_of(self.public_url)

    def url(self, port: int) -> str:
        """Return the address of the first page on this port."""
        if self.public_url is not None:
            return f"{self.public_origin}/"
        host = LOOPBACK if self.insecure and not self.is_loopback else self.host
        return f"{'https' if self.secured else 'http'}://{host}:{port}/"

    def names_host(self, header: str) -> bool:
        """Tell whether a request's Host may be this console's.

        A stranger's page has another one, even if its name leads to this machine's loopback.
        """
        if self.public_url is not None:
            host = self.public_origin.partition("://")[2]
            return header.lower() in (host, f"{host}:{443 if self.secured else 80}")
        name, _, port = header.rpartition(":")
        name = name if port.isdecimal() else header
        is_local = self.is_loopback or self.insecure
        return not is_local or name in LOOPBACK_NAMES or name == self.host

    def settings(self, token: str | None = None) -> ClientSettings:
        """Return the settings of a client: the caller's own, or those of a person with a token.

        A person gets nothing of the caller's own identity.
        """
        own = self.clients
        common: ClientSettings = {
            "bootstrap_servers": own.bootstrap_servers,
            "request_timeout_ms": REQUEST_MS,
            "tls": own.secured,
            "tls_ca_file": own.tls_ca_file,
        }
        if token is not None:
            return {**common, "token": token}
        return {
            **common,
            "tls_cert_file": own.tls_cert_file,
            "tls_key_file": own.tls_key_file,
            "token_file": own.token_file,
            "token": own.token,
        }


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_guarded_url(url: str) -> bool:
    """Tell whether this is an https address, or one of loopback."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    is_plain = not parts.fragment and parts.username is None and url.isascii() and url.isprintable()
    return bool(host) and is_plain and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    )  # fmt: skip


def origin_of(url: str) -> str:
    """Return the origin of an address as browsers write it; empty: it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    host = f"[{host}]" if ":" in host else host
    is_usual = port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{host}" + ("" if is_usual else f":{port}")


def parse_listen(given: str) -> tuple[str, int]:
    """Parse HOST:PORT; port 0 takes any free one. Raises ConfigError."""
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"listen: {given!r} is not HOST:PORT, such as {DEFAULT_LISTEN}", "listen")
    return host, int(port)


__all__ = [
    "DEFAULT_LISTEN", "ConsoleConfig", "Login", "OidcConfig", "is_guarded_url", "parse_listen",
]  # fmt: skip
