"""Transaction and owner, as the coordinator keeps them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from cluster.transactions.types import (
    COMMIT_INCOMPLETE,
    INVALID_ARGUMENT,
    Expected,
    Holder,
    Published,
    Refused,
    TransactionState,
)

MAX_RUNS = 100_000  # that one commit publishes


@dataclass(slots=True)
class Participant:
    """A partition of a transaction. `gone`: it was deleted before its marker was written."""

    done: bool = False
    gone: bool = False
    runs: tuple[Published, ...] = ()


@dataclass(slots=True)
class TransactionRow:
    """A transaction of a producer's name, or of a sink (`owner` is its key, without a `holder`).

    parts: by Raft group, in the order of their registration. expected: the runs that a decided
    commit publishes.
    """

    transaction_id: int
    owner: str
    sink: bool
    holder: Holder
    begun_ms: int
    idle_ms: int
    total_ms: int
    state: TransactionState = TransactionState.OPEN
    reason: str = ""
    parts: dict[int, Participant] = field(default_factory=dict)
    expected: tuple[Expected, ...] = ()

    def takes(self, group: int, holder: Holder) -> bool:
        """Whether the holder may stage batches in the group; False: perhaps later."""
        ours = self.sink or holder == self.holder
        return self.state is TransactionState.OPEN and ours and group in self.parts

    def pending(self) -> list[int]:
        """Returns the groups with no known applied marker."""
        return [group for group, part in self.parts.items() if not part.done]

    def next_markers(self, done: Collection[int] = ()) -> list[int]:
        """Returns pending groups with a marker to write now; markers of `done` are applied.

        Offsets of consumer groups come last: a reader that starts from them finds all records of
        the transaction before its own.
        """
        pending = [group for group in self.pending() if group not in done]
        last = {run.group for run in self.expected if run.consumer_group}
        return [group for group in pending if group not in last] or pending

    def is_of(self, expected: Sequence[Expected]) -> bool:
        """Whether a repeated commit names the same runs as the decision.

        The runs come in any order: one producer has one run in each partition. For a sink the order
        within a partition counts, because its tasks' records are published in it.
        """
        key = attrgetter("group" if self.sink else "run")
        decided, asked = (sorted(runs, key=key) for runs in (self.expected, expected))
        return [run.asked for run in decided] == [run.asked for run in asked]

    def check_expected(self, expected: Sequence[Expected]) -> None:
        """Checks that a commit may publish these runs. Raises Refused."""
        if len(expected) > MAX_RUNS:
            text = f"{len(expected)} runs, the limit is {MAX_RUNS}"
            raise Refused(INVALID_ARGUMENT, text, self.transaction_id)
        seen = set()
        for run in expected:
            ours = self.sink or run.producer_id == self.holder.producer_id
            if run.records < 1 or run.producer_id < 1 or not ours:
                text = f"a run of {run.records} records of producer {run.producer_id}"
                raise Refused(INVALID_ARGUMENT, text, self.transaction_id)
            if run.run in seen:
                text = f"the run of producer {run.producer_id} stands twice"
                raise Refused(INVALID_ARGUMENT, text, self.transaction_id)
            if run.group not in self.parts:
                text = f"nothing of producer {run.producer_id} was staged in group {run.group}"
                raise Refused(COMMIT_INCOMPLETE, text, self.transaction_id)
            seen.add(run.run)


class NameOwner(NamedTuple):
    """A name that began transactions, with the last one, its holder and its nonce.

    before_id: the earlier transaction, if its commit began the last one; 0: none. Its owner may not
        have heard the outcome.
    """

    holder: Holder
    nonce: int
    last_id: int
    before_id: int = 0
