"""Exposure of a node's ports by its settings: reachability, TLS and identities. Pure.

`NodeConfig.load` asks it: a port is never open to all by mistake, and no identity rests on a
secret sent in the clear.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from cluster.config.addresses import is_loopback
from cluster.errors import ConfigError


class Settings(Protocol):
    """The settings of a node that matter here. `NodeConfig` has them."""

    @property
    def listen(self) -> str: ...
    @property
    def kafka_listen(self) -> str: ...
    @property
    def metrics_listen(self) -> str: ...
    @property
    def tls_cert(self) -> Path | None: ...
    @property
    def tls_key(self) -> Path | None: ...
    @property
    def tls_ca(self) -> Path | None: ...
    @property
    def peer_cert(self) -> Path | None: ...
    @property
    def peer_key(self) -> Path | None: ...
    @property
    def peer_ca(self) -> Path | None: ...
    @property
    def tokens_file(self) -> Path | None: ...
    @property
    def jwt_keys(self) -> Path | None: ...
    @property
    def jwt_keys_url(self) -> str: ...
    @property
    def jwt_keys_ca(self) -> Path | None: ...
    @property
    def jwt_issuer(self) -> str: ...
    @property
    def jwt_audience(self) -> str: ...
    @property
    def permissions(self) -> bool: ...
    @property
    def superusers(self) -> str: ...
    @property
    def insecure(self) -> bool: ...


def check_exposure(config: Settings, *, alone: bool) -> None:
    """Raise ConfigError for half a set of files, or a port that is open to all by mistake.

    alone: the cluster has no other node.
    """
    client, key = config.tls_cert, config.tls_key
    peer = (config.peer_cert, config.peer_key, config.peer_ca)
    if (client is None) != (key is None) or (config.tls_ca is not None and client is None):
        raise ConfigError("tls_cert, tls_key: both or neither must be set; tls_ca needs them")
    if None in peer and any(peer):
        raise ConfigError("peer_cert, peer_key, peer_ca: all three or none must be set")
    _check_identities(config)
    if config.insecure:
        return
    _check_port("listen", config.listen, "tls_cert", client)
    _check_port("kafka_listen", config.kafka_listen, "tls_cert", client)
    _check_port("metrics_listen", config.metrics_listen, "tls_cert", client)
    # health_listen needs none of this: its answers name no topic, principal or address.
    if not alone:
        _check_port("listen (of nodes)", config.listen, "peer_cert", config.peer_cert)


def _check_port(name: str, address: str, setting: str, certificate: Path | None) -> None:
    if address and certificate is None and not is_loopback(address):
        raise ConfigError(
            f"{name}: {address} is reachable from other machines, and without {setting} anybody "
            f"there reads and writes all; set {setting}, or insecure to allow that"
        )


def _check_identities(config: Settings) -> None:
    keys, url = config.jwt_keys is not None, bool(config.jwt_keys_url)
    if keys and url:
        raise ConfigError("jwt_keys, jwt_keys_url: only one of them may be set")
    if config.jwt_keys_ca is not None and not url:
        raise ConfigError("jwt_keys_ca: needs jwt_keys_url")
    _check_url("jwt_keys_url", config.jwt_keys_url)
    jwt = (keys or url, bool(config.jwt_issuer), bool(config.jwt_audience))
    if any(jwt) != all(jwt):
        raise ConfigError(
            "jwt_keys (or jwt_keys_url), jwt_issuer, jwt_audience: all three or none must be set"
        )
    tokens = [name for name in ("tokens_file", "jwt_keys", "jwt_keys_url") if getattr(config, name)]
    if tokens and config.tls_cert is None:
        raise ConfigError(f"{tokens[0]}: needs tls_cert: without TLS others can read the tokens")
    known = bool(tokens) or config.tls_ca is not None
    if config.permissions and not (known and config.superusers):
        raise ConfigError(
            "permissions: needs a way to identify callers (tls_ca, tokens_file or jwt_keys) and "
            "superusers for the first rules"
        )


def _check_url(name: str, url: str) -> None:
    """Require https: keys changed on the way would let anyone take any identity."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        wrong = parts.scheme != "https" or not parts.hostname or parts.port == 0
        wrong |= parts.username is not None or bool(parts.fragment) or any(map(str.isspace, url))
    except ValueError:
        wrong = True
    if wrong:
        raise ConfigError(f"{name}: {url!r} must be https://HOST[:PORT]/PATH, without a user")
