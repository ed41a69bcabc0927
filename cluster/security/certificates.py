"""A port's certificate, its key and its trusted CAs, reread when the files change.

    files --> CertificateFiles.read --> Pem --> gRPC (clients), contexts (nodes, metrics)

Each handshake asks `Certificates`. Files are replaced one after the other: changes count once
the files fit together, and until then the last sound pair stays in use.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cluster.errors import ConfigError
from cluster.security.watched import Stamp, stamp_of

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1024 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ROOT = 0  # user id


@dataclass(frozen=True, slots=True)
class Pem:
    """Content of the files. `ca` is empty if no certificate is demanded."""

    certificate: bytes
    key: bytes
    ca: bytes


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Three settings of the node, each the path of a PEM file. name: begins theirs."""

    name: str
    certificate: Path
    key: Path
    ca: Path | None

    def read(self) -> Pem:
        """Read the files. Raises ConfigError, which names the setting and the file."""
        found = self.key.stat() if self.key.exists() else None
        if found is not None and may_be_used_by_others(found.st_mode, found.st_uid, os.geteuid()):
            text = f"others may use it (mode {stat.S_IMODE(found.st_mode):o}); chmod 600"
            raise ConfigError(f"{self.name}_key: {self.key}: {text}")
        pem = Pem(
            certificate=_bytes(f"{self.name}_cert", self.certificate),
            key=_bytes(f"{self.name}_key", self.key),
            ca=b"" if self.ca is None else _bytes(f"{self.name}_ca", self.ca),
        )
        certificates = _certificates(f"{self.name}_cert", self.certificate, pem.certificate)
        if self.ca is not None:
            _certificates(f"{self.name}_ca", self.ca, pem.ca)
        try:
            key = load_pem_private_key(pem.key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            text = "not a private key in PEM without a password"
            raise ConfigError(f"{self.name}_key: {self.key}: {text}") from error
        if key.public_key() != certificates[0].public_key():
            text = f"is not the key of the certificate in {self.certificate}"
            raise ConfigError(f"{self.name}_key: {self.key} {text}")
        return pem

    def stamp(self) -> Stamp:
        """Return a value that changes with the files. Raises OSError."""
        paths = [self.certificate, self.key] + ([] if self.ca is None else [self.ca])
        return stamp_of(paths)


class Certificates:
    """The files' content as it was when it was last sound. Any thread may ask."""

    def __init__(self, files: CertificateFiles) -> None:
        """Raises ConfigError: a node does not start with unusable certificates."""
        self._files = files
        self._lock = threading.Lock()
        self._stamp = _looked_at(files)
        self._pem = files.read()

    def current(self) -> Pem:
        """Return the same object until the files have changed; never raises.

        An unsound change is logged once.
        """
        with self._lock:
            try:
                stamp = self._files.stamp()
            except OSError:
                return self._pem  # between the removal of a file and its successor
            if stamp == self._stamp:
                return self._pem
            self._stamp = stamp
            try:
                pem = self._files.read()
            except ConfigError as error:
                log.error("new certificates are not used: %s", error)
                return self._pem
            if pem != self._pem:
                self._pem = pem
                log.info("certificates replaced setting=%s_cert", self._files.name)
            return self._pem


def may_be_used_by_others(mode: int, owner: int, user: int) -> bool:
    """Return whether a key file is open to more users than it has to be.

    A key of root has to be readable through its group by a node that is another user: Kubernetes
    mounts Secrets so.
    """
    needed = stat.S_IRGRP if owner == _ROOT and user != _ROOT else 0
    return bool(mode & _OTHERS & ~needed)


def _looked_at(files: CertificateFiles) -> Stamp:
    """Look before the files are read: a change meanwhile is seen the next time."""
    try:
        return files.stamp()
    except OSError:
        return ()  # `read` names the missing file


def _bytes(setting: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{setting}: {path} is longer than {MAX_FILE_BYTES} bytes")
    return data


def _certificates(setting: str, path: Path, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise ConfigError(f"{setting}: {path} holds no certificate in PEM") from error
