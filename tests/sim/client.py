"""Clients of a simulated cluster: they follow the rules of docs/protocol.md, and nothing more.

    Producer      idempotent, pipelined; a retry is byte-identical, batches go out
                  in sequence order, nothing overtakes the head while it is retried
    conditional   the same with an expected offset, one batch at a time
    Anonymous     no producer id, expected offset only: compare and append
    zombie        a producer whose successor (same id, next epoch) is at work already

The checker compares a client's belief with the log, answer by answer.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from cluster.dedup.verdict import BatchMeta
from cluster.partition.replica import Answer, AppendRequest
from tests.sim import model as ck

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

TIMEOUT = 2.5  # seconds until a client sends again without an answer
BACKOFF = 0.4


@dataclass(slots=True)
class Sent:
    """A batch of a client, as it goes out each time."""

    pid: int
    epoch: int
    first: int
    last: int
    prev: int
    count: int
    crc: int
    payload: bytes
    expected: int = -1
    attempts: int = 0  # repeats on the way to a node, too
    stored: bool = False
    denials: int = 0  # attempts of which the answer said that they are not stored

    @property
    def is_unstored(self) -> bool:
        """Whether the answers leave no doubt."""
        return 0 < self.denials == self.attempts

    def request(self) -> AppendRequest:
        meta = BatchMeta(
            self.pid,
            self.epoch,
            self.first,
            self.last,
            self.prev,
            self.count,
            self.crc,
            self.expected,
        )
        return AppendRequest(meta, 0, 0, 0, self.payload)

    def __str__(self) -> str:
        return f"batch {self.pid}/{self.epoch} {self.first}..{self.last}"


@dataclass(slots=True)
class Style:
    """A producer's way to work. Times in seconds."""

    interval: float = 0.5
    burst: int = 4
    window: int = 12
    ordered: bool = True  # one stream of requests; else calls that overtake each other
    conditional: bool = False


@dataclass(slots=True)
class Producer:
    """One producer id on one partition."""

    cluster: Cluster
    rng: random.Random
    gid: int
    pid: int
    epoch: int
    stream: int
    style: Style
    target: int
    next_sequence: int = 0
    next_record: int = 0
    next_offset: int = 0
    window: deque[Sent] = field(default_factory=deque)
    successor: Producer | None = None
    stopped: str = ""
    closing: bool = False
    stored: int = 0
    round: int = 0
    resend_at: float = 0.0
    chain_starts: bool = True
    opening: bool = False  # no batch goes out before the partition is open
    unanswered: bool = False  # the last attempt to open it

    # -- sending ------------------------------------------------------------------------

    def tick(self) -> None:
        """Makes some batches and sends them, unless older ones are to be sent again."""
        if self.stopped or (self.closing and not self.opening):
            return
        if self.opening:
            if self.unanswered and self.rng.random() < 0.3:
                self._rotate()
            self.unanswered = True
            self.cluster.open(self.target, self.gid, self.pid, self.epoch, _Opened(self))
            self.cluster.scheduler.after(self.style.interval, self.tick)
            return
        style, fresh = self.style, []
        limit = 1 if style.conditional else style.window
        for _ in range(self.rng.randint(1, style.burst)):
            if len(self.window) >= limit:
                break
            fresh.append(self._new_batch())
        if fresh and not self.resend_at:
            self._send(fresh)
        self.cluster.scheduler.after(style.interval * (0.5 + self.rng.random()), self.tick)

    def _new_batch(self) -> Sent:
        count = self.rng.randint(1, 3)
        data = self.cluster.payload(
            self.stream, self.next_record, count, 8 * self.rng.randint(0, 8)
        )
        first, last = self.next_sequence, self.next_sequence + count - 1
        prev = -1 if self.chain_starts else first - 1
        self.chain_starts = False
        expected = self.next_offset if self.style.conditional else -1
        crc = crc32c(data)
        batch = Sent(self.pid, self.epoch, first, last, prev, count, crc, data, expected)
        self.next_sequence += count
        self.next_record += count
        self.window.append(batch)
        return batch

    def _send(self, batches: list[Sent]) -> None:
        head = self.window[0]
        calls = []
        for batch in batches:
            self.cluster.demand_unstored(self.gid, batch)
            batch.attempts += 1
            calls.append((batch.request(), _Reply(self, batch, batch is head, self.target)))
        self.round += 1
        self.cluster.call(self.target, self.gid, calls, ordered=self.style.ordered)
        self.cluster.scheduler.after(TIMEOUT, self._timed_out, self.round)

    def _timed_out(self, round_: int) -> None:
        if round_ == self.round and self.window and not self.resend_at and not self.stopped:
            self._rotate()
            self._again(0.0)

    def _rotate(self, hint: int = 0) -> None:
        nodes = self.cluster.node_ids
        self.target = hint or nodes[self.rng.randrange(len(nodes))]

    def _again(self, delay: float) -> None:
        """Sends all that is not stored again, in order, after a while."""
        if not self.resend_at and not self.stopped:
            scheduler = self.cluster.scheduler
            self.resend_at = scheduler.now + delay
            scheduler.at(self.resend_at, self._resend)

    def _resend(self) -> None:
        self.resend_at = 0.0
        if self.window and not self.stopped:
            self._send(list(self.window))

    # -- answers ------------------------------------------------------------------------

    def answered(self, batch: Sent, node: int, answer: Answer) -> None:
        """Takes an answer of `node`; the checker has seen it."""
        if batch.stored or self.stopped:
            return
        kind = int(answer.verdict.kind)
        if kind in (ck.APPENDED, ck.DUPLICATE):
            batch.stored = True
            self.stored += 1
            if answer.verdict.base_offset >= 0:
                self.next_offset = answer.verdict.base_offset + batch.count
            while self.window and self.window[0].stored:
                self.window.popleft()
        elif kind == ck.FENCED:
            self.stopped = "fenced"
        elif kind in (ck.EXPIRED, ck.UNKNOWN_PRODUCER):
            self._new_lease()
        elif kind == ck.MISMATCH:
            self.next_offset = batch.expected = answer.verdict.next_offset
            self._again(0.0)
        elif kind == ck.OUT_OF_ORDER:
            self._again(BACKOFF * self.rng.random())
        else:
            assert kind in ck.TRANSIENT, answer
            if node == self.target and kind == 30:
                self._rotate(answer.leader_id)
            self._again(BACKOFF * (0.2 + self.rng.random()))

    def failed(self, node: int) -> None:
        """Notes that the connection to `node` broke or was refused."""
        if node == self.target and self.window and not self.stopped:
            self._rotate()
            self._again(BACKOFF * (0.2 + self.rng.random()))

    def _new_lease(self) -> None:
        """Fails the pending batches of an expired id; the records after them get a new id."""
        self.window.clear()
        self.pid, self.epoch, self.next_sequence = self.cluster.lease(), 0, 0
        self.chain_starts = True
        self.stream = self.cluster.new_stream()
        self.next_record = 0

    def succeed(self) -> Producer:
        """Creates a new instance that takes the producer over: the next epoch.

        Either it opens the partition and goes on behind the stored batches, or it begins anew
        without that.
        """
        self.cluster.grant(self.pid, self.epoch + 1)
        heir = Producer(
            self.cluster,
            self.rng,
            self.gid,
            self.pid,
            self.epoch + 1,
            self.cluster.new_stream(),
            self.style,
            self.target,
            next_offset=self.next_offset,
            opening=self.rng.random() < 0.5,
        )
        self.successor = heir
        return heir

    def opened(self, answer: Answer) -> None:
        """Takes the answer to an open: the partition knows this epoch, or rejects it."""
        kind = int(answer.verdict.kind)
        if not self.opening or self.stopped:
            return
        self.unanswered = False
        if kind == ck.APPENDED:
            self.opening = False
            self.next_sequence = answer.verdict.last_sequence + 1
            self.chain_starts = self.next_sequence == 0
        elif kind == ck.FENCED:
            self.stopped = "fenced"
        elif kind == ck.EXPIRED:
            self.opening = False
            self._new_lease()
        else:
            self._rotate(answer.leader_id)

    def waits_for(self) -> str:
        return str(self.window[0]) if self.window else f"the opening of {self.pid}/{self.epoch}"

    def resolve(self) -> None:
        """Asks for the outcome of the newest batch."""
        if self.window and not self.stopped:
            batch = self.window[-1]
            self.cluster.resolve(self.target, self.gid, batch.pid, batch.epoch, batch.last)


class _Reply:
    """Passes one attempt's answer to the checker, then to its producer."""

    __slots__ = ("batch", "expected", "node", "producer", "was_head")

    def __init__(self, producer: Producer, batch: Sent, was_head: bool, node: int) -> None:
        self.producer, self.batch, self.was_head, self.node = producer, batch, was_head, node
        self.expected = batch.expected

    def check(self, answer: Answer) -> None:
        """Has the checker judge the answer at the moment when the node gives it."""
        now, self.batch.expected = self.batch.expected, self.expected
        self.producer.cluster.checker.answered(
            self.producer.gid, self.batch, was_head=self.was_head, answer=answer
        )
        self.batch.expected = now
        self.batch.denials += int(answer.verdict.kind) in ck.NOT_STORED
        self.producer.cluster.demand_unstored(self.producer.gid, self.batch)

    def arrive(self, answer: Answer | None) -> None:
        """Takes the answer at the client. None: the connection broke."""
        if answer is None:
            self.producer.failed(self.node)
        elif int(answer.verdict.kind) != ck.MISMATCH or self.expected == self.batch.expected:
            self.producer.answered(self.batch, self.node, answer)


class _Opened:
    """The answer to an open."""

    __slots__ = ("epoch", "node", "pid", "producer")

    def __init__(self, producer: Producer) -> None:
        self.producer, self.node = producer, producer.target
        self.pid, self.epoch = producer.pid, producer.epoch

    def check(self, answer: Answer) -> None:
        producer = self.producer
        producer.cluster.checker.opened(producer.gid, self.pid, self.epoch, answer)

    def arrive(self, answer: Answer | None) -> None:
        if answer is not None:
            self.producer.opened(answer)


@dataclass(slots=True)
class Anonymous:
    """A client that appends without a producer id at its supposed end: at most once."""

    cluster: Cluster
    rng: random.Random
    gid: int
    stream: int
    interval: float
    target: int
    next_offset: int = 0
    next_record: int = 0
    stored: int = 0
    closing: bool = False

    def tick(self) -> None:
        if self.closing:
            return
        data = self.cluster.payload(self.stream, self.next_record, 1, 16)
        self.next_record += 1
        batch = Sent(0, 0, 0, 0, -1, 1, crc32c(data), data, self.next_offset)
        calls: list[tuple[AppendRequest, Any]] = [(batch.request(), _Told(self, batch))]
        self.cluster.call(self.target, self.gid, calls, ordered=True)
        self.cluster.scheduler.after(self.interval * (0.5 + self.rng.random()), self.tick)

    def rotate(self, hint: int = 0) -> None:
        nodes = self.cluster.node_ids
        self.target = hint or nodes[self.rng.randrange(len(nodes))]


class _Told:
    """The answer to an anonymous batch."""

    __slots__ = ("batch", "owner")

    def __init__(self, owner: Anonymous, batch: Sent) -> None:
        self.owner, self.batch = owner, batch

    def check(self, answer: Answer) -> None:
        owner = self.owner
        owner.cluster.checker.answered(owner.gid, self.batch, was_head=False, answer=answer)

    def arrive(self, answer: Answer | None) -> None:
        owner = self.owner
        if answer is None:
            owner.rotate()
            return
        verdict = answer.verdict
        if int(verdict.kind) == ck.APPENDED:
            owner.stored += 1
            owner.next_offset = verdict.base_offset + 1
        elif int(verdict.kind) == ck.MISMATCH:
            owner.next_offset = verdict.next_offset
        else:
            owner.rotate(answer.leader_id)
