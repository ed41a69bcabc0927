"""Record batch of Kafka's protocol (v2), as columns.

Place in the flow: a stored batch with the codec KAFKA_V2 -> `decompress` -> `to_columns` -> a
payload of `wire/batch.py`, so records, Arrow and Spark come of it as of any other. Topics have such
batches only if their setting `formats` says so.

The stored payload is the batch from its byte 21 on: attributes, counts, timestamps and producer in
40 bytes, big-endian, then the records, compressed together. Layout: Apache Kafka,
`DefaultRecordBatch` and `DefaultRecord` (KIP-98); lengths and deltas are zigzag varints. A time is
in ms there and in us here; a null key or value and a header are the same in both.
"""

from __future__ import annotations

import struct
import zlib
from itertools import repeat
from operator import mul
from typing import Final

from oncelog.errors import InvalidBatchError
from oncelog.types import Header
from oncelog.wire.batch import MAX_PAYLOAD_BYTES, encode_payload
from oncelog.wire.compression import unlz4, unzstd

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_BODY = struct.Struct(">hiqqqhii")
_CODEC: Final = 0x07
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = len(_XERIAL) + 8  # and two versions
_LENGTH = struct.Struct(">i")
_MAX_VARINT_SHIFT: Final = 63
_GZIP_WINDOW: Final = 31  # zlib's number for "with gzip's header"


def to_columns(payload: bytes | memoryview, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
    """Return the batch's records as the payload that `decode_payload` reads.

    limit: of the unpacked records, in bytes. Raises InvalidBatchError for a damaged batch, one that
    unpacks to more, and a header key that is not UTF-8.
    """
    if len(payload) < _BODY.size:
        raise InvalidBatchError(f"Kafka batch of {len(payload)} bytes, its head alone has 40")
    attributes, _, base_time, *_, count = _BODY.unpack_from(payload)
    try:
        records = _unpacked(attributes & _CODEC, memoryview(payload)[_BODY.size :], limit)
        return _columns(records, count, base_time)
    except (IndexError, struct.error) as error:
        raise InvalidBatchError("the records of a Kafka batch end too early") from error


def _columns(data: bytes, count: int, base_time: int) -> bytes:
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    times: list[int] = []
    headers: list[tuple[Header, ...]] = []
    at, size = 0, len(data)
    for number in range(count):
        length, at = _varint(data, at)
        end = at + length
        if not at < end <= size:
            raise InvalidBatchError(f"record {number} of a Kafka batch has {length} bytes")
        delta, at = _varint(data, at + 1)  # behind its attributes
        times.append(base_time + delta)
        delta, at = _varint(data, at)
        if delta != number:
            raise InvalidBatchError(f"record {number} of a Kafka batch says it is number {delta}")
        key, at = _bytes(data, at, end)
        keys.append(key)
        value, at = _bytes(data, at, end)
        values.append(value)
        if data[at]:
            found, at = _headers(data, at, end)
            headers.append(found)
        else:
            at += 1
            headers.append(())
        if at != end:
            raise InvalidBatchError(f"record {number} of a Kafka batch is not as long as it says")
    if at != size:
        raise InvalidBatchError(f"{size - at} bytes follow the records of a Kafka batch")
    return encode_payload(values, list(map(mul, times, repeat(1000))), keys, headers)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and the position behind it."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    number, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + 1
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            raise InvalidBatchError("a number in a Kafka batch has more than 64 bits")


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise InvalidBatchError(f"{length} bytes in a record of a Kafka batch end behind it")
    return data[at : at + length], at + length


def _headers(data: bytes, at: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, at = _varint(data, at)
    if not 0 <= count <= end - at:
        raise InvalidBatchError(f"a record of a Kafka batch has {count} headers")
    found: list[Header] = []
    for _ in range(count):
        name, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
        try:
            found.append(((name or b"").decode(), value))
        except UnicodeDecodeError as error:
            raise InvalidBatchError(f"the header key {name!r} is not UTF-8") from error
    return tuple(found), at


# --- codecs --------------------------------------------------------------------------


def _unpacked(codec: int, data: memoryview, limit: int) -> bytes:
    if codec == GZIP:
        return _gunzip(data, limit)
    if codec == SNAPPY:
        return _unsnappy(data, limit)
    if codec == LZ4:
        return unlz4(data, limit)
    if codec == ZSTD:
        return unzstd(data, limit)
    if codec:
        raise InvalidBatchError(f"compression type {codec} of a Kafka batch is unknown")
    return bytes(data)


def _gunzip(data: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        out = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidBatchError(f"gzip records are damaged: {error}") from error
    if len(out) > limit:
        raise _too_large("gzip", limit)
    if not stream.eof or stream.unused_data:
        raise InvalidBatchError("gzip records are not exactly one stream")
    return out


def _unsnappy(data: memoryview, limit: int) -> bytes:
    """Unpack blocks as Java's client frames them (xerial), or the one raw block of others."""
    if data[: len(_XERIAL)] != _XERIAL:
        return bytes(_snappy_block(bytes(data), limit))
    out, at = bytearray(), _XERIAL_HEAD
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise InvalidBatchError(f"snappy records are damaged: a block of {length} bytes")
        out += _snappy_block(bytes(data[at : at + length]), limit - len(out))
        at += length
    return bytes(out)


def _snappy_block(data: bytes, limit: int) -> bytearray:
    """Unpack a raw block (github.com/google/snappy, format_description.txt)."""
    try:
        size, at = _length(data)
        if size > limit:
            raise _too_large("snappy", limit)
        out = bytearray()
        while at < len(data):
            tag = data[at]
            if tag & 3:
                at = _copy(data, at, out)
            else:
                length, at = tag >> 2, at + 1
                if length > 59:
                    width = length - 59
                    length, at = int.from_bytes(data[at : at + width], "little"), at + width
                out += data[at : at + length + 1]
                at += length + 1
            if len(out) > size:
                break
    except IndexError as error:
        raise InvalidBatchError("snappy records are damaged: they end too early") from error
    if len(out) != size or at != len(data):
        raise InvalidBatchError(f"snappy records are damaged: not the {size} bytes that they say")
    return out


def _length(data: bytes) -> tuple[int, int]:
    size = shift = at = 0
    while True:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > 28:
            return size, at


def _copy(data: bytes, at: int, out: bytearray) -> int:
    """Append an earlier part of `out`, as the element at `at` says; return what follows it."""
    tag = data[at]
    if tag & 3 == 1:
        length, back, at = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at + 1], at + 2
    else:
        width = 2 if tag & 3 == 2 else 4
        length, back = (tag >> 2) + 1, int.from_bytes(data[at + 1 : at + 1 + width], "little")
        at += 1 + width
    start = len(out) - back
    if not back or start < 0:
        raise InvalidBatchError(f"snappy records are damaged: a copy from {back} bytes back")
    part = out[start : start + length]
    if back < length:  # it repeats itself
        part = (part * (length // back + 1))[:length]
    out += part
    return at


def _too_large(codec: str, limit: int) -> InvalidBatchError:
    return InvalidBatchError(f"{codec} records unpack to more than the limit {limit}")
