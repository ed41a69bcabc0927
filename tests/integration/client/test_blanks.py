"""Blanks, which compaction leaves in place of records: no reader takes one for a record or a gap.

The kit's broker serves real partitions, and carries batches without a cleaner.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from oncelog import Admin, Consumer, InvalidRequestError, Producer, StoredBatch, TopicPartition, aio
from oncelog.cli.app import run
from oncelog.console.records import Search, _search
from oncelog.errors import OffsetOutOfRangeError, OutOfOrderError
from oncelog.mirror import Mirror
from oncelog.spark.mirroring import ranges
from oncelog.spark.mirroring.run import MirrorSettings, claim
from oncelog.spark.mirroring.writer import COLUMNS, PartitionCopy
from oncelog.spark.source.history import read_both
from oncelog.spark.source.offsets import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import Planner
from oncelog.spark.source.reading import read_range, read_stored
from oncelog.table.files import TableError
from oncelog.table.run import Archiver, TableSettings
from oncelog.table.verify import verify
from tests.integration.client.cancelling import Kit
from tests.integration.waiting import eventually

BLANK: list[str | None] = [None, None]
LIVE = [1, 3, 9, 10]
END = 14


@pytest.fixture(scope="module")
def kit() -> Iterator[Kit]:
    made = Kit()
    yield made
    made.close()


@pytest.fixture
def topic(kit: Kit) -> str:
    """Offsets 0 to 13: a carried batch, one of blanks, a plain one, and blanks at the end."""
    name = kit.topic()
    append(kit, name, 0, 12)
    carry(kit, name, 0, [BLANK, ["k", None], BLANK, [None, "3"], BLANK, BLANK])
    carry(kit, name, 6, [BLANK, BLANK, BLANK])
    carry(kit, name, 11, [BLANK])
    append(kit, name, 12, 14)
    carry(kit, name, 12, [BLANK, BLANK])
    return name


def append(kit: Kit, topic: str, start: int, end: int) -> None:
    """A batch of one record for each offset."""
    for n in range(start, end):
        kit.do(lambda value=str(n): kit.broker.cluster.append_others(topic, 0, [value]))  # type: ignore[misc]


def carry(kit: Kit, topic: str, offset: int, records: list[list[str | None]]) -> None:
    kit.do(lambda: kit.broker.cluster.carry(topic, 0, offset, records))


def stored(kit: Kit, topic: str) -> list[StoredBatch]:
    with Consumer(bootstrap_servers=kit.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found = list[StoredBatch]()
        while not found or found[-1].last_offset + 1 < END:
            batch = consumer.stored_batch(timeout_ms=60_000)
            assert batch is not None
            found.append(batch)
        return found


async def test_python_clients_read_records_alone(kit: Kit, topic: str) -> None:
    async with aio.Consumer(bootstrap_servers=kit.servers, auto_offset_reset="earliest") as client:
        await client.assign([(topic, 0)])
        assert (await client.getone()).offset == LIVE[0]
        found = [r.offset async for batch in some(client, 3) for r in batch]
        assert found == LIVE[1:]
        while await client.position((topic, 0)) < END:
            assert await client.getmany(timeout_ms=100) == {}
        assert await client.lag((topic, 0)) == 0
        client.seek((topic, 0), 4)
        arrow = list[list[int]]()
        async for batch in client.batches(timeout_ms=60_000):
            arrow.append(batch["offset"].to_pylist())
            if LIVE[-1] in arrow[-1]:
                break
        assert arrow == [[9], [10]], "no batch is empty"


def test_a_read_at_a_removed_offset_goes_on_at_the_next_record(kit: Kit, topic: str) -> None:
    with Consumer(bootstrap_servers=kit.servers, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        for start in range(LIVE[-1] + 1):
            consumer.seek((topic, 0), start)
            ((first, *_),) = consumer.getmany(timeout_ms=60_000).values()
            assert first.offset == next(offset for offset in LIVE if offset >= start)


async def some(client: aio.Consumer, count: int) -> Any:
    while count > 0:
        for records in (await client.getmany(timeout_ms=60_000, max_records=2)).values():
            count -= len(records)
            yield records


def test_commands_and_the_console_end_at_the_end(
    kit: Kit, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(f"topic consume {topic} --from start -e -f %o --bootstrap {kit.servers}".split())
    assert (ended.value.code, capsys.readouterr().out.split()) == (0, [str(n) for n in LIVE])
    wanted = Search(topic, (0,), "start", {}, 100, None, "", "")
    found = _search({"bootstrap_servers": kit.servers}, wanted, None)
    assert [record.offset for record in found.records] == LIVE
    assert (found.read, found.at) == (len(LIVE), {}), "all was read"


def test_a_carried_batch_is_not_sent_on_as_it_is(kit: Kit, topic: str) -> None:
    carried = stored(kit, topic)[0]
    with (
        Producer(bootstrap_servers=kit.servers) as producer,
        pytest.raises(InvalidRequestError, match="compaction has removed records of it"),
    ):
        producer.send_stored_batch(topic, 1, carried)


def test_a_mirror_copies_records_by_their_offsets(kit: Kit, topic: str) -> None:
    copy = kit.topic()
    for _ in range(2):  # the second run finds that all is there
        with Mirror(topic, copy, bootstrap_servers=kit.servers) as mirror:
            mirror.run(exit_at_end=True)
            assert mirror.progress[0].position == LIVE[-1]
    assert [(b.base_sequence, b.last_sequence) for b in stored_of(kit, copy)] == [(1, 10)]


def truncate(kit: Kit, topic: str, start: int) -> None:
    kit.do(lambda: kit.broker.cluster.truncate(topic, 0, start))


def mirrored(kit: Kit, topic: str, copy: str) -> int:
    """Copies up to the end; returns the position."""
    with Mirror(topic, copy, bootstrap_servers=kit.servers) as mirror:
        mirror.run(exit_at_end=True)
        return mirror.progress[0].position


def test_a_mirror_goes_on_behind_deleted_blanks_and_not_behind_deleted_records(
    kit: Kit, topic: str
) -> None:
    copy = kit.topic()
    assert mirrored(kit, topic, copy) == LIVE[-1]
    truncate(kit, topic, END)
    assert mirrored(kit, topic, copy) == LIVE[-1], "11 to 13 had no records"
    append(kit, topic, END, END + 4)
    assert mirrored(kit, topic, copy) == END + 3
    append(kit, topic, END + 4, END + 8)
    carry(kit, topic, END + 5, [BLANK, BLANK])
    truncate(kit, topic, END + 7)
    with pytest.raises(
        OffsetOutOfRangeError, match=f"records of the offsets {END + 4} to {END + 4} "
    ):
        mirrored(kit, topic, copy)
    with Mirror(topic, copy, bootstrap_servers=kit.servers, skip_deleted=True) as mirror:
        mirror.run(exit_at_end=True)
    sequences = [(b.base_sequence, b.last_sequence) for b in stored_of(kit, copy)]
    assert sequences == [(1, 10), (END, END + 3), (END + 7, END + 7)]


def test_a_running_mirror_goes_on_behind_deleted_blanks(kit: Kit, topic: str) -> None:
    """Before, it ended with an error, and only its restart went on."""
    tp, copy = TopicPartition(topic, 0), kit.topic()
    assert mirrored(kit, topic, copy) == LIVE[-1]
    with Mirror(topic, copy, bootstrap_servers=kit.servers) as mirror:
        truncate(kit, topic, END)
        append(kit, topic, END, END + 2)
        mirror._consumer.seek(tp, LIVE[-1] + 1)  # what was fetched ahead is dropped
        mirror.run(exit_at_end=True)
        assert mirror.progress[0].position == END + 1


def append_and_delete(kit: Kit, topic: str, start: int, end: int) -> None:
    """Records that nobody can fetch, not even a waiting reader."""
    cluster = kit.broker.cluster

    def both() -> None:
        cluster.append_others(topic, 0, [""], times=end - start)
        cluster.truncate(topic, 0, end)

    kit.do(both)


def fetch_ahead(kit: Kit, topic: str, consumer: Consumer, end: int) -> None:
    """Have the consumer hold records up to `end`, behind which the next ones are deleted."""
    cursor = consumer._buffer.cursor(TopicPartition(topic, 0))
    assert cursor is not None
    eventually(lambda: cursor.fetch_offset == end, f"it has fetched up to {end}")
    append_and_delete(kit, topic, end, end + 3)
    eventually(lambda: cursor.refused_at == end, "the fetch behind them is out of range")


def test_a_running_mirror_copies_what_it_has_fetched_and_stops_at_deleted_records(
    kit: Kit, topic: str
) -> None:
    copy = kit.topic()
    append(kit, topic, END, END + 2)
    with Mirror(topic, copy, bootstrap_servers=kit.servers) as mirror:
        fetch_ahead(kit, topic, mirror._consumer, END + 2)
        with pytest.raises(OffsetOutOfRangeError, match=f"offsets {END + 2} to {END + 4} "):
            mirror.run(exit_at_end=True)
    assert stored_of(kit, copy)[-1].last_sequence == END + 1
    with Mirror(topic, copy, bootstrap_servers=kit.servers, skip_deleted=True) as mirror:
        append(kit, topic, END + 5, END + 6)
        fetch_ahead(kit, topic, mirror._consumer, END + 6)
        assert mirror.run(exit_at_end=True)[0].position == END + 5


@pytest.mark.parametrize("reset", ["latest", "none"])
def test_records_that_were_fetched_come_before_a_reset(kit: Kit, topic: str, reset: str) -> None:
    tp = TopicPartition(topic, 0)
    settings: Any = {"bootstrap_servers": kit.servers, "auto_offset_reset": reset}
    with Consumer(**settings) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        fetch_ahead(kit, topic, consumer, END)
        assert [consumer.getone().offset for _ in LIVE] == LIVE
        if reset == "none":
            with pytest.raises(OffsetOutOfRangeError, match=f"offset {END} is out of range"):
                consumer.getone()
            return
        while consumer.position(tp) != END + 3:
            assert consumer.getmany(timeout_ms=100) == {}
        append(kit, topic, END + 3, END + 4)
        assert consumer.getone().offset == END + 3


def stored_of(kit: Kit, topic: str) -> list[StoredBatch]:
    with Consumer(bootstrap_servers=kit.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])[TopicPartition(topic, 0)]
        found = list[StoredBatch]()
        while consumer.position((topic, 0)) < end:
            batch = consumer.stored_batch(timeout_ms=60_000)
            assert batch is not None
            found.append(batch)
        return found


def options(kit: Kit, topic: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({"bootstrap.servers": kit.servers, "subscribe": topic, **more})


def test_sparks_ranges_have_records_alone(kit: Kit, topic: str) -> None:
    for start, end in ((0, END), (0, 6), (2, 10), (4, 9), (11, END)):
        one = OffsetRange(TopicPartition(topic, 0), start, end)
        assert offsets_in(read_range(options(kit, topic), one, ["offset"])) == [
            offset for offset in LIVE if start <= offset < end
        ]


def test_spark_goes_on_behind_deleted_blanks_and_not_behind_deleted_records(
    kit: Kit, topic: str
) -> None:
    copy, tp = kit.topic(), TopicPartition(topic, 0)
    append(kit, topic, END, END + 2)
    settings = mirroring(kit, topic, copy)
    claim(settings, {})
    task = PartitionCopy(settings, 0)
    for batch in ranges.to_copy(
        settings, read_stored(options(kit, topic), OffsetRange(tp, 0, END))
    ):
        task.take(batch)
    task.finish()
    truncate(kit, topic, END)
    assert claim(settings, {})[0].begin == END, "11 to 13 had no records"
    both = options(kit, topic)
    with Planner(both) as planner:
        earliest = planner.earliest([tp])
        assert planner.kept({tp: 11}, earliest, "checkpoint") == earliest == {tp: END}
        with pytest.raises(OffsetOutOfRangeError, match="10 to 13 are deleted by retention"):
            planner.kept({tp: 10}, earliest, "checkpoint")
    rest = OffsetRange(tp, 11, END + 2)
    assert offsets_in(read_range(both, rest, ["offset"])) == [END, END + 1]
    with pytest.raises(OffsetOutOfRangeError, match="10 to 13 were deleted by retention"):
        list(read_range(both, rest._replace(start=10), ["offset"]))
    truncate(kit, topic, END + 1)
    with pytest.raises(OffsetOutOfRangeError, match="records of the offsets 11 to 14 before"):
        claim(settings, {})


def offsets_in(batches: Iterable[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def mirroring(kit: Kit, topic: str, copy: str) -> MirrorSettings:
    with Admin(bootstrap_servers=kit.servers) as admin:
        topic_id = admin.describe_topic(copy).topic_id
    return MirrorSettings(
        secrets.token_hex(8), f"mirror/{copy}", (kit.servers,), topic, "1", (kit.servers,), copy,
        topic_id, 2, 1024 * 1024, keeps_all=True,
    )  # fmt: skip


def test_sparks_mirror_tells_blanks_from_missing_records(kit: Kit, topic: str) -> None:
    copy = kit.topic()
    settings = mirroring(kit, topic, copy)
    claim(settings, {})
    for start, end in ((0, 3), (3, 8), (8, END)):  # each task goes on behind blanks
        one = OffsetRange(TopicPartition(topic, 0), start, end)
        task = PartitionCopy(settings, 0)
        parts = read_stored(SourceOptions.parse(settings.source_options()), one)
        for batch in ranges.to_copy(settings, parts):
            task.take(batch)
        task.finish()
    assert [(b.base_sequence, b.last_sequence) for b in stored_of(kit, copy)] == [
        (1, 1), (3, 3), (9, 10),
    ]  # fmt: skip
    other = mirroring(kit, topic, kit.topic())
    claim(other, {})
    whole = OffsetRange(TopicPartition(topic, 0), 0, END)
    (rows,) = read_range(SourceOptions.parse(other.source_options()), whole, list(COLUMNS))
    missing = PartitionCopy(other, 0)
    with pytest.raises(OutOfOrderError, match="no filter explains it"):
        missing.take(pa.concat_batches([rows.slice(0, 1), rows.slice(2)]))
    missing.abort()


def test_a_table_has_records_alone_and_stays_whole(kit: Kit, topic: str, tmp_path: Path) -> None:
    append(kit, topic, END, END + 6)
    for _ in range(2):
        archive(kit, topic, tmp_path)
    assert offsets_of(tmp_path, topic) == [*LIVE, *range(END, END + 6)]
    (whole,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    assert (whole.faults, whole.begin, whole.end, whole.records) == ([], 0, END + 6, 10)
    # Compaction goes on behind the table, up to a range that has blanks alone.
    carry(kit, topic, END, [BLANK, [None, "15"], BLANK, BLANK, BLANK, BLANK])
    append(kit, topic, END + 6, END + 8)
    carry(kit, topic, END + 6, [BLANK, BLANK])
    archive(kit, topic, tmp_path)
    (later,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    assert (later.faults, later.end, later.records, later.compared) == ([], END + 8, 10, 5)
    carry(kit, topic, END, [BLANK, ["k", "15"], BLANK, BLANK, BLANK, BLANK])
    (other,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    assert other.faults == ["offset 15: key differs from the topic's"]
    carry(kit, topic, END, [BLANK, [None, "15"], BLANK, [None, "17"], BLANK, BLANK])
    carry(kit, topic, 0, [BLANK] * 2 + [[None, "2"]] + [BLANK] * 3)
    (more,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    assert more.faults == ["offset 2: offset differs from the topic's"], "the table lacks it"


def test_a_table_goes_on_behind_deleted_blanks_and_not_behind_deleted_records(
    kit: Kit, topic: str, tmp_path: Path
) -> None:
    append(kit, topic, END, END + 3)
    archive(kit, topic, tmp_path)
    append(kit, topic, END + 3, END + 6)
    carry(kit, topic, END + 3, [BLANK, BLANK, BLANK])
    truncate(kit, topic, END + 6)
    archive(kit, topic, tmp_path)
    (before,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    assert (before.faults, before.end) == ([], END + 6), "it has passed over the deleted blanks"
    append(kit, topic, END + 6, END + 8)
    archive(kit, topic, tmp_path)
    whole = [*LIVE, *range(END, END + 3), END + 6, END + 7]
    assert offsets_of(tmp_path, topic) == whole
    (found,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    assert (found.faults, found.end, found.records) == ([], END + 8, len(whole))
    append(kit, topic, END + 8, END + 10)
    truncate(kit, topic, END + 10)
    with pytest.raises(TableError, match=rf"records from {END + 8} to {END + 9} are deleted"):
        archive(kit, topic, tmp_path)
    (after,) = verify(topic, str(tmp_path), bootstrap_servers=kit.servers)
    (fault,) = after.faults
    assert f"from {END + 8} to {END + 9} are deleted, and the table lacks them" in fault


def test_spark_reads_tables_with_blanks_by_offsets(kit: Kit, topic: str, tmp_path: Path) -> None:
    archive(kit, topic, tmp_path)
    append(kit, topic, END, END + 3)
    with Admin(bootstrap_servers=kit.servers) as admin:
        topic_id = admin.describe_topic(topic).topic_id
    both = options(kit, topic, table=f"{tmp_path}/{topic}")
    for start, end in ((0, END + 3), (2, 10), (11, END + 1)):
        one = OffsetRange(TopicPartition(topic, 0), start, end)
        every = [*LIVE, *range(END, END + 3)]
        assert offsets_in(read_both(both, one, topic_id, ["offset"])) == [
            offset for offset in every if start <= offset < end
        ]


def test_spark_begins_in_a_table_that_ends_before_deleted_blanks(
    kit: Kit, topic: str, tmp_path: Path
) -> None:
    archive(kit, topic, tmp_path)
    append(kit, topic, END, END + 4)
    carry(kit, topic, END, [BLANK, BLANK, BLANK])
    truncate(kit, topic, END + 3)
    with Admin(bootstrap_servers=kit.servers) as admin:
        topic_id = admin.describe_topic(topic).topic_id
    tp = TopicPartition(topic, 0)
    both = options(kit, topic, table=f"{tmp_path}/{topic}")
    with Planner(both) as planner:
        assert planner.earliest([tp]) == {tp: 0}
        whole = OffsetRange(tp, 0, END + 4)
        assert offsets_in(read_both(both, whole, topic_id, ["offset"])) == [*LIVE, END + 3]
        truncate(kit, topic, END + 4)
        assert planner.earliest([tp]) == {tp: END + 4}, "the record in between is lost"


@pytest.mark.parametrize("are_blanks", [True, False])
def test_a_table_ends_at_the_end_though_the_rest_is_deleted_meanwhile(
    kit: Kit, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_blanks: bool
) -> None:
    archive(kit, topic, tmp_path)
    append(kit, topic, END, END + 3)
    if are_blanks:
        carry(kit, topic, END, [BLANK, BLANK, BLANK])
    ends = Archiver._ends

    def then_deleted(self: Archiver) -> Any:
        found = ends(self)
        truncate(kit, topic, END + 3)
        return found

    monkeypatch.setattr(Archiver, "_ends", then_deleted)
    if are_blanks:
        archive(kit, topic, tmp_path)
    else:
        with pytest.raises(TableError, match=rf"records from {END} to {END + 2} are deleted"):
            archive(kit, topic, tmp_path)
    assert offsets_of(tmp_path, topic) == LIVE


def test_a_table_keeps_the_records_before_deleted_ones(
    kit: Kit, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error does not drop what was not committed yet: the topic has none of it any more."""
    append(kit, topic, END, END + 1)
    take = Archiver._take

    def then_deleted(self: Archiver, batch: StoredBatch) -> None:
        take(self, batch)
        if batch.last_offset == END:
            append_and_delete(kit, topic, END + 1, END + 4)
            append(kit, topic, END + 4, END + 5)

    monkeypatch.setattr(Archiver, "_take", then_deleted)
    with pytest.raises(TableError, match=rf"records from {END + 1} to {END + 3} are deleted"):
        archive(kit, topic, tmp_path, exit_at_end=False)
    assert offsets_of(tmp_path, topic) == [*LIVE, END]


def archive(kit: Kit, topic: str, to: Path, *, exit_at_end: bool = True) -> None:
    settings = TableSettings(roll_bytes=4096, merge_below=4096)
    kit.do(lambda: kit.broker.cluster.assign_member(2, [[topic, 0, 5], [topic, 1, 6]]))
    archiver = Archiver([topic], str(to), bootstrap_servers=kit.servers, settings=settings)
    archiver.run(exit_at_end=exit_at_end)


def offsets_of(to: Path, topic: str) -> list[int]:
    return sorted(DeltaTable(f"{to}/{topic}").to_pyarrow_table()["offset"].to_pylist())
