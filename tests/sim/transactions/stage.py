"""A calm world that a directed case plays on: one call after the other, messages held on demand."""

from __future__ import annotations

from typing import Any

from cluster.transactions.coordinator import Coordinator
from cluster.transactions.types import Holder
from tests.sim.transactions.clients import batch_of, command
from tests.sim.transactions.run import add_partition, drop_partition, make_world
from tests.sim.transactions.world import METADATA, Call, Group

NOT_YET = "no answer yet"


class Asked:
    """A call on its way; `answer` is NOT_YET as long as there is none."""

    def __init__(self) -> None:
        self.answer: Any = NOT_YET

    @property
    def kind(self) -> str:
        return str(self.answer.kind.name) if hasattr(self.answer, "kind") else self.answer[0]


class Stage:
    """`partitions` of them, numbered from 1; the metadata group is 0."""

    def __init__(self, partitions: int = 2) -> None:
        self.world, self.checker = make_world(0)
        self.parts = [add_partition(self.world) for _ in range(partitions)]
        self.nonces = 0
        self.world.settle()

    # -- calls ----------------------------------------------------------------------------

    def send(self, call: Call) -> Asked:
        """Sends without letting time pass."""
        asked = Asked()
        self.world.call(call, lambda answer: setattr(asked, "answer", answer))
        return asked

    def ask(self, call: Call) -> Asked:
        asked = self.send(call)
        self.world.settle()
        return asked

    def lease(self, name: str) -> Holder:
        self.nonces += 1
        known = self.ask(command("lease", name=name, nonce=self.nonces)).answer
        return Holder(known.producer_id, known.epoch)

    def begin(self, name: str, holder: Holder, nonce: int = 0) -> Any:
        """The transaction's number, or the refusal."""
        if not nonce:
            self.nonces += 1
        arguments = {"name": name, "holder": holder, "nonce": nonce or self.nonces}
        return self.ask(command("begin", **arguments)).answer

    def batch(
        self, group: int, holder: Holder, number: int, first: int, last: int, content: Any = ""
    ) -> Call:
        meta = batch_of(*holder, first, last, first - 1, content)
        return Call(group, "batch", {"meta": meta, "transaction_id": number, "records": ()})

    def put(self, group: int, holder: Holder, number: int, first: int, last: int) -> str:
        """Sends a batch (number 0: a plain one); the name of its verdict."""
        return self.ask(self.batch(group, holder, number, first, last)).kind

    def commit_call(
        self, number: int, holder: Holder | None, *runs: Any, next_nonce: int = 0
    ) -> Call:
        """`runs`: (group, records, last), of the holder's producer."""
        asked = tuple((g, holder.producer_id, *run) for g, *run in runs) if holder else runs
        arguments = {"transaction_id": number, "holder": holder, "asked": asked}
        return Call(METADATA, "commit", arguments | {"next_nonce": next_nonce})

    def commit(self, number: int, holder: Holder, *runs: Any, next_nonce: int = 0) -> Asked:
        asked = self.ask(self.commit_call(number, holder, *runs, next_nonce=next_nonce))
        if asked.answer is not NOT_YET and asked.answer[0] in ("COMMITTED", "VISIBLE"):
            named = tuple((g, holder.producer_id, *run) for g, *run in runs)
            self.checker.told.committed[number] = named
        return asked

    def abort(self, number: int, holder: Holder | None, reason: str = "owner") -> Asked:
        return self.ask(command("abort", transaction_id=number, holder=holder, reason=reason))

    def open(self, group: int, holder: Holder) -> Asked:
        return self.ask(Call(group, "open", holder._asdict()))

    def resolve(self, group: int, holder: Holder, sequence: int) -> Any:
        arguments = {**holder._asdict(), "sequence": sequence}
        return self.ask(Call(group, "resolve", arguments)).answer

    # -- the world ------------------------------------------------------------------------

    @property
    def coordinator(self) -> Coordinator:
        found = self.world.groups[METADATA].machine.state.coordinator
        assert isinstance(found, Coordinator)
        return found

    def group(self, number: int) -> Group:
        return self.world.groups[number]

    def hold(self, *methods: str) -> None:
        """Messages of these kinds wait until `release`."""
        self.world.hold = lambda call: call.method in methods

    def release(self) -> None:
        self.world.release()
        self.world.settle()

    def drop(self, number: int) -> None:
        drop_partition(self.world, number)
        self.world.settle()

    def elect(self, number: int, survivors: int = 0) -> None:
        self.world.groups[number].change_leader(survivors)
        self.world.settle()

    def step_until_pending(self, number: int, count: int = 1) -> None:
        """Delivers messages, commits nothing, until a group has so many proposals."""
        for _ in range(5000):
            if len(self.group(number).pending) >= count:
                return
            if not self.world.deliver_one():
                self.world.wake()
        raise AssertionError(f"group {number} gets no {count} proposals")

    def readable(self, group: int) -> list[tuple[int, int]]:
        """(sequence, transaction) of all that can be read."""
        return [(r.sequence, r.transaction_id) for r in self.checker.readable[group]]

    def finish(self) -> None:
        """Everything comes to an end and is checked."""
        self.release()
        for _ in range(3):
            self.world.now += 10_000.0
            self.world.settle()
        self.checker.finish(self.world.groups)
