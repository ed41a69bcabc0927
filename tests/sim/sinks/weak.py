"""Weaknesses of a sink: each of these, planted, breaks the promise in some seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from cluster.transactions.coordinator import Coordinator
from cluster.transactions.sinks import Sinks
from cluster.transactions.types import Expected
from tests.sim.sinks.world import World

Plant = Callable[[], AbstractContextManager[None]]


def _planted(where: type, name: str, weak: Any) -> AbstractContextManager[None]:
    @contextmanager
    def plant() -> Iterator[None]:
        with patch.object(where, name, weak):
            yield

    return plant()


def lower_batches_are_already_there() -> AbstractContextManager[None]:
    """Delta's rule: an older checkpoint's batches are skipped, whichever rows they have."""
    refusal = Sinks.refusal

    def skips(self: Sinks, asked: Any, sink: Any) -> Any:
        found = refusal(self, asked, sink)
        if found is not None and found.reason == "BATCH_BEHIND":
            asked = asked._replace(batch=sink.committed_batch)
            return refusal(self, asked, sink)
        return found

    def begins(self: Coordinator, asked: Any, **more: Any) -> Any:
        sink = self.sinks.get(asked.key)
        if sink is not None and sink.query == asked.query:
            asked = asked._replace(batch=max(asked.batch, sink.committed_batch))
        return begin(self, asked, **more)

    def checks(self: Coordinator, asked: Any, records: int, digest: int) -> Any:
        return self.get(self.sinks.last_id(asked.key))

    begin = Coordinator.begin_batch

    @contextmanager
    def plant() -> Iterator[None]:
        with (
            patch.object(Sinks, "refusal", skips),
            patch.object(Coordinator, "begin_batch", begins),
            patch.object(Coordinator, "check_committed", checks),
        ):
            yield

    return plant()


def rows_are_not_compared() -> AbstractContextManager[None]:
    """The last batch counts as written, even with other rows."""

    def checks(self: Coordinator, asked: Any, records: int, digest: int) -> Any:
        return self.get(self.sinks.last_id(asked.key))

    return _planted(Coordinator, "check_committed", checks)


def already_before_it_is_readable() -> AbstractContextManager[None]:
    """A batch is called committed at its decision."""
    return _planted(World, "is_readable", lambda self, row: "COMMITTED")


def any_query_of_a_sink() -> AbstractContextManager[None]:
    """A lost checkpoint: a new query id, and everything once more."""
    refusal = Sinks.refusal

    def takes(self: Sinks, asked: Any, sink: Any) -> Any:
        found = refusal(self, asked, sink)
        if found is not None and found.reason == "OTHER_QUERY":
            sink.committed_batch = -1
            return None
        return found

    return _planted(Sinks, "refusal", takes)


def any_sink_of_a_query() -> AbstractContextManager[None]:
    """A renamed sink gets the undecided batch again."""
    refusal = Sinks.refusal

    def takes(self: Sinks, asked: Any, sink: Any) -> Any:
        found = refusal(self, asked, sink)
        return None if found is not None and found.reason == "OTHER_SINK" else found

    return _planted(Sinks, "refusal", takes)


def missing_batches_are_taken() -> AbstractContextManager[None]:
    """Batches between the last one and this one are missing and never noticed."""
    refusal = Sinks.refusal

    def takes(self: Sinks, asked: Any, sink: Any) -> Any:
        found = refusal(self, asked, sink)
        return None if found is not None and found.reason == "BATCH_GAP" else found

    return _planted(Sinks, "refusal", takes)


def tokens_work_twice() -> AbstractContextManager[None]:
    """A token that stays in the options overrules later refusals."""

    def overrules(self: Sinks, asked: Any, sink: Any, refusal: Any) -> bool:
        return bool(asked.reset) and refusal is not None

    return _planted(Sinks, "overrules", overrules)


def old_runs_go_on() -> AbstractContextManager[None]:
    """A higher ticket does not end the open transactions of lower ones: both write the batch."""

    def leaves(self: Coordinator, row: Any, reason: str) -> None:
        if reason != "fenced":
            abort(self, row, reason)

    abort = Coordinator._abort
    return _planted(Coordinator, "_abort", leaves)


def losers_are_published() -> AbstractContextManager[None]:
    """Records of failed, speculative and forgotten attempts appear, too."""
    marker = Coordinator.marker

    def all_of_it(self: World) -> None:
        def whole(coordinator: Coordinator, row: Any, group: int, stamp: int) -> Any:
            made = marker(coordinator, row, group, stamp)
            runs = self.staged.get((row.transaction_id, group), {})
            every = tuple(Expected(group, p, len(r), len(r) - 1) for p, r in runs.items())
            return made._replace(expected=every if made.committed else ())

        with patch.object(Coordinator, "marker", whole):
            mark(self)

    mark = World.mark_one
    return _planted(World, "mark_one", all_of_it)


def in_the_order_of_producers() -> AbstractContextManager[None]:
    """A batch appears by producer ids, not as its driver lists the winners."""
    marker = Coordinator.marker

    def by_producer(self: Coordinator, row: Any, group: int, stamp: int) -> Any:
        made = marker(self, row, group, stamp)
        return made._replace(expected=tuple(sorted(made.expected, key=lambda e: e.producer_id)))

    return _planted(Coordinator, "marker", by_producer)


def sinks_are_forgotten() -> AbstractContextManager[None]:
    """A sink at rest is dropped, as producer names are: its last batch comes again."""

    def admit(self: Sinks, asked: Any) -> Any:
        sink = admitted(self, asked)
        if sink.committed_batch >= 2 and sink.ticket != asked.ticket:
            sink.committed_batch, sink.version = -1, 0
        return sink

    admitted = Sinks.admit
    return _planted(Sinks, "admit", admit)


WEAKNESSES: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        lower_batches_are_already_there,
        rows_are_not_compared,
        already_before_it_is_readable,
        any_query_of_a_sink,
        any_sink_of_a_query,
        missing_batches_are_taken,
        tokens_work_twice,
        old_runs_go_on,
        losers_are_published,
        in_the_order_of_producers,
        sinks_are_forgotten,
    )
}
