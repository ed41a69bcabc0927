"""Producers: they lease a name, open partitions, send plain batches and transactions.

A producer sends the records 0, 1, 2 ... of each partition, and repeats aborted ones. It repeats
lost messages with the same bytes. An older producer of the same name goes on beside its successor
until it hears that it was fenced.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

from cluster.dedup.verdict import BatchMeta
from cluster.transactions.types import Holder
from tests.sim.transactions.checker import Checker
from tests.sim.transactions.world import GONE, LOST, METADATA, Call, Process, World

OVER = ("TRANSACTION_ABORTED", "TRANSACTION_ENDED", "UNKNOWN_TRANSACTION")


class Fenced(Exception):
    """Another one has the name."""


def batch_of(
    producer_id: int, epoch: int, first: int, last: int, prev: int, content: Any = ""
) -> BatchMeta:
    crc = zlib.crc32(repr((first, last, content)).encode())
    return BatchMeta(producer_id, epoch, first, last, prev, last - first + 1, crc)


def command(method: str, **arguments: Any) -> Call:
    return Call(METADATA, "command", {"method": method, **arguments})


class Producer:
    """One holder of a name."""

    def __init__(
        self, world: World, checker: Checker, rng: random.Random, name: str, nonce: int
    ) -> None:
        self.world, self.checker, self.rng = world, checker, rng
        self.name, self.nonce = name, nonce
        self.holder = Holder(0, 0)
        self.last: dict[int, int] = {}  # group -> last sequence, without open transactions
        self.begins = 0
        self.begun = 0  # by the commit of the one before
        self.stopped = self.done = False

    # -- a life ---------------------------------------------------------------------------

    def live(self, groups: list[int], works: int) -> Process:
        try:
            yield from self._start(groups)
            for _ in range(works):
                if self.stopped:
                    break
                if self.rng.random() < 0.35:
                    yield from self._plain(self.rng.choice(groups))
                else:
                    yield from self._transaction(groups)
        except Fenced:
            pass
        self.done = True

    def _start(self, groups: list[int]) -> Process:
        known = yield from self._until(command("lease", name=self.name, nonce=self.nonce))
        self.holder = Holder(known.producer_id, known.epoch)
        for group in groups:
            while True:
                answer = yield Call(group, "open", self.holder._asdict())
                if answer == GONE:
                    self.last[group] = -2
                    break
                if answer is not LOST and answer.kind.name == "APPENDED":
                    self.last[group] = answer.last_sequence
                    break
                self._check(answer)

    def _until(self, call: Call) -> Process:
        """Repeats a call until there is an answer."""
        while True:
            answer = yield call
            if answer is not LOST:
                return answer

    def _check(self, answer: Any) -> None:
        reason = answer[0] if isinstance(answer, tuple) else ""
        kind = getattr(answer, "kind", None)
        if (kind is not None and kind.name == "FENCED") or reason == "FENCED":
            raise Fenced

    # -- plain batches --------------------------------------------------------------------

    def _plain(self, group: int) -> Process:
        if self.last[group] == -2:
            return
        first = self.last[group] + 1
        meta = batch_of(*self.holder, first, first + self.rng.randrange(3), self.last[group])
        while True:
            answer = yield self._batch(group, meta, 0)
            if answer == GONE:
                self.last[group] = -2
                return
            if answer is LOST:
                continue
            self._check(answer)
            if answer.kind.name in ("APPENDED", "DUPLICATE"):
                self.last[group] = meta.last
                return
            if answer.kind.name not in ("TRANSACTION_CONFLICT", "NOT_READY"):
                self.checker.fail(f"{self.name}: a plain batch {meta} was told {answer}")

    def _batch(self, group: int, meta: BatchMeta, transaction_id: int) -> Call:
        return Call(group, "batch", {"meta": meta, "transaction_id": transaction_id, "records": ()})

    # -- transactions ---------------------------------------------------------------------

    def _transaction(self, groups: list[int]) -> Process:
        number = yield from self._begin()
        if number is None:
            return
        live = [group for group in groups if self.last[group] != -2]
        staged: dict[int, tuple[int, int]] = {}  # group -> (records, last)
        for _ in range(self.rng.randrange(4)):
            if live and not (yield from self._stage(self.rng.choice(live), number, staged)):
                return
        chance = self.rng.random()
        if chance < 0.2:
            yield from self._end("abort", number, holder=self.holder, reason="owner")
            return
        asked = tuple((g, self.holder.producer_id, *run) for g, run in staged.items())
        if chance < 0.27:
            yield from self._wrong_commit(number, asked)
        visible = self.rng.random() < 0.6
        straggler = live[0] if live and chance > 0.93 else None
        yield from self._commit(number, asked, staged, visible, straggler)

    def _begin(self) -> Process:
        if self.begun:
            number, self.begun = self.begun, 0
            return number
        self.begins += 1
        while True:
            call = command("begin", name=self.name, holder=self.holder, nonce=self.begins)
            answer = yield from self._until(call)
            self._check(answer)
            if isinstance(answer, int):
                return answer
            if answer[0] == "THROTTLED":
                return None
            if answer[0] != "TRANSACTION_OPEN":
                self.checker.fail(f"{self.name}: begin was told {answer}")
            # A transaction of ours that we gave up.
            yield from self._end("abort", answer[2], holder=self.holder, reason="owner")

    def _end(self, method: str, number: int, **arguments: Any) -> Process:
        """Ends a transaction; returns whether it is over without a commit."""
        answer = yield from self._until(command(method, transaction_id=number, **arguments))
        self._check(answer)
        if answer[0] in ("ABORTING", "ABORTED", "TRANSACTION_ABORTED"):
            self.checker.told.aborted.add(number)
        return answer

    def _stage(self, group: int, number: int, staged: dict[int, tuple[int, int]]) -> Process:
        """Sends some batches at once and repeats them; returns whether the transaction goes on."""
        records, last = staged.get(group, (0, self.last[group]))
        batches, end = [], last
        for _ in range(self.rng.randint(1, 3)):
            first = end + 1
            batches.append(batch_of(*self.holder, first, first + self.rng.randrange(3), end))
            end = batches[-1].last
        todo = list(batches)
        while todo:
            answers = yield [self._batch(group, meta, number) for meta in todo]
            again = []
            for meta, answer in zip(todo, answers, strict=True):
                if answer == GONE:
                    self.last[group] = -2
                    yield from self._end("abort", number, holder=self.holder, reason="owner")
                    return False
                if answer is LOST:
                    again.append(meta)
                    continue
                if not self._staged(group, number, meta, answer, again):
                    yield from self._end("abort", number, holder=self.holder, reason="owner")
                    return False
            todo = again
        staged[group] = (records + end - last, end)
        return True

    def _staged(
        self, group: int, number: int, meta: BatchMeta, answer: Any, again: list[BatchMeta]
    ) -> bool:
        """Takes an answer; False: the transaction is over."""
        self._check(answer)
        name = answer[0] if not hasattr(answer, "kind") else answer.kind.name
        if name in OVER:
            return False
        if name in ("TRANSACTION_CONFLICT", "NOT_READY", "OUT_OF_ORDER"):
            again.append(meta)
        elif name not in ("STAGED", "STAGED_DUPLICATE"):
            if name == "UNKNOWN_TOPIC_OR_PARTITION":
                return False
            self.checker.fail(f"{self.name}: a batch {meta} of {number} was told {answer}")
        return True

    def _wrong_commit(self, number: int, asked: tuple[Any, ...]) -> Process:
        """Sends a commit that names too much or too little: it must not be decided."""
        wrong = tuple((g, p, n + 1, last + 1) for g, p, n, last in asked) or (
            (99, self.holder.producer_id, 1, 0),
        )
        if len(asked) > 1 and self.rng.random() < 0.5:
            wrong = asked[1:]
        answer = yield Call(
            METADATA,
            "commit",
            {"transaction_id": number, "holder": self.holder, "asked": wrong},
        )
        if answer is not LOST and answer[0] in ("COMMITTING", "COMMITTED", "VISIBLE"):
            self.checker.fail(f"{self.name}: {wrong} was committed, staged is {asked}")

    def _commit(
        self,
        number: int,
        asked: tuple[Any, ...],
        staged: dict[int, tuple[int, int]],
        visible: bool,
        straggler: int | None,
    ) -> Process:
        call = Call(
            METADATA,
            "commit",
            {
                "transaction_id": number,
                "holder": self.holder,
                "asked": asked,
                "visible": visible,
                "next_nonce": self.begins + 1 if self.rng.random() < 0.5 else 0,
            },
        )
        if straggler is not None:
            last = staged.get(straggler, (0, self.last[straggler]))[1]
            late = batch_of(*self.holder, last + 1, last + 1, last)
            answers = yield [call, self._batch(straggler, late, number)]
            answer = answers[0]
        else:
            answer = yield call
        while answer is LOST:
            answer = yield call
        self._check(answer)
        if answer[0] in ("COMMITTING", "COMMITTED", "VISIBLE"):
            self._committed(number, asked, staged)
            if answer[0] == "VISIBLE":
                self._remember_places(number, answer[1])
            self.begun = answer[3]
            self.begins += bool(self.begun)
        elif answer[0] in ("ABORTING", "ABORTED", "TRANSACTION_ABORTED"):
            self.checker.told.aborted.add(number)
        elif answer[0] == "UNKNOWN_TRANSACTION":
            # Forgotten, so somebody of our name began another: we were fenced.
            successor = self.world.groups[METADATA].machine.state.name(self.name)
            if successor.epoch == self.holder.epoch:
                self.checker.fail(f"{self.name}: commit of its own {number} is unknown")
            raise Fenced
        elif answer[0] == "COMMIT_INCOMPLETE" and straggler is not None:
            # The straggler was first: it counts as more than was declared. But an earlier one of
            # our calls may have been decided before it came.
            ended = yield from self._end("abort", number, holder=self.holder, reason="owner")
            if ended[0] == "TRANSACTION_COMMITTED":
                self._committed(number, asked, staged)
        else:
            self.checker.fail(f"{self.name}: commit of {number} ({asked}) was told {answer}")

    def _committed(
        self, number: int, asked: tuple[Any, ...], staged: dict[int, tuple[int, int]]
    ) -> None:
        self.checker.told.committed[number] = asked
        for group, (_, last) in staged.items():
            self.last[group] = last

    def _remember_places(self, number: int, parts: dict[int, Any]) -> None:
        self.checker.told.published[number] = {
            (group, run.producer_id): run.base_offset
            for group, (_, runs) in parts.items()
            for run in runs
        }
