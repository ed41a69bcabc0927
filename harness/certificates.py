"""Certificates for tests, valid and invalid: any names, any time, any authority.

Shares no code with `oncelog certs`, which makes certificates for production.
"""

from __future__ import annotations

import datetime as dt
import itertools
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.certificate.decode())

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Writes NAME.crt and NAME.key, each replaced atomically; returns their paths."""
        directory.mkdir(parents=True, exist_ok=True)
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        for path, data in zip(paths, (self.certificate, self.key), strict=True):
            replace(path, data)
        return paths


def replace(path: Path, data: bytes) -> None:
    """Replaces a file atomically; only this user can read it."""
    other = path.with_suffix(f".{next(_numbers)}")
    other.touch(mode=0o600)
    other.write_bytes(data)
    other.replace(path)


def uri(name: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(name)


def dns(name: str) -> x509.GeneralName:
    return x509.DNSName(name)


class Authority:
    """Authority that signs any request."""

    def __init__(self, name: str = "test") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(f"{name} CA")
        now = dt.datetime.now(dt.UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )

    def issue(
        self,
        names: Sequence[x509.GeneralName],
        *,
        common_name: str = "somebody",
        begins: dt.timedelta = -DAY,
        ends: dt.timedelta = DAY,
    ) -> Pair:
        """Issues a certificate. begins, ends: relative to now."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_common_name(common_name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Pair(
            builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
