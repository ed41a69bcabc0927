"""TLS and tokens of a broker: its certificates and checks, and its client's files.

    case: security = "tls" | "tokens" --> Secured --credentials, Doorkeeper--> servers of the nodes
    step: config = {security = "..."} --> Secured.settings --> the client's settings, as files

Certificates are made on demand, for loopback and for this run of the kit.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from cryptography import x509

from cluster.rpc.errors import abort
from cluster.rpc.handlers import Continuation, Handler
from harness.certificates import Authority, Pair, dns
from oncelog.errors import UnauthenticatedError

KINDS = ("", "tls", "tokens")
TOKEN = "the-first-token"


@cache
def _authority(name: str) -> Authority:
    return Authority(name)


@cache
def _client(name: str) -> Pair:
    """Certificate of a client: good, expired, or of a foreign authority."""
    over = -dt.timedelta(hours=1)
    match name:
        case "expired":
            return _authority("clients").issue([dns("client")], ends=over)
        case "foreign":
            return _authority("foreign").issue([dns("client")])
    return _authority("clients").issue([dns("client")])


@cache
def _node(host: str) -> Pair:
    loopback = x509.IPAddress(ip_address("127.0.0.1"))
    return _authority("nodes").issue([dns(host)] if host else [loopback])


class Doorkeeper(grpc.aio.ServerInterceptor):
    """Ends calls without the accepted token. accepted: the token; empty: all calls pass."""

    def __init__(self) -> None:
        self.accepted = ""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        shown = [
            value
            for name, value in handler_call_details.invocation_metadata or ()
            if name == "authorization"
        ]
        if self.accepted and shown != [f"Bearer {self.accepted}"]:
            return _REFUSING
        return await continuation(handler_call_details)


async def _refuse(requests: object, context: Any) -> None:
    await abort(context, UnauthenticatedError("authorization: the token is not known"))


_REFUSING: Any = grpc.stream_stream_rpc_method_handler(_refuse)


class Secured:
    """Security of one broker. kind "tls": clients need a certificate. "tokens": a token."""

    def __init__(self, kind: str) -> None:
        assert kind in KINDS
        self.kind = kind
        self._folder = Path(tempfile.mkdtemp(prefix="oncelog-kit-")) if kind else Path()
        self.doorkeeper = Doorkeeper()
        self._token_file = self._folder / "token"
        if kind == "tokens":
            self.accept_token(TOKEN)
            self.write_token(TOKEN)

    def accept_token(self, value: str) -> None:
        self.doorkeeper.accepted = value

    def write_token(self, value: str) -> None:
        """Replaces the token in the client's file atomically."""
        other = self._token_file.with_suffix(".new")
        other.write_text(value + "\n")
        other.replace(self._token_file)

    def port(self, server: grpc.aio.Server, host: str = "") -> int:
        """Opens a port. host: name in the certificate, if it is not the node's own."""
        if not self.kind:
            return server.add_insecure_port("127.0.0.1:0")
        pair = _node(host)
        wanted = _authority("clients").certificate if self.kind == "tls" else None
        credentials = grpc.ssl_server_credentials(
            [(pair.key, pair.certificate)], wanted, require_client_auth=wanted is not None
        )
        return server.add_secure_port("127.0.0.1:0", credentials)

    def settings(self, words: str) -> dict[str, str]:
        """Settings of a client. `good`: accepted ones; any other word makes one part wrong.

        no_certificate, expired, foreign: the client's own certificate. other_nodes: the CA that it
        trusts. none: no TLS.
        """
        if words == "none":
            return {}
        nodes = "foreign" if words == "other_nodes" else "nodes"
        given = {"tls_ca_file": self._file("ca.crt", _authority(nodes).certificate)}
        if self.kind == "tokens":
            return {**given, "token_file": str(self._token_file)}
        if words != "no_certificate":
            pair = _client(words if words in ("expired", "foreign") else "good")
            given["tls_cert_file"] = self._file("client.crt", pair.certificate)
            given["tls_key_file"] = self._file("client.key", pair.key)
        return given

    def _file(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        return str(path)

    def close(self) -> None:
        if self.kind:
            for path in self._folder.iterdir():
                path.unlink()
            self._folder.rmdir()
