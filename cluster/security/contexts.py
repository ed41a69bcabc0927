"""TLS contexts from certificates, for the sockets that are not gRPC's.

    Certificates --> Contexts --> peer_tls (nodes), the metrics page, Kafka's port

A new context is made when the files have changed: a CA can be added to a context, but never
taken out of it.
"""

from __future__ import annotations

import ssl
import tempfile
import threading
from pathlib import Path
from weakref import WeakKeyDictionary

from cluster.security.certificates import Certificates, Pem


class Contexts:
    """TLS contexts of both sides of a handshake. Any thread may ask. least: the oldest version."""

    def __init__(
        self, certificates: Certificates, least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> None:
        self._certificates = certificates
        self._least = least
        self._lock = threading.Lock()
        self._pem = certificates.current()
        self._client, self._server = _contexts(self._pem, least)
        # The CAs that admitted the connections still open.
        self._ca = WeakKeyDictionary[ssl.SSLContext, bytes]()
        self._note_ca()

    def client(self) -> ssl.SSLContext:
        """Return the context for an opened connection; the caller checks the peer's name."""
        self._renew()
        return self._client

    def server(self) -> ssl.SSLContext:
        """Return the context for listeners; demands a certificate if the settings name CAs."""
        self._renew()
        return self._server

    def trusts_as(self, context: ssl.SSLContext) -> bool:
        """Return whether the CAs are those that the context was made with."""
        self._renew()
        return self._ca.get(context) == self._pem.ca

    def _note_ca(self) -> None:
        self._ca[self._client] = self._ca[self._server] = self._pem.ca

    def _renew(self) -> None:
        pem = self._certificates.current()
        with self._lock:
            if pem is not self._pem:
                self._client, self._server = _contexts(pem, self._least)
                self._pem = pem
                self._note_ca()


def _contexts(pem: Pem, least: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make both contexts. OpenSSL reads keys only from files: this one is private and brief."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory(prefix="oncelog-") as directory:
        pair = Path(directory) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(pem.key + b"\n" + pem.certificate)
        for context in (client, server):
            context.minimum_version = least
            context.load_cert_chain(pair)
            if pem.ca:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(cadata=pem.ca.decode("ascii"))
    return client, server
