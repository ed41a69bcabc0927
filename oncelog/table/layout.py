"""Layout of a table's Parquet files: columns, row groups, and slices with checksums.

Place in the flow: `run` and `merge` build files here, `verify` reads them. A file holds a stretch
of one partition in offset order, without holes but for records that compaction removed. A slice is
a stretch of at most 1 MiB (a larger record is a slice of its own); the footer has the checksum of
each slice's payload, as a producer would send its records (docs/protocol.md). The payload of equal
records is the same bytes, so the checksum proves that the file gives back each record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from oncelog.errors import CorruptLogError, InvalidBatchError
from oncelog.wire.arrow import encode_arrow, headers_type, import_pyarrow, to_arrow
from oncelog.wire.compression import checksum
from oncelog.wire.stored import StoredBatch

FORMAT: Final = "1"
GROUP_BYTES: Final = 16 * 1024 * 1024  # of payload in a row group
SLICE_BYTES: Final = 1024 * 1024
PARTITION_COLUMNS: Final = ("topic_id", "partition")
PAYLOAD_COLUMNS: Final = ("value", "key", "timestamp", "headers")
_RUNS: Final = ("append_time", "producer_id", "epoch")  # the same in all rows of a batch
_RISING: Final = ("offset", "timestamp", "sequence")
_FOOTER: Final = b"oncelog"


class Slice(NamedTuple):
    first: int
    records: int
    crc32c: int


@cache
def file_schema() -> Any:
    """Return the columns of a file: the table's without topic_id and partition."""
    pa = import_pyarrow()
    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            pa.field("offset", pa.int64()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("timestamp", moment),
            pa.field("headers", headers_type()),
            pa.field("append_time", moment),
            pa.field("producer_id", pa.int64()),
            pa.field("epoch", pa.int32()),
            pa.field("sequence", pa.int64()),
        ]
    )


@cache
def table_schema() -> Any:
    """Return the columns of the table; the first two are in the files' paths."""
    pa = import_pyarrow()
    ids = [pa.field("topic_id", pa.int64()), pa.field("partition", pa.int32())]
    return pa.schema([*ids, *file_schema()])


def rows_of(batch: StoredBatch, begin: int) -> Any:
    """Return a batch's records from offset `begin` on, as rows. Raises CorruptLogError.

    Rows without a producer id, or whose batch has gaps in its sequences, have no sequence.
    """
    pa = import_pyarrow()
    skip = begin - batch.base_offset
    try:
        found = to_arrow(batch.decoded(), batch.topic, batch.partition, batch.base_offset, skip)
    except InvalidBatchError as error:
        raise batch.corrupt(error) from error
    count = found.num_rows
    if batch.producer_id and batch.last_sequence - batch.base_sequence == batch.record_count - 1:
        sequence = pa.arange(batch.base_sequence + skip, batch.last_sequence + 1)
    else:
        sequence = pa.nulls(count, pa.int64())
    stamp = pa.scalar(batch.append_time_ms * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = ("offset", "key", "value", "timestamp", "headers")
    return pa.RecordBatch.from_arrays(
        [
            *(found[name] for name in columns),
            pa.repeat(stamp, count),
            pa.repeat(pa.scalar(batch.producer_id, pa.int64()), count),
            pa.repeat(pa.scalar(batch.epoch, pa.int32()), count),
            sequence,
        ],
        schema=file_schema(),
    )


class BuiltFile(NamedTuple):
    """A whole file, in memory. `moments`: the lowest and highest timestamp, in microseconds."""

    data: Any  # pyarrow.Buffer
    first: int
    end: int  # next offset behind it
    records: int
    payload_bytes: int
    moments: tuple[int, int]


class FileBuilder:
    """Writes rows of one partition into a Parquet file in memory."""

    def __init__(self, origin: dict[str, str | int], first: int) -> None:
        """`origin`: cluster and topic, for the footer."""
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        self.first = first
        self.end = first
        self.records = 0
        self.payload_bytes = 0
        self._origin = origin
        self._slices: list[Slice] = []
        self._moments: list[tuple[int, int]] = []
        self._waiting: list[Any] = []  # slices of the next row group
        self._waiting_bytes = 0
        self._small: list[Any] = []  # rows of the next slice
        self._small_bytes = 0
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            file_schema(),
            compression="zstd",
            compression_level=1,
            use_dictionary=list(_RUNS),
            column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
            write_statistics=["offset", "timestamp", "append_time", "producer_id"],
            write_page_index=True,
            store_schema=False,
        )

    @property
    def memory_bytes(self) -> int:
        return int(self._sink.tell()) + self._waiting_bytes + self._small_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes written so far; rows of the open row group are not counted."""
        return int(self._sink.tell())

    def add(self, rows: Any, payload_bytes: int) -> None:
        """Append rows behind the last ones; compaction has removed those in between."""
        assert rows["offset"][0].as_py() >= self.end, "rows go back"
        self.end = rows["offset"][-1].as_py() + 1
        self.records += rows.num_rows
        self.payload_bytes += payload_bytes
        if self._small_bytes + payload_bytes > SLICE_BYTES:
            self._end_slice()
        if payload_bytes > SLICE_BYTES:
            self._cut(rows, payload_bytes)
        else:
            self._small.append(rows)
            self._small_bytes += payload_bytes

    def pass_to(self, end: int) -> None:
        """Note that compaction has removed all records from the last row to `end`."""
        assert end >= self.end, "the end goes back"
        self.end = end

    def _cut(self, rows: Any, payload_bytes: int) -> None:
        pieces = min(-(-payload_bytes // SLICE_BYTES), rows.num_rows)
        step = -(-rows.num_rows // pieces)
        for start in range(0, rows.num_rows, step):
            piece = rows.slice(start, step)
            self._wait(piece, payload_bytes * piece.num_rows // rows.num_rows)

    def _end_slice(self) -> None:
        if self._small:
            pa = import_pyarrow()
            whole = self._small[0] if len(self._small) == 1 else pa.concat_batches(self._small)
            self._wait(whole, self._small_bytes)
            self._small = []
            self._small_bytes = 0

    def _wait(self, rows: Any, payload_bytes: int) -> None:
        self._slices.append(Slice(rows["offset"][0].as_py(), rows.num_rows, _crc(rows)))
        self._waiting.append(rows)
        self._waiting_bytes += payload_bytes
        if self._waiting_bytes >= GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._waiting:
            pa = import_pyarrow()
            import pyarrow.compute as pc

            group = pa.Table.from_batches(self._waiting)
            ends = pc.min_max(group["timestamp"].cast(pa.int64())).as_py()
            self._moments.append((ends["min"], ends["max"]))
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))
            self._waiting = []
            self._waiting_bytes = 0

    def finish(self) -> BuiltFile:
        """Return the file, read back and compared. Raises CorruptLogError."""
        self._end_slice()
        self._end_group()
        footer = {**self._origin, "format": FORMAT, "slices": self._slices}
        self._writer.add_key_value_metadata({_FOOTER: json.dumps(footer).encode()})
        self._writer.close()
        data = self._sink.getvalue()
        for _ in checked_slices(data, f"file of offsets {self.first} to {self.end - 1}"):
            pass
        moments = (0, 0)
        if self._moments:
            low, high = zip(*self._moments, strict=True)
            moments = min(low), max(high)
        return BuiltFile(data, self.first, self.end, self.records, self.payload_bytes, moments)


def checked_slices(data: Any, name: str) -> Iterator[Any]:
    """Yield a file's slices as record batches, each compared with its checksum.

    Raises CorruptLogError if the file is damaged.
    """
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        slices = iter(_slices(file.metadata.metadata or {}))
        for group in range(file.num_row_groups):
            table = file.read_row_group(group).select(file_schema().names).combine_chunks()
            at = 0
            while at < table.num_rows:
                wanted = next(slices)
                (rows,) = table.slice(at, wanted.records).to_batches()
                at += rows.num_rows
                if Slice(rows["offset"][0].as_py(), rows.num_rows, _crc(rows)) != wanted:
                    raise CorruptLogError(f"{name}: the records from {wanted.first} on differ")
                yield rows
        if next(slices, None) is not None:
            raise CorruptLogError(f"{name}: the last records are missing")
    except (pa.ArrowException, OSError, ValueError, KeyError, StopIteration) as error:
        raise CorruptLogError(f"{name}: no file of `oncelog table`: {error}") from error


def _slices(metadata: dict[bytes, bytes]) -> list[Slice]:
    footer = json.loads(metadata[_FOOTER])
    if footer["format"] != FORMAT:
        raise ValueError(f"format {footer['format']}, this release reads {FORMAT}")
    return [Slice(*one) for one in footer["slices"]]


def _crc(rows: Any) -> int:
    payload, _, _ = encode_arrow(rows.select(PAYLOAD_COLUMNS), 0)
    return checksum(payload)
