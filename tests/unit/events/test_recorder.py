"""The flight recorder: folding, eviction, reading, and log lines as events."""

from __future__ import annotations

import logging
import threading
from itertools import cycle, islice

from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.events.log_lines import LOGGER, record_log
from cluster.events.recorder import FOLD_MS, LEADER, NODE, VERDICT, Event, Recorder
from cluster.partition.types import Answer
from cluster.security.caller import Caller
from cluster.services.log.verdict_events import note_verdict


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def everything(event: Event) -> bool:
    return True


def refuse(recorder: Recorder, pid: int, sequence: int, kind: Kind = Kind.FENCED) -> None:
    meta = BatchMeta(pid, 1, sequence, sequence + 1, sequence - 1, 2, 0)
    answer = Answer(Verdict(kind, 7 if kind is Kind.DUPLICATE else -1, message="why"))
    note_verdict(recorder, Caller("token:a", address="ipv4:1"), "t", 3, meta, answer)


def test_a_storm_of_a_million_refusals_is_few_events() -> None:
    recorder = Recorder(Clock(), limit=100)
    recorder.note(LEADER, "topic", "t", "leads partition=t-3 term=9", partition=3)
    metas = [BatchMeta(1 + n % 7, 1, n, n + 1, n - 1, 2, 0) for n in range(700)]
    answer, nobody = Answer(Verdict(Kind.FENCED, message="why")), Caller()
    for meta in islice(cycle(metas), 1_000_000):
        note_verdict(recorder, nobody, "t", 3, meta, answer)
    events, _ = recorder.read(everything, kinds=[VERDICT])
    assert sum(event.count for event in events) == 1_000_000
    spans = {e.producer_id: (e.first_sequence, e.last_sequence) for e in events}
    assert spans == {1 + n: (n, 694 + n) for n in range(7)}
    assert recorder.totals[VERDICT] == 1_000_000
    assert recorder.read(everything, kinds=[LEADER])[0], "it is still there"


def test_a_storm_of_strangers_evicts_only_its_own_kind() -> None:
    recorder = Recorder(Clock(), limit=100)
    recorder.note(LEADER, "topic", "t", "leads partition=t-3 term=9", partition=3)
    for pid in range(1, 10_000):
        refuse(recorder, pid, 0)
    assert len(recorder) == 100
    events, _ = recorder.read(everything)
    assert len(events) == 100
    assert [event.kind for event in events[:1]] == [LEADER]
    assert events[-1].producer_id == 9999


def test_a_repeat_folds_within_its_time_only() -> None:
    clock = Clock()
    recorder = Recorder(clock)
    refuse(recorder, 1, 10, Kind.DUPLICATE)
    clock.now += FOLD_MS
    refuse(recorder, 1, 4, Kind.DUPLICATE)
    (event,), newest = recorder.read(everything)
    assert (event.count, event.first_sequence, event.last_sequence) == (2, 4, 11)
    assert (event.last_ms - event.first_ms, event.verdict, event.offset) == (
        FOLD_MS, "DUPLICATE", 7,
    )  # fmt: skip
    assert (event.principal, event.address, event.text) == ("token:a", "ipv4:1", "why")
    clock.now += FOLD_MS + 1
    refuse(recorder, 1, 4, Kind.STAGED_DUPLICATE)
    refuse(recorder, 1, 4, Kind.DUPLICATE)
    events, _ = recorder.read(everything, after=newest)
    assert [(one.verdict, one.count) for one in events] == [("DUPLICATE", 1), ("DUPLICATE", 1)]
    assert recorder.read(everything, limit=1)[0] == events[-1:]
    assert recorder.read(lambda event: event.count > 1)[0] == [event]


def test_long_names_and_texts_are_cut() -> None:
    recorder = Recorder(Clock())
    recorder.note(VERDICT, "topic", "x" * 1_000_000, "y" * 1_000_000, principal="z" * 1000)
    (event,), _ = recorder.read(everything)
    assert len(event.name + event.text + event.principal) < 1000


def test_log_lines_are_events_until_it_ends() -> None:
    recorder, log = Recorder(Clock()), logging.getLogger(f"{LOGGER}.consensus.group")
    level, logger = logging.getLogger(LOGGER).level, logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    end = record_log(recorder)
    try:
        log.info("leads partition=%s term=%d index=%d", "a-b-12", 3, 4)
        log.info("lost member group=%s member=%s: %s", "g", "m", "gone")
        log.warning("something else n=%d", 1)
        log.debug("a detail")
        thread = threading.Thread(
            target=lambda: log.info("removed partition=%s index=%d", "t-0", 1)
        )
        thread.start()
        thread.join()
    finally:
        end()
        logger.setLevel(level)
    log.error("after its end")
    events, _ = recorder.read(everything)
    assert [(e.kind, e.resource, e.name, e.partition) for e in events] == [
        (LEADER, "topic", "a-b", 12),
        ("group", "group", "g", -1),
        (NODE, "cluster", "", -1),
        ("move", "topic", "t", 0),
    ]


def test_a_waker_is_called_until_it_ends() -> None:
    recorder, calls = Recorder(Clock()), list[int]()
    end = recorder.wake(lambda: calls.append(len(recorder)))
    refuse(recorder, 1, 0)
    end()
    refuse(recorder, 2, 0)
    assert calls == [1]
