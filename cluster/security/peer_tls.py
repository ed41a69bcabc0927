"""TLS between nodes: both sides show a certificate of the peers' CA, and it names the node.

    PeerLink ------client_context--> handshake <--server_context------ PeerListener
              '------------------- node_of(the other's certificate) --'

Names of hosts play no part: a node is who its certificate says, wherever it runs, and its
Hello must say the same. What was connected before the files changed goes on.
"""

from __future__ import annotations

import ssl

from cluster.errors import ConfigError
from cluster.security.certificates import Certificates
from cluster.security.contexts import Contexts
from cluster.security.names import NamelessError, node_of


class PeerTls:
    """Of one node, for all of its links and its listener."""

    def __init__(self, certificates: Certificates, cluster_id: str, node_id: int) -> None:
        """Raises ConfigError if the node's own certificate is not its own."""
        self._certificates, self._cluster_id = certificates, cluster_id
        pem = certificates.current()
        try:
            named = self.node_of(ssl.PEM_cert_to_DER_cert(_first(pem.certificate)))
        except NamelessError as error:
            raise ConfigError(f"peer_cert: {error}") from error
        if named != node_id:
            raise ConfigError(f"peer_cert: is of node {named}, and this is node {node_id}")
        self._contexts = Contexts(certificates)

    def client_context(self) -> ssl.SSLContext:
        """For a connection that this node opens."""
        return self._contexts.client()

    def server_context(self) -> ssl.SSLContext:
        """For a connection that another node opened."""
        return self._contexts.server()

    def node_of(self, der: bytes) -> int:
        """The node that a certificate which was verified is of. Raises NamelessError."""
        return node_of(der, self._cluster_id)


def _first(pem: bytes) -> str:
    end = "-----END CERTIFICATE-----"
    text = pem.decode("ascii", "replace")
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
