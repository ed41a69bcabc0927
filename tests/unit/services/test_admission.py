"""Order of checks: a node follows the one that docs/protocol.md prints.

Each row of the page's table has conditions here that make a request meet it. If a request meets two
rows, the upper one is the answer: tried for each pair, the adjacent ones among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import crc32c
import pytest

from cluster.dedup.verdict import KAFKA_IDS, Formats, Kind
from cluster.partition.replica import Answer
from cluster.services.log.batch_checks import MAX_RECORDS
from cluster.services.outcomes import one_answer
from cluster.v1 import metadata_pb2 as meta
from oncelog.wire.batch import MAX_PAYLOAD_BYTES, encode_payload
from tests.unit.pages.test_protocol_page import table
from tests.unit.services.log_rig import GROUP, PAYLOAD, LogNode, header

NEVER_ISSUED = 1 << 40
LARGE = encode_payload([b"x" * 2000], [1])


@dataclass
class Case:
    """A request and its node, sound until a condition makes them meet a row."""

    node: LogNode
    monkeypatch: pytest.MonkeyPatch
    fields: dict[str, Any] = field(default_factory=dict)
    payload: bytes = PAYLOAD

    async def verdict(self) -> Any:
        fields = {"crc32c": crc32c.crc32c(self.payload), **self.fields}
        return (await self.node.send(header(self.payload, **fields), self.payload)).verdict


Condition = Callable[[Case], Any]


def says(**fields: Any) -> Condition:
    return lambda case: case.fields.update(fields)


def no_payload(case: Case) -> None:
    case.payload = b""


def no_replica(case: Case) -> None:
    case.node.hosted = None
    case.node.leaders[GROUP] = 2


def led_elsewhere(case: Case) -> None:
    case.node.leaders[GROUP] = 2


def follows(case: Case) -> None:
    case.node.log.is_leader = False


def too_large(case: Case) -> None:
    case.payload = LARGE if case.payload else case.payload


def kafka_only(case: Case) -> None:
    case.node.part.policy.formats = Formats.KAFKA


def not_ready(case: Case) -> None:
    case.node.part.on_role(leader=True, ready=False, term=2)


def disk_full(case: Case) -> None:
    case.node.storage_full = True


def busy(case: Case) -> None:
    case.monkeypatch.setattr("cluster.partition.leader.MAX_IN_FLIGHT_BYTES", -1)


# For each row, in the page's order: words of its first cell, and how a request meets it.
ROWS: list[tuple[str, list[Condition]]] = [
    ("an internal topic", [says(topic="__offsets"), says(topic="__more")]),
    (
        "a number out of its range",
        [
            says(epoch=-1, producer_id=1),
            no_payload,
            says(codec=9),
            says(codec=16),
            says(transaction_id=-1),
            says(crc32c=1),
            says(record_count=2),
            says(record_count=0),
            says(codec=1, record_count=MAX_RECORDS + 1),
        ],
    ),
    ("no such topic or partition", [says(topic="nope"), says(partition=1), says(partition=-1)]),
    ("this node has no replica of it, or does not lead", [no_replica, led_elsewhere, follows]),
    ("the topic takes batches of Kafka's format only", [kafka_only]),
    ("payload above the topic's", [too_large]),
    (
        "the first batch of a chain, without proof",
        [
            says(producer_id=NEVER_ISSUED),
            says(producer_id=KAFKA_IDS + 1),
            says(producer_id=KAFKA_IDS + 1, base_sequence=1),
        ],
    ),
    ("this node has just begun to lead", [not_ready]),
    ("its disk is full", [disk_full]),
    ("too many bytes in flight", [busy]),
]


def page() -> list[tuple[str, str]]:
    """(condition, verdict) of each row."""
    rows = [line.strip("|").split("|") for line in table("| first | verdict |")[2:]]
    return [(condition.strip(), verdict.strip()) for condition, verdict in rows]


def verdict_of(row: int) -> str:
    return page()[row][1].split(",")[0]


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(LogNode(max_batch_bytes=1024), monkeypatch)


def test_every_row_of_the_page_is_tried_in_its_order():
    assert len(page()) == len(ROWS)
    for (condition, verdict), (words, _) in zip(page(), ROWS, strict=True):
        assert condition.startswith(words)
        assert verdict.split(",")[0] in Kind.__members__


async def test_a_request_that_meets_no_row_is_appended(case):
    assert (await case.verdict()).kind is Kind.APPENDED


ALONE = [(row, one) for row, (_, conditions) in enumerate(ROWS) for one in conditions]


@pytest.mark.parametrize(("row", "condition"), ALONE)
async def test_a_row(case, row, condition):
    condition(case)
    assert (await case.verdict()).kind.name == verdict_of(row)


PAIRS = [
    (upper, lower, one, other)
    for upper, lower in combinations(range(len(ROWS)), 2)
    for one in ROWS[upper][1]
    for other in ROWS[lower][1]
]


@pytest.mark.parametrize(("upper", "lower", "one", "other"), PAIRS)
async def test_of_two_rows_the_upper_one_wins(case, upper, lower, one, other):
    other(case)
    one(case)  # where both set one field, the upper one wins
    verdict = await case.verdict()
    assert verdict.kind.name == verdict_of(upper)
    if upper == 0:
        assert verdict.message.startswith("topic: ")


async def test_not_leader_names_the_leader(case):
    led_elsewhere(case)
    answer = await case.node.send(header(), PAYLOAD)
    assert (answer.verdict.kind, answer.leader_id) == (Kind.NOT_LEADER, 2)


# -- record_count decides which offsets a batch takes -----------------------------------------

PREAMBLE_OF_TWO = encode_payload([b"", b""], [1, 2])


@pytest.mark.parametrize(
    ("payload", "count", "codec", "named"),
    [
        (PAYLOAD, 2**31 - 1, 0, "record_count"),
        (PREAMBLE_OF_TWO, 1, 0, "record_count"),
        # The preamble lies, too: there is no room for so many records.
        (PAYLOAD[:8] + (2**31 - 1).to_bytes(4, "little") + PAYLOAD[12:], 2**31 - 1, 0, "record_co"),
        (PAYLOAD[:31], 1, 0, "payload"),
        (b"\0" * 64, 1, 0, "payload"),
        (b"short", MAX_RECORDS + 1, 1, "record_count"),
        (b"short", 2**31 - 1, 2, "record_count"),
    ],
)
async def test_a_record_count_that_lies_takes_no_offsets(case, payload, count, codec, named):
    """Before, 40 bytes with a record_count of 2^31-1 took two billion offsets."""
    case.payload, case.fields = payload, {"record_count": count, "codec": codec}
    verdict = await case.verdict()
    assert verdict.kind is Kind.INVALID_BATCH
    assert verdict.message.startswith(named)
    assert case.node.part.high_watermark == 0


@pytest.mark.parametrize(("count", "codec"), [(2, 0), (MAX_RECORDS, 1), (MAX_RECORDS, 2)])
async def test_the_most_records_that_a_payload_can_hold(case, count, codec):
    case.payload, case.fields = PREAMBLE_OF_TWO, {"record_count": count, "codec": codec}
    assert (await case.verdict()).kind is Kind.APPENDED
    assert case.node.part.high_watermark == count


def test_no_payload_holds_more_records_than_the_limit():
    """A record of nothing costs 12 bytes; the payloads of the codec are the measure."""
    size = {n: len(encode_payload([b""] * n, [0] * n)) for n in (1000, 3000)}
    assert (size[3000] - size[1000]) / 2000 == 12
    assert size[1000] + (MAX_RECORDS + 2 - 1000) * 12 > MAX_PAYLOAD_BYTES


# -- the second table: the partition's knowledge of the producer --------------------------------

PID = 1  # issued, like the next hundred
Batch = tuple[dict[str, Any], bytes]


def sent(base: int, payload: bytes = PAYLOAD, **fields: Any) -> Batch:
    return {"producer_id": PID, "base_sequence": base, **fields}, payload


def other(base: int, **fields: Any) -> Batch:
    return sent(base, encode_payload([b"other"], [1]), **fields)


def expire(node: LogNode) -> None:
    node.part.policy.expired_below = lambda: 1 << 30


def lease_name(node: LogNode) -> None:
    node.apply(meta.MetadataCommand(lease_name=meta.LeaseName(name="n", nonce=1)))
    expire(node)


def open_second_epoch(node: LogNode) -> None:
    node.part.open_producer(PID, 1, lambda answer: None)


CHAIN = [sent(base) for base in range(7)]  # 0 and 1 are below the recent five
SECOND_EPOCH = [sent(0, epoch=1)]
NAMED = 101  # the id that the first name gets here
# For each row, in the page's order: batches stored before, a step after them, the batch.
PARTITION_ROWS: list[tuple[list[Batch], Callable[[LogNode], None] | None, Batch, Kind]] = [
    ([], None, sent(0), Kind.APPENDED),
    ([], None, sent(3), Kind.UNKNOWN_PRODUCER),
    (CHAIN, expire, sent(7), Kind.PRODUCER_EXPIRED),
    ([], lease_name, sent(0, producer_id=NAMED), Kind.PRODUCER_EXPIRED),
    (SECOND_EPOCH, None, sent(1), Kind.FENCED),
    (CHAIN, None, sent(0, epoch=1), Kind.APPENDED),
    (CHAIN, None, sent(7, epoch=1), Kind.OUT_OF_ORDER),
    (CHAIN, open_second_epoch, sent(7, epoch=1), Kind.APPENDED),
    (CHAIN, open_second_epoch, sent(6, epoch=1), Kind.OUT_OF_ORDER),
    (CHAIN, None, sent(7), Kind.APPENDED),
    (CHAIN, None, sent(9), Kind.OUT_OF_ORDER),
    (CHAIN, None, sent(6, last_sequence=9), Kind.OUT_OF_ORDER),
    (CHAIN, None, sent(9, prev_sequence=4), Kind.OUT_OF_ORDER),
    (CHAIN, None, sent(5), Kind.DUPLICATE),
    (CHAIN, None, other(5), Kind.SEQUENCE_CONFLICT),
    (CHAIN, None, sent(6), Kind.DUPLICATE),  # in flight: joined, tested in test_verdict_in_flight
    (CHAIN, None, sent(0), Kind.DUPLICATE),
    (CHAIN, None, sent(1, last_sequence=3), Kind.OUT_OF_ORDER),
]


async def answered(node: LogNode, one: Batch) -> Kind:
    fields, payload = one
    future: asyncio.Future[Answer]
    future, answer_to = one_answer()  # an old duplicate is looked up in the log first
    batch = node.batch(header(payload, **fields), payload)
    await node.appender.append(batch, payload, answer_to)
    return Kind((await future).verdict.kind)


def test_every_row_of_the_partitions_table_is_tried():
    rows = [line.strip("|").split("|") for line in table("| known | the batch | verdict |")[2:]]
    assert len(rows) == len(PARTITION_ROWS)
    for row, (*_, kind) in zip(rows, PARTITION_ROWS, strict=True):
        word = {"APPENDED": "append"}.get(kind.name, kind.name)
        assert word in row[2] or "still being replicated" in row[1], row


@pytest.mark.parametrize(("before", "then", "one", "kind"), PARTITION_ROWS)
async def test_a_row_of_the_partitions_table(before, then, one, kind):
    node = LogNode()
    for stored in before:
        assert await answered(node, stored) is Kind.APPENDED
    if then is not None:
        then(node)
    assert await answered(node, one) is kind


@pytest.mark.parametrize("row", range(len(PARTITION_ROWS)))
async def test_what_the_node_says_first_wins_over_what_the_partition_knows(row, monkeypatch):
    before, then, one, _ = PARTITION_ROWS[row]
    node = LogNode()
    for stored in before:
        await answered(node, stored)
    if then is not None:
        then(node)
    busy(Case(node, monkeypatch))
    assert await answered(node, one) is Kind.THROTTLED


@pytest.mark.parametrize(
    ("before", "then", "one", "kind"),
    [
        (CHAIN, expire, sent(6), Kind.DUPLICATE),
        (SECOND_EPOCH, expire, sent(1), Kind.FENCED),
        (SECOND_EPOCH, None, sent(0), Kind.FENCED),
        (CHAIN, None, sent(6, expected_offset=99), Kind.DUPLICATE),
        (CHAIN, None, sent(9, expected_offset=99), Kind.OUT_OF_ORDER),
        (CHAIN, None, sent(7, expected_offset=99), Kind.OFFSET_MISMATCH),
    ],
)
async def test_of_two_rows_of_the_partition_the_page_says_which_wins(before, then, one, kind):
    await test_a_row_of_the_partitions_table(before, then, one, kind)
