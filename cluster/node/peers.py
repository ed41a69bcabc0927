"""The links from this node to the others: made, kept, closed; what is said over all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.config import NodeConfig
from cluster.consensus.message import Message
from cluster.errors import ClusterError
from cluster.features import Release
from cluster.security.peer_tls import PeerTls
from cluster.transport.link import Identity, PeerLink
from cluster.transport.versions import release_of

log = logging.getLogger(__name__)

# How long a refusal by a peer may last: it may still see this node's last life.
REFUSAL_TIMEOUT = 15.0


class Peers:
    """All links of one node.

    on_link(peer, up):  the link came up or broke.
    on_failure(error):  the node must end.
    """

    def __init__(
        self,
        config: NodeConfig,
        clock: Callable[[], float],
        on_link: Callable[[int, bool], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config, self._clock = config, clock
        self._on_link, self._on_failure = on_link, on_failure
        self.links: dict[int, PeerLink] = {}
        self.linked_since: dict[int, float] = {}  # of those whose link is up
        self._refused_since: dict[int, float] = {}

    def connect(self, identity: Identity, tls: PeerTls | None = None) -> None:
        """Begins to connect to all peers; `tls`: None where nodes speak in the clear."""
        config = self._config
        for peer in config.nodes:
            if peer != config.node_id:
                self.links[peer] = PeerLink(
                    identity,
                    peer,
                    config.peer_stream_of(peer),
                    self._link_changed,
                    self._refused,
                    tls,
                )

    async def close(self) -> None:
        for link in self.links.values():
            await link.close()

    def send(self, peer: int, messages: list[Message]) -> None:
        link = self.links.get(peer)
        if link is not None:
            link.send(messages)

    def send_all(self, message: Message) -> None:
        for peer in self.links:
            self.send(peer, [message])

    def up(self, peer: int) -> bool:
        link = self.links.get(peer)
        return link is not None and link.up

    def insecure(self, peer: int) -> bool:
        """Whether the peer said that it listens without TLS beyond its machine."""
        link = self.links.get(peer)
        return link is not None and link.hello is not None and link.hello.insecure

    def release_of(self, peer: int) -> Release | None:
        """What the peer runs; None if its link is down."""
        link = self.links.get(peer)
        hello = None if link is None else link.hello
        return None if hello is None else release_of(hello)

    def _link_changed(self, peer: int, up: bool) -> None:
        if up:
            self.linked_since[peer] = self._clock()
            self._refused_since.pop(peer, None)
        else:
            self.linked_since.pop(peer, None)
        self._on_link(peer, up)

    def _refused(self, peer: int, reason: str, mutual: bool) -> None:
        """A refusal that lasts is a fault of this node's settings: it must end.

        Where each refuses the other, the fault is that of the side with fewer nodes.
        """
        if mutual and 2 * (1 + len(self.linked_since)) > len(self._config.nodes):
            self._refused_since.pop(peer, None)
            return
        now = self._clock()
        since = self._refused_since.setdefault(peer, now)
        if reason and now - since > REFUSAL_TIMEOUT:
            self._on_failure(ClusterError(f"node {peer} refuses this node: {reason}"))
