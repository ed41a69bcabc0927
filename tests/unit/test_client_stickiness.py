"""Records without a key: one partition for a while, then any of the topic's."""

from __future__ import annotations

import random

import pytest

from oncelog._engine.produce.batches import Lane
from oncelog._engine.produce.stickiness import STAY_BYTES
from oncelog.errors import RequestTimeoutError
from oncelog.types import TopicPartition
from tests.unit.test_client_accumulator import Rig


class Records(Rig):
    """Sent one by one to where `stickiness` says; each is taken by the sender at once."""

    def __init__(self, partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(linger_s=0, batch_size=100_000, buffer_memory=1_000_000)
        self.lanes = [self.accumulator.lane(TopicPartition("t", n)) for n in range(partitions)]
        self.choices: list[int] = []  # of those that are made at random, from the end
        monkeypatch.setattr(random, "choice", self._choice)

    def _choice(self, lanes: list[Lane]) -> Lane:
        return lanes[self.choices.pop()]

    def place(self) -> TopicPartition:
        return self.accumulator.stickiness.lane("t", self.lanes).tp

    def send(self, size: int = 100) -> int:
        """The partition that it went to, where it is stored before the next one comes."""
        tp = self.place()
        self.append(size, tp, others=self.lanes)
        self.settle(self.take(tp))
        return tp.partition


def test_where_each_record_waits_for_the_one_before_a_partition_gets_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(3, monkeypatch)
    records.choices = [1, 2]
    went = [records.send(STAY_BYTES // 8) for _ in range(10)]
    first = went.index(1)
    assert went == [2] * first + [1] * (10 - first)
    assert 6 <= first <= 8  # a batch is a little larger than its records
    assert records.choices == []


def test_a_large_batch_is_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(3, monkeypatch)
    records.choices = [0, 1, 2]
    assert [records.send(STAY_BYTES) for _ in range(3)] == [2, 1, 0]


def test_what_is_under_way_sends_the_next_one_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a partition without a leader does not get all, and more is under way than one
    partition may have."""
    records = Records(3, monkeypatch)
    records.choices = [1, 2]
    tp = records.place()
    records.append(100, tp, others=records.lanes)
    batch = records.take(tp)
    assert [tp.partition, records.place().partition] == [2, 1]
    records.settle(batch)
    assert records.place().partition == 2


def test_a_partition_that_refused_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(3, monkeypatch)
    records.choices = [0, 2]
    tp = records.place()
    records.append(100, tp, others=records.lanes)
    records.take(tp).delivery.fail(RequestTimeoutError("no answer"))
    assert [tp.partition, records.place().partition] == [2, 0]


def test_batches_with_a_partition_or_a_key_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(3, monkeypatch)
    records.choices = [2]
    assert records.send() == 2
    tp = TopicPartition("t", 0)
    records.append(STAY_BYTES, tp)
    records.settle(records.take(tp))
    assert records.send() == 2


def test_a_topic_that_came_again_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(3, monkeypatch)
    records.choices = [0, 2]
    assert records.send() == 2
    records.lanes = records.lanes[:2]
    assert records.send() == 0
