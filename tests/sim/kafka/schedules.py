"""Directed schedules for batches of Kafka's protocol: their rows of the verdict table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.dedup import sequences
from cluster.dedup.verdict import Kind
from tests.sim.kafka.client import KafkaSent
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage

WRAP_BITS = 6
HOUR = 3600.0


class KafkaStage(Stage):
    """A stage with one producer of Kafka's protocol."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(kafka=True, **settings)
        self.pid = self.cluster.kafka_lease()
        self.rng = random.Random(1)
        self.records = 0

    def kafka(self, first: int, count: int = 1, epoch: int = 0, pid: int = 0) -> KafkaSent:
        """Builds a batch from sequence `first` on, without a wrap."""
        batch = KafkaSent(
            pid or self.pid, epoch, first, first + count - 1, first - 1, count, 0, b"",
            rng=self.rng, stream=5, record=self.records, wrap=1 << sequences.WRAP_BITS,
        )  # fmt: skip
        self.records += count
        return batch

    def take(self, node: int, batch: KafkaSent, kind: Kind, offset: int = -1) -> None:
        """Sends a batch after its predecessors were stored; expects this answer."""
        reply = self.send(node, batch, head=kind in (Kind.APPENDED, Kind.DUPLICATE))
        self.run(0.2)
        assert reply.answer is not None
        assert (reply.kind, reply.answer.verdict.base_offset) == (kind, offset), reply.answer


@contextmanager
def short_sequences() -> Iterator[None]:
    """Sequences wrap after 63: the clients' and the nodes'."""
    before = sequences.WRAP_BITS
    sequences.WRAP_BITS = WRAP_BITS
    try:
        yield
    finally:
        sequences.WRAP_BITS = before


@schedule
def sequences_cross_the_wrap() -> None:
    """Batches end at the wrap, cross it and follow it; each comes again, at another leader, too."""
    with short_sequences():
        stage = KafkaStage()
        stage.elect(1)
        ends, crosses = (0, 20, 40, 64, 70), (0, 20, 40, 62, 67)
        offset = 0
        for epoch, starts in enumerate((ends, crosses)):
            sizes = (20, 20, starts[3] - 40, starts[4] - starts[3], 5)
            for first, count in zip(starts, sizes, strict=True):
                batch = stage.kafka(first, count, epoch)
                stage.take(1, batch, Kind.APPENDED, offset)
                stage.take(1, batch, Kind.DUPLICATE, offset)
                stage.transfer(1, 2)
                stage.take(2, batch, Kind.DUPLICATE, offset)
                stage.transfer(2, 1)
                offset += count
            stage.take(1, stage.kafka(starts[4] + 6, 1, epoch), Kind.OUT_OF_ORDER)
        stage.finish()


@schedule
def sequences_in_flight_cross_the_wrap() -> None:
    """Nothing is committed yet when the batch behind the wrap comes."""
    with short_sequences():
        stage = KafkaStage()
        stage.elect(1)
        stage.run(0.5)
        stage.hold(lambda sender, receiver, message: receiver == 1)
        sent = [stage.send(1, stage.kafka(first, 15), head=not first) for first in range(0, 90, 15)]
        again = [stage.send(1, reply.batch, head=False) for reply in sent[4:]]
        stage.run(0.1)
        assert not any(reply.kind for reply in sent + again)
        stage.release()
        stage.run(1.0)
        for place, reply in enumerate(sent):
            answer = reply.answer
            assert answer is not None
            assert (reply.kind, answer.verdict.base_offset) == (Kind.APPENDED, 15 * place), answer
        assert [reply.kind for reply in again] == [Kind.DUPLICATE] * 2
        stage.finish()


@schedule
def a_batch_that_its_client_rebuilt_is_a_duplicate() -> None:
    """Each attempt has other bytes: joined in flight, and recognized at another leader."""
    stage = KafkaStage()
    stage.elect(1)
    stage.run(0.5)
    stage.hold(lambda sender, receiver, message: receiver == 1)
    first = stage.send(1, stage.kafka(0, 3))
    joined = stage.send(1, first.batch)
    stage.run(0.1)
    assert (first.kind, joined.kind) == (None, None)
    stage.release()
    stage.run(1.0)
    assert (first.kind, joined.kind) == (Kind.APPENDED, Kind.DUPLICATE)
    assert isinstance(first.batch, KafkaSent)
    stage.take(1, first.batch, Kind.DUPLICATE, 0)
    assert stage.node(1).partitions[GID].counters.rebuilt == 2
    stage.transfer(1, 2)
    stage.take(2, first.batch, Kind.DUPLICATE, 0)
    # Another cut of the same sequences is no stored batch.
    stage.take(2, stage.kafka(1, 2), Kind.OUT_OF_ORDER)
    stage.take(2, stage.kafka(2, 3), Kind.OUT_OF_ORDER)
    stage.take(2, stage.kafka(3), Kind.APPENDED, 3)
    stage.finish()


@schedule
def a_client_raises_its_epoch_by_itself() -> None:
    """The new epoch begins at sequence 0; late batches of the old epoch are fenced."""
    stage = KafkaStage()
    stage.elect(1)
    old = stage.kafka(0, 2)
    stage.take(1, old, Kind.APPENDED, 0)
    late = stage.kafka(2)
    stage.take(1, stage.kafka(2, 1, epoch=1), Kind.OUT_OF_ORDER)
    stage.take(1, stage.kafka(0, 1, epoch=7), Kind.APPENDED, 2)
    stage.take(1, late, Kind.FENCED)
    stage.take(1, old, Kind.FENCED)
    stage.transfer(1, 2)
    stage.take(2, late, Kind.FENCED)
    stage.take(2, stage.kafka(1, 1, epoch=7), Kind.APPENDED, 3)
    stage.finish()


@schedule
def after_an_open_only_a_first_batch_begins() -> None:
    """A Kafka client never continues a predecessor's chain, as a mirror does."""
    stage = KafkaStage()
    stage.elect(1)
    stage.take(1, stage.kafka(0, 2), Kind.APPENDED, 0)
    opened = stage.send_open(1, stage.pid, 1)
    stage.run(0.2)
    assert opened.kind is Kind.APPENDED, opened.answer
    stage.take(1, stage.kafka(2, 1, epoch=1), Kind.OUT_OF_ORDER)
    stage.take(1, stage.kafka(0, 1, epoch=1), Kind.APPENDED, 2)
    stage.take(1, stage.kafka(1, 1, epoch=1), Kind.APPENDED, 3)
    stage.finish()


@schedule
def an_idle_id_is_known_for_a_day() -> None:
    """Leases last four seconds, and an id of Kafka's 24 hours of log time; then nothing is left."""
    stage = KafkaStage(lease_ms=4000)
    stage.elect(1)
    first, second = stage.kafka(0, 2), stage.kafka(2)
    stage.take(1, first, Kind.APPENDED, 0)
    stage.take(1, second, Kind.APPENDED, 2)
    stage.cluster.slept += 23.9 * HOUR
    stage.run(1.0)
    stage.take(1, first, Kind.DUPLICATE, 0)
    third = stage.kafka(3)
    stage.take(1, third, Kind.APPENDED, 3)
    stage.cluster.slept += 23.9 * HOUR
    stage.run(1.0)
    stage.take(1, third, Kind.DUPLICATE, 3)
    stage.cluster.slept += 0.2 * HOUR
    stage.run(1.0)
    # Time moves on with the next entry.
    other = stage.kafka(0, pid=stage.cluster.kafka_lease())
    stage.take(1, other, Kind.APPENDED, 4)
    stage.take(1, stage.kafka(4), Kind.UNKNOWN_PRODUCER)
    stage.take(1, stage.kafka(0), Kind.APPENDED, 5)
    stage.finish()
