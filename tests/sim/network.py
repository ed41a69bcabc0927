"""The network between nodes: directed links that lose, hold back, cut and mix up messages.

A run uses one of two kinds:

    streams    the nodes' real transport: in order, nothing lost while a connection
               stands; a reset delivers a prefix of the messages on their way
    datagrams  drop, duplicate, reorder: more than the transport may do, but the
               guard is built for it

Streams may have a rate: then messages wait for their turn in the node's own `SendQueue`.

Either kind knows blocked directions. A blocked stream holds its messages until
it is unblocked or reset, as TCP does; a blocked datagram is lost. A link is
up or down as its sender sees it, blocked or not.

Where `damage` is set, messages arrive as the frames that nodes really send, as `damage`
leaves them. A frame that its receiver refuses is lost, and ends a stream.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster.transport.frames import FrameError, decode_frame, encode_frame, size_of
from cluster.transport.send_queue import SendQueue
from tests.sim.clock import Scheduler

if TYPE_CHECKING:
    from tests.sim.contacts import Meetings

Pair = tuple[int, int]
SNAPSHOT_DAMAGE = 0.3  # chance, where messages are damaged at all
RECONNECT = 0.2  # seconds between attempts to connect


@dataclass(slots=True)
class Quality:
    """Quality of the network now. Delays in seconds, chances in 0..1."""

    delay: float = 0.002
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    late: float = 0.0  # chance that a datagram arrives seconds later, in another term


class Damage:
    """Effects of a bad memory or card: of `chance` of all frames one bit is flipped, or one ends
    too early, or with bytes that are not its own.
    """

    def __init__(self, rng: random.Random, chance: float) -> None:
        self._rng, self._chance = rng, chance

    def __call__(self, frame: bytes) -> bytes:
        return self._harmed(frame) if self._rng.random() < self._chance else frame

    def snapshot(self, state: bytes) -> bytes:
        """Damages a state on its way: it has many more bytes than a frame."""
        return self._harmed(state) if state and self._rng.random() < SNAPSHOT_DAMAGE else state

    def _harmed(self, frame: bytes) -> bytes:
        shape = self._rng.random()
        if shape < 0.2:
            return frame[: self._rng.randrange(len(frame))]
        if shape < 0.3:
            return frame + self._rng.randbytes(1 + self._rng.randrange(40))
        bit = 1 << self._rng.randrange(8 * len(frame))
        return (int.from_bytes(frame) ^ bit).to_bytes(len(frame))


@dataclass(slots=True)
class Link:
    """One direction between two nodes."""

    up: bool = False
    blocked: bool = False
    connecting: bool = False
    generation: int = 0
    newest: float = 0.0  # when the last message of this connection arrives
    cut_at: float = -1.0  # of the connection before: later arrivals are lost
    held: list[list[Any]] = field(default_factory=list)
    queue: SendQueue = field(default_factory=SendQueue)
    sending: bool = False  # a frame, which takes as long as the rate says


class Network:
    """All links of a cluster.

    deliver(receiver, sender, messages): hands over messages that arrived.
    on_link(node, peer, up): tells a node that its stream to a peer came up or broke.
    reachable(node): whether the process runs.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        nodes: Iterable[int],
        *,
        streams: bool,
        deliver: Callable[[int, int, list[Any]], None],
        on_link: Callable[[int, int, bool], None],
        reachable: Callable[[int], bool],
    ) -> None:
        self._scheduler, self._rng = scheduler, rng
        self._deliver, self._on_link, self._reachable = deliver, on_link, reachable
        self.streams = streams
        self.nodes = tuple(nodes)
        self.quality = Quality()
        self.rate = 0.0  # of each link, bytes per second; 0: no limit
        self.links = {(a, b): Link() for a in self.nodes for b in self.nodes if a != b}
        self.tap: Callable[[int, int, Any], bool] | None = None  # True: the tap keeps it
        self.damage: Callable[[bytes], bytes] | None = None
        self.meetings: Meetings | None = None  # where nodes identify themselves first
        self.sent = self.lost = self.refused = 0

    # -- sending ------------------------------------------------------------------------

    def send(self, sender: int, receiver: int, messages: list[Any]) -> None:
        if self.tap is not None:
            messages = [m for m in messages if not self.tap(sender, receiver, m)]
            if not messages:
                return
        link = self.links[sender, receiver]
        self.sent += 1
        if not link.up:
            self.lost += 1
            return
        if self.streams:
            if link.blocked:
                link.held.append(messages)
            elif self.rate:
                link.queue.put(messages)
                if not link.sending:
                    self._send_frame(sender, receiver, link)
            else:
                self._send_stream(sender, receiver, link, messages)
        elif link.blocked:
            self.lost += 1
        else:
            self._send_datagrams(sender, receiver, messages)

    def _send_frame(self, sender: int, receiver: int, link: Link) -> None:
        """Sends the next frame, if there is one."""
        frame = link.queue.next_frame()
        link.sending = bool(frame)
        if frame:
            seconds = sum(map(size_of, frame)) / self.rate
            self._scheduler.after(
                seconds, self._frame_sent, sender, receiver, link.generation, frame
            )

    def _frame_sent(self, sender: int, receiver: int, generation: int, frame: list[Any]) -> None:
        link = self.links[sender, receiver]
        if link.generation != generation:
            return
        if link.blocked:
            link.held.append(frame)
        else:
            self._send_stream(sender, receiver, link, frame)
        self._send_frame(sender, receiver, link)

    def _send_stream(self, sender: int, receiver: int, link: Link, messages: list[Any]) -> None:
        scheduler = self._scheduler
        at = scheduler.now + self.quality.delay * (0.5 + self._rng.random())
        link.newest = at = max(at, link.newest)
        scheduler.at(at, self._arrive_stream, sender, receiver, link.generation, messages)

    def _arrive_stream(
        self, sender: int, receiver: int, generation: int, messages: list[Any]
    ) -> None:
        link = self.links[sender, receiver]
        if link.generation == generation or self._scheduler.now <= link.cut_at:
            if not self._arrive(receiver, sender, messages):
                self.reset(sender, receiver)
                link.cut_at = -1.0  # the receiver reads nothing behind a refused frame
        else:
            self.lost += 1

    def _arrive(self, receiver: int, sender: int, messages: list[Any]) -> bool:
        """Hands over messages that came. False: as bytes that the receiver refused."""
        if self.damage is not None:
            try:
                messages = decode_frame(self.damage(b"".join(encode_frame(messages))))[1]
            except FrameError:
                self.lost += 1
                self.refused += 1
                return False
        self._deliver(receiver, sender, messages)
        return True

    def _send_datagrams(self, sender: int, receiver: int, messages: list[Any]) -> None:
        quality, rng, scheduler = self.quality, self._rng, self._scheduler
        whole = len(messages) == 1 or rng.random() < 0.5
        for part in [messages] if whole else [[message] for message in messages]:
            if quality.drop and rng.random() < quality.drop:
                self.lost += 1
                continue
            copies = 2 if quality.duplicate and rng.random() < quality.duplicate else 1
            for _ in range(copies):
                delay = quality.delay * (0.5 + rng.random())
                if quality.reorder and rng.random() < quality.reorder:
                    delay *= 10 ** (3 * rng.random())
                if quality.late and rng.random() < quality.late:
                    delay = 8 * rng.random()
                scheduler.after(delay, self._arrive, receiver, sender, part)

    # -- connections ----------------------------------------------------------------------

    def connect(self, sender: int, receiver: int) -> None:
        """Begins to establish a link that is down; does nothing if that is in progress."""
        link = self.links[sender, receiver]
        wanted = self.meetings is None or self.meetings.wants(sender, receiver)
        if wanted and not link.up and not link.connecting:
            link.connecting = True
            self._scheduler.after(RECONNECT * self._rng.random(), self._connected, sender, receiver)

    def _connected(self, sender: int, receiver: int) -> None:
        link = self.links[sender, receiver]
        link.connecting = False
        if link.up or (link.blocked and self.meetings is None):
            return
        if self._reachable(sender) and self._hears(receiver):
            if self.meetings is not None and not self.meetings.meet(sender, receiver):
                self.connect(sender, receiver)  # nothing announces that it will be let in
                return
            link.up = True
            self._on_link(sender, receiver, True)

    def _hears(self, node: int) -> bool:
        return self._reachable(node) or (self.meetings is not None and self.meetings.hears(node))

    def reset(self, sender: int, receiver: int) -> None:
        """Breaks the connection; a prefix of the messages on their way still arrives."""
        link = self.links[sender, receiver]
        now = self._scheduler.now
        link.held.clear()
        link.queue.clear()
        link.sending = False
        link.generation += 1
        link.cut_at = now + max(0.0, link.newest - now) * self._rng.random()
        link.newest = now
        if self.meetings is not None:
            self.meetings.parted(sender, receiver)
        if link.up:
            link.up = False
            if self._reachable(sender):
                self._on_link(sender, receiver, False)
        self.connect(sender, receiver)

    def node_up(self, node: int) -> None:
        for peer in self.nodes:
            if peer != node:
                self.connect(node, peer)
                self.connect(peer, node)

    def node_down(self, node: int) -> None:
        for peer in self.nodes:
            if peer != node:
                self.reset(node, peer)
                self.reset(peer, node)

    # -- faults ---------------------------------------------------------------------------

    def block(self, pairs: Iterable[Pair], *, noticed: bool) -> None:
        """Blocks these directions; `noticed`: the connections break, too."""
        for sender, receiver in pairs:
            self.links[sender, receiver].blocked = True
            if noticed:
                self.reset(sender, receiver)

    def unblock(self, pairs: Iterable[Pair]) -> None:
        for sender, receiver in pairs:
            link = self.links[sender, receiver]
            if not link.blocked:
                continue
            link.blocked = False
            held, link.held = link.held, []
            for messages in held:
                self._send_stream(sender, receiver, link, messages)
            self.connect(sender, receiver)

    def heal(self) -> None:
        """Ends all faults."""
        self.quality = Quality()
        self.unblock(list(self.links))
        for sender, receiver in self.links:
            self.connect(sender, receiver)


# -- shapes of partitions: directed pairs to block --------------------------------------------


def split(one: Iterable[int], other: Iterable[int]) -> list[Pair]:
    """Pairs that block all messages between the two sides."""
    left, right = list(one), list(other)
    return [(a, b) for a in left for b in right] + [(b, a) for a in left for b in right]


def one_way(senders: Iterable[int], receivers: Iterable[int]) -> list[Pair]:
    """Pairs that let messages pass in one direction only: `senders` are not heard."""
    left, right = list(senders), list(receivers)
    return [(a, b) for a in left for b in right if a != b]


def bridge(nodes: list[int]) -> list[Pair]:
    """Pairs for two halves of which only the first node sees both."""
    half = (len(nodes) - 1) // 2
    return split(nodes[1 : 1 + half], nodes[1 + half :])


def majority_ring(nodes: list[int]) -> list[Pair]:
    """Pairs for a ring: each node sees a majority, no two see the same; with 3 nodes a chain."""
    count = len(nodes)
    if count == 3:
        return split(nodes[:1], nodes[2:])
    reach = count // 4
    pairs = []
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            distance = min((i - j) % count, (j - i) % count)
            if distance > reach:
                pairs.append((a, b))
    return pairs
