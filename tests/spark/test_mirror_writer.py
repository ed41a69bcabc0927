"""One attempt of a mirror's task against real nodes, without Spark: every order of events.

An attempt may be tried again, sleep for any time and wake up at any point; its run may have
been replaced. Here the attempts are objects, so each order is made by hand and exact; in
test_faults they are processes that are killed and stopped.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from harness.local_cluster import QUICK, LocalCluster
from oncelog import Admin, Consumer, Producer, Record, TopicConfig
from oncelog.errors import (
    BatchTooLargeError,
    ConfigError,
    FencedError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OutOfOrderError,
    ProducerExpiredError,
    UnknownTopicOrPartitionError,
)
from oncelog.spark.mirroring import run as mirror_run
from oncelog.spark.mirroring.ranges import goes_whole, pack, read, to_copy, unpack
from oncelog.spark.mirroring.run import MirrorSettings, RunStart, claim, claims
from oncelog.spark.mirroring.writer import COLUMNS, PartitionCopy
from oncelog.spark.source.offsets import OffsetRange
from oncelog.spark.source.reading import BatchPart
from oncelog.types import TopicPartition
from oncelog.wire.arrow import rising_ends, schema
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import CODECS, checksum, compress
from oncelog.wire.stored import StoredBatch
from tests.integration.conftest import MakeCluster
from tests.integration.records import stored_batches
from tests.integration.waiting import eventually

Make = Callable[..., MirrorSettings]


@pytest.fixture
def settings(cluster: LocalCluster, admin: Admin, topic: str) -> Make:
    """`settings(**changes)`: a new run from `topic` to `topic`-copy, one partition each."""
    admin.create_topic(topic, 1, 3)

    def make(**changes: Any) -> MirrorSettings:
        copy = f"{topic}-copy"
        if copy not in admin.list_topics():
            admin.create_topic(copy, 1, 3)
        there = admin.describe_topic(copy)
        found = MirrorSettings(
            run=secrets.token_hex(8),
            name=f"mirror/test/{topic}",
            source_bootstrap=tuple(cluster.addresses.values()),
            source_topic=topic,
            source_id="1",
            target_bootstrap=tuple(cluster.addresses.values()),
            target_topic=copy,
            target_topic_id=there.topic_id,
            partitions=1,
            max_batch_bytes=1024 * 1024,
        )
        return replace(found, **changes)

    return make


def rows(offsets: Iterable[int], partition: int = 0, size: int = 0) -> Any:
    """A batch as Spark gives it: each value contains its offset."""
    found = list(offsets)
    n = len(found)
    columns = {
        "key": pa.array([b"k"] * n, pa.binary()),
        "value": pa.array([b"%d" % offset + bytes(size) for offset in found], pa.binary()),
        "timestamp": pa.array([1_000_000 + offset for offset in found], pa.timestamp("us", "UTC")),
        "headers": pa.array([[]] * n, schema().field("headers").type),
        "partition": pa.array([partition] * n, pa.int32()),
        "offset": pa.array(found, pa.int64()),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in COLUMNS})


def fill(producer: Producer, topic: str, count: int) -> None:
    producer.send_batch(topic, 0, [Record(b"%d" % n) for n in range(count)]).result(20)


def copied(settings: MirrorSettings) -> list[int]:
    """The target's records, by source offset."""
    tp = settings.target(0)
    with Consumer(
        bootstrap_servers=settings.target_bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        found: list[int] = []
        while consumer.position(tp) < end:
            for batch in consumer.getmany(timeout_ms=1000).values():
                found += [int((record.value or b"").rstrip(b"\0")) for record in batch]
    return found


def go_on(copy: PartitionCopy, batch: Any) -> None:
    copy.take(batch)
    copy.finish()


def claimed(settings: MirrorSettings) -> dict[int, RunStart]:
    with settings.admin() as admin:
        return claims(admin, settings)


def run_task(settings: MirrorSettings, *batches: Any, partition: int = 0) -> PartitionCopy:
    copy = PartitionCopy(settings, partition)
    try:
        for batch in batches:
            if isinstance(batch, StoredBatch):
                copy.take_stored(batch)
            else:
                copy.take(batch)
        copy.finish()
    except BaseException:
        copy.abort()
        raise
    return copy


# --- tries, replays, sleepers --------------------------------------------------------


def test_a_replayed_micro_batch_writes_what_is_missing(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 100)
    assert claim(run, {}) == {0: RunStart(0, claimed(run)[0].producer_id)}
    # The first attempt ends in the middle; the second gets the rows cut in another way.
    assert run_task(run, rows(range(10)), rows(range(10, 25))).copied == 25
    assert run_task(run, rows(range(17)), rows(range(17, 60))).copied == 35
    assert run_task(run, rows(range(60))).copied == 0
    assert copied(run) == list(range(60))
    # A filter makes the sequences sparse, and records dropped at the end are no gap.
    assert run_task(run, rows(range(60, 80, 7))).copied == 3
    assert run_task(run, rows([])).copied == 0
    assert run_task(run, rows([90]), rows([], 0), rows([99])).copied == 2
    assert copied(run) == [*range(60), 60, 67, 74, 90, 99]


def test_a_sleeper_that_had_begun_is_fenced(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 100)
    claim(run, {})
    sleeper = PartitionCopy(run, 0)
    sleeper.take(rows(range(20)))
    run_task(run, rows(range(50)))  # the second attempt
    run_task(run, rows(range(50, 80)))  # and the next micro-batch
    with pytest.raises(FencedError):
        go_on(sleeper, rows(range(20, 50)))
    sleeper.abort()
    assert run_task(run, rows(range(80, 100))).copied == 20
    assert copied(run) == list(range(100))


def test_a_sleeper_that_had_not_begun_disturbs_nobody(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 100)
    claim(run, {})
    sleeper = PartitionCopy(run, 0)
    run_task(run, rows(range(50)))
    # The next micro-batch is being written when it wakes up.
    later = PartitionCopy(run, 0)
    later.take(rows(range(50, 60)))
    sleeper.take(rows(range(30)))
    sleeper.take(rows(range(30, 50)))
    sleeper.finish()
    assert sleeper.copied == 0
    later.take(rows(range(60, 100)))  # not fenced
    later.finish()
    assert copied(run) == list(range(100))


def test_two_attempts_at_once_leave_one_copy(settings: Make, producer: Producer) -> None:
    """Speculative execution makes two: the later attempt shuts out the earlier."""
    run = settings()
    fill(producer, run.source_topic, 40)
    claim(run, {})
    first, second = PartitionCopy(run, 0), PartitionCopy(run, 0)
    first.take(rows(range(10)))
    second.take(rows(range(10)))  # nothing new: the attempt only looks
    second.take(rows(range(10, 20)))
    with pytest.raises(FencedError):
        go_on(first, rows(range(10, 30)))
    first.abort()
    second.take(rows(range(20, 40)))
    second.finish()
    assert copied(run) == list(range(40))


def test_a_later_run_ends_the_earlier_one(settings: Make, producer: Producer) -> None:
    first = settings()
    fill(producer, first.source_topic, 60)
    claim(first, {})
    writing, waiting = PartitionCopy(first, 0), PartitionCopy(first, 0)
    writing.take(rows(range(20)))
    second = settings()
    assert claim(second, {})[0].begin == 20
    with pytest.raises(FencedError):  # the attempt's epoch is over
        go_on(writing, rows(range(20, 30)))
    writing.abort()
    with pytest.raises(FencedError, match="started again elsewhere"):  # the attempt does not begin
        waiting.take(rows(range(20, 30)))
    with pytest.raises(FencedError, match="started again elsewhere"):
        claimed(first)
    assert run_task(second, rows(range(20, 60))).copied == 40
    assert copied(second) == list(range(60))


def test_rows_that_a_shuffle_moved_are_refused(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 60)
    claim(run, {})
    run_task(run, rows(range(10)))
    copy = PartitionCopy(run, 0)
    copy.take(rows(range(10)))
    for moved, problem in (
        (rows([12, 11]), "do not rise"),
        (rows([10, 10]), "do not rise"),
        (rows([9, 12]), "do not rise"),
        (rows([20], partition=1), "task 0 got rows of the partitions 1 to 1"),
        (rows([10]).set_column(5, "offset", pa.array([None], pa.int64())), "without partition"),
    ):
        with pytest.raises(InvalidRequestError, match=problem):
            copy.take(moved)
    copy.abort()
    with pytest.raises(InvalidRequestError, match="task 1 got rows of the partitions 0 to 0"):
        run_task(run, rows(range(10, 20)), partition=1)
    assert copied(run) == list(range(10))


def test_a_copy_of_everything_proves_that_nothing_is_missing(
    settings: Make, producer: Producer
) -> None:
    run = settings(keeps_all=True)
    fill(producer, run.source_topic, 60)
    claim(run, {})
    run_task(run, rows(range(10)))
    for holes in (rows(range(11, 20)), rows([10, 11, 13])):
        with pytest.raises(OutOfOrderError, match="no filter explains it"):
            run_task(run, holes)
    # The same rows are fine where a filter may have dropped some.
    assert run_task(replace(run, keeps_all=False), rows([10, 11, 13])).copied == 3
    assert copied(run) == [*range(10), 10, 11, 13]


def test_batches_keep_to_the_topics_limit(settings: Make, admin: Admin, producer: Producer) -> None:
    run = settings()
    admin.alter_topic(run.target_topic, TopicConfig(max_batch_bytes=4096))
    fill(producer, run.source_topic, 300)
    claim(run, {})
    run = replace(run, max_batch_bytes=4096)
    assert run_task(run, rows(range(100), size=100)).copied == 100
    whole = [stored_batch(range(100, 101)), stored_batch(range(101, 200), size=100)]
    assert run_task(run, *whole).copied == 100
    assert copied(run) == list(range(200))
    with pytest.raises(BatchTooLargeError):
        run_task(run, rows([200], size=5000))


# --- as they are stored ----------------------------------------------------------------


def stored_batch(
    offsets: range, partition: int = 0, codec: str = "none", size: int = 0
) -> StoredBatch:
    values = [b"%d" % offset + bytes(size) for offset in offsets]
    payload = compress(CODECS[codec], encode_payload(values, [1_000_000] * len(values)))
    crc = checksum(payload)
    return StoredBatch(
        "", partition, offsets[0], len(values), CODECS[codec], crc, 1_000_000, payload
    )


def payloads(settings: MirrorSettings) -> list[bytes]:
    """The target's batches."""
    tp = settings.target(0)
    found = stored_batches(",".join(settings.target_bootstrap), tp.topic)
    return [bytes(batch.payload) for batch in found]


def test_a_row_holds_a_range(settings: Make) -> None:
    run = settings()
    ranges = [OffsetRange(TopicPartition(run.source_topic, p), 2**40 * p, 2**41) for p in range(3)]
    together = pa.Table.from_batches(map(pack, ranges)).combine_chunks().to_batches()
    assert [batch.num_rows for batch in together] == [3]
    assert list(unpack(run, together)) == ranges


def test_a_task_reads_its_range_for_itself(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 100)
    source = TopicPartition(run.source_topic, 0)
    (some,) = read(run, [pack(OffsetRange(source, 10, 40))])
    assert some.schema.names == list(COLUMNS)
    assert some["offset"].to_pylist() == list(range(10, 40))


def test_only_what_may_be_sent_on_unseen_goes_as_it_is_stored(settings: Make) -> None:
    large = stored_batch(range(10_000))
    lz4 = stored_batch(range(100_000), codec="lz4")
    assert 64 * 1024 < len(large.payload) < 1024 * 1024 and len(lz4.payload) > 64 * 1024
    whole = {
        "large": (settings(), BatchPart(large, 10_000)),
        "compressed as wanted": (settings(compression_type="lz4"), BatchPart(lz4, 100_000)),
    }
    not_whole = {
        "its end is behind the range": (settings(), BatchPart(large, 9_999)),
        "its start is before the range": (settings(), BatchPart(large._replace(skip=1), 9_999)),
        "small": (settings(), BatchPart(stored_batch(range(100)), 100)),
        "very large": (settings(), BatchPart(stored_batch(range(300_000)), 300_000)),
        "compressed": (settings(), BatchPart(lz4, 100_000)),
        "not compressed": (settings(compression_type="lz4"), BatchPart(large, 10_000)),
    }
    assert {name for name, case in (whole | not_whole).items() if goes_whole(*case)} == set(whole)
    parts = [BatchPart(stored_batch(range(5)), 5), BatchPart(stored_batch(range(5, 9)), 4)]
    parts += [
        BatchPart(stored_batch(range(9, 10_009)), 10_000),
        BatchPart(stored_batch(range(10_009, 10_019)), 6),
    ]
    small, one, rest = to_copy(settings(), parts)
    assert (small["offset"].to_pylist(), rest["offset"].to_pylist()) == (
        list(range(9)),
        list(range(10_009, 10_015)),
    )
    assert one == parts[2].batch


def test_stored_batches_are_copied_once_and_as_they_are(settings: Make, producer: Producer) -> None:
    run = settings(keeps_all=True)
    fill(producer, run.source_topic, 100)
    claim(run, {})
    batches = [stored_batch(range(at, at + 10)) for at in range(0, 60, 10)]
    assert run_task(run, *batches[:3]).copied == 30
    # The task once more, with more to do: it skips the records that are there.
    assert run_task(run, *batches[:5]).copied == 20
    assert payloads(run) == [batch.payload for batch in batches[:5]]
    # The target has a part of the first batch, and the next may be of either kind.
    half = run_task(run, rows(range(50, 54)), stored_batch(range(54, 60)), rows(range(60, 63)))
    assert half.copied == 13
    assert run_task(run, stored_batch(range(55, 65)), stored_batch(range(65, 70))).copied == 7
    assert copied(run) == list(range(70))


def test_stored_batches_out_of_their_place_are_refused(settings: Make, producer: Producer) -> None:
    run = settings(keeps_all=True)
    fill(producer, run.source_topic, 100)
    claim(run, {})
    first = stored_batch(range(10))
    assert run_task(run, first).copied == 10
    assert run_task(run, stored_batch(range(10, 20))).copied == 10
    with pytest.raises(OutOfOrderError, match="no filter explains it"):
        run_task(run, first, stored_batch(range(21, 30)))
    with pytest.raises(InvalidRequestError, match="got rows of the partitions 1 to 1"):
        run_task(run, stored_batch(range(20, 30), 1))
    assert run_task(run, stored_batch(range(20, 30))).copied == 10
    with pytest.raises(InvalidRequestError, match="do not rise"):
        run_task(run, stored_batch(range(20, 30)), stored_batch(range(20, 30)))
    assert copied(run) == list(range(30))
    with pytest.raises(InvalidRequestError, match="got rows of the partitions 2 to 2"):
        run_task(run, stored_batch(range(30, 40)), stored_batch(range(40, 50), 2))


def test_an_attempt_with_stored_batches_is_fenced_by_the_next(
    settings: Make, producer: Producer
) -> None:
    run = settings(keeps_all=True)
    fill(producer, run.source_topic, 100)
    claim(run, {})
    sleeper = PartitionCopy(run, 0)
    sleeper.take_stored(stored_batch(range(10)))
    sleeper.take_stored(stored_batch(range(10, 20)))
    assert run_task(run, *(stored_batch(range(at, at + 10)) for at in (0, 10, 20, 30))).copied >= 20
    sleeper.take_stored(stored_batch(range(20, 30)))
    with pytest.raises(FencedError):
        sleeper.finish()
    sleeper.abort()
    assert copied(run) == list(range(40))


# --- taking over ----------------------------------------------------------------------


def test_a_target_that_was_made_again_is_refused(
    settings: Make, admin: Admin, producer: Producer
) -> None:
    run = settings()
    fill(producer, run.source_topic, 60)
    claim(run, {})
    run_task(run, rows(range(10)))
    admin.delete_topic(run.target_topic)
    again = settings()
    with pytest.raises((FencedError, UnknownTopicOrPartitionError)):
        run_task(run, rows(range(10, 20)))
    assert claim(again, {})[0].begin == 0
    run_task(again, rows(range(20)))
    assert copied(again) == list(range(20))


def test_a_source_that_was_made_again_is_refused(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 60)
    claim(run, {})
    run_task(run, rows(range(10)))
    with pytest.raises(ConfigError, match="deleted and made again since the mirror"):
        claim(settings(source_id="2"), {})
    assert claim(settings(), {})[0].begin == 10
    # Before the run's id was ever written, only the offsets can tell.
    shorter = TopicPartition(run.source_topic, 0)
    with pytest.raises(ConfigError, match=r"ends at offset 5, but .* has a copy of its offset 9"):
        mirror_run._go_on(run, shorter, 9, 0, 0, 5)


def test_a_target_with_other_records_needs_a_word(settings: Make, producer: Producer) -> None:
    run = settings()
    fill(producer, run.source_topic, 60)
    producer.send(run.target_topic, b"777").result(20)
    with pytest.raises(ConfigError, match="has 1 records, and none of them is known") as caught:
        claim(run, {})
    assert "starting_offsets" in caught.value.settings
    run = settings()
    assert claim(run, {0: 50})[0].begin == 50
    run_task(run, rows(range(40, 60)))
    assert copied(run) == [777, *range(50, 60)]
    # From then on the target itself knows.
    assert claim(settings(), {})[0].begin == 60


def test_a_name_that_expired_is_not_taken_for_an_empty_target(
    make_cluster: MakeCluster, topic: str
) -> None:
    """After long idleness nobody knows any more the target's contents; a fresh start would copy
    everything twice.
    """
    cluster = make_cluster(
        1, settings={**QUICK, "lease_lifetime_ms": 1000, "producer_name_expiry_ms": 1000}
    )
    servers = tuple(cluster.addresses.values())
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topic(topic, 1, 1)
        there = admin.create_topic(f"{topic}-copy", 1, 1)
        run = MirrorSettings(
            run="1", name="m", source_bootstrap=servers, source_topic=topic, source_id="1",
            target_bootstrap=servers, target_topic=there.name, target_topic_id=there.topic_id,
            partitions=1, max_batch_bytes=1024 * 1024,
        )  # fmt: skip
        fill(producer, topic, 30)
        claim(run, {})
        written = Producer(bootstrap_servers=servers, producer_name=run.producer_name(0))
        sequences = list(range(10))
        written.send_batch(there.name, 0, [b"%d" % n for n in sequences], sequences=sequences)
        written.close()
        eventually(lambda: not admin.list_producer_names(), "the names expire")
        with pytest.raises(ProducerExpiredError, match="expired during the run"):
            run_task(run, rows(range(10, 20)))
        eventually(lambda: not admin.list_producer_names(), "the names expire")
        with pytest.raises(ConfigError, match="10 records, and none of them is known"):
            claim(run, {})
        assert claim(replace(run, run="2"), {0: 10})[0].begin == 10
        assert copied(run) == list(range(10))


def test_what_retention_deleted_is_said(settings: Make) -> None:
    run = settings()
    tp = TopicPartition(run.source_topic, 0)
    with pytest.raises(OffsetOutOfRangeError, match="the offsets 10 to 19 before they were"):
        mirror_run._go_on(run, tp, 9, 20, 20, 30)
    assert mirror_run._go_on(replace(run, skip_deleted=True), tp, 9, 20, 20, 30) == 20
    assert mirror_run._go_on(run, tp, 19, 20, 20, 30) == 20
    assert mirror_run._go_on(run, tp, 9, 20, 10, 30) == 20, "compaction had removed those"


def test_sequences_may_be_an_arrow_array(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, 3)
    records = [b"a", b"b", b"c"]
    with Producer(bootstrap_servers=cluster.bootstrap) as own:
        done = own.send_batch(topic, 0, records, sequences=pa.array([3, 5, 9])).result(20)
        assert (done.base_sequence, done.last_sequence) == (3, 9)
        for wrong in (pa.array([10, 10, 11]), pa.array([10, 11]), pa.array([12.5, 13, 14])):
            with pytest.raises(InvalidRequestError, match="sequences must be"):
                own.send_batch(topic, 0, records, sequences=wrong)
        done = own.send_batch(topic, 0, [b"d"], sequences=pa.array([10])).result(20)
        assert (done.base_sequence, done.last_sequence) == (10, 10)
    assert rising_ends(pa.array([], pa.int64())) == ([], True)
