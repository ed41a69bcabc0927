"""TLS between nodes: both sides show a certificate of the peers' CA, and it names the node.

    PeerLink ------client_context--> handshake <--server_context------ PeerListener
              '------------------- nodes_of(the other's certificate) --'

Host names play no part: the certificate names the node, wherever it runs, and its Hello must
agree. The nodes of a machine may share a certificate that names them all. An open connection
continues while the other's certificate is valid and the CAs are the same. Then it must reconnect.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.security.certificates import Certificates
from cluster.security.contexts import Contexts
from cluster.security.names import NamelessError, expiry_of, nodes_of


@dataclass(frozen=True, slots=True)
class Peer:
    """The nodes that the other end may be, its expiry (seconds since the epoch), and its CAs."""

    nodes: frozenset[int]
    expires: float
    context: ssl.SSLContext


class PeerTls:
    """TLS of one node, for all of its links and its listener."""

    def __init__(
        self,
        certificates: Certificates,
        cluster_id: str,
        node_id: int,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ConfigError if the node's certificate names another node."""
        self._certificates = certificates
        self._cluster_id = cluster_id
        self._wall_clock = wall_clock
        pem = certificates.current()
        try:
            named = nodes_of(ssl.PEM_cert_to_DER_cert(_first(pem.certificate)), cluster_id)
        except NamelessError as error:
            raise ConfigError(f"peer_cert: {error}") from error
        if node_id not in named:
            raise ConfigError(f"peer_cert: is of {listed(named)}, and this is node {node_id}")
        self._contexts = Contexts(certificates)

    def client_context(self) -> ssl.SSLContext:
        """Return the context for a connection that this node opens."""
        return self._contexts.client()

    def server_context(self) -> ssl.SSLContext:
        """Return the context for a connection that another node opened."""
        return self._contexts.server()

    def peer(self, found: ssl.SSLObject) -> Peer:
        """Return the other side of a handshake. Raises NamelessError."""
        der = found.getpeercert(binary_form=True)
        assert der is not None, "the context demands one"
        return Peer(nodes_of(der, self._cluster_id), expiry_of(der), found.context)

    def distrust(self, peer: Peer) -> str:
        """Return why the connection must end; empty: it may go on."""
        if self._wall_clock() >= peer.expires:
            return "its certificate has expired"
        if not self._contexts.trusts_as(peer.context):
            return "the CAs of nodes have changed"
        return ""


def listed(nodes: frozenset[int]) -> str:
    """Return "node 1", or "nodes 1, 101", for an error."""
    return f"node{'s' * (len(nodes) > 1)} {', '.join(map(str, sorted(nodes)))}"


def _first(pem: bytes) -> str:
    end = "-----END CERTIFICATE-----"
    text = pem.decode("ascii", "replace")
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
