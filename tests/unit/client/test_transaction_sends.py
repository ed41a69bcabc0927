"""`Transaction.send` passes its arguments on, as `Producer.send` would take them."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

from oncelog import Producer, Transaction, errors
from oncelog._engine.produce.transaction import Call, ProducerTransaction


class Recorder(Producer):
    """Records the sends that would be queued."""

    def __init__(self) -> None:
        self.queued: list[tuple[Any, ...]] = []
        self._closed = True  # there is nothing to end
        self._sticky: dict[str, Any] = {}
        lock = threading.Lock()
        self._acquire, self._release = lock.acquire, lock.release

    def _send(self, *args: Any) -> Any:
        self.queued.append(args)


def begun() -> tuple[Recorder, Transaction, ProducerTransaction]:
    producer = Recorder()
    transaction = Transaction(producer, 0, 0)
    transaction._begun = ProducerTransaction(5, 7, 0, 60.0)
    return producer, transaction, transaction._begun


def on_delivery(metadata: object, error: object) -> None:
    """Never called here."""


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"key": b"k"},
        {"headers": [("h", b"1")]},
        {"partition": 3},
        {"partition": 0},
        {"timestamp_ms": 17},
        {"sequence": 4},
        {"on_delivery": on_delivery},
        {"timestamp_ms": 17, "sequence": 4, "partition": 1, "key": b"k"},
    ],
)
def test_each_argument_arrives(given: dict[str, Any]) -> None:
    producer, transaction, _ = begun()
    transaction.send("t", b"v", **given)
    producer.send("t", b"v", **given)
    of_transaction, of_producer = producer.queued
    assert of_transaction == of_producer
    names = list(inspect.signature(Producer._send).parameters)[1:]
    expected = {"topic": "t", "value": b"v", **given}
    assert dict(zip(names, of_transaction, strict=True)) == dict.fromkeys(names) | expected


def test_what_is_not_open_takes_nothing() -> None:
    producer, transaction, state = begun()
    state.end(Call.COMMIT)
    with pytest.raises(errors.InvalidRequestError, match="committing"):
        transaction.send("t", b"v")
    with pytest.raises(errors.InvalidRequestError, match="not begun"):
        Transaction(producer, 0, 0).send("t", b"v")
    producer, transaction, state = begun()
    state.fail(errors.DeliveryError("one was lost"))
    with pytest.raises(errors.TransactionAbortedError, match="one was lost"):
        transaction.send("t", b"v", partition=1)
    assert producer.queued == []
