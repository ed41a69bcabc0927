"""Bytes of runs and ended transactions, for a partition's checkpoint; of markers, for its log.

RunTable --pack_runs, pack_ended--> bytes --unpack_runs, unpack_ended--> RunTable
coordinator --pack_marker--> entry --unpack_marker--> PartitionMachine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import DecodeError

from cluster.dedup.verdict import MAX_INT64, WINDOW, RememberedBatch
from cluster.entries import MARKER, CorruptEntryError, has_unknown_fields
from cluster.transactions.run import Ended, Run
from cluster.transactions.types import Expected, Marker, Published
from cluster.v1 import transactions_pb2 as pb
from oncelog.wire.varint import encode_varint

_ENDED_TAG = bytes((pb.RunsSnapshot.ENDED_FIELD_NUMBER << 3 | 2,))


def marker_record(marker: Marker) -> pb.Marker:
    return pb.Marker(
        transaction_id=marker.transaction_id,
        committed=marker.committed,
        runs=[expected_record(run._replace(group=0)) for run in marker.expected],
        stamp_ms=marker.stamp_ms,
        open_low=marker.open_low,
    )


def marker_of(message: pb.Marker) -> Marker:
    runs = tuple(expected_of(run) for run in message.runs)
    return Marker(
        message.transaction_id, message.committed, runs, message.stamp_ms, message.open_low
    )


def pack_marker(marker: Marker) -> bytes:
    """Packs a marker as a Raft entry."""
    return bytes((MARKER,)) + marker_record(marker).SerializeToString(deterministic=True)


def unpack_marker(data: bytes) -> Marker:
    """Unpacks a marker. Raises CorruptEntryError."""
    try:
        message = pb.Marker.FromString(data[1:])
    except DecodeError as error:
        raise CorruptEntryError(f"marker of {len(data)} bytes: {error}") from error
    if data[0] != MARKER or message.transaction_id < 1 or has_unknown_fields(message):
        raise CorruptEntryError(f"not a marker: type {data[0]:#04x}, {message.transaction_id}")
    return marker_of(message)


def pack_ended(transaction_id: int, ended: Ended) -> bytes:
    record = pb.EndedRecord(
        transaction_id=transaction_id,
        committed=ended.committed,
        runs=[published_record(run) for run in ended.runs],
    )
    return record.SerializeToString(deterministic=True)


def unpack_ended(data: bytes) -> Ended:
    record = pb.EndedRecord.FromString(data)
    return Ended(record.committed, tuple(published_of(run) for run in record.runs))


def pack_runs(
    open_low: int, runs: Sequence[Run], ended: Sequence[bytes], spans: Mapping[int, int]
) -> bytes:
    """Packs a RunsSnapshot; `ended` as `pack_ended` made them."""
    head = pb.RunsSnapshot(
        open_low=open_low,
        runs=map(_run_record, runs),
        spans=[pb.SpanRecord(bits=b, last_offset=o) for b, o in sorted(spans.items())],
    )
    parts = [head.SerializeToString(deterministic=True)]
    for data in ended:
        # Serialized messages that follow each other are one message.
        parts += (_ENDED_TAG, encode_varint(len(data)), data)
    return b"".join(parts)


def unpack_runs(data: bytes) -> tuple[int, list[Run], dict[int, bytes], dict[int, int]]:
    """Unpacks a RunsSnapshot: open_low, runs, ended transactions, spans. Raises ValueError."""
    try:
        snapshot = pb.RunsSnapshot.FromString(data)
    except DecodeError as error:
        raise ValueError(f"staged runs: {error}") from error
    if snapshot.open_low < 1:
        raise ValueError(f"staged runs: open_low is {snapshot.open_low}")
    ended = {}
    for record in snapshot.ended:
        if record.transaction_id < snapshot.open_low or record.transaction_id in ended:
            raise ValueError(f"staged runs: {record.transaction_id} cannot have ended")
        ended[record.transaction_id] = record.SerializeToString(deterministic=True)
    runs = [_run_of(row) for row in snapshot.runs]
    for run in runs:
        if run.transaction_id < snapshot.open_low or run.transaction_id in ended:
            raise ValueError(f"staged runs: {run.transaction_id} is open and has ended")
    if len({run.producer_id for run in runs}) != len(runs):
        raise ValueError("staged runs: a producer has two")
    spans = {span.bits: span.last_offset for span in snapshot.spans}
    if len(spans) != len(snapshot.spans) or not all(0 <= bits <= 64 for bits in spans):
        raise ValueError("staged runs: a span stands twice or is too long")
    return snapshot.open_low, runs, ended, spans


def _run_record(run: Run) -> pb.RunRecord:
    return pb.RunRecord(
        transaction_id=run.transaction_id,
        producer_id=run.producer_id,
        epoch=run.epoch,
        first_sequence=run.first,
        last_sequence=run.last,
        batches=run.batches,
        records=run.records,
        bytes=run.size,
        max_timestamp_us=run.max_timestamp_us,
        first_raft_index=run.first_index,
        recent=[
            pb.StagedBatchRecord(
                first_sequence=batch.first,
                last_sequence=batch.last,
                relative_offset=batch.base_offset,
                record_count=batch.count,
                crc32c=batch.crc,
            )
            for batch in run.recent
        ],
        kafka=run.kafka,
    )


def _run_of(row: pb.RunRecord) -> Run:
    recent = tuple(
        RememberedBatch(
            b.first_sequence, b.last_sequence, b.relative_offset, b.record_count, b.crc32c
        )
        for b in row.recent
    )
    sound = (
        row.transaction_id > 0
        and row.producer_id > 0
        and row.epoch >= 0
        and 0 <= row.first_sequence <= row.last_sequence <= MAX_INT64
        and row.records >= row.batches >= len(recent) > 0
        and len(recent) <= WINDOW
        and recent[-1].last == row.last_sequence
        and recent[-1].base_offset + recent[-1].count == row.records
    )
    if not sound:
        raise ValueError(f"staged runs: the run of producer {row.producer_id} cannot be")
    return Run(
        row.transaction_id,
        row.producer_id,
        row.epoch,
        row.first_sequence,
        row.last_sequence,
        row.first_raft_index,
        row.batches,
        row.records,
        row.bytes,
        row.max_timestamp_us,
        recent,
        row.kafka,
    )


def published_record(run: Published) -> pb.PublishedRun:
    return pb.PublishedRun(
        producer_id=run.producer_id,
        epoch=run.epoch,
        first_sequence=run.first,
        last_sequence=run.last,
        base_offset=run.base_offset,
        records=run.records,
    )


def published_of(record: pb.PublishedRun) -> Published:
    return Published(
        record.producer_id,
        record.epoch,
        record.first_sequence,
        record.last_sequence,
        record.base_offset,
        record.records,
    )


def expected_record(run: Expected) -> pb.ExpectedRun:
    return pb.ExpectedRun(
        group_id=run.group,
        producer_id=run.producer_id,
        records=run.records,
        last_sequence=run.last,
        bytes=run.size,
        max_timestamp_us=run.max_timestamp_us,
        consumer_group=run.consumer_group,
    )


def expected_of(record: pb.ExpectedRun) -> Expected:
    return Expected(
        record.group_id,
        record.producer_id,
        record.records,
        record.last_sequence,
        record.bytes,
        record.max_timestamp_us,
        record.consumer_group,
    )
