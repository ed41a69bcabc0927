"""What passes through Spark in a mirror without a transformation: where to read, no records.

Place in the flow: `mirror_source` plans a range of offsets for each task, which goes through
Spark as one row; the task's writer reads it here and hands it to `mirror_writer`. Records
that nobody looks at would go from Python to the JVM and back, which costs more than all the
rest of a copy. DistCp (Hadoop) does it like this: its tasks get names of files.

What is read comes either as it is stored and is sent on without a look inside (KIP-712) or,
where that cannot be, as Arrow batches: of small batches put together, of one of which only
a part is wanted, which is very large, or compressed otherwise than the copy is to be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from oncelog.spark.mirroring.run import MirrorSettings
from oncelog.spark.mirroring.writer import COLUMNS
from oncelog.spark.source.offsets import Range
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.reading import SPLIT_BYTES, Part, join, read_stored
from oncelog.types import TopicPartition
from oncelog.wire.arrow import import_pyarrow
from oncelog.wire.compression import CODECS

#: The columns of such a row.
RANGE_DDL = "partition bigint, first bigint, behind bigint"
_NAMES = [column.split()[0] for column in RANGE_DDL.split(", ")]


def pack(one: Range) -> Any:
    """Return a pyarrow.RecordBatch of one row that holds the range.

    Made of buffers: to convert Python's numbers, pyarrow would import pandas first.
    """
    pa = import_pyarrow()
    numbers = [struct.pack("=q", number) for number in (one.tp.partition, one.start, one.end)]
    columns = [pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(n)]) for n in numbers]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def unpack(settings: MirrorSettings, rows: Iterable[Any]) -> Iterator[Range]:
    """Yield the ranges of the Arrow batches that Spark hands over."""
    for batch in rows:
        for row in range(batch.num_rows):
            partition, start, end = (column[row].as_py() for column in batch.columns)
            yield Range(TopicPartition(settings.source_topic, partition), start, end)


def read(settings: MirrorSettings, rows: Iterable[Any]) -> Iterator[Any]:
    """Yield what the ranges in the rows hold: StoredBatch, or Arrow batches with COLUMNS.

    Raises what `read_stored` does.
    """
    options = SourceOptions.parse(settings.source_options())
    for one in unpack(settings, rows):
        yield from to_copy(settings, read_stored(options, one))


def to_copy(settings: MirrorSettings, parts: Iterable[Part]) -> Iterator[Any]:
    """Yield a StoredBatch for each part that goes whole, Arrow batches for the others."""
    for whole, some in groupby(parts, lambda part: goes_whole(settings, part)):
        if whole:
            yield from (part.batch for part in some)
        else:
            yield from join(part.arrow().select(list(COLUMNS)) for part in some)


def goes_whole(settings: MirrorSettings, part: Part) -> bool:
    """Whether it may be sent on as it is stored."""
    return part.is_whole and part.batch.goes_whole(CODECS[settings.compression_type], SPLIT_BYTES)


__all__ = ["RANGE_DDL", "goes_whole", "pack", "read", "to_copy", "unpack"]
