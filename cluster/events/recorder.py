"""Flight recorder: the last events of one node, repeats folded into one.

    Appender, Gate, ProducerService, the log --note--> Recorder --read--> ObserveService

It dies with the process; the log and the audit file last. An event that comes again within FOLD_MS
counts in the one that is there. A storm thus takes few places, and events of different causes in a
storm evict only events of their own kind. Any thread may note an event.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

MAX_EVENTS = 10_000
FOLD_MS = 60_000
MAX_NAME_CHARS = 255
MAX_TEXT_CHARS = 400
# Kinds of events.
VERDICT, LEADER, PRODUCER, GROUP, MOVE, SLOW, AUDIT, NODE = KINDS = (
    "verdict",
    "leader",
    "producer",
    "group",
    "move",
    "slow",
    "audit",
    "node",
)


@dataclass(slots=True)
class Event:
    """One event, or equal ones from `first_ms` to `last_ms`.

    id: repeats keep it. change: rises with each new event and each repeat. resource and name: its
    subject, which also decides the callers that may see it. The sequences span all repeats; caller,
    offset and text are the last one's. -1, 0 or empty: does not apply.
    """

    id: int
    change: int
    kind: str
    resource: str
    name: str
    first_ms: int
    last_ms: int
    count: int = 1
    partition: int = -1
    verdict: str = ""
    producer_id: int = 0
    epoch: int = -1
    first_sequence: int = -1
    last_sequence: int = -1
    offset: int = -1
    principal: str = ""
    address: str = ""
    text: str = ""


class Recorder:
    """The ring of one node. now_ms: the node's wall clock."""

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        limit: int = MAX_EVENTS,
    ) -> None:
        self._now_ms = now_ms
        self._limit = limit
        self._lock = threading.Lock()
        self._changes = 0
        self._size = 0
        # By kind: id -> event, the newest change last; and the event that a repeat counts in.
        self._events: dict[str, OrderedDict[int, Event]] = {}
        self._open: dict[tuple[object, ...], Event] = {}
        self._keys: dict[int, tuple[object, ...]] = {}
        self._wakers: list[Callable[[], object]] = []
        self.totals: Counter[str] = Counter()  # by kind, since the start

    def note(
        self,
        kind: str,
        resource: str,
        name: str,
        text: str = "",
        *,
        same: tuple[object, ...] | None = None,
        partition: int = -1,
        verdict: str = "",
        producer_id: int = 0,
        epoch: int = -1,
        sequences: tuple[int, int] = (-1, -1),
        offset: int = -1,
        principal: str = "",
        address: str = "",
    ) -> None:
        """Note an event. same: the part that repeats share; None: the text."""
        name = name[:MAX_NAME_CHARS]
        text = text[:MAX_TEXT_CHARS]
        key = (kind, resource, name, partition, (text,) if same is None else same)
        now, (first, last) = self._now_ms(), sequences
        with self._lock:
            self.totals[kind] += 1
            self._changes += 1
            event = self._open.get(key)
            if event is not None and now - event.last_ms <= FOLD_MS:
                event.count += 1
                if first >= 0:
                    event.first_sequence = min(first, event.first_sequence)
                    event.last_sequence = max(last, event.last_sequence)
                self._events[kind].move_to_end(event.id)
            else:
                event = Event(self._changes, 0, kind, resource, name, now, now, 1, partition)
                event.verdict, event.producer_id, event.epoch = verdict, producer_id, epoch
                event.first_sequence, event.last_sequence = first, last
                self._add(key, event)
            event.change, event.last_ms = self._changes, now
            event.offset, event.text = offset, text
            event.principal, event.address = principal[:MAX_NAME_CHARS], address
        for wake in self._wakers:
            wake()

    def _add(self, key: tuple[object, ...], event: Event) -> None:
        if self._size >= self._limit:
            _, oldest = max(self._events.values(), key=len).popitem(last=False)
            gone = self._keys.pop(oldest.id)
            if self._open.get(gone) is oldest:
                del self._open[gone]
        else:
            self._size += 1
        self._events.setdefault(event.kind, OrderedDict())[event.id] = event
        self._open[key] = event
        self._keys[event.id] = key

    def read(
        self,
        wanted: Callable[[Event], bool],
        *,
        kinds: Collection[str] = (),
        after: int = 0,
        limit: int = MAX_EVENTS,
    ) -> tuple[list[Event], int]:
        """Return the newest wanted events with a change above `after`, and the newest change.

        They come in the order of their last change. kinds: empty for all.
        """
        found: list[Event] = []
        with self._lock:
            for kind in kinds or KINDS:
                found += _newest(self._events.get(kind, OrderedDict()), wanted, after, limit)
            newest = self._changes
        found.sort(key=lambda event: event.change)
        return found[-limit:], newest

    def __len__(self) -> int:
        return self._size

    def wake(self, waker: Callable[[], object]) -> Callable[[], None]:
        """Call `waker` after each event, in any thread, until the returned function is called."""
        self._wakers = [*self._wakers, waker]

        def end() -> None:
            self._wakers = [one for one in self._wakers if one is not waker]

        return end


def _newest(
    events: OrderedDict[int, Event], wanted: Callable[[Event], bool], after: int, limit: int
) -> Iterator[Event]:
    for event in reversed(events.values()):
        if event.change <= after or limit <= 0:
            return
        if wanted(event):
            limit -= 1
            yield event
