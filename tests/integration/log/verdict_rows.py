"""The verdict table, one row per case: requests to a real leader and the expected answers.

Each row is asked twice: `answer` is the verdict of the first time, `again` that of the same bytes
sent once more, to the same leader or to its successor after a kill -9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import crc32c

from harness.api import Api, Batch, Lease, batch
from oncelog.v1 import cluster_pb2
from oncelog.wire.batch import encode_payload

KIB = 1024
NEVER_ISSUED = 1 << 40
ONE = encode_payload([b"value"], [1])  # all other payloads here claim to be compressed
Expected = Mapping[str, Any]  # "verdict", and fields of BatchResult


class Maker:
    """Makes the batches of one row: one topic, one partition, one producer."""

    def __init__(self, topic: str, lease: Lease) -> None:
        self.topic, self.pid, self.epoch = topic, lease.producer_id, lease.epoch

    def __call__(self, sequence: int, payload: bytes = b"payload", **header: Any) -> Batch:
        pid = header.pop("pid", self.pid)
        partition = header.pop("partition", 0)
        header.setdefault("epoch", self.epoch)
        topic = header.pop("topic", self.topic)
        return batch(topic, partition, pid, sequence, payload, **header)


@dataclass(frozen=True, slots=True)
class Row:
    """`before` is sent first and must be appended; then `request` is judged."""

    name: str
    request: Callable[[Maker], Batch]
    answer: Expected
    again: Expected
    before: Callable[[Maker], list[Batch]] = lambda _: []
    config: Mapping[str, int] = field(default_factory=dict)
    named: bool = False  # the producer has a name, and is leased twice: epochs n and n + 1


def appended(offset: int) -> Expected:
    return {"verdict": "APPENDED", "base_offset": offset}


def duplicate(offset: int) -> Expected:
    return {"verdict": "DUPLICATE", "base_offset": offset}


def refused(name: str, **more: Any) -> Expected:
    return {"verdict": name, "base_offset": -1, **more}


def stored(name: str, request: Callable[[Maker], Batch], offset: int, **more: Any) -> Row:
    """A row that appends at `offset` and is a duplicate the second time."""
    return Row(name, request, appended(offset), duplicate(offset), **more)


def repeats(name: str, request: Callable[[Maker], Batch], answer: Expected, **more: Any) -> Row:
    """A row that has the same answer however often it is asked."""
    return Row(name, request, answer, answer, **more)


def invalid(name: str, request: Callable[[Maker], Batch], word: str, **more: Any) -> Row:
    """A row that is INVALID_BATCH for a reason that names `word`, and changes nothing."""
    answer = refused("INVALID_BATCH", message=word)
    return Row(name, request, answer, answer, before=lambda m: [m(0)], **more)


def three(m: Maker) -> list[Batch]:
    """Batches of 1, 2 and 3 records: offsets 0, 1 and 3, sequences 0, 1..2, 3..5."""
    return [m(0, b"a"), m(1, b"b", count=2), m(3, b"c", count=3)]


# "epoch" stands for the row's own epoch.
FENCED: Expected = {"verdict": "FENCED", "base_offset": -1, "current_epoch": "epoch"}
IGNORED = cluster_pb2.EXPECTED_OFFSETS_IGNORED
REQUIRED = cluster_pb2.EXPECTED_OFFSETS_REQUIRED

ACCEPTED = [
    stored("first batch", lambda m: m(0, count=3), 0),
    stored("first batch of a chain that begins later", lambda m: m(7, prev=-1), 0),
    stored("next batch", lambda m: m(6, b"d"), 6, before=three),
    stored(
        "sequences with gaps",
        lambda m: m(100, count=2, last=400, prev=50),
        1,
        before=lambda m: [m(50, prev=-1)],
    ),
    stored("the right expected offset", lambda m: m(6, expected_offset=6), 6, before=three),
    stored(
        "a wrong expected offset where the topic ignores it",
        lambda m: m(6, expected_offset=1),
        6,
        before=three,
        config={"expected_offsets": IGNORED},
    ),
    stored(
        "an expected offset where the topic requires it",
        lambda m: m(0, expected_offset=0),
        0,
        config={"expected_offsets": REQUIRED},
    ),
    stored(
        "first batch of a higher epoch",
        lambda m: m(0, b"new", epoch=m.epoch),
        1,
        before=lambda m: [m(0, epoch=m.epoch - 1)],
        named=True,
    ),
    stored("a payload without a codec", lambda m: m(0, ONE, codec=0), 0),
    Row("producer id 0", lambda m: m(0, pid=0), appended(0), appended(1)),
    Row(
        "producer id 0 ignores sequence and epoch",
        lambda m: m(99, pid=0, epoch=7),
        appended(6),
        appended(7),
        before=three,
    ),
    stored(
        "the largest payload",
        lambda m: m(0, b"x" * 64 * KIB),
        0,
        config={"max_batch_bytes": 64 * KIB},
    ),
]

DUPLICATES = [
    repeats("the last batch again", lambda m: three(m)[2], duplicate(3), before=three),
    repeats("an earlier batch again", lambda m: three(m)[1], duplicate(1), before=three),
    repeats(
        "a batch older than the window",
        lambda m: m(0, b"0"),
        {"verdict": "DUPLICATE", "base_offset": {0, -1}},
        before=lambda m: [m(n, b"%d" % n) for n in range(8)],
    ),
    repeats(
        "a duplicate wins over a wrong expected offset",
        lambda m: m(0, expected_offset=0),
        duplicate(0),
        before=lambda m: [m(0, expected_offset=0), m(1)],
    ),
]

REFUSED = [
    repeats(
        "gap",
        lambda m: m(7),
        refused("OUT_OF_ORDER", last_sequence=5),
        before=three,
    ),
    repeats(
        "overlap, partly new",
        lambda m: m(4, count=3),
        refused("OUT_OF_ORDER", last_sequence=5),
        before=three,
    ),
    repeats(
        "another cut of stored sequences",
        lambda m: m(1, b"ab", count=5),
        refused("OUT_OF_ORDER", last_sequence=5),
        before=three,
    ),
    repeats(
        "prev below the last sequence",
        lambda m: m(8, prev=3),
        refused("OUT_OF_ORDER", last_sequence=5),
        before=three,
    ),
    repeats(
        "not the first batch, producer not in the map",
        lambda m: m(3),
        refused("UNKNOWN_PRODUCER"),
    ),
    repeats(
        "producer id never issued",
        lambda m: m(0, pid=NEVER_ISSUED),
        refused("UNKNOWN_PRODUCER", message="lease_token"),
    ),
    repeats(
        "an epoch that nobody leased",
        lambda m: m(0, epoch=m.epoch + 1),
        refused("UNKNOWN_PRODUCER", message="lease_token"),
        before=lambda m: [m(0)],
    ),
    repeats(
        "older epoch",
        lambda m: m(1, epoch=m.epoch - 1),
        FENCED,
        before=lambda m: [m(0, epoch=m.epoch - 1), m(0)],
        named=True,
    ),
    repeats(
        "older epoch, a duplicate of its own time",
        lambda m: m(0, epoch=m.epoch - 1),
        FENCED,
        before=lambda m: [m(0, epoch=m.epoch - 1), m(0, b"new")],
        named=True,
    ),
    repeats(
        "higher epoch, not a first batch",
        lambda m: m(1, epoch=m.epoch),
        refused("OUT_OF_ORDER", last_sequence=-1),
        before=lambda m: [m(0, epoch=m.epoch - 1)],
        named=True,
    ),
    repeats(
        "same sequences, other content",
        lambda m: m(3, b"other", count=3),
        refused("SEQUENCE_CONFLICT"),
        before=three,
    ),
    repeats(
        "same sequences and content, other record count",
        lambda m: m(3, b"c", count=2, last=5),
        refused("SEQUENCE_CONFLICT"),
        before=three,
    ),
    repeats(
        "wrong expected offset",
        lambda m: m(6, expected_offset=4),
        refused("OFFSET_MISMATCH", next_offset=6),
        before=three,
    ),
    repeats(
        "wrong expected offset without a producer id",
        lambda m: m(0, pid=0, expected_offset=5),
        refused("OFFSET_MISMATCH", next_offset=6),
        before=three,
    ),
    repeats(
        "no expected offset where the topic requires one",
        lambda m: m(1),
        refused("INVALID_BATCH", message="expected_offset"),
        before=lambda m: [m(0, expected_offset=0)],
        config={"expected_offsets": REQUIRED},
    ),
    repeats(
        "payload over the topic's limit",
        lambda m: m(1, b"x" * (64 * KIB + 1)),
        refused("BATCH_TOO_LARGE", message=str(64 * KIB)),
        before=lambda m: [m(0)],
        config={"max_batch_bytes": 64 * KIB},
    ),
]

INVALID = [
    invalid("no records", lambda m: m(1, count=0), "record_count"),
    invalid("negative record count", lambda m: m(1, count=-1), "record_count"),
    invalid("no payload", lambda m: m(1, b""), "payload"),
    invalid("wrong crc", lambda m: m(1, b"x", crc=crc32c.crc32c(b"x") ^ 1), "crc32c"),
    invalid("negative producer id", lambda m: m(1, pid=-1), "producer_id"),
    invalid("negative epoch", lambda m: m(1, epoch=-1), "epoch"),
    invalid("negative sequence", lambda m: m(-1), "base_sequence"),
    invalid("last below base", lambda m: m(1, last=0), "last_sequence"),
    invalid("more records than sequences", lambda m: m(1, count=3, last=2), "record_count"),
    invalid("prev not below base", lambda m: m(1, prev=1), "prev_sequence"),
    invalid("prev below -1", lambda m: m(1, prev=-2), "prev_sequence"),
    invalid("expected offset below -1", lambda m: m(1, expected_offset=-2), "expected_offset"),
    invalid("unknown codec", lambda m: m(1, codec=9), "codec"),
    invalid("a transaction below 0", lambda m: m(1, transaction_id=-1), "transaction_id"),
    invalid("more records than the payload's", lambda m: m(1, ONE, codec=0, count=9), "record_cou"),
    invalid("more than any payload's", lambda m: m(1, count=2**31 - 1), "record_count"),
    invalid("not a payload, and no codec", lambda m: m(1, codec=0), "payload"),
]

ROWS = [*ACCEPTED, *DUPLICATES, *REFUSED, *INVALID]


def prepare(api: Api, row: Row, topic: str) -> Maker:
    """Creates the row's topic and leases its producer."""
    api.create_topic(topic, 1, 3, **row.config)
    if row.named:
        first = api.lease(topic)
        lease = api.lease(topic)
        assert lease.producer_id == first.producer_id
        assert lease.epoch == first.epoch + 1
    else:
        lease = api.lease()
    return Maker(topic, lease)
