"""Changes of examples/kv_store.py with a first attempt in doubt."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from examples.kv_store import NEVER, Shard
from oncelog import DeliveryTimeoutError, OffsetMismatchError, TopicPartition

PLACE = TopicPartition("kv", 0)


class Log:
    """Producer and consumer of one partition. held: a record in doubt."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.held: list[Any] = []
        self.is_slow = True

    def send(
        self, topic: str, value: bytes, key: bytes, *, expected_offset: int, **fields: Any
    ) -> Future[Any]:
        future = Future[Any]()
        if expected_offset == NEVER:  # asks for the end
            future.set_exception(self._mismatch())
            return future
        record = SimpleNamespace(key=key, value=value, headers=fields["headers"].items())
        if self.is_slow:
            self.is_slow = False
            self.held.append(record)
            future.set_exception(DeliveryTimeoutError("in doubt"))
            return future
        self.records += self.held
        self.held.clear()
        if expected_offset != len(self.records):
            future.set_exception(self._mismatch())
        else:
            self.records.append(record)
            future.set_result(SimpleNamespace(offset=len(self.records) - 1))
        return future

    def _mismatch(self) -> OffsetMismatchError:
        return OffsetMismatchError("it is not the next", next_offset=len(self.records))

    def assign(self, places: list[TopicPartition]) -> None:
        """Has one partition."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._next = offset

    def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        found, self._next = self.records[self._next :], len(self.records)
        return {PLACE: found}

    def position(self, place: TopicPartition) -> int:
        return self._next


def test_a_change_that_is_stored_late_is_not_made_again() -> None:
    """Its retry is turned away by the change itself, not by another writer's."""
    log: Any = Log()
    shard = Shard(log, log, PLACE)
    value = shard.update(b"visits", lambda old: b"%d" % (int(old or 0) + 1))
    assert (value, [one.value for one in log.records]) == (b"1", [b"1"])
    assert shard.table == {b"visits": b"1"}
