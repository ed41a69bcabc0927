"""The last-seen map against the plain model: random histories, reloaded at random points.

Two replicas apply the same steps. One is dumped and loaded again whenever Hypothesis likes, the
other never; the model gives the answer of both. A second machine keeps to the rules for producers
and asks the only question that matters in the end: is anything in the log twice, missing, or in
another order?
"""

from __future__ import annotations

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta, Kind, ResolutionKind, Verdict, validate
from tests.unit.dedup.verdict_model import DAY, FAR, KAFKA, Answer, Batch, Model

MAX_COUNT = 2**31 - 1
PIDS = st.sampled_from([*range(7), KAFKA + 1, KAFKA + 2])
KNOWN = st.sampled_from([*range(1, 7), KAFKA + 1])
EPOCHS = st.integers(0, 3)
NEAR = st.integers(1, 4)
FAR_OFF = st.sampled_from([FAR - 1, FAR, FAR + 1])


def meta_of(b: Batch) -> BatchMeta:
    return BatchMeta(b.pid, b.epoch, b.first, b.last, b.prev, b.count, b.crc, b.x, b.kafka)


def answer_of(verdict: Verdict) -> Answer:
    number = {
        Kind.APPENDED: verdict.base_offset,
        Kind.DUPLICATE: verdict.base_offset,
        Kind.FENCED: verdict.current_epoch,
        Kind.OUT_OF_ORDER: verdict.last_sequence,
        Kind.SEQUENCE_CONFLICT: verdict.last_sequence,
        Kind.OFFSET_MISMATCH: verdict.next_offset,
    }.get(verdict.kind, -1)
    return (verdict.kind.name, number)


@st.composite
def batches(draw: st.DrawFn, model: Model, sent: list[Batch], *, wide: bool = True) -> Batch:
    """Batches relative to the history: the next, a repeat, another cut, or any other.

    `wide`: also with numbers at the limits of a record.
    """
    kind = draw(st.sampled_from(["next", "next", "next", "again", "changed", "below", "free"]))
    if kind in ("again", "changed") and not sent:
        kind = "next"
    if kind in ("again", "changed"):
        b = draw(st.sampled_from(sent[-40:]))
        if kind == "changed":
            last = max(b.first, b.last + draw(st.integers(-2, 2)))
            first = min(max(0, b.first + draw(st.integers(-2, 2))), last)
            prev = min(max(-1, b.prev + draw(st.integers(-2, 2))), first - 1)
            count = min(max(1, b.count + draw(st.integers(-1, 1))), last - first + 1, MAX_COUNT)
            b = Batch(b.pid, b.epoch, first, last, prev, count, draw(st.integers(1, 2)))
        return b
    pid, epoch = draw(PIDS), draw(EPOCHS)
    prev = draw(st.integers(-1, 30))
    if kind == "next":
        known = model.producers.get(pid)
        prev = -1
        if known is not None:
            epoch = known.epoch + draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1]))
            assume(epoch >= 0)
            if epoch == known.epoch:
                prev = known.last
    steps = st.one_of(NEAR, FAR_OFF) if wide else NEAR
    if kind == "below" and model.producers:
        pid = draw(st.sampled_from(sorted(model.producers)))
        epoch = model.producers[pid].epoch
        prev = draw(st.sampled_from([-1, max(-1, model.producers[pid].last - draw(NEAR))]))
    gap = draw(st.one_of(st.just(1), st.just(1), steps))
    span = draw(steps)
    count = span
    if draw(st.booleans()):
        count = draw(st.sampled_from([1, min(span, 65535), min(span, 65536)]))
    count = min(count, MAX_COUNT)
    crc = draw(st.integers(1, 2))
    x = draw(st.sampled_from([-1, -1, -1, model.next_offset, max(0, model.next_offset - 1)]))
    return Batch(pid, epoch, prev + gap, prev + gap + span - 1, prev, count, crc, x)


class LastSeenMachine(RuleBasedStateMachine):
    """Random calls, including calls that no client would send."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.replicas = [LastSeen(), LastSeen()]
        self.sent: list[Batch] = []

    @rule(data=st.data(), jump=st.sampled_from([0, 0, 0, 0, FAR]))
    def send(self, data: st.DataObject, jump: int) -> None:
        self.model.next_offset += jump  # PID 0 has written a lot
        b = data.draw(batches(self.model, self.sent), label="batch")
        meta = meta_of(b)
        assert validate(meta, payload_size=1, max_payload=1) is None
        self.sent.append(b)
        expected = self.model.verdict(b)
        at = self.model.next_offset
        for replica in self.replicas:
            before = replica.dump()
            verdict = replica.check(meta, next_offset=at)
            assert answer_of(verdict) == expected
            assert replica.dump() == before
            if verdict.kind is Kind.APPENDED:
                replica.record(meta, at, self.model.clock)
        if expected[0] == "APPENDED":
            self.model.append(b)

    @rule(pid=KNOWN, up=st.sampled_from([1, 1, 1, 0, -1, 2]), named=st.booleans())
    def open(self, pid: int, up: int, named: bool) -> None:
        known = self.model.producers.get(pid)
        epoch = max(0, (known.epoch if known else 0) + up)
        expected = self.model.open_verdict(pid, epoch, named)
        for replica in self.replicas:
            verdict = replica.open(pid, epoch, self.model.clock, pin=named)
            assert verdict.kind.name == expected[0]
            if verdict.kind is Kind.APPENDED:
                assert verdict.last_sequence == expected[1]
                chain = known.chain if known else []
                end = chain[-1].base + chain[-1].batch.count - 1 if chain else -1
                assert (verdict.base_offset, verdict.current_epoch) == (end, epoch)
        if expected[0] == "APPENDED":
            self.model.open(pid, epoch, named)

    @rule(pid=KNOWN)
    def release(self, pid: int) -> None:
        was = pid in self.model.producers and self.model.producers[pid].named
        assert [r.release(pid) for r in self.replicas] == [was, was]
        if was:
            self.model.release(pid)

    @rule(
        step=st.one_of(st.integers(-3, 6), st.sampled_from([DAY - 5, DAY, DAY + 1])),
        lifetime=st.integers(5, 20),
        raised=st.sampled_from([0, 0, 0, 1]),
    )
    def advance(self, step: int, lifetime: int, raised: int) -> None:
        time, watermark = self.model.clock + step, self.model.watermark + raised
        dropped = self.model.advance(time, lifetime, watermark)
        for replica in self.replicas:
            assert replica.advance(time, lifetime_ms=lifetime, expired_below=watermark) == dropped

    @rule()
    def reload(self) -> None:
        data = self.replicas[0].dump()
        self.replicas[0] = LastSeen.load(data)
        assert self.replicas[0].dump() == data

    @rule(pid=KNOWN, epoch=st.integers(0, 5), sequence=st.integers(-1, 40))
    def resolve(self, pid: int, epoch: int, sequence: int) -> None:
        known = self.model.producers.get(pid)
        found = self.replicas[0].resolve(pid, epoch, sequence)
        assert found == self.replicas[1].resolve(pid, epoch, sequence)
        if known is None:
            gone = pid < self.model.watermark or pid in self.model.gone
            assert found.resolution == (
                ResolutionKind.UNSPECIFIED if gone else ResolutionKind.NOT_YET
            )
            return
        assert (found.last_sequence, found.current_epoch) == (known.last, known.epoch)
        # The resolution agrees with the answer that sending the sequence again would get.
        if epoch > known.epoch or (epoch == known.epoch and sequence > known.last):
            assert found.resolution is ResolutionKind.NOT_YET
        if epoch < known.epoch:
            assert found.resolution is not ResolutionKind.NOT_YET
        if epoch == known.stored_epoch and known.chain:
            self._resolve_stored(known.chain, found.resolution, found.offset, sequence)

    def _resolve_stored(
        self, chain, resolution: ResolutionKind, offset: int, sequence: int
    ) -> None:
        """`chain` is all that this epoch stored."""
        holder = [s for s in chain if s.batch.first <= sequence <= s.batch.last]
        if resolution is ResolutionKind.NEVER:
            assert not holder
        if resolution is ResolutionKind.NOT_YET:
            assert sequence > chain[-1].batch.last or not holder
        if resolution is ResolutionKind.COMMITTED and offset >= 0:
            [s] = holder
            assert s.base <= offset < s.base + s.batch.count
            if s.batch.count == s.batch.last - s.batch.first + 1:
                assert offset - s.base == sequence - s.batch.first
        if holder:
            p = self.model.producers[chain[-1].batch.pid]
            too_old = sequence <= p.last - FAR or p.opened
            assert resolution is ResolutionKind.COMMITTED or (
                too_old and resolution is ResolutionKind.UNSPECIFIED
            )

    @invariant()
    def replicas_are_equal_and_right(self) -> None:
        model, (a, b) = self.model, self.replicas
        assert a.dump() == b.dump()
        assert a.clock_ms == model.clock and a.expired_below == model.watermark
        entries = a.scan()
        assert [e.producer_id for e in entries] == sorted(model.producers)
        assert len(a) == len(entries)
        for entry in entries:
            p = model.producers[entry.producer_id]
            assert (entry.epoch, entry.opened, entry.pinned) == (p.epoch, p.opened, p.named)
            assert (entry.last_sequence, entry.last_append_ms) == (p.last, p.time)
            shown = [(r.first, r.last, r.base_offset, r.count, r.crc) for r in entry.recent]
            assert shown == [
                (s.batch.first, s.batch.last, s.base, s.batch.count, s.batch.crc)
                for s in p.window()
            ]


class OnceMachine(RuleBasedStateMachine):
    """Producers that keep the rules, a log, and the promise.

    Ids 1-4 are leased and never opened. Ids 11-13 have names: each instance
    raises the epoch, opens, and goes on at the last sequence, as a mirror does,
    or begins anew. Ids 14 and 15 have names, too, but never open: each instance
    begins anew. Every batch ever sent may arrive again, any time, in any order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last_seen = LastSeen()
        self.log: list[Batch] = []
        self.next_offset = 0
        self.sent: list[Batch] = []
        self.offsets: dict[int, int] = {}  # id(batch) -> where it is
        self.heads: dict[int, tuple[int, int]] = {}  # pid -> (epoch, last sequence sent)
        self.clock = 0

    def _deliver(self, b: Batch) -> None:
        meta = meta_of(b)
        verdict = self.last_seen.check(meta, next_offset=self.next_offset)
        if verdict.kind is Kind.APPENDED:
            self.last_seen.record(meta, self.next_offset, self.clock)
            assert id(b) not in self.offsets, "stored twice"
            self.offsets[id(b)] = self.next_offset
            self.log.append(b)
            self.next_offset += b.count
        elif verdict.kind is Kind.DUPLICATE:
            assert id(b) in self.offsets, "called stored, but it is not"
            assert verdict.base_offset in (-1, self.offsets[id(b)])
        else:
            assert verdict.kind in (
                Kind.FENCED,
                Kind.OUT_OF_ORDER,
                Kind.UNKNOWN_PRODUCER,
                Kind.PRODUCER_EXPIRED,
            )

    def _send(self, pid: int, records: int, skipped: int) -> Batch:
        epoch, last = self.heads.get(pid, (0, -1))
        first = last + 1 + skipped
        b = Batch(pid, epoch, first, first + records - 1, last, records, len(self.sent))
        self.heads[pid] = (epoch, b.last)
        self.sent.append(b)
        return b

    @rule(
        pid=st.sampled_from([1, 2, 3, 4, 11, 12, 13, 14, 15]),
        records=st.integers(1, 3),
        skipped=st.sampled_from([0, 0, 2]),
        delivered=st.booleans(),
    )
    def send(self, pid: int, records: int, skipped: int, delivered: bool) -> None:
        """A new batch; it may get lost on its way, to arrive later."""
        assume(pid in self.heads or pid not in (11, 12, 13))
        b = self._send(pid, records, skipped)
        if delivered:
            self._deliver(b)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def arrive_late_or_again(self, data: st.DataObject) -> None:
        self._deliver(data.draw(st.sampled_from(self.sent)))

    @rule(pid=st.sampled_from([11, 12, 13]), anew=st.booleans())
    def take_over(self, pid: int, anew: bool) -> None:
        epoch = self.heads.get(pid, (-1, -1))[0] + 1
        opened = self.last_seen.open(pid, epoch, self.clock)
        stored = [b for b in self.log if b.pid == pid]
        assert opened.kind is Kind.APPENDED
        assert opened.last_sequence == (stored[-1].last if stored else -1), "forgotten"
        self.heads[pid] = (epoch, -1 if anew else opened.last_sequence)
        if anew:
            # A producer that begins anew after an open waits for the first acknowledgement.
            first = self._send(pid, 1, 0)
            self._deliver(first)
            assert id(first) in self.offsets

    @rule(pid=st.sampled_from([14, 15]))
    def take_over_without_open(self, pid: int) -> None:
        self.heads[pid] = (self.heads.get(pid, (0, -1))[0] + 1, -1)

    @rule(step=st.integers(0, 8), watermark=st.integers(0, 5), reload=st.booleans())
    def time_passes(self, step: int, watermark: int, reload: bool) -> None:
        self.clock += step
        self.last_seen.advance(self.clock, lifetime_ms=10, expired_below=watermark)
        if reload:
            self.last_seen = LastSeen.load(self.last_seen.dump())

    @invariant()
    def each_chain_is_whole(self) -> None:
        """Per producer: each batch follows the one that was sent before it, epochs rise."""
        last: dict[int, Batch] = {}
        for b in self.log:
            before = last.get(b.pid)
            if before is not None and b.prev == -1:
                assert b.epoch > before.epoch
            else:
                assert b.prev == (before.last if before else -1)
                assert before is None or b.epoch >= before.epoch
            last[b.pid] = b


def test_the_map_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        LastSeenMachine, settings=settings(max_examples=150, stateful_step_count=40)
    )


def test_once_and_in_order() -> None:
    run_state_machine_as_test(
        OnceMachine, settings=settings(max_examples=150, stateful_step_count=50)
    )
