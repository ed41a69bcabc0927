"""Flight recorders under chaos: each duplicate and fence that a client was told is an event.

A watcher for each node follows its events while faults happen; a node forgets them when it ends. An
answer of a node that ends within a second may have no event that left it: the watchers note when
a node broke off, and such answers are counted apart.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import grpc

from harness.api import Api
from oncelog.v1 import observe_pb2
from tests.chaos.checker import Check
from tests.chaos.history import History, Told

AGAIN = 0.2  # seconds before a node that broke off is asked again
LATE = 1.0  # seconds from an answer to the end of its node, in which its event may be lost
KINDS = ("verdict", "producer")


@dataclass(frozen=True, slots=True)
class Noted:
    """One event of a node, in its newest form."""

    kind: str
    verdict: str
    partition: int
    producer_id: int
    epoch: int
    first: int  # sequences of all repeats
    last: int


class EventWatch(threading.Thread):
    """Follows one node's events of a topic. `broke`: times at which the node broke off."""

    def __init__(self, node: int, address: str, topic: str) -> None:
        super().__init__(name=f"events-{node}", daemon=True)
        self._api = Api(address)
        self._request = observe_pb2.ListEventsRequest(
            kinds=KINDS, name=topic, limit=10_000, follow=True
        )
        self._lock = threading.Lock()
        self._call: grpc.Call | None = None
        self._stopped = False
        self._starts = 0
        self._events: dict[tuple[int, int], Noted] = {}
        self.broke: list[float] = []

    def run(self) -> None:
        """A node that comes back has events of its own; those of a link that broke come again."""
        while True:
            call = self._api.observe.ListEvents(self._request)
            with self._lock:
                self._call = call
                if self._stopped:
                    call.cancel()
            try:
                for answer in call:
                    self._take(answer.events)
            except grpc.RpcError:
                pass
            with self._lock:
                if self._stopped:
                    return
            self.broke.append(time.monotonic())
            self._starts += 1
            time.sleep(AGAIN)

    def _take(self, events: Iterable[observe_pb2.Event]) -> None:
        for one in events:
            self._events[self._starts, one.id] = Noted(
                one.kind, one.verdict, one.partition, one.producer_id, one.epoch,
                one.first_sequence, one.last_sequence,
            )  # fmt: skip

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._call is not None:
                self._call.cancel()
        self.join()
        # Also those that came after the last message.
        request = observe_pb2.ListEventsRequest()
        request.CopyFrom(self._request)
        request.follow = False
        self._starts += 1
        for answer in self._api.observe.ListEvents(request, timeout=20.0):
            self._take(answer.events)
        self._api.close()

    @property
    def events(self) -> list[Noted]:
        return list(self._events.values())


class Flights:
    """The watches of all nodes, from now on; none without addresses."""

    def __init__(self, addresses: Mapping[int, str], topic: str) -> None:
        self._watches = [EventWatch(node, at, topic) for node, at in addresses.items()]
        for watch in self._watches:
            watch.start()

    def judge(self, history: History, say: Callable[[str], None]) -> list[Check]:
        """Ends the watches. All nodes must serve."""
        if not self._watches:
            return []
        for watch in self._watches:
            watch.stop()
        noted = [event for watch in self._watches for event in watch.events]
        broke = [at for watch in self._watches for at in watch.broke]
        checks, lost = check_events(history.told, noted, broke)
        counts = Counter(one.verdict for one in history.told)
        say(
            f"clients were told of {counts['DUPLICATE']} duplicates and {counts['FENCED']} fences, "
            f"{lost} of them just before a node ended; the nodes noted {len(noted)} events"
        )
        return checks


def check_events(
    told: Sequence[Told], events: Sequence[Noted], broke: Sequence[float]
) -> tuple[list[Check], int]:
    """Checks that each answer is an event; returns the number of answers that cannot be judged."""
    checks = {
        "DUPLICATE": Check("duplicate without event", "every duplicate is an event of a node"),
        "FENCED": Check("fence without event", "every fence is an event of a node"),
    }
    lost = 0
    finders: dict[str, Callable[[Told, Noted], bool]] = {
        "DUPLICATE": is_duplicate,
        "FENCED": is_fence,
    }
    for one in told:
        if any(finders[one.verdict](one, event) for event in events):
            continue
        if any(0 <= at - one.at <= LATE for at in broke):
            lost += 1
            continue
        checks[one.verdict].note(
            f"partition {one.partition}, producer {one.producer_id}, epoch {one.epoch}, "
            f"sequence {one.sequence}"
        )
    return list(checks.values()), lost


def is_duplicate(told: Told, event: Noted) -> bool:
    return (
        (event.kind, event.verdict) == ("verdict", "DUPLICATE")
        and (event.partition, event.producer_id, event.epoch)
        == (told.partition, told.producer_id, told.epoch)
        and event.first <= told.sequence <= event.last
    )


def is_fence(told: Told, event: Noted) -> bool:
    """A batch of the epoch was refused, or a higher epoch was opened in the partition."""
    if event.producer_id != told.producer_id:
        return False
    refused = (event.verdict, event.epoch) == ("FENCED", told.epoch)
    opened = event.kind == "producer" and event.partition == told.partition
    return refused or (opened and event.epoch > told.epoch)
