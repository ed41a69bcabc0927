"""One partition's part of a Fetch answer: the limit counts converted batches, not stored ones."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from cluster.access.budget import Budget
from cluster.entries import unpack_batch
from cluster.kafka.brokers import Brokers
from cluster.kafka.errors import Error
from cluster.kafka.fetch import EARLIEST, LATEST, MAX_TIME_MS, NEWEST, Fetching, _part, _Room
from cluster.kafka.messages import (
    FETCH,
    LIST_OFFSETS,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from cluster.kafka.records import read_batch
from cluster.kafka.versions import Head
from cluster.services.log.fetch_encoding import FetchSection
from oncelog.v1 import log_pb2 as pb
from oncelog.v1.batch_pb2 import BatchHeader, StoredBatch
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import KAFKA_V2, ZSTD, compress
from tests.unit.kafka.kafka_bytes import batch, record
from tests.unit.kafka.test_logs import ANYBODY, filled
from tests.unit.kafka.test_produce import Rig
from tests.unit.services.log_rig import TOPIC

MIB = 1 << 20


def section() -> FetchSection:
    """Ten batches of a record each, a MiB of zeros, stored in some bytes; then one of Kafka's."""
    found = FetchSection(pb.PartitionRecords(partition=3, high_watermark=11))
    packed = compress(ZSTD, encode_payload([bytes(MIB)], [0]))
    for offset in range(10):
        header = BatchHeader(record_count=1, codec=ZSTD)  # type: ignore[arg-type]
        found.add(StoredBatch(header=header, base_offset=offset), memoryview(packed), len(packed))
    kafka = memoryview(batch())[21:]
    header = BatchHeader(record_count=1, codec=KAFKA_V2)  # type: ignore[arg-type]
    found.add(StoredBatch(header=header, base_offset=10), kafka, len(kafka))
    return found


async def test_an_answer_ends_with_the_batch_that_fills_it() -> None:
    for limit, batches in ((1, 1), (MIB, 1), (3 * MIB, 3), (3 * MIB + 500, 4), (100 * MIB, 12)):
        part = await _part(section(), 0, _Room(limit))
        assert (part.error, part.high_watermark, len(part.batches)) == (0, 11, batches), limit
        assert sum(map(len, part.batches)) < max(limit, MIB) + MIB + 200


async def test_another_partition_of_a_full_answer_gets_nothing() -> None:
    room = _Room(MIB)
    assert len((await _part(section(), 0, room)).batches) == 1
    second = await _part(section(), 0, room)
    assert (second.error, second.high_watermark, second.batches) == (0, 11, [])


async def test_slices_before_the_clients_offset_are_left_out() -> None:
    values = [bytes(MIB // 2)] * 6
    packed = encode_payload(values, [0] * 6)
    found = FetchSection(pb.PartitionRecords(partition=3))
    stored = StoredBatch(header=BatchHeader(record_count=6), base_offset=100)
    found.add(stored, memoryview(packed), len(packed))
    (data,) = (await _part(found, 104, _Room(MIB))).batches
    assert int.from_bytes(data[:8], "big") == 104
    assert read_batch(memoryview(data)).record_count == 2


async def test_a_time_beyond_all_records_is_nowhere() -> None:
    """In microseconds it has no place in 64 bits."""
    rig = await filled()
    for time_ms in (MAX_TIME_MS, MAX_TIME_MS + 1, 2**63 - 1):
        assert await listed(rig, 4, time_ms) == (0, -1, -1)


async def test_while_a_batch_is_being_written_the_end_is_before_it() -> None:
    """A client that begins at the end reads that batch; none finds a record in it by time."""
    rig = await filled()
    rig.hold()
    rig.begin(batch(3, base_time=9, max_time=9))
    assert await listed(rig, 4, LATEST) == (0, 15, -1)
    assert await listed(rig, 4, 8) == (0, -1, -1)
    rig.release()
    await rig.answers.all()
    assert await listed(rig, 4, LATEST) == (0, 18, -1)
    assert await listed(rig, 4, 8) == (0, 15, 9)
    assert await listed(rig, 4, EARLIEST) == (0, 0, -1)


async def test_the_record_with_the_highest_time_is_the_first_of_them() -> None:
    rig = Rig()
    assert await listed(rig, 7, NEWEST) == (0, -1, -1), "there is no record"
    for later in ((0, 60, 1), (60, 3), (4,)):
        records = b"".join(record(number, later=ms) for number, ms in enumerate(later))
        rig.begin(batch(len(later), base_time=10, max_time=10 + max(later), records=records))
    await rig.answers.all()
    assert await listed(rig, 7, NEWEST) == (0, 1, 70)
    assert await listed(rig, 6, NEWEST) == (Error.UNSUPPORTED_VERSION, -1, -1)
    assert await listed(rig, 7, NEWEST - 1) == (Error.UNSUPPORTED_VERSION, -1, -1)


async def test_a_search_by_time_goes_on_behind_a_batch_that_claims_too_much() -> None:
    """Only the heads of batches are read: the node said that there is no record as late."""
    rig = Rig()
    for time_ms, claimed in ((10, 900), (30, 30), (20, 800), (40, 40)):
        rig.begin(batch(base_time=time_ms, max_time=claimed))
    await rig.answers.all()
    for time_ms, found in ((5, (0, 10)), (11, (1, 30)), (31, (3, 40)), (41, (-1, -1))):
        assert await listed(rig, 4, time_ms) == (0, *found)
    assert await listed(rig, 7, NEWEST) == (0, 3, 40)


@pytest.mark.parametrize("attributes", [0, 1])
async def test_records_without_a_highest_time_in_their_head_are_found(attributes: int) -> None:
    """Some clients leave it out, as sarama did until 1.45: Kafka makes it of the records."""
    rig = Rig()
    records = b"".join(record(number, later=ms) for number, ms in enumerate((0, 20, 5)))
    body = gzip.compress(records) if attributes else records
    rig.begin(batch(3, attributes=attributes, base_time=100, max_time=-1, records=body))
    rig.begin(batch(base_time=300, max_time=300))
    assert [one[0].base_offset for one in await rig.answers.all()] == [0, 3]
    for time_ms, found in ((100, (0, 100)), (101, (1, 120)), (121, (3, 300))):
        assert await listed(rig, 4, time_ms) == (0, *found)


async def test_a_batch_that_nobody_can_unpack_has_its_first_time() -> None:
    rig = Rig()
    rig.begin(batch(3, base_time=100, max_time=-1, records=b"no record at all, but long enough"))
    rig.begin(batch(base_time=90, max_time=90))
    assert [one[0].base_offset for one in await rig.answers.all()] == [0, 3]
    times = [unpack_batch(entry).max_timestamp_us for entry in rig.node.log.entries]
    assert times == [100_000, 90_000]


async def test_without_memory_an_answer_has_the_end_and_no_records() -> None:
    """A client that stops at the end must not take its own offset for it."""
    rig = await filled()
    full = await fetched(rig)
    assert full.high_watermark == 15 and full.records
    rig.node.memory = Budget(limit=1, slow=1)
    short = await fetched(rig)
    assert (short.error_code, short.high_watermark, short.records) == (0, 15, b"")


async def fetched(rig: Rig) -> Any:
    """The partition's part of a Fetch from its start; a client asks again for an empty one."""
    part = FetchPartition(0, fetch_offset=0, partition_max_bytes=MIB)
    request = FetchRequest(max_bytes=MIB, topics=[FetchTopic(TOPIC, [part])])
    head = Head(FETCH, 12, 1, "", True)
    answer = await Fetching(rig.node, Brokers(rig.node)).fetch(ANYBODY, head, request)
    assert not answer.idle, "it has records"
    data = b"".join(bytes(one) for one in answer.parts)
    (one,) = FetchResponse.decode(data[5:], version=12).responses[0].partitions
    return one


async def listed(rig: Rig, version: int, time_ms: int) -> tuple[int, int, int]:
    """ListOffsets' error, offset and time for the partition."""
    wanted = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, time_ms)])
    fetching = Fetching(rig.node, Brokers(rig.node))
    head = Head(LIST_OFFSETS, version, 1, "", True)
    answer = await fetching.list_offsets(ANYBODY, head, ListOffsetsRequest(topics=[wanted]))
    (one,) = answer.topics[0].partitions
    return one.error_code, one.offset, one.timestamp
