"""Offset ranges of a mirror without a transformation: they pass through Spark instead of records.

Place in the flow: `data_source` plans a range of offsets for each task, which goes through Spark
as one row. The task's writer reads the range here and hands it to `writer`. Unused records
would go from Python to the JVM and back, which costs more than the rest of a copy. DistCp (Hadoop)
does it like this: its tasks get names of files.

A stored batch is forwarded as it is, without decoding (KIP-712), if possible. Otherwise it comes as
Arrow batches: small batches put together, a batch of which only a part is wanted, a very large one,
or one compressed otherwise than the copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from oncelog.spark.mirroring.run import MirrorSettings
from oncelog.spark.mirroring.writer import COLUMNS
from oncelog.spark.source.offsets import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.reading import SPLIT_BYTES, BatchPart, join, read_stored
from oncelog.types import TopicPartition
from oncelog.wire.arrow import import_pyarrow
from oncelog.wire.compression import CODECS

#: The columns of such a row.
RANGE_DDL = "partition bigint, first bigint, behind bigint"
_NAMES = [column.split()[0] for column in RANGE_DDL.split(", ")]


def pack(one: OffsetRange) -> Any:
    """Return a pyarrow.RecordBatch of one row that holds the range.

    Made of buffers: to convert Python's numbers, pyarrow would import pandas first.
    """
    pa = import_pyarrow()
    numbers = [struct.pack("=q", number) for number in (one.tp.partition, one.start, one.end)]
    columns = [pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(n)]) for n in numbers]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def unpack(settings: MirrorSettings, rows: Iterable[Any]) -> Iterator[OffsetRange]:
    """Yield the ranges of the Arrow batches that Spark hands over."""
    for batch in rows:
        for row in range(batch.num_rows):
            partition, start, end = (column[row].as_py() for column in batch.columns)
            yield OffsetRange(TopicPartition(settings.source_topic, partition), start, end)


def read(settings: MirrorSettings, rows: Iterable[Any]) -> Iterator[Any]:
    """Yield the records of the ranges: StoredBatch, or Arrow batches with COLUMNS.

    Raises as `read_stored` does.
    """
    options = SourceOptions.parse(settings.source_options())
    for one in unpack(settings, rows):
        yield from to_copy(settings, read_stored(options, one))


def to_copy(settings: MirrorSettings, parts: Iterable[BatchPart]) -> Iterator[Any]:
    """Yield a StoredBatch for each part that goes whole, Arrow batches for the others."""
    for whole, some in groupby(parts, lambda part: goes_whole(settings, part)):
        if whole:
            yield from (part.batch for part in some)
        else:
            yield from join(part.arrow().select(list(COLUMNS)) for part in some)


def goes_whole(settings: MirrorSettings, part: BatchPart) -> bool:
    """Tell whether it may be forwarded as it is stored."""
    return part.is_whole and part.batch.goes_whole(CODECS[settings.compression_type], SPLIT_BYTES)
