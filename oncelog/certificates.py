"""Certificates of a small installation: two authorities, nodes, clients.

Place in the flow: `oncelog certs` is a thin layer over this. One authority signs the certificates
between nodes and clients, the other those between nodes. So no client's certificate is valid at the
nodes' peer port.

    DIRECTORY/ca.crt, ca.key             clients, and nodes as clients see them
    DIRECTORY/peer-ca.crt, peer-ca.key   nodes among themselves
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from oncelog.errors import ConfigError, MissingExtraError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:  # pragma: no cover - told by `require`
    if not TYPE_CHECKING:
        x509 = None

CLIENT_CA, PEER_CA = "ca", "peer-ca"
MAX_DAYS = 36_500
_CLOCK_SLACK = dt.timedelta(minutes=5)  # between the machine that signs and those that check
_DNS = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~:/-]{1,200}")


def make_authorities(directory: Path, days: int) -> list[Path]:
    """Create both authorities in a directory without any; return the files. Raises ConfigError."""
    _require()
    for name in (CLIENT_CA, PEER_CA):
        for path in (directory / f"{name}.crt", directory / f"{name}.key"):
            if path.exists():
                raise ConfigError(
                    f"{path} exists: its certificates would become invalid; use another directory"
                )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    made: list[Path] = []
    for name, text in ((CLIENT_CA, "oncelog clients CA"), (PEER_CA, "oncelog nodes CA")):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(text)
        certificate = (
            _builder(subject, subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        made += _write(directory, name, certificate, key)
    return made


def make_node(
    directory: Path,
    node_id: int,
    cluster_id: str,
    hosts: Sequence[str],
    days: int,
    others: Sequence[int] = (),
) -> list[Path]:
    """Create a node's tls_* and peer_* files, in DIRECTORY/node-ID. Raises ConfigError.

    hosts: names and addresses at which clients reach it. others: further nodes of its machine.
    """
    _require()
    if not hosts:
        raise ConfigError("host: name at least one at which clients reach the node")
    out = directory / f"node-{node_id}"
    clients, peers = _Authority(directory, CLIENT_CA), _Authority(directory, PEER_CA)
    shown = clients.issue(out, "tls", f"node {node_id}", [_host(host) for host in hosts], days)
    prefix = f"oncelog://{quote(cluster_id, safe='')}/node/"
    nodes = dict.fromkeys((node_id, *others))
    names = [x509.UniformResourceIdentifier(f"{prefix}{node}") for node in nodes]
    among = peers.issue(out, "peer", f"node {node_id}", names, days)
    return [*shown, clients.copy(out, "tls-ca"), *among, peers.copy(out, "peer-ca")]


def make_client(directory: Path, name: str, days: int) -> tuple[str, list[Path]]:
    """Create DIRECTORY/client-NAME; return the principal and the files. Raises ConfigError.

    name: a URI such as spiffe://example.org/billing, or a name such as billing.
    """
    _require()
    is_uri = "://" in name
    if not (_URI if is_uri else _DNS).fullmatch(name) or name.startswith("oncelog://"):
        text = "must be a URI of another scheme than oncelog, or lower-case letters, digits, . _ -"
        raise ConfigError(f"name: {name!r} {text}")
    names = [x509.UniformResourceIdentifier(name) if is_uri else x509.DNSName(name)]
    authority = _Authority(directory, CLIENT_CA)
    out = directory / ("client-" + re.sub(r"[^A-Za-z0-9.-]+", "-", name))
    made = authority.issue(out, "client", name[:64], names, days)
    return name if is_uri else f"dns:{name}", [*made, authority.copy(out, "ca")]


class _Authority:
    """One authority, read from its directory. Raises ConfigError if it is missing."""

    def __init__(self, directory: Path, name: str) -> None:
        try:
            self._pem = (directory / f"{name}.crt").read_bytes()
            key = load_pem_private_key((directory / f"{name}.key").read_bytes(), password=None)
            self._certificate = x509.load_pem_x509_certificate(self._pem)
        except (OSError, ValueError) as error:
            text = f"no authority {name} in {directory}: run `oncelog certs init` first"
            raise ConfigError(f"{text} ({error})") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{directory / name}.key is not a key that `certs init` makes")
        self._key = key

    def issue(
        self, out: Path, file: str, common_name: str, names: Sequence[x509.GeneralName], days: int
    ) -> list[Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if file != "client":
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = (
            _builder(_subject(common_name), self._certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _write(out, file, certificate, key)

    def copy(self, out: Path, name: str) -> Path:
        return _replace(out / f"{name}.crt", self._pem, 0o644)


def _require() -> None:
    if x509 is None:
        raise MissingExtraError("oncelog certs needs a package: pip install 'oncelog[certs]'")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _DNS.fullmatch(host):
        raise ConfigError(f"host: {host!r} is neither an address nor a name in lower case")
    return x509.DNSName(host)


def _write(
    out: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return [
        _replace(out / f"{name}.key", text, 0o600),
        _replace(out / f"{name}.crt", certificate.public_bytes(Encoding.PEM), 0o644),
    ]


def _replace(path: Path, data: bytes, mode: int) -> Path:
    """Replace a file atomically: a node that reads it finds the old file or the new one."""
    other = path.with_name(f".{path.name}.new")
    other.unlink(missing_ok=True)
    with os.fdopen(os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    other.replace(path)
    return path


__all__ = ["make_authorities", "make_client", "make_node"]
