"""One row for each case of Kafka's protocol: the client's numbers, placed as the leader does.

Each row plays the same short history and then asks for one more batch: (epoch, sequence as the
client sends it, records).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dedup.in_flight import InFlight
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.sequences import nearest, placed
from cluster.dedup.verdict import KAFKA_IDS, REBUILT, BatchMeta, Kind

WRAP = 1 << 31
DAY = 24 * 3600 * 1000
LEASE = 1000
# Records that a client may have in flight.
NEAR = st.integers(-(1 << 30) + 1, (1 << 30) - 1)


def sent(pid: int, epoch: int, sequence: int, records: int, crc: int = 1) -> BatchMeta:
    """A batch with the client's numbers: sequences of 31 bits."""
    last = sequence + records - 1
    return BatchMeta(pid, epoch, sequence, last, sequence - 1, records, crc, -1, True)


class Partition:
    """A map with a log end and, over it, a leader with nothing in flight."""

    def __init__(self) -> None:
        self.map = LastSeen()
        self.next_offset = 0

    def placed(self, meta: BatchMeta) -> BatchMeta:
        following = InFlight(self.map).next_sequence(meta.producer_id, meta.epoch)
        return placed(meta, following)

    def send(self, meta: BatchMeta, time_ms: int = 0) -> tuple[Kind, int]:
        meta = self.placed(meta)
        verdict = self.map.check(meta, next_offset=self.next_offset)
        ahead = InFlight(self.map).check(meta, next_offset_applied=self.next_offset)
        assert ahead == verdict, "a leader with nothing in flight gives the same answers"
        if verdict.kind is Kind.APPENDED:
            self.map.record(meta, self.next_offset, time_ms)
            self.next_offset += meta.count
        return verdict.kind, verdict.base_offset


NEW, DENSE, OPENED, WRAPPED = (KAFKA_IDS + number for number in range(4))


def history() -> Partition:
    """DENSE has stored seven batches of ten in epoch 2, at offsets 0..69. OPENED has stored 0..9 in
    epoch 4 (offsets 70..79) and was opened under epoch 5. WRAPPED has stored 2**31 + 10 records in
    epoch 0, the newest batches: 20 records that end at the wrap, 10 behind it.
    """
    part = Partition()
    for sequence in range(0, 70, 10):
        assert part.send(sent(DENSE, 2, sequence, 10))[0] is Kind.APPENDED
    assert part.send(sent(OPENED, 4, 0, 10))[0] is Kind.APPENDED
    assert part.map.open(OPENED, 5, 0).kind is Kind.APPENDED
    for sequence, records in (
        (0, WRAP // 4),
        (WRAP // 4, WRAP // 2),
        (WRAP // 4 * 3, WRAP // 4 - 20),
    ):
        assert part.send(sent(WRAPPED, 0, sequence, records))[0] is Kind.APPENDED
    assert part.send(sent(WRAPPED, 0, WRAP - 20, 20))[0] is Kind.APPENDED
    assert part.send(sent(WRAPPED, 0, 0, 10))[0] is Kind.APPENDED
    return part


END = 80 + WRAP + 10
ROWS: list[tuple[str, BatchMeta, Kind, int]] = [
    ("new id, sequence 0", sent(NEW, 0, 0, 5), Kind.APPENDED, END),
    ("new id, an epoch that its client raised", sent(NEW, 3, 0, 5), Kind.APPENDED, END),
    ("new id, not at 0", sent(NEW, 0, 5, 5), Kind.UNKNOWN_PRODUCER, -1),
    ("new id, just before the wrap", sent(NEW, 0, WRAP - 1, 1), Kind.UNKNOWN_PRODUCER, -1),
    ("the next batch", sent(DENSE, 2, 70, 5), Kind.APPENDED, END),
    ("a gap", sent(DENSE, 2, 71, 5), Kind.OUT_OF_ORDER, -1),
    ("partly new", sent(DENSE, 2, 65, 10), Kind.OUT_OF_ORDER, -1),
    ("repeat of the newest", sent(DENSE, 2, 60, 10), Kind.DUPLICATE, 60),
    ("repeat, rebuilt", sent(DENSE, 2, 60, 10, crc=9), Kind.DUPLICATE, 60),
    ("repeat of the oldest recent", sent(DENSE, 2, 20, 10, crc=9), Kind.DUPLICATE, 20),
    ("repeat below the recent", sent(DENSE, 2, 10, 10, crc=9), Kind.DUPLICATE, -1),
    ("another cut", sent(DENSE, 2, 60, 5), Kind.OUT_OF_ORDER, -1),
    ("two batches as one", sent(DENSE, 2, 50, 20), Kind.OUT_OF_ORDER, -1),
    ("lower epoch", sent(DENSE, 1, 70, 5), Kind.FENCED, -1),
    ("lower epoch, repeat", sent(DENSE, 1, 60, 10), Kind.FENCED, -1),
    ("higher epoch, sequence 0", sent(DENSE, 3, 0, 5), Kind.APPENDED, END),
    ("higher epoch, not at 0", sent(DENSE, 3, 70, 5), Kind.OUT_OF_ORDER, -1),
    ("opened: sequence 0", sent(OPENED, 5, 0, 5), Kind.APPENDED, END),
    ("opened: never continues", sent(OPENED, 5, 10, 5), Kind.OUT_OF_ORDER, -1),
    ("opened: predecessor", sent(OPENED, 4, 10, 5), Kind.FENCED, -1),
    ("opened: its successor", sent(OPENED, 6, 0, 5), Kind.APPENDED, END),
    ("behind the wrap, next", sent(WRAPPED, 0, 10, 5), Kind.APPENDED, END),
    ("behind the wrap, repeat", sent(WRAPPED, 0, 0, 10, crc=9), Kind.DUPLICATE, END - 10),
    ("before the wrap, repeat", sent(WRAPPED, 0, WRAP - 20, 20), Kind.DUPLICATE, END - 30),
    ("over the wrap, another cut", sent(WRAPPED, 0, WRAP - 20, 30), Kind.OUT_OF_ORDER, -1),
    ("behind the wrap, a gap", sent(WRAPPED, 0, 11, 5), Kind.OUT_OF_ORDER, -1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("meta", "kind", "offset"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_row(meta: BatchMeta, kind: Kind, offset: int) -> None:
    part = history()
    assert part.next_offset == END
    assert part.send(meta) == (kind, offset)


def test_a_batch_that_crosses_the_wrap() -> None:
    part = Partition()
    part.send(sent(NEW, 0, 0, WRAP // 2))
    part.send(sent(NEW, 0, WRAP // 2, WRAP // 2 - 5))
    for sequence, records in ((WRAP - 5, 12), (7, 3)):
        offset = part.next_offset
        assert part.send(sent(NEW, 0, sequence, records)) == (Kind.APPENDED, offset)
        assert part.send(sent(NEW, 0, sequence, records, crc=9)) == (Kind.DUPLICATE, offset)
    known = part.map.known(NEW)
    assert known is not None and known.last_sequence == WRAP + 9


def test_a_repeat_with_other_bytes_says_so() -> None:
    part = history()
    for crc, message in ((1, ""), (9, REBUILT)):
        meta = part.placed(sent(DENSE, 2, 60, 10, crc=crc))
        assert part.map.check(meta, next_offset=END).message == message


def test_an_id_lives_a_day_and_leaves_nothing() -> None:
    part = Partition()
    part.send(sent(NEW, 0, 0, 5), 1000)
    part.map.record(BatchMeta(7, 0, 0, 0, -1, 1, 1), 5, 1000)
    fresh = part.map.dump_bytes
    part.map.advance(1000 + DAY, lifetime_ms=LEASE, expired_below=5)
    assert part.map.known(NEW) is not None and part.map.known(7) is None
    part.map = LastSeen.load(part.map.dump())
    assert part.send(sent(NEW, 0, 0, 5))[0] is Kind.DUPLICATE
    assert part.map.advance(1001 + DAY, lifetime_ms=LEASE, expired_below=8) == 1
    assert len(part.map) == 0 and part.map.dump_bytes < fresh
    # The watermark of leases never reaches these ids, and nothing else remembers them.
    assert part.send(sent(NEW, 0, 5, 5))[0] is Kind.UNKNOWN_PRODUCER
    assert part.send(sent(NEW, 0, 0, 5))[0] is Kind.APPENDED


@given(expected=st.integers(0, 1 << 62), distance=NEAR)
def test_a_sequence_near_the_next_one_is_found_again(expected: int, distance: int) -> None:
    true = max(0, expected + distance)
    assert nearest(true % WRAP, expected) == true


@given(sequence=st.integers(0, WRAP - 1), expected=st.integers(0, 1 << 62))
def test_the_nearest_is_of_the_clients_sequences(sequence: int, expected: int) -> None:
    found = nearest(sequence, expected)
    assert found >= 0 and found % WRAP == sequence
    assert abs(found - expected) <= WRAP // 2 or found == sequence > expected
