"""A batch of a producer's next transaction, where the marker of the one before is on its way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.services.log import produce as producing
from cluster.services.log.produce import Appender
from cluster.transactions.types import TransactionState

PRODUCER, BEFORE, NOW = 7, 1, 2


class Rig:
    """A partition with a run of the transaction before, and its coordinator's view of it."""

    def __init__(self, state: TransactionState | None) -> None:
        row = None if state is None else SimpleNamespace(state=state)
        self.run: Any = SimpleNamespace(transaction_id=BEFORE)
        self.listeners: set[Any] = set()
        self.appended: list[int] = []
        self.machine = SimpleNamespace(runs=SimpleNamespace(run_of=lambda producer_id: self.run))
        coordinator = SimpleNamespace(get=lambda number: row)
        node: Any = SimpleNamespace(metadata=SimpleNamespace(coordinator=coordinator))
        resolver: Any = None
        self.appender = Appender(node, resolver)

    def append(self, request: Any, answer_to: Any) -> None:
        self.appended.append(request.transaction_id)

    def news(self) -> None:
        for listener in list(self.listeners):
            listener()

    def stage(self) -> asyncio.Task[None]:
        replica: Any = self
        request: Any = SimpleNamespace(
            meta=SimpleNamespace(producer_id=PRODUCER, epoch=0), transaction_id=NOW, payload=b""
        )
        work = self.appender._stage(replica, request, lambda answer: None)
        return asyncio.create_task(work)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "state",
    [TransactionState.COMMITTING, TransactionState.ABORTING, TransactionState.COMMITTED, None],
)
async def test_it_waits_for_the_marker_of_what_is_decided(state: TransactionState | None) -> None:
    rig = Rig(state)
    task = rig.stage()
    await turns()
    rig.news()  # of something else
    await turns()
    assert not rig.appended
    rig.run = None
    rig.news()
    await task
    assert rig.appended == [NOW] and not rig.listeners


async def test_it_does_not_wait_for_what_is_open() -> None:
    rig = Rig(TransactionState.OPEN)
    await rig.stage()
    assert rig.appended == [NOW]


async def test_it_does_not_wait_for_itself_or_a_later_one() -> None:
    rig = Rig(TransactionState.COMMITTING)
    for number in (NOW, NOW + 1):
        rig.run = SimpleNamespace(transaction_id=number)
        await rig.stage()
    assert rig.appended == [NOW, NOW]


async def test_it_waits_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "MARKER_WAIT", 0.0)
    rig = Rig(TransactionState.COMMITTING)
    await rig.stage()
    assert rig.appended == [NOW], "and is told to come again"
