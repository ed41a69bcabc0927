"""The table under the last-seen map: its memory, and its behaviour as a sorted map."""

from __future__ import annotations

import random
from bisect import bisect_left, insort

from hypothesis import given
from hypothesis import strategies as st

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.pid_table import CHUNK_ROWS, PidTable
from cluster.dedup.verdict import BatchMeta


def test_memory_per_producer() -> None:
    """Checks at most 128 bytes a producer with the window of 5, in any order of ids."""
    count = 50_000
    anywhere = random.Random(1).sample(range(1, 10 * count), count)
    jittered = sorted(anywhere, key=lambda pid: pid + random.Random(pid).randrange(3000))
    for pids in (sorted(anywhere), jittered, anywhere):
        last_seen = LastSeen()
        for at, pid in enumerate(pids):
            last_seen.record(BatchMeta(pid, 0, 0, 9, -1, 10, 1), 10 * at, at)
        assert len(last_seen) == count
        assert last_seen.memory_bytes() / count <= 128
        # Half of them go, here and there: their memory is given back.
        last_seen.advance(count + count // 2, lifetime_ms=count, expired_below=0)
        left = count - count // 2
        assert len(last_seen) == left
        retired = 8 * (count // 2)
        assert (last_seen.memory_bytes() - retired) / left <= 140


class PlainTable:
    """Model of a PidTable, with a dict."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, bytes]] = {}
        self.order: list[int] = []

    def insert(self, pid: int, time: int, record: bytes) -> None:
        self.rows[pid] = (time, record)
        insort(self.order, pid)

    def drop(self, pids: list[int]) -> None:
        for pid in pids:
            del self.rows[pid]
            del self.order[bisect_left(self.order, pid)]


@given(st.integers(0, 2**32), st.sampled_from(["rising", "anywhere"]))
def test_the_table_agrees_with_a_dict(seed: int, how: str) -> None:
    rng = random.Random(seed)
    table, plain = PidTable(4, flags_at=1, pin_mask=0x80), PlainTable()
    top, clock = 0, 0
    for _ in range(rng.randrange(5, 25)):
        for _ in range(rng.randrange(CHUNK_ROWS)):
            clock += rng.randrange(3)
            pid = rng.randrange(1, 5000) if how == "anywhere" else top + rng.randrange(-40, 60)
            top = max(top, pid)
            if pid < 1 or pid in plain.rows:
                continue
            record = bytes([rng.randrange(256), rng.choice([0, 0, 0x80]), pid & 255, 7])
            table.insert(pid, clock, record)
            plain.insert(pid, clock, record)
        for pid in rng.sample(plain.order, min(len(plain.order), 50)):
            place = table.find(pid)
            assert place is not None
            clock += 1
            place[0].times[place[1]] = clock
            plain.rows[pid] = (clock, plain.rows[pid][1])
        free = [p for p in plain.order if not plain.rows[p][1][1]]
        action = rng.randrange(4)
        if action == 0 and plain.order:
            pid = rng.choice(plain.order)
            table.drop(pid)
            plain.drop([pid])
        elif action == 1:
            start = rng.randrange(top + 1)
            end = start + rng.randrange(top + 2)
            gone = [p for p in free if start <= p < end]
            assert table.drop_range(start, end) == len(gone)
            plain.drop(gone)
        elif action == 2:
            before = clock - rng.randrange(clock + 1)
            gone = [p for p in free if plain.rows[p][0] < before]
            assert list(table.drop_idle(before)) == gone
            plain.drop(gone)
            times = [plain.rows[p][0] for p in free if p in plain.rows]
            assert table.oldest <= min(times, default=table.oldest)
        agree(table, plain, rng)


def agree(table: PidTable, plain: PlainTable, rng: random.Random) -> None:
    assert len(table) == len(plain.order)
    found = [
        (c.pids[at], c.times[at], bytes(c.records[4 * at : 4 * at + 4])) for c, at in table.rows(0)
    ]
    assert found == [(pid, *plain.rows[pid]) for pid in plain.order]
    for pid in [rng.randrange(1, 6000) for _ in range(30)]:
        place = table.find(pid)
        assert (place is not None) == (pid in plain.rows)
        if place is not None:
            assert place[0].pids[place[1]] == pid
    after = rng.randrange(6000)
    assert [c.pids[at] for c, at in table.rows(after)] == [p for p in plain.order if p > after]
