"""The verdict table as a model to test against: slow, plain, with everything remembered.

Written from docs/protocol.md and from the corners that `cluster.dedup.verdict` lists; shares no
code with the code under test. It keeps each producer's whole history as objects, and batches may be
stored or still in flight. Verdicts are plain tuples: (name, number), where the number is the one
that the name calls for.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

Answer = tuple[str, int]
KAFKA = 1 << 62  # ids of Kafka clients from here on
DAY = 24 * 3600 * 1000
FAR = 2**32 - 1


@dataclass
class Batch:
    pid: int
    epoch: int
    first: int
    last: int
    prev: int
    count: int
    crc: int
    x: int = -1

    @property
    def kafka(self) -> bool:
        return self.pid >= KAFKA


@dataclass
class Stored:
    batch: Batch
    base: int
    in_flight: bool = False

    def fits_below(self, newer: Stored) -> bool:
        """True if the window can still describe this batch once `newer` follows."""
        a, b = self.batch, newer.batch
        dense = a.count == a.last - a.first + 1
        return (
            b.first - a.last <= FAR
            and newer.base - self.base <= FAR
            and a.last - a.first <= FAR
            and b.last - b.first <= FAR
            and (dense or a.count <= 65535)
        )


@dataclass
class Producer:
    epoch: int
    time: int
    named: bool = False
    opened: bool = False
    chain: list[Stored] = field(default_factory=list)
    # Epochs that stored something, to predict the answer of `resolve`.
    stored_epoch: int = -1

    @property
    def last(self) -> int:
        return self.chain[-1].batch.last if self.chain else -1

    @property
    def start(self) -> int:
        return self.chain[0].batch.first

    def window(self) -> list[Stored]:
        """The recent batches: the last five stored ones, and all in flight."""
        stored = [s for s in self.chain if not s.in_flight]
        recent: list[Stored] = []
        for one in reversed(stored):
            if len(recent) == 5:
                break
            if recent and not one.fits_below(recent[0]):
                break
            if not recent and one.batch.last - one.batch.first > FAR:
                break
            recent.insert(0, one)
        return recent + [s for s in self.chain if s.in_flight]


class Model:
    """A partition. Time in ms."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity  # only a leader has one
        self.producers: dict[int, Producer] = {}
        self.clock = 0
        self.watermark = 0
        self.gone: set[int] = set()
        self.next_offset = 0

    def copy(self) -> Model:
        return copy.deepcopy(self)

    @property
    def full(self) -> bool:
        return self.capacity is not None and (len(self.producers) + len(self.gone) >= self.capacity)

    # --- verdicts

    def verdict(self, b: Batch) -> Answer:
        if b.pid != 0:
            answer = self._producers_say(b)
            if answer is not None:
                return answer
        if b.x >= 0 and b.x != self.next_offset:
            return ("OFFSET_MISMATCH", self.next_offset)
        return ("APPENDED", self.next_offset)

    def _producers_say(self, b: Batch) -> Answer | None:
        p = self.producers.get(b.pid)
        if p is None:
            if b.pid < self.watermark or b.pid in self.gone:
                return ("PRODUCER_EXPIRED", -1)
            if b.prev != -1:
                return ("UNKNOWN_PRODUCER", -1)
            return ("THROTTLED", -1) if self.full else None
        if b.epoch < p.epoch:
            return ("FENCED", p.epoch)
        if b.epoch > p.epoch:
            return None if b.prev == -1 else ("OUT_OF_ORDER", -1)
        if p.opened:
            begins = b.prev == -1 or (b.prev == p.last and not b.kafka)
            return None if begins else ("OUT_OF_ORDER", p.last)
        if b.prev == p.last:
            return None
        if b.last > p.last:
            return ("OUT_OF_ORDER", p.last)
        window = p.window()
        for s in window:
            if (s.batch.first, s.batch.last) == (b.first, b.last):
                same = (s.batch.crc, s.batch.count) == (b.crc, b.count)
                if not same and not b.kafka:
                    return ("SEQUENCE_CONFLICT", p.last)
                return ("JOINED", s.base) if s.in_flight else ("DUPLICATE", s.base)
        # Below the window and within the chain, as far back as its start is certain.
        vouched = p.start if p.start == 0 else max(p.start, p.last - FAR + 1)
        if (not window or b.last < window[0].batch.first) and b.first >= vouched:
            return ("DUPLICATE", -1)
        return ("OUT_OF_ORDER", p.last)

    def open_verdict(self, pid: int, epoch: int, named: bool) -> Answer:
        p = self.producers.get(pid)
        if p is None:
            if not named and (pid < self.watermark or pid in self.gone):
                return ("PRODUCER_EXPIRED", -1)
            return ("THROTTLED", -1) if self.full else ("APPENDED", -1)
        return ("FENCED", p.epoch) if epoch < p.epoch else ("APPENDED", p.last)

    # --- steps

    def append(self, b: Batch, *, in_flight: bool = False) -> None:
        if b.pid != 0:
            p = self.producers.setdefault(b.pid, Producer(b.epoch, self.clock, opened=True))
            if b.epoch > p.epoch or p.opened:
                p.chain = []
            p.epoch, p.opened, p.time, p.stored_epoch = b.epoch, False, self.clock, b.epoch
            p.chain.append(Stored(b, self.next_offset, in_flight))
        self.next_offset += b.count

    def open(self, pid: int, epoch: int, named: bool) -> None:
        self.gone.discard(pid)
        p = self.producers.setdefault(pid, Producer(epoch, self.clock, opened=True))
        if epoch > p.epoch:
            p.epoch, p.opened = epoch, True
        p.time, p.named = self.clock, p.named or named

    def release(self, pid: int) -> None:
        p = self.producers.get(pid)
        if p is not None:
            p.named = False
            self._expire(-1)

    def advance(self, time: int, lifetime: int, watermark: int) -> int:
        self.clock = max(self.clock, time)
        self.watermark = max(self.watermark, watermark)
        return self._expire(lifetime)

    def _expire(self, lifetime: int) -> int:
        """`lifetime` -1: nobody is idle too long."""
        dropped = 0
        for pid, p in list(self.producers.items()):
            idle = lifetime >= 0 and self.clock - p.time > (DAY if pid >= KAFKA else lifetime)
            if not p.named and (pid < self.watermark or idle):
                del self.producers[pid]
                dropped += 1
                if pid < KAFKA:
                    self.gone.add(pid)
        self.gone = {pid for pid in self.gone if pid >= self.watermark}
        return dropped
