"""Comparison of this node's wall clock with other nodes' over the links. Pure.

    Maintenance.look, link up --ClockProbe--> peer --ClockReply--> sample of its clock, wrong ones
    samples, own clock --majority within the bound--> agreed, now_ms --> stamps, expiry, retention

A probe takes a round trip, and the peer read its clock at some time within it: half the
round trip is the error. A sample is kept as the distance of the peer's wall clock from this
node's steady clock. So a jump of the own wall clock shows at once, in the next `now_ms`,
without a message, and an isolated node continues with its last samples.

A node whose clock is not within the bound of a majority's (itself counted) is not *agreed*:
it does not lead, and its `now_ms` stands still. A node alone cannot compare: it refuses a jump
of its wall clock against its steady one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from cluster.consensus.message import ClockProbe, ClockReply, Message

log = logging.getLogger(__name__)

RECHECK_MS = 100  # the own clock may shift by this before all samples are looked at again
MAX_ERROR = 0.25  # of the bound; a slower round trip says too little


class _ClockSample(NamedTuple):
    """A peer's clock: ahead of this node's steady clock by `offset_ms`, give or take `error_ms`."""

    sent_us: int
    offset_ms: float
    error_ms: float


class ClockAgreement:
    """The wall clock of one node, and whether a majority shares it.

    peers:   the other nodes whose clocks count: the voters of the metadata. It asks them, and in
             `compare_with` more nodes.
    steady:  seconds; never set, and goes on while the machine sleeps.
    wall_ms: the wall clock, milliseconds since the Unix epoch.
    send:    hands messages for one peer to the network.
    is_sick: this node's own report of its disk and event loop.

    agreed:  whether the node may lead and stamp, as of the last look at the own clock.
             `now_ms` itself holds back a jump since then.
    wrong:   the nodes that report to be outside a majority's time: to this node, or to a voter.
    sick:    the asked nodes that report that their disk or event loop does not keep up.
    """

    def __init__(
        self,
        peers: Collection[int],
        bound_ms: int,
        steady: Callable[[], float],
        wall_ms: Callable[[], int],
        send: Callable[[int, list[Message]], None],
        is_sick: Callable[[], bool] = lambda: False,
    ) -> None:
        self._peers = self._asked = frozenset(peers)
        self._bound_ms = bound_ms
        self._steady = steady
        self._wall_ms = wall_ms
        self._send = send
        self._is_sick = is_sick
        self._majority = (len(self._peers) + 1) // 2 + 1
        self._samples: dict[int, _ClockSample] = {}
        self._reached: set[int] = set()
        self._checked_ms = self._alone_ms = self._own_ms(wall_ms())
        self._last_ms = 0 if self._peers else wall_ms()
        self.agreed = not self._peers
        self._wrong: set[int] = set()
        self._told: dict[int, tuple[int, ...]] = {}  # voter -> nodes with wrong clocks
        self.sick: set[int] = set()
        self._reported: bool | None = None

    def compare_with(self, peers: Collection[int], others: Collection[int] = ()) -> None:
        """Count these peers from now on, and ask the others, too.

        Samples taken before also count. Peers that were not asked yet count from the next call on,
        if the node agrees with those before: it would take its own clock for wrong until they
        answer.
        """
        wanted = frozenset(peers)
        may_wait = self._peers and self.agreed
        counted = self._peers if may_wait and not wanted <= self._asked else wanted
        asked = wanted.union(counted, others)
        for gone in self._asked - asked:
            self._samples.pop(gone, None)
            for known in (self._wrong, self.sick, self._reached):
                known.discard(gone)
        self._asked = asked
        if self._peers == counted:
            return
        self._peers = counted
        self._told = {voter: told for voter, told in self._told.items() if voter in counted}
        self._majority = (len(self._peers) + 1) // 2 + 1
        self._check(self._own_ms(self._wall_ms()))

    # -- the node's questions ---------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time. It stands still while the clock is not agreed; 0: it never was."""
        wall_ms = self._wall_ms()
        own_ms = self._own_ms(wall_ms)
        if not -RECHECK_MS < own_ms - self._checked_ms < RECHECK_MS:
            self._check(own_ms)
        if self.agreed:
            self._last_ms = wall_ms
        return self._last_ms

    @property
    def wrong(self) -> set[int]:
        told = {node for nodes in self._told.values() for node in nodes}
        return self._wrong | (told - self._asked)

    @property
    def disagrees(self) -> bool:
        """Return whether enough clocks were compared, and this one is not a majority's."""
        return not self.agreed and len(self._counted()) + 1 >= self._majority

    def _counted(self) -> list[_ClockSample]:
        # A thread of the probes asks, too.
        return [sample for peer, sample in [*self._samples.items()] if peer in self._peers]

    def offsets(self) -> dict[int, float]:
        """Return how far each peer's clock is ahead of this node's, in seconds."""
        own_ms = self._own_ms(self._wall_ms())
        samples = list(self._samples.items())
        return {
            peer: (sample.offset_ms - own_ms) / 1000
            for peer, sample in samples
            if peer in self._peers
        }

    def round_trips(self) -> dict[int, float]:
        """Return the seconds that each peer's newest sample took."""
        return {peer: sample.error_ms / 500 for peer, sample in [*self._samples.items()]}

    # -- comparing --------------------------------------------------------------------

    def look(self) -> None:
        """Check the own clock and ask for the others', periodically."""
        own_ms = self._own_ms(self._wall_ms())
        self._check(own_ms)
        self._report()
        if self.agreed:
            self._alone_ms = own_ms
        for peer in sorted(self._asked):
            self._probe(peer)

    def linked(self, peer: int, up: bool) -> None:
        """Ask at once over a link that is up. A voter that is gone tells nothing of others."""
        if not up:
            self._told.pop(peer, None)
        elif peer in self._asked:
            self._probe(peer)

    def _probe(self, peer: int) -> None:
        self._send(peer, [ClockProbe(self._steady_us())])

    def receive(self, peer: int, message: ClockProbe | ClockReply) -> None:
        if isinstance(message, ClockProbe):
            # Voters ask each node themselves.
            wrong = () if peer in self._peers else tuple(sorted(self._wrong - {peer}))
            own = (self._wall_ms(), self.disagrees, self._is_sick())
            self._send(peer, [ClockReply(message.sent_us, *own, wrong)])
            if peer in self._asked and peer not in self._reached:
                # The link from here to the peer is up, so its answers can come from now on.
                self._reached.add(peer)
                self._probe(peer)
        elif peer in self._asked:
            self._take(peer, message)

    def _take(self, peer: int, reply: ClockReply) -> None:
        (self.sick.add if reply.sick else self.sick.discard)(peer)
        if peer in self._peers:
            self._told[peer] = reply.wrong
        now_us = self._steady_us()
        error_ms = (now_us - reply.sent_us) / 2000
        known = self._samples.get(peer)
        late = known is not None and reply.sent_us < known.sent_us
        if late or not 0 <= error_ms <= MAX_ERROR * self._bound_ms:
            return
        offset_ms = reply.wall_ms - (now_us + reply.sent_us) / 2000
        self._samples[peer] = _ClockSample(reply.sent_us, offset_ms, error_ms)
        (self._wrong.add if reply.disagrees else self._wrong.discard)(peer)
        self._check(self._own_ms(self._wall_ms()))

    def _check(self, own_ms: float) -> None:
        """Compare the own clock, `own_ms` ahead of the steady one, with all samples."""
        self._checked_ms = own_ms
        if self._peers:
            near = sum(
                abs(sample.offset_ms - own_ms) + sample.error_ms <= self._bound_ms
                for sample in self._counted()
            )
            self.agreed = near + 1 >= self._majority
        else:
            self.agreed = abs(own_ms - self._alone_ms) <= self._bound_ms
        if self.agreed:
            # Set even if no caller asked for the time: it stands still here if the clock jumps
            # next.
            self._last_ms = int(own_ms + self._steady() * 1000)

    def _report(self) -> None:
        """Log a change once; not with each answer, as the first may be the wrong one."""
        if self.disagrees and self._reported is not False:
            self._reported = False
            log.error(
                "this node's wall clock is not within %d ms of a majority's: it does not lead, and "
                "takes no writes, until that is put right (peers ahead by, in seconds: %s)",
                self._bound_ms,
                {peer: round(ahead, 3) for peer, ahead in self.offsets().items()},
            )
        elif self.agreed and self._reported is not True:
            self._reported = True
            log.info("this node's wall clock agrees with a majority's")

    # -- clocks -----------------------------------------------------------------------

    def _own_ms(self, wall_ms: int) -> float:
        return wall_ms - self._steady() * 1000

    def _steady_us(self) -> int:
        return int(self._steady() * 1_000_000)
