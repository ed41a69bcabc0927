"""Producers of Kafka's protocol with a transactional id: they name no transaction.

    KafkaProducer --lease, add, end--> any node: OpenTransactions
                  --batch------------> a partition's leader: StagedBatch

A producer counts its sequences from 0 in each epoch, and does not send those of an aborted
transaction again. It sends a batch after the answer to the one before. It ends a transaction only
when all batches are acknowledged. A call without an answer ends its connection.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from cluster.kafka.sent import Sent
from cluster.transactions.types import Holder
from tests.sim.transactions.checker import Checker
from tests.sim.transactions.clients import Fenced
from tests.sim.transactions.leaders import accepted
from tests.sim.transactions.world import GONE, LOST, METADATA, Call, Process, World

AGAIN = ("STILL_ENDING", "TRANSACTION_OPEN", "THROTTLED", "NOT_READY")
WRAP = 1 << 31


class Aborted(Exception):
    """Somebody else aborted the transaction, or a partition is gone. in_batch: a batch says so."""

    def __init__(self, *, in_batch: bool = False) -> None:
        super().__init__()
        self.in_batch = in_batch


@dataclass
class Work:
    """A transaction as its producer knows it. contents: the acknowledged records by group."""

    outcome: str = ""
    commit_sent: bool = False
    contents: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


class KafkaProducer:
    """One instance with a transactional id."""

    def __init__(
        self, world: World, checker: Checker, rng: random.Random, name: str, number: int
    ) -> None:
        self.world, self.checker, self.rng = world, checker, rng
        self.name, self.number = name, number
        self.holder = Holder(0, 0)
        self.next: dict[int, int] = defaultdict(int)  # sequence by group
        self.connections: dict[int, Sent] = {}  # by node
        self.works = 0
        self.stopped = self.done = False

    def live(self, groups: list[int], works: int) -> Process:
        try:
            yield from self._lease(None)
            for _ in range(works):
                if self.stopped:
                    break
                try:
                    yield from self._transaction(groups)
                except Aborted as aborted:
                    yield from self._recover(aborted.in_batch)
        except Fenced:
            pass
        self.done = True

    def _lease(self, held: Holder | None) -> Process:
        while True:
            answer = yield from self._ask("lease", name=self.name, held=held)
            if isinstance(answer, Holder):
                self.holder = answer
                self.next.clear()
                return
            if answer not in (LOST, GONE) and answer[0] not in AGAIN:
                self._check(answer)
                self.checker.fail(f"{self.name}: a lease instead of {held} was told {answer}")

    def _recover(self, must_lease: bool) -> Process:
        """Goes on under a new epoch, as clients do by KIP-360; some abort first, or only abort.

        Behind a refused batch only a new epoch will do: perhaps it was staged, by an earlier try.
        """
        aborts = self.rng.random() < 0.5
        if aborts:
            yield from self._end(None, commit=False)
        if must_lease or not aborts or self.rng.random() < 0.7:
            yield from self._lease(self.holder)

    def _transaction(self, groups: list[int]) -> Process:
        work = Work()
        self.works += 1
        self.checker.kafka.append(work)
        added: set[int] = set()
        for _ in range(self.rng.randint(1, 4)):
            group = self.rng.choice(groups)
            if group not in added:
                yield from self._add({group})
                added.add(group)
            for _ in range(self.rng.randint(0, 2)):
                yield from self._stage(group, work)
        commit = self.rng.random() < 0.65
        yield from self._end(work, commit=commit)

    def _add(self, groups: set[int]) -> Process:
        while True:
            answer = yield from self._ask_sent("add", groups=groups)
            if answer is None:
                return
            if answer in (LOST, GONE) or answer[0] in AGAIN:
                continue
            self._check(answer)
            if answer[0] == "UNKNOWN_TOPIC_OR_PARTITION":
                raise Aborted
            self.checker.fail(f"{self.name}: {groups} were added, and it was told {answer}")

    def _stage(self, group: int, work: Work) -> Process:
        count = self.rng.randint(1, 3)
        first = self.next[group]
        have = len(work.contents[group])
        contents = [
            f"kafka {self.name}/{self.number}/{self.works}/{group}/{have + at}"
            for at in range(count)
        ]
        call = Call(
            group,
            "kafka_batch",
            {"holder": self.holder, "first": first % WRAP, "contents": contents},
        )
        while True:
            answer = yield call
            if answer == GONE:
                raise Aborted(in_batch=True)
            if answer is LOST:
                continue
            name = answer.kind.name
            if name in ("STAGED", "STAGED_DUPLICATE"):
                self.next[group] = first + count
                work.contents[group] += contents
                return
            if name in ("FENCED", "TRANSACTION_ABORTED"):
                raise Aborted(in_batch=True)
            if name not in ("TRANSACTION_CONFLICT", "NOT_READY"):
                self.checker.fail(f"{self.name}: {contents} from {first} on were told {answer}")

    def _end(self, work: Work | None, *, commit: bool) -> Process:
        if work is not None:
            work.commit_sent = commit
        in_doubt = False
        while True:
            answer = yield from self._ask_sent("end", commit=commit)
            if answer is None:
                break
            if answer in (LOST, GONE) or answer[0] in AGAIN:
                in_doubt = True
                continue
            if commit and answer[0] in ("TRANSACTION_ABORTED", "MUST_LEASE_AGAIN"):
                assert work is not None
                # Else it may have been committed, and a delayed AddPartitions began another.
                work.outcome = "" if in_doubt else "aborted"
                raise Aborted
            if answer[0] == "TRANSACTION_ENDED" and work is None:
                return  # nothing was begun
            self._check(answer)
            self.checker.fail(f"{self.name}: an end ({commit=}) was told {answer}")
        if work is not None:
            work.outcome = "committed" if commit else "aborted"

    def _ask(self, method: str, **arguments: Any) -> Process:
        """Asks any node."""
        answer = yield Call(self._node(), f"kafka_{method}", arguments)
        return answer

    def _ask_sent(self, method: str, **arguments: Any) -> Process:
        node = self._node()
        if node not in self.connections:
            self.connections[node] = accepted(self.world, node)
        more = {"name": self.name, "holder": self.holder, "sent": self.connections[node]}
        answer = yield Call(node, f"kafka_{method}", arguments | more)
        if answer is LOST:
            self.connections.pop(node, None)
        return answer

    def _node(self) -> int:
        live = [number for number, group in self.world.groups.items() if not group.gone]
        return self.rng.choice([METADATA, *live])

    def _check(self, answer: Any) -> None:
        if answer[0] in ("TRANSACTION_ABORTED", "MUST_LEASE_AGAIN"):
            raise Aborted
        if answer[0] in ("FENCED", "OTHER_ID"):
            raise Fenced
