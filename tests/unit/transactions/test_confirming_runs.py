"""Confirmations of a commit's runs: only a present leader may answer no."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.consensus.proposals import Abandoned, Applied, Outcome
from cluster.node.transactions.transactions import Transactions, orphaned_runs
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.types import Expected, Holder
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb

GROUP, PRODUCER = 16, 7


class OnePartition:
    """Answers with the state its replica has applied; `outcome` is the result of a confirmation."""

    topic, index = "t", 0

    def __init__(self, outcome: Outcome, *, then: int) -> None:
        self.records, self.then, self.outcome = 3, then, outcome

    def confirm_runs(self, transaction_id: int, asked: Any, **_: Any) -> Any:
        if asked[PRODUCER] != (self.records, self.records - 1):
            return f"{self.records} records are staged"
        return {PRODUCER: Expected(GROUP, PRODUCER, self.records, self.records - 1, 0, 1)}

    def confirm(self, done: Any) -> None:
        self.records = self.then  # applied by the time that the confirmation is
        done(self.outcome)


async def asked_for(records: int, partition: OnePartition) -> pb.ConfirmRunsResponse:
    node = Transactions(
        SimpleNamespace(node_id=1, request_timeout_ms=1000),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        SimpleNamespace(group=None),  # type: ignore[arg-type]
        SimpleNamespace(by_group={GROUP: partition}),  # type: ignore[arg-type]
        SimpleNamespace(links={}),  # type: ignore[arg-type]
        SimpleNamespace(leader_of=None),  # type: ignore[arg-type]
        lambda: 0.0,
    )
    run = tpb.ExpectedRun(
        group_id=GROUP, producer_id=PRODUCER, records=records, last_sequence=records - 1
    )
    request = pb.ConfirmRunsRequest(transaction_id=1, groups=[GROUP], runs=[run])
    return await node.confirm_here(request)


async def test_what_is_applied_is_a_yes_at_once() -> None:
    deposed = OnePartition(Abandoned(2, "deposed"), then=3)
    response = await asked_for(3, deposed)
    assert [run.records for run in response.runs] == [3]


async def test_a_deposed_leader_does_not_say_no() -> None:
    """Its successor has staged the fourth record: a commit must not be refused for it."""
    response = await asked_for(4, OnePartition(Abandoned(2, "deposed"), then=3))
    assert list(response.not_led) == [GROUP]
    assert not response.differs


@pytest.mark.parametrize(("then", "differs"), [(3, "t/0: 3 records are staged"), (4, "")])
async def test_a_leader_says_no_once_it_is_sure(then: int, differs: str) -> None:
    response = await asked_for(4, OnePartition(Applied(9, None), then=then))
    assert response.differs == differs
    assert [run.records for run in response.runs] == ([] if differs else [4])


def test_runs_that_no_marker_will_end_are_found_where_the_leader_knows_all() -> None:
    coordinator = Coordinator()
    for number in (1, 2, 3):
        owner, holder = f"p{number}", Holder(number, 0)
        coordinator.begin(owner, holder, 1, now_ms=0, idle_ms=1000, total_ms=1000)
        coordinator.register(number, None, [GROUP], lambda group: True)
        if number < 3:
            coordinator.abort(number, None, "operator")
    coordinator.markers_done(1, {GROUP: ()})

    def partition(*transactions: int, ready: bool = True) -> Any:
        group = SimpleNamespace(is_ready=ready, config=SimpleNamespace(group=GROUP))
        runs = SimpleNamespace(transactions=lambda: iter(transactions))
        return SimpleNamespace(group=group, machine=SimpleNamespace(runs=runs))

    assert list(orphaned_runs([partition(2, 3)], coordinator)) == [], "open, and decided only"
    assert list(orphaned_runs([partition(1, 2, 3)], coordinator)) == [(GROUP, 1)]
    assert list(orphaned_runs([partition(1, ready=False)], coordinator)) == []
    coordinator.begin("p1", Holder(1, 0), 2, now_ms=0, idle_ms=1000, total_ms=1000)
    assert coordinator.get(1) is None
    assert list(orphaned_runs([partition(1)], coordinator)) == [(GROUP, 1)]
