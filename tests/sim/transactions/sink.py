"""A run of a sink: batches of several tasks, each tried once or more, one transaction a batch."""

from __future__ import annotations

import random
from typing import Any

from tests.sim.transactions.checker import Checker
from tests.sim.transactions.clients import OVER, Fenced, batch_of, command
from tests.sim.transactions.world import LOST, METADATA, Call, Process, World

KEY, QUERY = "sink", "query"


class Over(Exception):
    """The transaction was aborted; the run dies of it, and another one begins."""


class Sink:
    """One run of the one sink. It goes on after the last batch that is committed."""

    def __init__(self, world: World, checker: Checker, rng: random.Random, run: str) -> None:
        self.world, self.checker, self.rng = world, checker, rng
        self.name, self.ticket = run, 0
        self.stopped = self.done = False

    def live(self, groups: list[int], batches: int) -> Process:
        try:
            self.ticket = yield from self._until(command("draw_ticket", key=KEY))
            batch = 0
            while batch < batches and not self.stopped:
                batch = yield from self._batch(groups, batch)
        except (Fenced, Over):
            pass
        self.done = True

    def _until(self, call: Call) -> Process:
        while True:
            answer = yield call
            if answer is not LOST:
                if isinstance(answer, tuple) and answer[0] == "FENCED":
                    raise Fenced
                return answer

    def _batch(self, groups: list[int], batch: int) -> Process:
        """Writes a batch; returns the number of the next one."""
        answer = yield from self._until(
            command(
                "begin_batch",
                key=KEY,
                query=QUERY,
                run=self.name,
                ticket=self.ticket,
                batch=batch,
            )
        )
        if not isinstance(answer, int):
            if answer[0] in ("BUSY", "THROTTLED"):
                yield None
                return batch
            if answer[0] in ("ALREADY", "BATCH_BEHIND"):
                return batch + 1
            if answer[0] in OVER:
                raise Over
            self.checker.fail(f"{self.name}: begin of batch {batch} was told {answer}")
        winners: list[tuple[int, int, int, int]] = []
        for _ in range(self.rng.randint(0, 3)):
            winners += yield from self._task(groups, answer)
        yield from self._commit(answer, tuple(winners))
        return batch + 1

    def _task(self, groups: list[int], number: int) -> Process:
        """Runs some attempts of a task; one attempt's records win."""
        runs: list[tuple[int, int, int, int]] = []
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            producer_id = yield from self._until(command("allocate"))
            runs = []
            for group in self.rng.sample(groups, self.rng.randint(1, len(groups))):
                last = yield from self._stage(group, producer_id, number)
                runs.append((group, producer_id, last + 1, last))
        return runs

    def _stage(self, group: int, producer_id: int, number: int) -> Process:
        last = -1
        for _ in range(self.rng.randint(1, 2)):
            meta = batch_of(producer_id, 0, last + 1, last + self.rng.randint(1, 3), last)
            arguments = {"meta": meta, "transaction_id": number, "records": ()}
            while True:
                answer: Any = yield Call(group, "batch", arguments)
                if answer is LOST:
                    continue
                name = answer[0] if not hasattr(answer, "kind") else answer.kind.name
                if name in ("STAGED", "STAGED_DUPLICATE"):
                    break
                if name in OVER:
                    raise Over
                if name != "NOT_READY":
                    self.checker.fail(f"{self.name}: a batch of {number} was told {answer}")
            last = meta.last
        return last

    def _commit(self, number: int, asked: tuple[Any, ...]) -> Process:
        arguments = {"transaction_id": number, "holder": None, "asked": asked}
        answer = yield from self._until(Call(METADATA, "commit", arguments))
        if answer[0] in ("COMMITTING", "COMMITTED", "VISIBLE"):
            self.checker.told.committed[number] = asked
        elif answer[0] in ("ABORTING", "ABORTED", "TRANSACTION_ABORTED"):
            self.checker.told.aborted.add(number)
            raise Over
        elif answer[0] == "UNKNOWN_TRANSACTION":
            raise Over
        else:
            self.checker.fail(f"{self.name}: commit of {number} ({asked}) was told {answer}")
