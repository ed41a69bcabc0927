"""Workers that read an input, write a record per item, and stage how far they have read.

The items of an input partition are 0, 1, 2 ...; for each a worker writes one record that names it.
Either all workers of a partition have one producer name, so that each fences the one before, or
each has its own and owns the partition by an entry of the group. A worker that has lost the
partition goes on until it hears so.
"""

from __future__ import annotations

import random
from typing import Any

from oncelog.v1 import group_pb2 as pb
from tests.sim.transactions.checker import Checker
from tests.sim.transactions.clients import OVER, Fenced, Producer, batch_of
from tests.sim.transactions.offsets import GROUP, commit_of, refusal
from tests.sim.transactions.world import METADATA, Call, Process, World

RETRIED = ("TRANSACTION_CONFLICT",)


class Aborted(Exception):
    """The transaction is over, and nothing of it counts."""


class Worker(Producer):
    """`member`: its id in the group; empty: the partitions are shared out by hand."""

    def __init__(
        self,
        world: World,
        checker: Checker,
        rng: random.Random,
        nonce: int,
        partition: int,
        offsets: int,
        *,
        member: str,
    ) -> None:
        super().__init__(world, checker, rng, member or f"worker {partition}", nonce)
        self.partition, self.offsets, self.member = partition, offsets, member
        self.ownership = self.number = self.position = 0

    def live(self, groups: list[int], works: int) -> Process:
        try:
            yield from self._start(groups)
            if self.member:
                take = {"partition": self.partition, "member": self.member}
                self.ownership = yield from self._until(Call(self.offsets, "take", take))
            yield from self._rewind()
            for _ in range(works):
                if self.stopped:
                    break
                yield from self._work(groups)
        except Fenced:
            pass
        self.done = True

    def _rewind(self) -> Process:
        fetch = Call(self.offsets, "fetch_offset", {"partition": self.partition})
        found = yield from self._until(fetch)
        self.position = max(0, found)

    def _work(self, groups: list[int]) -> Process:
        number = yield from self._begin()
        if number is None:
            return
        last = dict(self.last)
        try:
            yield from self._transform(number, groups)
        except Aborted:
            yield from self._end("abort", number, holder=self.holder, reason="owner")
            self.last = last
            yield from self._rewind()
            return
        if self.member and self.rng.random() < 0.3:
            yield from self._commit_plain()

    def _transform(self, number: int, groups: list[int]) -> Process:
        asked: dict[int, tuple[int, int]] = {}
        end, staged = self.position, 0
        for _ in range(self.rng.randint(1, 2)):
            group, count = self.rng.choice(groups), self.rng.randint(1, 3)
            yield from self._write(group, number, end, count)
            asked[group] = (asked.get(group, (0, 0))[0] + count, self.last[group])
            end += count
            if self.rng.random() < 0.3:
                yield from self._stage_offset(number, end)
                staged += 1
        yield from self._stage_offset(number, end)
        pid = self.holder.producer_id
        runs: list[Any] = [(group, pid, *run) for group, run in asked.items()]
        runs.append((self.offsets, pid, staged + 1, self.number, GROUP))
        call = {"transaction_id": number, "holder": self.holder, "asked": tuple(runs)}
        visible = self.rng.random() < 0.5
        answer = yield from self._until(Call(METADATA, "commit", {**call, "visible": visible}))
        self._check(answer)
        if answer[0] in ("COMMITTING", "COMMITTED", "VISIBLE"):
            self.checker.told.committed[number] = tuple(runs)
            self.position = end
            return
        if answer[0] == "UNKNOWN_TRANSACTION":
            raise Fenced  # only a successor's transaction makes ours forgotten
        if answer[0] not in ("ABORTING", "ABORTED", "TRANSACTION_ABORTED"):
            self.checker.fail(f"{self.name}: commit of {number} ({runs}) was told {answer}")
        self.checker.told.aborted.add(number)
        raise Aborted

    def _write(self, group: int, number: int, item: int, count: int) -> Process:
        last = self.last[group]
        meta = batch_of(*self.holder, last + 1, last + count, last, item)
        records = tuple((self.partition, item + at) for at in range(count))
        arguments = {"meta": meta, "transaction_id": number, "records": records}
        while True:
            answer = yield from self._until(Call(group, "batch", arguments))
            again: list[Any] = []
            if not self._staged(group, number, meta, answer, again):
                raise Aborted
            if not again:
                break
            yield None
        self.last[group] = meta.last

    def _stage_offset(self, number: int, end: int) -> Process:
        self.number += 1
        request = pb.StageOffsetsRequest(
            transaction_id=number,
            producer_id=self.holder.producer_id,
            epoch=self.holder.epoch,
            group=GROUP,
            offsets=[commit_of(self.partition, end, self.ownership)],
            member_id=self.member,
            number=self.number,
        )
        yield from self._accepted(Call(self.offsets, "stage_offsets", {"request": request}))

    def _commit_plain(self) -> Process:
        """Commits where the offset already is: a late copy of it must not take the group back."""
        self.number += 1
        arguments = {"offset": self.position, "ownership": self.ownership, "number": self.number}
        arguments |= {"partition": self.partition}
        try:
            yield from self._accepted(
                Call(self.offsets, "commit_offset", {**arguments, "member": self.member})
            )
        except Aborted:
            self.checker.fail(f"{self.name}: a plain commit was told that a transaction is over")

    def _accepted(self, call: Call) -> Process:
        while True:
            answer = yield from self._until(call)
            reason = refusal(answer)
            if reason in ("FENCED_MEMBER", "FENCED"):
                raise Fenced
            if reason in OVER:
                raise Aborted
            if not reason:
                return
            if reason not in RETRIED:
                self.checker.fail(f"{self.name}: {call} was told {answer}")
            yield None
