"""One life of a query's driver: micro-batches, their tasks and attempts, the commit log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from cluster.transactions.sinks import Asked
from cluster.transactions.types import Refused
from tests.sim.sinks.world import (
    LOST,
    Checkpoint,
    Message,
    Process,
    QueryFailed,
    Violation,
    World,
    digest_of,
)

NOTHING_BEGUN = -1
MAX_ROWS = 4  # of a micro-batch


class Driver:
    """A driver that begins at its checkpoint. `refused`: the error of the sink that ended it."""

    def __init__(self, world: World, checkpoint: Checkpoint) -> None:
        self.world, self.checkpoint = world, checkpoint
        self.done = False
        self.refused: Refused | None = None
        self.process = self._live()
        world.processes.append(self.process)

    def _live(self) -> Process:
        try:
            while (batch := self._plan()) is not None:
                yield None
                yield from self._batch(batch)
                yield None
                self.checkpoint.commits.add(batch)
        except Refused as refused:
            self.refused = refused
        except QueryFailed:
            pass
        self.done = True

    def _plan(self) -> int | None:
        """Plans the next batch; its range is on disk before it runs. None: all rows are written."""
        known, world = self.checkpoint, self.world
        batch = max(known.ends, default=known.first - 1)
        if batch in known.ends and batch not in known.commits:
            return batch
        start = known.ends.get(batch, known.start)
        if start >= world.total:
            return None
        end = min(world.total, start + world.rng.randint(0, MAX_ROWS))
        known.ends.setdefault(batch + 1, end)
        return batch + 1

    def _until(self, call: Callable[[], Any]) -> Process:
        """Repeats a call until it is answered."""
        while True:
            answer = yield call
            if isinstance(answer, Refused):
                raise answer
            if answer is not LOST and answer is not None:
                return answer

    # -- a batch ------------------------------------------------------------------------

    def _batch(self, batch: int) -> Process:
        world, known = self.world, self.checkpoint
        ticket = yield from self._until(lambda: world.draw(known.key))
        asked = Asked(known.key, known.query, "run", ticket, batch, jobs=False, reset=known.reset)
        rows = list(range(known.begin_of(batch), known.ends[batch]))
        tasks = self._split(rows)
        boxes: list[list[Any]] = [[] for _ in tasks]
        for part, box in zip(tasks, boxes, strict=True):
            for _ in range(world.rng.choice((1, 1, 1, 2))):  # speculation
                world.processes.append(self._attempt(asked, part, box))
        messages = []
        for part, box in zip(tasks, boxes, strict=True):
            message = yield from self._first(asked, part, box)
            messages.append(message)
        yield from self.commit(asked, messages)
        for row in rows:
            if row not in world.readable[1 + row % 2]:
                raise Violation(f"batch {batch} is called committed, {row} is not readable")
        world.commits += 1

    def _split(self, rows: list[int]) -> list[list[int]]:
        """Splits rows into tasks, in order; a replay may have another number of them."""
        count = self.world.rng.randint(1 if rows else 0, 3)
        edges = sorted(self.world.rng.randint(0, len(rows)) for _ in range(count - 1))
        edges = [0, *edges, len(rows)]
        return [rows[a:b] for a, b in pairwise(edges)] if count else []

    def _first(self, asked: Asked, part: list[int], box: list[Any]) -> Process:
        """Takes the message of the first attempt that ends; some attempts fail and are repeated."""
        seen = 0
        while True:
            for message in box[seen:]:
                if isinstance(message, Refused):
                    raise message
                if isinstance(message, Message):
                    return message
            if len(box) > seen:
                seen = len(box)
                if seen > 3:
                    raise QueryFailed
                self.world.processes.append(self._attempt(asked, part, box))
            yield None

    def _attempt(self, asked: Asked, part: list[int], box: list[Any]) -> Process:
        """Runs a task's attempt. Nobody stops it when it is superseded or its driver is dead."""
        world = self.world
        world.producers += 1
        producer, transaction = world.producers, NOTHING_BEGUN
        counts: dict[int, int] = {}
        try:
            for row in part:
                group = 1 + row % 2
                if transaction == NOTHING_BEGUN:
                    transaction = yield from self._until(lambda: world.begin(asked))
                if transaction:
                    stage = partial(world.stage, transaction, group, producer, row)
                    yield from self._until(stage)
                    counts[group] = counts.get(group, 0) + 1
                if world.rng.random() < 0.04:
                    box.append("FAILED")
                    return
        except Refused as refused:
            box.append(refused)
            return
        runs = tuple((group, producer, count) for group, count in counts.items())
        box.append(Message(transaction, runs, len(part), digest_of(part)))

    # -- its end ------------------------------------------------------------------------

    def commit(self, asked: Asked, messages: list[Message]) -> Process:
        """Returns once the batch is readable, all of it."""
        world = self.world
        numbers = {one.transaction for one in messages} - {NOTHING_BEGUN}
        digest = sum(one.digest for one in messages) % 2**64
        if not numbers:
            numbers = {(yield from self._until(lambda: world.begin(asked)))}
        if len(numbers) > 1:
            raise QueryFailed
        (number,) = numbers
        if number:
            runs = tuple(run for one in messages for run in one.runs)
            yield from self._until(lambda: world.end(number, runs, digest))
        else:
            rows = sum(one.rows for one in messages)
            yield from self._until(lambda: world.end_committed(asked, rows, digest))


__all__ = ["Driver"]
