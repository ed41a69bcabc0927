"""Kafka batches into real replicas: refusals before the partition, and the stored entries."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.dedup.verdict import Formats, Kind
from cluster.entries import HEADER_BYTES, KAFKA_BATCH, unpack_batch
from cluster.features import KAFKA, Finalized
from cluster.kafka.append import append, meta_of
from cluster.kafka.ids import made
from cluster.kafka.records import read_batch
from cluster.partition.replica import Answer
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.partition.replica_world import World

SECRET = bytes(range(32))
PID = made(SECRET, 1, "alice")


class KafkaWorld(World):
    """Two replicas of a topic that takes both formats; all entries that were committed."""

    def __init__(self) -> None:
        super().__init__()
        self.finalized = Finalized(3, frozenset({KAFKA}))
        self.entries: list[bytes] = []
        for part in self.parts.values():
            part.policy.formats = Formats.BOTH

    def commit(self, node, data):
        self.entries.append(data)
        return super().commit(node, data)

    def take(self, data: bytes, principal: str = "alice", secret: bytes = SECRET) -> Answer:
        answers: list[Answer] = []
        found = read_batch(memoryview(data))
        part = self.parts[self.leader]
        append(part, found, meta_of(found), answers.append, secret=secret, principal=principal)
        (answer,) = answers
        return answer


def test_a_batch_is_stored_from_byte_21_on() -> None:
    world = KafkaWorld()
    data = batch(3, pid=PID, epoch=2, sequence=0, max_time=1234)
    answer = world.take(data)
    assert (answer.verdict.kind, answer.verdict.base_offset) == (Kind.APPENDED, 0)
    (stored,) = world.entries
    assert stored[0] == KAFKA_BATCH and stored[HEADER_BYTES:] == data[21:]
    entry = unpack_batch(stored)
    assert (entry.first, entry.last, entry.prev) == (0, 2, -1)
    assert (entry.crc, entry.max_timestamp_us) == (int.from_bytes(data[17:21], "big"), 1_234_000)
    again = world.take(batch(3, pid=PID, epoch=2, sequence=0, value=b"rebuilt"))
    assert (again.verdict.kind, again.verdict.base_offset) == (Kind.DUPLICATE, 0)
    counters = world.parts[1].counters
    assert (counters.rebuilt, counters.verdicts) == (1, {Kind.APPENDED: 1, Kind.DUPLICATE: 1})


def test_batches_without_an_id_are_all_appended() -> None:
    world = KafkaWorld()
    offsets = [world.take(batch(2)).verdict.base_offset for _ in range(3)]
    assert offsets == [0, 2, 4]
    assert len(world.parts[1].last_seen) == 0


def test_both_formats_share_the_offsets() -> None:
    world = KafkaWorld()
    pid = world.fresh()
    assert world.take(batch(2, pid=PID, epoch=0, sequence=0)).verdict.base_offset == 0
    assert world.send(pid, 0, 0).verdict.base_offset == 2
    assert world.take(batch(1, pid=PID, epoch=0, sequence=2)).verdict.base_offset == 3
    assert world.kind(pid, 0, 1) == "APPENDED"


SOUND: dict[str, Any] = {"pid": PID, "epoch": 0, "sequence": 0}
REFUSED = [
    ("another principal's", batch(**SOUND), "bob", Kind.UNKNOWN_PRODUCER),
    ("a guess", batch(**SOUND | {"pid": PID ^ 1}), "alice", Kind.UNKNOWN_PRODUCER),
    ("an id of gRPC", batch(**SOUND | {"pid": 1}), "alice", Kind.UNKNOWN_PRODUCER),
    ("not the first", batch(**SOUND | {"sequence": 1}), "alice", Kind.UNKNOWN_PRODUCER),
    ("too large", batch(pid=PID, epoch=0, sequence=0, count=60), "alice", Kind.BATCH_TOO_LARGE),
]


@pytest.mark.parametrize(("data", "principal", "kind"), [r[1:] for r in REFUSED],
                         ids=[r[0] for r in REFUSED])  # fmt: skip
def test_a_refused_batch_leaves_nothing(data: bytes, principal: str, kind: Kind) -> None:
    world = KafkaWorld()
    world.parts[1].policy.max_batch_bytes = 500
    answer = world.take(data, principal)
    assert answer.verdict.kind is kind, answer
    assert answer.verdict.message
    assert not world.entries


def test_a_node_without_the_secret_refuses_nobody() -> None:
    world = KafkaWorld()
    assert world.take(batch(**SOUND), secret=b"").verdict.kind is Kind.NOT_READY


def test_only_a_topic_with_the_format_takes_it() -> None:
    for formats, finalized in ((Formats.COLUMNAR, True), (Formats.KAFKA, False)):
        world = KafkaWorld()
        world.parts[1].policy.formats = formats
        world.finalized = world.finalized if finalized else Finalized()
        assert world.take(batch(**SOUND)).verdict.kind is Kind.UNSUPPORTED_FORMAT
        assert not world.entries


def test_a_follower_says_who_leads() -> None:
    world = KafkaWorld()
    answers: list[Answer] = []
    found = read_batch(memoryview(batch(**SOUND)))
    append(world.parts[2], found, meta_of(found), answers.append, secret=SECRET, principal="alice")
    assert answers[0].verdict.kind is Kind.NOT_LEADER and answers[0].leader_id == 1
