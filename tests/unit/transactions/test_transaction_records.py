"""Transactions as bytes: written values are read again, and damage is a typed error."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta
from cluster.entries import CorruptEntryError
from cluster.transactions import sinks
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.run_records import pack_marker, unpack_marker
from cluster.transactions.runs import RunTable
from cluster.transactions.sinks import Asked
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import Expected, Holder, Marker, Published

MARKER = Marker(5, True, (Expected(0, 7, 3, 2, 300, 9), Expected(0, 8, 1, 0, 100, 1)), 77, 4)


def runs() -> RunTable:
    """An open run, an aborted and a committed transaction, and a span."""
    table, last_seen = RunTable(), LastSeen()
    for index, (pid, number) in enumerate(((7, 1), (8, 2), (9, 3)), 1):
        meta = BatchMeta(pid, 0, 0, 2, -1, 3, pid)
        table.stage(meta, number, last_seen, index=index, size=9, max_timestamp_us=4, time_ms=1)
    for number, expected in ((1, (Expected(0, 7, 3, 2, 9, 4),)), (2, ())):
        marker = Marker(number, bool(expected), expected, 1, 1)
        table.mark(marker, last_seen, index=9, next_offset=0, time_ms=1)
    return table


def begin(made: Coordinator, asked: Asked) -> TransactionRow:
    made.draw_ticket(asked.key, jobs=asked.jobs)
    begun = made.begin_batch(asked, now_ms=5, total_ms=2000)
    assert begun.transaction is not None
    return begun.transaction


def coordinator() -> Coordinator:
    """Transactions in each state, and a sink."""
    made = Coordinator()
    for pid in range(1, 5):
        row = made.begin(f"p{pid}", Holder(pid, 0), 1, now_ms=5, idle_ms=1000, total_ms=2000)
        made.register(row.transaction_id, None, [16, 17], lambda group: True)
        if pid > 2:
            made.commit(row.transaction_id, None, [Expected(16, pid, 2, 1)], 2)
        elif pid == 2:
            made.abort(row.transaction_id, None, "owner")
    made.markers_done(4, {16: [Published(4, 0, 0, 1, 5, 2)], 17: []})
    for batch, key in enumerate(("sink", "other")):
        begun = begin(made, Asked(key, f"query {key}", "run", 1, batch))
        made.commit(begun.transaction_id, None, (), 0, digest=7)
    made.reset_sink("other")
    for ticket, batch in enumerate((3, 4, 9), 1):
        begun = begin(made, Asked("jobs", "", "run", ticket, batch, jobs=True))
        made.commit(begun.transaction_id, None, (), 0)
    made.begin_batch(Asked("job-1", "", "", 0, 0, jobs=True), now_ms=5, total_ms=2000)
    return made


def whole(coordinator: Coordinator) -> bytes:
    return b"".join(coordinator.pieces())


def loaded(data: bytes) -> Coordinator:
    made = Coordinator()
    made.load(data)
    return made


FORMS: list[tuple[bytes, Callable[[bytes], Any], Callable[[Any], bytes], type[Exception]]] = [
    (pack_marker(MARKER), unpack_marker, pack_marker, CorruptEntryError),
    (runs().dump(), RunTable.load, RunTable.dump, ValueError),
    (whole(coordinator()), loaded, whole, ValueError),
]


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_what_is_written_is_read(form: int) -> None:
    data, load, dump, _ = FORMS[form]
    assert dump(load(data)) == data


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_damage_is_a_typed_error(form: int) -> None:
    data, load, _, error = FORMS[form]
    rng, refused = random.Random(form), 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if rng.random() < 0.3:
            damaged = damaged[: rng.randrange(len(damaged))]
        if not damaged:
            continue
        try:
            load(bytes(damaged))
        except error:
            refused += 1
    assert refused > 300


def test_a_loaded_coordinator_goes_on() -> None:
    made = loaded(whole(coordinator()))
    assert [row.transaction_id for row in made.decided()] == [2, 3]
    assert made.open_low == 1 and made.open_count == 2
    row = made.get(4)
    assert row is not None and row.parts[16].runs == (Published(4, 0, 0, 1, 5, 2),)
    made.abort(1, None, "operator")
    for number in (1, 2, 3):
        made.markers_done(number, {16: [], 17: []})
    assert made.open_low == 10 and not made.decided(), "the nameless job is open"


def test_an_ended_transaction_outlives_its_forgotten_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays as long as an older transaction is open. Checkpoints of that state exist."""
    monkeypatch.setattr(sinks, "MAX_NAMELESS", 1)
    made = Coordinator()
    made.begin("p", Holder(1, 0), 1, now_ms=5, idle_ms=1000, total_ms=2000)
    for number in (2, 3, 4):
        asked = Asked(f"job-{number}", "", "", 0, 0, jobs=True)
        made.begin_batch(asked, now_ms=5, total_ms=2000)
        made.commit(number, None, (), 0)
    assert made.sinks.get("job-2") is None and made.get(2) is not None
    again = loaded(whole(made))
    assert whole(again) == whole(made)
    again.abort(1, None, "operator")
    assert again.get(2) is None and again.get(4) is not None, "it goes when all before it have"


def test_an_open_transaction_of_an_unknown_sink_is_refused() -> None:
    made = Coordinator()
    made.begin_batch(Asked("job", "", "", 0, 0, jobs=True), now_ms=5, total_ms=2000)
    made.sinks._sinks.clear()
    with pytest.raises(ValueError, match="of an unknown sink"):
        loaded(whole(made))
