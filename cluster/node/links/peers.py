"""Links from this node to the others: opens, keeps and closes them, and sends over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.consensus.message import Message
from cluster.errors import ClusterError, RemovedError
from cluster.features import Release
from cluster.transport.hellos import NO_NODE
from cluster.transport.link import PeerLink
from cluster.transport.versions import release_of

# (peer, address, on_link, on_refusal) -> the link, which begins to connect
MakeLink = Callable[
    [int, str, Callable[[int, bool], None], Callable[[int, str, bool], None]], PeerLink
]
# How long a refusal by a peer may last: it may still see this node's last process.
REFUSAL_TIMEOUT = 15.0


class Peers:
    """All links of one node.

    on_link(peer, up):  the link came up or broke.
    on_failure(error):  the node must end.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        on_link: Callable[[int, bool], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._on_link = on_link
        self._on_failure = on_failure
        self.links: dict[int, PeerLink] = {}
        self.linked_since: dict[int, float] = {}  # of those whose link is up
        self._refused_since: dict[int, float] = {}
        self._make_link: MakeLink | None = None
        self._closing: list[PeerLink] = []

    def open(self, make_link: MakeLink) -> None:
        """Make links possible from now on."""
        self._make_link = make_link

    def connect_to(self, addresses: Mapping[int, str]) -> None:
        """Connect to these peers; links to others end."""
        if self._make_link is None:
            return
        self._closing = [link for link in self._closing if not link.is_closed]
        for peer, link in list(self.links.items()):
            if addresses.get(peer) != link.address:
                del self.links[peer]
                self._refused_since.pop(peer, None)
                link.stop()
                self._closing.append(link)
        for peer, address in addresses.items():
            if peer not in self.links:
                self.links[peer] = self._make_link(peer, address, self._link_changed, self._refused)

    async def close(self) -> None:
        self._make_link = None
        for link in (*self.links.values(), *self._closing):
            await link.close()

    def send(self, peer: int, messages: list[Message]) -> None:
        link = self.links.get(peer)
        if link is not None:
            link.send(messages)

    def up(self, peer: int) -> bool:
        link = self.links.get(peer)
        return link is not None and link.up

    def insecure(self, peer: int) -> bool:
        """Return whether the peer listens without TLS beyond its machine, by its own word."""
        link = self.links.get(peer)
        return link is not None and link.hello is not None and link.hello.insecure

    def release_of(self, peer: int) -> Release | None:
        """Return the peer's release; None if its link is down."""
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
        """End the node on a lasting refusal, which is a fault of its settings.

        If each refuses the other, the fault is that of the side with fewer nodes.
        """
        if mutual and 2 * (1 + len(self.linked_since)) > 1 + len(self.links):
            self._refused_since.pop(peer, None)
            return
        now = self._clock()
        since = self._refused_since.setdefault(peer, now)
        if reason and now - since > REFUSAL_TIMEOUT:
            kind = RemovedError if reason == NO_NODE else ClusterError
            self._on_failure(kind(f"node {peer} refuses this node: {reason}"))
