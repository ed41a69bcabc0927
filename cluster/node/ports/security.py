"""Security of each port, made from the settings, and its metrics."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from cluster.config.node_config import NodeConfig
from cluster.metrics.text import COUNTER, GAUGE, MetricFamily, gauge, labels
from cluster.security.audit import Audit
from cluster.security.certificates import CertificateFiles, Certificates
from cluster.security.contexts import Contexts
from cluster.security.identities import Identities
from cluster.security.jwks import FileKeys, KeySource, UrlKeys, fetcher
from cluster.security.jwts import Jwts
from cluster.security.peer_tls import PeerTls
from cluster.security.tokens import StaticTokens

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    """Security of each port; None for a port in the clear.

    page: of the metrics page. identities: of clients; None without identities.
    superusers: None if every caller may do everything.
    """

    clients: Certificates | None
    peer_certificates: Certificates | None
    peers: PeerTls | None
    page: Callable[[], ssl.SSLContext] | None
    identities: Identities | None
    superusers: tuple[str, ...] | None
    audit: Audit | None

    @classmethod
    def of(cls, config: NodeConfig) -> Security:
        """Read the files. Raises ConfigError."""
        clients = _certificates("tls", config.tls_cert, config.tls_key, config.tls_ca)
        peers = _certificates("peer", config.peer_cert, config.peer_key, config.peer_ca)
        if config.insecure:
            log.warning(
                "insecure is set: without TLS, anybody with access to a port of this node reads "
                "and writes all, and can act as a node"
            )
        return cls(
            clients=clients,
            peer_certificates=peers,
            peers=None if peers is None else PeerTls(peers, config.cluster_id, config.node_id),
            page=None if clients is None else Contexts(clients).server,
            identities=_identities(config),
            superusers=_listed(config.superusers) if config.permissions else None,
            audit=None if config.audit_file is None else Audit(config.audit_file, config.node_id),
        )


def _certificates(
    name: str, certificate: Path | None, key: Path | None, ca: Path | None
) -> Certificates | None:
    if certificate is None or key is None:
        return None
    return Certificates(CertificateFiles(name, certificate, key, ca))


def _identities(config: NodeConfig) -> Identities | None:
    static = None if config.tokens_file is None else StaticTokens(config.tokens_file)
    keys: KeySource | None = None
    if config.jwt_keys is not None:
        keys = FileKeys(config.jwt_keys)
    elif config.jwt_keys_url:
        keys = UrlKeys(fetcher(config.jwt_keys_url, config.jwt_keys_ca))
    jwts = None if keys is None else Jwts(keys, config.jwt_issuer, config.jwt_audience)
    if static is None and jwts is None and config.tls_ca is None:
        return None
    return Identities(static, jwts)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def security_families(security: Security, insecure: bool) -> Iterator[MetricFamily]:
    """Yield the certificates' ends, lost lines of the audit log, and whether TLS may be missing."""
    yield gauge("oncelog_insecure", "1 if ports beyond loopback need no TLS", int(insecure))
    ports = (("clients", security.clients), ("peers", security.peer_certificates))
    yield MetricFamily(
        "oncelog_certificate_expiry_timestamp_seconds",
        GAUGE,
        "End of the certificate in use, Unix time",
        [(labels(port=port), _expiry(one)) for port, one in ports if one is not None],
    )
    dropped = 0 if security.audit is None else security.audit.dropped
    yield MetricFamily(
        "oncelog_audit_lines_dropped_total",
        COUNTER,
        "Lines of the audit log without room, or refusals too many in a second",
        [("", dropped)],
    )


def _expiry(certificates: Certificates) -> float:
    first = x509.load_pem_x509_certificates(certificates.current().certificate)[0]
    return first.not_valid_after_utc.timestamp()
