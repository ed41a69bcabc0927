"""The settings of security -> what each port of the node is given."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.config import NodeConfig
from cluster.security.certificates import CertificateFiles, Certificates
from cluster.security.contexts import Contexts
from cluster.security.peer_tls import PeerTls

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    """What each port is given; None where it speaks in the clear.

    page: of the metrics page.
    """

    clients: Certificates | None
    peers: PeerTls | None
    page: Callable[[], ssl.SSLContext] | None

    @classmethod
    def of(cls, config: NodeConfig) -> Security:
        """Reads the files. Raises ConfigError."""
        clients = _certificates("tls", config.tls_cert, config.tls_key, config.tls_ca)
        peers = _certificates("peer", config.peer_cert, config.peer_key, config.peer_ca)
        if config.insecure:
            log.warning(
                "insecure is set: without TLS, whoever reaches a port of this node reads and "
                "writes all, and can speak as a node"
            )
        return cls(
            clients=clients,
            peers=None if peers is None else PeerTls(peers, config.cluster_id, config.node_id),
            page=None if clients is None else Contexts(clients).server,
        )


def _certificates(
    name: str, certificate: Path | None, key: Path | None, ca: Path | None
) -> Certificates | None:
    if certificate is None or key is None:
        return None
    return Certificates(CertificateFiles(name, certificate, key, ca))
