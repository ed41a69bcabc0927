"""Records without a key: one partition for a while, then any of the topic's."""

from __future__ import annotations

import random

import pytest

from oncelog._engine.produce.batches import PartitionQueue
from oncelog._engine.produce.stickiness import STAY_BYTES
from oncelog.errors import RequestTimeoutError
from oncelog.types import TopicPartition
from tests.unit.client.test_accumulator import Rig


class Records(Rig):
    """Sent one by one to where `stickiness` says; each is taken by the sender at once."""

    def __init__(self, partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(linger_s=0, batch_size=100_000, buffer_memory=1_000_000)
        self.lanes = [self.accumulator.lane(TopicPartition("t", n)) for n in range(partitions)]
        self.choices: list[int] = []  # the partitions chosen at random, from the end
        monkeypatch.setattr(random, "choice", self._choice)

    def _choice(self, lanes: list[PartitionQueue]) -> PartitionQueue:
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
    """Keeps a partition without a leader from getting all records, and lets more be in flight than
    one partition may have.
    """
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


def test_a_partition_without_a_leader_is_not_chosen_while_another_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(3, monkeypatch)
    records.unavailable |= {TopicPartition("t", 1), TopicPartition("t", 2)}
    records.choices = [0, 1]  # the second is of those that have a leader
    assert records.place().partition == 0
    records.unavailable.add(TopicPartition("t", 0))
    records.choices = [2, 0]
    assert records.place().partition == 2, "none has one"


def test_a_batch_whose_partition_loses_its_leader_attracts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(3, monkeypatch)
    records.choices = [1, 0, 2]
    tp = records.place()
    records.append(100, tp, others=records.lanes)
    records.accumulator.stickiness.leave_unavailable()
    assert records.place() == tp, "it has its leader"
    records.unavailable.add(tp)
    records.accumulator.stickiness.leave_unavailable()
    assert records.place().partition == 0


def test_a_batch_that_waits_for_a_leader_from_the_start_attracts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(2, monkeypatch)
    records.unavailable |= {TopicPartition("t", 0), TopicPartition("t", 1)}
    records.choices = [1, 0, 0]
    tp = records.place()
    records.append(100, tp, others=records.lanes)
    records.unavailable.remove(TopicPartition("t", 1))
    assert records.place().partition == 1


def test_a_full_batch_is_followed_by_one_in_a_partition_with_a_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(2, monkeypatch)
    records.unavailable.add(TopicPartition("t", 0))
    records.append(60_000, TopicPartition("t", 1), others=records.lanes)
    records.choices = [0, 0]
    records.append(60_000, TopicPartition("t", 1), others=records.lanes)
    assert records.ready() == [TopicPartition("t", 1)]
    assert records.choices == []


def test_a_partition_that_lost_its_leader_after_its_last_batch_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(3, monkeypatch)
    records.choices = [0, 2]
    assert records.send() == 2
    records.unavailable.add(TopicPartition("t", 2))
    assert records.send() == 0
