"""What passes through Spark in a mirror without a transformation: many records as one row.

Place in the flow: `mirror_source` packs on one side and unpacks on the other. Nobody looks
at the rows in between, and Spark turns rows into Arrow one by one, which costs several
times as much as all the rest of a copy.

A row holds either a batch as it is stored, which is sent on without a look inside
(KIP-712), or, where that cannot be, a whole Arrow batch in Arrow's format for streams: of
small batches put together, of one of which only a part is wanted, which is very large, or
compressed otherwise than the copy is to be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from oncelog.spark.mirror_run import MirrorSettings
from oncelog.spark.reading import SPLIT_BYTES, Part, join
from oncelog.wire.arrow import import_pyarrow
from oncelog.wire.compression import CODECS
from oncelog.wire.stored import StoredBatch

#: Of a row's columns; those after the first are of a batch as it is stored, else all -1.
PACKED_DDL = (
    "records binary, partition bigint, base_offset bigint, record_count bigint, "
    "codec bigint, crc32c bigint, max_timestamp_us bigint"
)


def goes_whole(settings: MirrorSettings, part: Part) -> bool:
    """Whether it may be sent on as it is stored, as far as the source's side knows."""
    codec = CODECS[settings.compression_type]
    return part.is_whole and part.batch.goes_whole(codec, SPLIT_BYTES)


def packed(settings: MirrorSettings, parts: Iterable[Part], columns: list[str]) -> Iterator[Any]:
    """Yield batches of one row for Spark, in order."""
    for whole, some in groupby(parts, lambda part: goes_whole(settings, part)):
        if whole:
            yield from (pack_stored(part.batch) for part in some)
        else:
            yield from map(pack, join(part.arrow().select(columns) for part in some))


def unpacked(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield what was packed: a StoredBatch, or Arrow batches of about the copy's size."""
    for is_stored, some in groupby(_unpacked(rows), lambda one: isinstance(one, StoredBatch)):
        if is_stored:
            yield from some
        else:
            yield from join(some)


def pack(batch: Any) -> Any:
    """Return a batch of one row that holds the Arrow batch."""
    pa = import_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return _row(sink.getvalue(), (-1,) * 6)


def pack_stored(batch: StoredBatch) -> Any:
    """Return a batch of one row that holds the stored batch, over its memory."""
    pa = import_pyarrow()
    numbers = (
        batch.partition,
        batch.base_offset,
        batch.record_count,
        batch.codec,
        batch.crc32c,
        batch.max_timestamp_us,
    )
    return _row(pa.py_buffer(batch.payload), numbers)


def _row(data: Any, numbers: tuple[int, ...]) -> Any:
    """Made of buffers: to convert Python's numbers, pyarrow would import pandas first."""
    pa = import_pyarrow()
    ends = pa.py_buffer(struct.pack("=ii", 0, len(data)))
    columns = [pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])]
    for number in numbers:
        value = pa.py_buffer(struct.pack("=q", number))
        columns.append(pa.Array.from_buffers(pa.int64(), 1, [None, value]))
    names = [column.split()[0] for column in PACKED_DDL.split(", ")]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _unpacked(rows: Iterable[Any]) -> Iterator[Any]:
    pa = import_pyarrow()
    for batch in rows:
        records, *numbers = batch.columns
        for row in range(batch.num_rows):
            data = records[row].as_buffer()
            partition, base, count, codec, crc, stamp = (of[row].as_py() for of in numbers)
            if base < 0:
                yield from pa.ipc.open_stream(data)
            else:
                payload = memoryview(data).cast("B")
                yield StoredBatch("", partition, base, count, codec, crc, stamp, payload)


__all__ = ["PACKED_DDL", "goes_whole", "pack", "pack_stored", "packed", "unpacked"]
