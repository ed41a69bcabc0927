"""gRPC server of the node: its services, their limits, and TLS.

With TLS each handshake uses the current certificates. Open connections continue, so a
connection has a maximum age: then a client must reconnect, and a certificate no longer trusted
does not get in.
"""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from cluster.access.budget import Budget
from cluster.access.gate import Gate
from cluster.config.addresses import ListenError
from cluster.config.node_config import NodeConfig
from cluster.rpc.authorization import Guarding
from cluster.rpc.decoding import Decoding
from cluster.rpc.foundings import OneFounding
from cluster.rpc.memory import Metering
from cluster.rpc.reflection import add_reflection
from cluster.security.certificates import Certificates, Pem

MAX_STREAMS = 10_000  # of one connection; more wait at the client
STREAM_WINDOW_BYTES = 4 * 1024 * 1024

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a shared port
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client that vanished without closing is noticed within 8 s.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    # Bytes that a stream may send before it is read. gRPC would raise that with its estimate of
    # the network's delay: on a busy node ten streams had 600 MB.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    # Calls wait for their turn: gRPC would end most of those beyond 1,000, without a reason.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
]
HANDSHAKE_MS = 10_000  # that a connection may take to identify itself; gRPC's own limit is 2 min
AGE_GRACE_MS = 30_000  # that running calls get when their connection is old


class Server:
    """A grpc.aio server with health and reflection. connections: of clients, at a time."""

    def __init__(
        self,
        config: NodeConfig,
        memory: Budget,
        connections: int,
        certificates: Certificates | None = None,
        gate: Gate | None = None,
        *,
        founding: int,
    ) -> None:
        self._config = config
        self._certificates = certificates
        self.port = 0
        self._started = False
        self.is_serving = False  # the node takes part in its cluster, and does not leave
        # An answer of several batches may be longer than the largest batch.
        largest = config.max_message_bytes + config.fetch_max_bytes
        self.grpc = grpc.aio.server(
            options=[
                *_OPTIONS,
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
                ("grpc.max_allowed_incoming_connections", connections),
                *([] if certificates is None else _age_options(config.connection_age_ms)),
                ("grpc.max_send_message_length", largest),
                ("grpc.max_receive_message_length", largest),
            ],
            interceptors=[
                Metering(memory),
                OneFounding(founding, f"node {config.node_id}"),
                *([] if gate is None else [Guarding(gate)]),
                Decoding(),
            ],
        )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)

    def bind(self) -> None:
        """Take the port; calls wait until `start`. Raises ListenError."""
        add_reflection(self.grpc)
        listen = self._config.listen
        try:
            if self._certificates is None:
                self.port = self.grpc.add_insecure_port(listen)
            else:
                credentials = server_credentials(self._certificates)
                self.port = self.grpc.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise ListenError(f"listen: {listen} cannot be used: {error}") from error

    async def start(self) -> None:
        """Answer calls, as not serving yet."""
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        await self.grpc.start()
        self._started = True

    async def serving(self) -> None:
        """Report this node as part of the cluster: health checks may pass."""
        self.is_serving = True
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def leave(self) -> None:
        """Fail health checks from now on; calls go on."""
        self.is_serving = False
        await self._health.enter_graceful_shutdown()

    async def stop(self, timeout: float) -> None:
        """Take no new calls; running ones get `timeout` seconds."""
        await self.grpc.stop(timeout)

    async def close(self) -> None:
        """Give the port back, also of a server that was never started."""
        if not self._started:
            await self.grpc.start()  # gRPC lets go of a port only when a server that ran stops
        await self.grpc.stop(0)


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that reread the certificates at each handshake, on gRPC's thread."""
    pem = certificates.current()
    return grpc.dynamic_ssl_server_credentials(
        _configuration(pem),
        _Replacements(certificates, pem),  # type: ignore[arg-type]  # None: as before
        require_client_authentication=bool(pem.ca),
    )


class _Replacements:
    """gRPC's callback before each handshake, one at a time; it must not raise."""

    def __init__(self, certificates: Certificates, used: Pem) -> None:
        self._certificates = certificates
        self._used = used

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        pem = self._certificates.current()
        if pem is self._used:
            return None
        self._used = pem
        return _configuration(pem)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pem.key, pem.certificate)], root_certificates=pem.ca or None
    )


def _age_options(age_ms: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_connection_age_ms", age_ms),  # gRPC itself spreads it by a tenth
        ("grpc.max_connection_age_grace_ms", AGE_GRACE_MS),
    ]
