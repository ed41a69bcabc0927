"""The links from this node to the others: made, kept, closed; what is said over all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

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
        self._identity: Identity | None = None
        self._tls: PeerTls | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, identity: Identity, tls: PeerTls | None = None) -> None:
        """From now on links can be made; `tls`: None where nodes speak in the clear."""
        self._identity, self._tls = identity, tls

    def connect_to(self, addresses: Mapping[int, str]) -> None:
        """These are the peers; links to others end."""
        if self._identity is None:
            return
        for peer, link in list(self.links.items()):
            if addresses.get(peer) != link.address:
                del self.links[peer]
                self._refused_since.pop(peer, None)
                task = asyncio.create_task(link.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        for peer, address in addresses.items():
            if peer not in self.links:
                self.links[peer] = PeerLink(
                    self._identity, peer, address, self._link_changed, self._refused, self._tls
                )

    async def close(self) -> None:
        self._identity = None
        for link in self.links.values():
            await link.close()
        await asyncio.gather(*self._closing)

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
        if mutual and 2 * (1 + len(self.linked_since)) > 1 + len(self.links):
            self._refused_since.pop(peer, None)
            return
        now = self._clock()
        since = self._refused_since.setdefault(peer, now)
        if reason and now - since > REFUSAL_TIMEOUT:
            self._on_failure(ClusterError(f"node {peer} refuses this node: {reason}"))
