"""Fetched records that the application has not taken: order, turns, seeks, room, errors."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog import errors
from oncelog._engine.consume.fetch_buffer import Added, Chunk, FetchBuffer, Wanted
from oncelog._engine.consume.one_reader import OneReader
from oncelog._engine.consume.taking import take_records
from oncelog.config import ConsumerConfig
from oncelog.consumer import Consumer
from oncelog.spark.source.reading import BatchPart
from oncelog.types import TopicPartition
from oncelog.v1 import batch_pb2, log_pb2
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import NONE, ZSTD, checksum, compress
from oncelog.wire.fetched import FetchedRecords, read_fetch_response

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LIMIT = 400


def stored(base: int, count: int, crc: int | None = None) -> batch_pb2.StoredBatch:
    payload = encode_payload([b"%d" % (base + n) for n in range(count)], [0] * count)
    header = batch_pb2.BatchHeader(
        record_count=count, crc32c=checksum(payload) if crc is None else crc
    )
    return batch_pb2.StoredBatch(header=header, payload=payload, base_offset=base)


def carried(base: int, *live: int, count: int, codec: int = NONE) -> batch_pb2.StoredBatch:
    """A batch of which compaction has left the records `live`: the first of them is a tombstone."""
    values = [b"%d" % (base + n) if n in live[1:] else None for n in range(count)]
    keys = [b"k" if n in live[:1] else None for n in range(count)]
    payload = compress(codec, encode_payload(values, [0] * count, keys))
    header = batch_pb2.BatchHeader(
        record_count=count,
        crc32c=checksum(payload),
        codec=codec,  # type: ignore[arg-type]
    )
    return batch_pb2.StoredBatch(header=header, payload=payload, base_offset=base, carried=True)


def answer(*batches: batch_pb2.StoredBatch, **fields: int) -> FetchedRecords:
    records = log_pb2.PartitionRecords(batches=batches, high_watermark=1000, **fields)  # type: ignore[arg-type]
    (fetched,) = read_fetch_response(
        log_pb2.FetchResponse(partitions=[records]).SerializeToString()
    )
    return fetched


class Rig:
    def __init__(self, *tps: TopicPartition) -> None:
        self.room: list[TopicPartition] = []
        self.buffer = FetchBuffer(LIMIT, self.room.append)
        self.buffer.assign(tps or (A,))
        for tp, generation in self.buffer.without_position():
            self.buffer.found(tp, generation, 0)

    def wanted(self, tp: TopicPartition = A) -> Wanted:
        return next(w for w in self.buffer.wanted() if w.tp == tp)

    def add(self, *batches: batch_pb2.StoredBatch, tp: TopicPartition = A) -> Added:
        return self.buffer.add(self.wanted(tp), answer(*batches))

    def read(self) -> list[tuple[int, int]]:
        """(partition, offset) of all that is there, chunk by chunk."""
        found = []
        while (chunk := self.buffer.peek(0)) is not None:
            found += [(chunk.tp.partition, o) for o in range(chunk.next, chunk.end_offset)]
            finish(self.buffer, chunk)
        return found


def finish(buffer: FetchBuffer, chunk: Chunk) -> None:
    chunk.next = chunk.end_offset
    buffer.advance(chunk)


def test_batches_come_in_order_and_partitions_in_turn() -> None:
    rig = Rig(A, B)
    rig.add(stored(0, 2), stored(2, 1))
    rig.add(stored(0, 1), stored(1, 1), tp=B)
    assert rig.read() == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1)]
    assert (rig.wanted().offset, rig.wanted(B).offset) == (3, 2)


def test_the_first_batch_may_begin_before_the_position() -> None:
    rig = Rig()
    rig.buffer.seek(A, 5)
    rig.add(stored(3, 4))
    assert rig.read() == [(0, 5), (0, 6)]
    assert rig.buffer.wait_position(A, 0) == 7


def offsets(buffer: FetchBuffer, limit: int) -> list[int]:
    chunk = buffer.peek(0)
    if chunk is None:
        return []
    return [
        r.offset for some in take_records(buffer, chunk, limit, True, {}).values() for r in some
    ]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_blanks_are_no_records_and_positions_pass_over_them(codec: int) -> None:
    rig = Rig()
    rig.add(carried(0, 2, 3, 5, count=8, codec=codec), carried(8, count=2), stored(10, 1))
    assert offsets(rig.buffer, 1) == [2]
    assert rig.buffer.wait_position(A, 0) == 3
    assert offsets(rig.buffer, 3) == [3, 5, 10]
    assert (rig.buffer.wait_position(A, 0), rig.buffer.lags()) == (11, {A: 989})
    rig.add(carried(11, count=3))
    assert offsets(rig.buffer, 5) == []
    assert rig.buffer.wait_position(A, 0) == 14


@pytest.mark.parametrize(("start", "given", "position"), [(0, [2, 5], 8), (3, [5], 8), (6, [], 8)])
def test_a_loop_passes_over_blanks(start: int, given: list[int], position: int) -> None:
    rig = Rig()
    rig.buffer.seek(A, start)
    rig.add(carried(0, 2, 5, count=8))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    assert [record.offset for record in rig.buffer.records_of(chunk, True)] == given
    assert (rig.buffer.wait_position(A, 0), rig.buffer.peek(0)) == (position, None)


def test_a_loop_left_at_a_record_goes_on_behind_the_blanks() -> None:
    rig = Rig()
    rig.add(carried(0, 2, 5, count=8))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    assert next(rig.buffer.records_of(chunk, True)).offset == 2
    assert rig.buffer.wait_position(A, 0) == 5
    assert next(rig.buffer.records_of(chunk, True)).offset == 5
    assert rig.buffer.wait_position(A, 0) == 8


def test_arrow_and_stored_batches_without_blanks() -> None:
    rig = Rig()
    rig.buffer.seek(A, 3)
    rig.add(carried(0, 2, 4, 5, count=8))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    assert chunk.arrow(True)["offset"].to_pylist() == [4, 5]
    batch = chunk.stored(True)
    assert [record.offset for record in batch.records()] == [4, 5]
    large = batch._replace(skip=0, payload=bytes(1 << 16))
    assert not large.goes_whole(NONE, 1 << 20)
    assert large._replace(carried=False).goes_whole(NONE, 1 << 20)
    assert BatchPart(batch, 2).arrow()["offset"].to_pylist() == [4], "the range ends at 5"


def test_a_hole_is_an_error_and_nothing_behind_it_is_given_out() -> None:
    rig = Rig()
    rig.add(stored(0, 1), stored(2, 1))
    assert offsets(rig.buffer, 1) == [0], "the records before it come first"
    with pytest.raises(errors.CorruptLogError, match="after offset 0"):
        rig.buffer.peek(0)


def test_a_damaged_batch_is_never_given_out() -> None:
    rig = Rig()
    rig.add(stored(0, 1, crc=1))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    with pytest.raises(errors.CorruptLogError, match="checksum") as caught:
        chunk.records(True)
    assert (caught.value.partition, caught.value.offset) == (0, 0)


def test_an_answer_from_before_a_seek_is_thrown_away() -> None:
    rig = Rig()
    old = rig.wanted()
    rig.buffer.seek(A, 8)
    assert rig.buffer.add(old, answer(stored(0, 3))) is Added.STALE
    assert rig.buffer.peek(0) is None
    assert rig.room == [A], "the fetcher is told to ask anew"
    assert rig.wanted().offset == 8


def test_a_second_answer_to_the_same_question_is_thrown_away() -> None:
    rig = Rig()
    wanted = rig.wanted()
    assert rig.buffer.add(wanted, answer(stored(0, 3))) is Added.OK
    assert rig.buffer.add(wanted, answer(stored(0, 3))) is Added.STALE
    assert rig.read() == [(0, 0), (0, 1), (0, 2)]


def test_a_full_partition_is_not_fetched_until_there_is_room() -> None:
    rig = Rig(A, B)
    while any(w.tp == A for w in rig.buffer.wanted()):
        rig.add(stored(rig.wanted().offset, 1))
    assert [w.tp for w in rig.buffer.wanted()] == [B]
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    finish(rig.buffer, chunk)
    assert rig.room == [A]
    assert [w.tp for w in rig.buffer.wanted()] == [A, B]


def test_a_paused_partition_is_neither_fetched_nor_given_out() -> None:
    rig = Rig(A, B)
    rig.add(stored(0, 1))
    rig.buffer.pause(A, True)
    assert rig.buffer.peek(0) is None
    assert [w.tp for w in rig.buffer.wanted()] == [B]
    rig.buffer.pause(A, False)
    assert rig.read() == [(0, 0)]


def test_a_new_assignment_keeps_the_place_of_what_stays() -> None:
    rig = Rig(A, B)
    rig.add(stored(0, 3))
    rig.add(stored(0, 1), tp=B)
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    chunk.next = 2
    rig.buffer.assign([A])
    assert rig.read() == [(0, 2)]
    assert rig.buffer.assignment() == [A]


def test_a_loop_left_at_the_end_of_a_chunk_does_not_see_it_again() -> None:
    rig = Rig()
    rig.add(stored(0, 2), stored(2, 1))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    chunk.next = chunk.end_offset  # the user left the loop here: nobody called advance
    assert rig.buffer.wait_position(A, 0) == 2
    assert rig.read() == [(0, 2)]


def test_an_error_is_raised_once_and_holds_up_fetching() -> None:
    rig = Rig()
    before = rig.wanted().generation
    rig.buffer.fail(A, before, errors.UnknownTopicOrPartitionError("gone"))
    assert rig.buffer.wanted() == []
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        rig.buffer.peek(0)
    assert rig.buffer.peek(0) is None
    assert [w.tp for w in rig.buffer.wanted()] == [A]
    rig.buffer.seek(A, 1)
    rig.buffer.fail(A, before, errors.UnknownTopicOrPartitionError("from before the seek"))
    assert rig.buffer.peek(0) is None


def test_partitions_fail_in_turn() -> None:
    rig = Rig(A, B)
    problem = {tp: errors.UnknownTopicOrPartitionError(str(tp)) for tp in (A, B)}
    for failing, raised in (((A, B), A), ((A,), B), ((B,), A)):
        for tp in failing:
            rig.buffer.fail(tp, rig.wanted(tp).generation, problem[tp])
        with pytest.raises(errors.UnknownTopicOrPartitionError) as caught:
            rig.buffer.peek(0)
        assert caught.value is problem[raised]


def test_records_that_were_fetched_ahead_come_before_an_error() -> None:
    rig = Rig(A, B)
    rig.add(stored(0, 2), stored(2, 1))
    rig.buffer.fail(A, rig.wanted().generation, errors.UnknownTopicOrPartitionError("gone"))
    assert rig.buffer.wait_position(A, 0) == 0
    rig.buffer.pause(A, True)
    assert rig.buffer.peek(0) is None, "neither comes while it is paused"
    rig.buffer.pause(A, False)
    assert offsets(rig.buffer, 9) == [0, 1, 2]
    rig.add(stored(0, 1), tp=B)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        rig.buffer.peek(0)
    assert rig.read() == [(1, 0)]


def test_an_error_that_a_group_deals_with_hides_no_records_and_ends_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(A, B)
    consumer: Any = Consumer.__new__(Consumer)
    consumer._buffer, consumer._one, consumer._closed = rig.buffer, OneReader(), False
    consumer._rebalance = SimpleNamespace(is_due=False)
    consumer.config = ConsumerConfig(bootstrap_servers=("h:1",))
    gone = errors.UnknownTopicOrPartitionError("gone")
    rig.buffer.fail(A, rig.wanted().generation, gone)
    rig.add(stored(0, 1), tp=B)
    assert consumer.getmany().keys() == {B}
    rig.buffer.fail(A, rig.wanted().generation, gone)
    peek, waits = rig.buffer.peek, list[float | None]()

    def late(timeout: float | None) -> Chunk | None:
        waits.append(timeout)
        if waits == [None, 0.0, None]:
            rig.add(stored(1, 1), tp=B)
        return peek(timeout)

    monkeypatch.setattr(rig.buffer, "peek", late)
    assert next(iter(consumer)).offset == 1
    consumer._closed = True


def test_a_position_that_is_known_has_no_error() -> None:
    rig = Rig()
    rig.buffer.fail(A, rig.wanted().generation, errors.OffsetOutOfRangeError("deleted"))
    assert rig.buffer.wait_position(A, 0) == 0
    with pytest.raises(errors.OffsetOutOfRangeError):
        rig.buffer.peek(0)


def test_a_fetch_ahead_out_of_range_is_asked_again_when_the_records_before_it_are_taken() -> None:
    """A reset or a caller's seek would drop them."""
    rig = Rig()
    rig.add(stored(0, 2), stored(2, 1))
    gone = answer(error=log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE, log_start_offset=9)
    wanted = rig.wanted()
    assert rig.buffer.add(wanted, gone) is Added.STALE
    assert (rig.buffer.wanted(), rig.room) == ([], [])
    assert offsets(rig.buffer, 2) == [0, 1]
    assert rig.buffer.wanted() == []
    assert rig.read() == [(0, 2)]
    assert (rig.buffer.wanted(), set(rig.room)) == ([wanted], {A}), "the fetcher is told"
    assert rig.buffer.add(wanted, gone) is Added.ERROR
    rig.add(stored(3, 1))
    assert rig.wanted().offset == 4, "nothing is held up later"


def test_a_start_position_found_after_a_seek_is_ignored() -> None:
    buffer = FetchBuffer(LIMIT, lambda _: None)
    buffer.assign([A])
    ((tp, generation),) = buffer.without_position()
    assert tp == A
    buffer.seek(A, 5)
    buffer.found(A, generation, 99)
    assert buffer.wait_position(A, 0) == 5


@pytest.mark.parametrize("what", ["records", "close"])
def test_a_waiting_reader_is_woken(what: str) -> None:
    rig = Rig()
    seen: list[Chunk | None] = []
    reader = threading.Thread(target=lambda: seen.append(rig.buffer.peek(None)))
    reader.start()
    if what == "records":
        rig.add(stored(0, 1))
    else:
        rig.buffer.close()
    reader.join(20)
    assert not reader.is_alive()
    (chunk,) = seen
    assert (chunk is not None) == (what == "records")


# --- as it is stored -----------------------------------------------------------------


def test_a_batch_is_given_out_as_it_is_stored() -> None:
    rig = Rig()
    rig.buffer.seek(A, 2)
    rig.add(stored(0, 5))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    batch = chunk.stored(True)
    assert (batch.base_offset, batch.last_offset, batch.skip) == (0, 4, 2)
    assert bytes(batch.payload) == stored(0, 5).payload
    assert [record.value for record in batch.records()] == [b"2", b"3", b"4"]


def test_a_damaged_batch_is_not_given_out() -> None:
    rig = Rig()
    rig.add(stored(0, 5, crc=1))
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    with pytest.raises(errors.CorruptLogError, match="offset 0: checksum differs") as caught:
        chunk.stored(True)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 0)
    assert chunk.stored(False).records()


def test_what_is_compressed_is_looked_at_by_who_decodes_it() -> None:
    wrong = stored(0, 5)
    wrong.header.codec = batch_pb2.CODEC_LZ4
    rig = Rig()
    rig.add(wrong)
    chunk = rig.buffer.peek(0)
    assert chunk is not None
    batch = chunk.stored(True)
    assert batch.codec == batch_pb2.CODEC_LZ4
    with pytest.raises(errors.CorruptLogError, match="t-0: batch at offset 0: lz4 payload"):
        batch.records()


def test_columns_that_do_not_fit_together_are_named_by_either_reader() -> None:
    good = stored(0, 5)
    values = good.payload.index(b"01234")
    broken = bytearray(good.payload)
    broken[values - 8 : values - 4] = (9).to_bytes(4, "little")  # the fourth value's end, not 4
    payload = bytes(broken)
    wrong = batch_pb2.StoredBatch(
        header=batch_pb2.BatchHeader(record_count=5, crc32c=checksum(payload)), payload=payload
    )
    for read in (Chunk.records, Chunk.arrow):
        rig = Rig()
        rig.add(wrong)
        chunk = rig.buffer.peek(0)
        assert chunk is not None
        with pytest.raises(errors.CorruptLogError, match="t-0: batch at offset 0: ") as caught:
            read(chunk, True)
        assert caught.value.offset == 0


def test_a_lag_counts_what_can_be_read() -> None:
    rig = Rig()
    rig.buffer.seek(A, 5)
    rig.buffer.add(rig.wanted(), answer())
    assert rig.buffer.lags() == {A: 995}
    rig.buffer.add(rig.wanted(), answer(log_start_offset=990))
    assert rig.buffer.lags() == {A: 10}
