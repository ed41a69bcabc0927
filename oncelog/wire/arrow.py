"""Payload <-> Arrow, without touching single records in Python.

Place in the flow: `Producer.send_batch` with an Arrow batch -> `encode_arrow`;
`Consumer.batches()` and the Spark source -> `to_arrow`. pyarrow is an extra and imported
here only when used.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from functools import cache, lru_cache
from typing import Any

from oncelog.errors import InvalidBatchError, InvalidRequestError, MissingExtraError
from oncelog.wire.batch import (
    HEADER_VALUE_VALIDITY,
    HEADERS,
    KEY_VALIDITY,
    KEYS,
    MAGIC,
    MAX_PAYLOAD_BYTES,
    PREAMBLE,
    VALUE_VALIDITY,
    DecodedPayload,
    Section,
    padded,
)


def import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Arrow batches", "pyarrow", "arrow") from error
    return pyarrow


@cache
def headers_type() -> Any:
    pa = import_pyarrow()
    return pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@cache
def schema(with_place: bool = True) -> Any:
    """Return key, value[, topic, partition, offset], timestamp, headers: nullable, for Spark."""
    pa = import_pyarrow()
    fields = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
    if with_place:
        fields += [
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
        ]
    fields += [
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", headers_type()),
    ]
    return pa.schema(fields)


def to_arrow(
    decoded: DecodedPayload,
    topic: str | None = None,
    partition: int = -1,
    base_offset: int = -1,
    skip: int = 0,
) -> Any:
    """Return a pyarrow.RecordBatch over the payload's own memory, checked in full.

    Only numbers that do not lie at a multiple of 8, as Arrow requires, are copied. With a topic the
    batch also has the columns topic, partition and offset. `skip` leaves out the first records,
    without a copy. Blanks are left out, too: the rest of their batch is copied.
    """
    pa = import_pyarrow()
    _check_ends(decoded)
    try:
        columns = _columns(pa, decoded)
        for column in columns:
            column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidBatchError(f"damaged columns: {error}") from error
    if topic is not None:
        n = len(decoded)
        columns[2:2] = [
            _repeated(topic, n),
            _repeated(partition, n),
            pa.arange(base_offset, base_offset + n),
        ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema(topic is not None))
    batch = batch.slice(skip) if skip else batch
    return _without_blanks(batch) if decoded.carried else batch


def rows_between(rows: Any, start: int, end: int) -> Any:
    """Return the rows with an offset from `start` to below `end`; their offsets rise."""
    offsets = rows["offset"]
    low, high = (
        bisect_left(range(len(offsets)), at, key=lambda row: offsets[row].as_py())
        for at in (start, end)
    )
    return rows.slice(low, max(0, high - low))


def _without_blanks(batch: Any) -> Any:
    import pyarrow.compute as pc

    return batch.filter(pc.or_(batch["key"].is_valid(), batch["value"].is_valid()))


def _repeated(value: str | int, count: int) -> Any:
    """Return a column with the same value in each row; those of the last batches are kept."""
    if count > _MOST_KEPT:
        return _repeat(value, count)
    return _kept(value, 1 << (count - 1).bit_length()).slice(0, count)


def _repeat(value: str | int, count: int) -> Any:
    # Made of buffers: `pa.scalar` imports pandas, if installed, which takes a second.
    pa = import_pyarrow()
    if isinstance(value, str):
        data = value.encode()
        ends = pa.py_buffer(struct.pack("<2i", 0, len(data)))
        one = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(data)])
    else:
        one = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(struct.pack("<i", value))])
    return pa.repeat(one[0], count)


_MOST_KEPT = 16_384
_kept = lru_cache(maxsize=32)(_repeat)


def _columns(pa: Any, decoded: DecodedPayload) -> list[Any]:
    """Return key, value, timestamp, headers."""
    lay = decoded.layout
    n = lay.record_count
    whole = pa.py_buffer(decoded.buffer)

    def cut(section: Section | None) -> Any:
        return None if section is None else whole.slice(section.start, section.size)

    def numbers(section: Section) -> Any:
        buffer = cut(section)
        return pa.py_buffer(buffer.to_pybytes()) if buffer.address & 7 else buffer

    def binary(kind: Any, count: int, validity: Any, offsets: Any, data: Any) -> Any:
        return pa.Array.from_buffers(kind, count, [cut(validity), numbers(offsets), cut(data)])

    value = binary(pa.binary(), n, lay.value_validity, lay.value_offsets, lay.values)
    if lay.key_offsets is None:
        key = pa.nulls(n, pa.binary())
    else:
        key = binary(pa.binary(), n, lay.key_validity, lay.key_offsets, lay.keys)
    timestamp = pa.Array.from_buffers(
        pa.timestamp("us", tz="UTC"), n, [None, numbers(lay.timestamps)]
    )
    if lay.header_offsets is None:
        headers = pa.nulls(n, headers_type())
    else:
        h = lay.header_count
        names = binary(pa.string(), h, None, lay.header_key_offsets, lay.header_keys)
        contents = binary(
            pa.binary(), h, lay.header_value_validity, lay.header_value_offsets, lay.header_values
        )
        pairs = pa.StructArray.from_arrays(
            [names, contents], fields=list(headers_type().value_type)
        )
        headers = pa.Array.from_buffers(
            headers_type(), n, [None, numbers(lay.header_offsets)], children=[pairs]
        )
    return [key, value, timestamp, headers]


def _check_ends(decoded: DecodedPayload) -> None:
    """Check the first and last offset of each buffer, which Arrow's own check omits."""
    lay = decoded.layout
    ends = (
        ("value", lay.value_offsets, lay.values.size),
        ("key", lay.key_offsets, lay.keys.size if lay.keys else 0),
        ("header", lay.header_offsets, lay.header_count),
        ("header key", lay.header_key_offsets, lay.header_keys.size if lay.header_keys else 0),
        (
            "header value",
            lay.header_value_offsets,
            lay.header_values.size if lay.header_values else 0,
        ),
    )
    for name, section, end in ends:
        if section is None:
            continue
        stop = section.start + section.size
        first = int.from_bytes(decoded.buffer[section.start : section.start + 4], "little")
        last = int.from_bytes(decoded.buffer[stop - 4 : stop], "little")
        if first != 0 or last != end:
            raise InvalidBatchError(f"{name} offsets do not rise from 0 to {end}")


# --- encoding ------------------------------------------------------------------------


def encode_arrow(batch: Any, default_timestamp_us: int) -> tuple[bytes, int, int]:
    """Return (payload, record count, highest timestamp in µs) of a pyarrow.RecordBatch.

    Columns: `value` (binary or string), optionally `key` (the same), `timestamp` (any
    Arrow timestamp; null means the default) and `headers` (list<struct<key, value>>).
    Raises InvalidRequestError for other columns or types.
    """
    pa = import_pyarrow()
    import pyarrow.compute as pc

    n = batch.num_rows
    if n == 0:
        raise InvalidBatchError("a batch needs at least one record")
    names = set(batch.schema.names)
    if "value" not in names or names - {"value", "key", "timestamp", "headers"}:
        raise InvalidRequestError(
            f"an Arrow batch has the columns value[, key, timestamp, headers], got {sorted(names)}",
            field="batch",
        )
    column = batch.column
    flags = key_size = h = header_key_size = header_value_size = 0
    parts: list[Any] = [b""]
    nulls, value_size = _put_binary(parts, _as_binary(column("value"), "value"))
    flags |= VALUE_VALIDITY if nulls else 0
    if "key" in names and column("key").null_count < n:
        nulls, key_size = _put_binary(parts, _as_binary(column("key"), "key"))
        flags |= KEYS | (KEY_VALIDITY if nulls else 0)
    if "timestamp" in names:
        if not pa.types.is_timestamp(column("timestamp").type):
            raise InvalidRequestError("the column timestamp is no timestamp", field="batch")
        stamps = column("timestamp").cast(pa.timestamp("us")).cast(pa.int64())
        stamps = pc.fill_null(stamps, default_timestamp_us)
    else:
        stamps = pa.repeat(pa.scalar(default_timestamp_us, pa.int64()), n)
    _put(parts, _raw(stamps, 8))
    if "headers" in names and (pairs := _header_pairs(column("headers"))) is not None:
        flags |= HEADERS
        h = len(pairs)
        counts = pc.fill_null(pc.list_value_length(column("headers")), 0).cast(pa.int32())
        _put(parts, _raw(_running_sum(counts), 4))
        key_column, value_column = pairs.flatten()
        _, header_key_size = _put_binary(parts, _as_binary(key_column, "headers.key", False))
        nulls, header_value_size = _put_binary(parts, _as_binary(value_column, "headers.value"))
        flags |= HEADER_VALUE_VALIDITY if nulls else 0
    parts[0] = PREAMBLE.pack(
        MAGIC, flags, n, h, value_size, key_size, header_key_size, header_value_size
    )
    payload = b"".join(parts)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidBatchError(
            f"payload of {len(payload)} bytes is over the limit {MAX_PAYLOAD_BYTES}"
        )
    return payload, n, pc.max(stamps).as_py()


def rising_ends(array: Any) -> tuple[list[int], bool]:
    """Return an Arrow array's first and last number, and whether each exceeds the one before.

    Raises InvalidRequestError if it does not hold integers.
    """
    pa = import_pyarrow()
    import pyarrow.compute as pc

    if not pa.types.is_integer(array.type) or array.null_count:
        raise InvalidRequestError(
            f"sequences must be integers, not {array.type} with {array.null_count} nulls",
            field="sequences",
        )
    n = len(array)
    # `all` of nothing is null: a single number rises.
    rising = pc.all(pc.greater(array[1:], array[:-1])).as_py() is not False
    return [array[i].as_py() for i in sorted({0, n - 1})] if n else [], rising


def is_texts(kind: Any) -> bool:
    """Tell whether an Arrow type is one of binary or string, in any layout."""
    pa = import_pyarrow()
    return any(
        test(kind)
        for test in (
            pa.types.is_binary,
            pa.types.is_string,
            pa.types.is_large_binary,
            pa.types.is_large_string,
            pa.types.is_fixed_size_binary,
            pa.types.is_binary_view,
            pa.types.is_string_view,
        )
    )


def plain_texts(array: Any) -> Any:
    """Return a text column with offsets of 32 bits, the layout that buffer readers expect."""
    pa = import_pyarrow()
    plain = pa.types.is_binary(array.type) or pa.types.is_string(array.type)
    return array if plain else array.cast(pa.binary())


def _as_binary(array: Any, name: str, nullable: bool = True) -> Any:
    kind = array.type
    if array.null_count and not nullable:
        raise InvalidRequestError(f"null in the column {name}", field="batch")
    if is_texts(kind):
        return plain_texts(array)
    raise InvalidRequestError(f"the column {name} is {kind}, not binary or string", field="batch")


def _header_pairs(array: Any) -> Any:
    """Return the structs of all rows in one array, or None if there is no header."""
    pa = import_pyarrow()
    kind = array.type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (listed and pa.types.is_struct(kind.value_type)):
        raise InvalidRequestError(f"the column headers is {kind}, not list<struct>", field="batch")
    if [field.name for field in kind.value_type] != ["key", "value"]:
        raise InvalidRequestError("a header is struct<key, value>", field="batch")
    pairs = array.flatten()
    return pairs if len(pairs) else None


def _running_sum(counts: Any) -> Any:
    pa = import_pyarrow()
    import pyarrow.compute as pc

    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])


def _raw(array: Any, width: int) -> Any:
    """Return the memory of a fixed-width array without nulls."""
    start = array.offset * width
    return array.buffers()[1].slice(start, len(array) * width)


def _put(parts: list[Any], data: Any) -> None:
    size = len(data)
    parts.append(data)
    parts.append(bytes(padded(size) - size))


def _put_binary(parts: list[Any], array: Any) -> tuple[bool, int]:
    pa = import_pyarrow()
    import pyarrow.compute as pc

    n = len(array)
    if array.null_count:
        # Null slots must be empty, or their bytes would travel and vectors would differ.
        present = array.is_valid()
        bitmap = bytearray(_bitmap(present))
        if n & 7:
            bitmap[-1] &= (1 << (n & 7)) - 1
        _put(parts, bytes(bitmap))
        nulls = True
        array = pc.fill_null(array, b"" if pa.types.is_binary(array.type) else "")
    else:
        nulls = False
    offsets_buffer, data = array.buffers()[1:]
    offsets = pa.Array.from_buffers(pa.int32(), n + 1, [None, offsets_buffer], offset=array.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first:
        offsets = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    _put(parts, _raw(offsets, 4))
    size = last - first
    _put(parts, data.slice(first, size) if size else b"")
    return nulls, size


def _bitmap(booleans: Any) -> Any:
    if booleans.offset & 7:
        booleans = import_pyarrow().concat_arrays([booleans, booleans[:0]])
    start = booleans.offset >> 3
    return booleans.buffers()[1].slice(start, (len(booleans) + 7) // 8)
