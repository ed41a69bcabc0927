"""Columnar batches for Kafka's readers: each becomes record batches (v2), uncompressed.

    Fetch --StoredBatch, payload--> to_kafka --> bytes of batches, in the order of their offsets

Offsets, keys, values and headers stay as they are; null keys and values, too. A time is cut from
us to ms. A carried batch comes without its blanks, as Kafka's own cleaner leaves it: a record batch
keeps its last offset, even if it has lost all its records. Pure, and for any thread: its cost is
that of the records, about a microsecond each.
Layout: Apache Kafka, `DefaultRecordBatch` and `DefaultRecord` (KIP-98).
"""

from __future__ import annotations

import struct
from typing import Final

import crc32c

from cluster.kafka.records import head
from oncelog.types import Header
from oncelog.v1.batch_pb2 import StoredBatch
from oncelog.wire.batch import decode_payload
from oncelog.wire.compression import decompress
from oncelog.wire.varint import encode_varint

# A batch ends with the record that fills it, so that a long one needs no long array.
SLICE_BYTES: Final = 1024 * 1024
_BODY = struct.Struct(">hiqqqhii")
_NO_PRODUCER = (-1, -1, -1)  # id, epoch, sequence: Kafka's clients look at none of a stored batch
_NO_TIMES = (-1, -1)  # first, highest
_SMALL: Final = 4096


def to_kafka(stored: StoredBatch, payload: bytes | memoryview, start: int = 0) -> bytes:
    """Returns the batch's records as record batches; those that end below `start` are left out.

    stored: the batch without its payload. start: the reader's offset. Raises InvalidBatchError if
    the payload differs from its header, MissingExtraError without the codec's package.
    """
    header, base = stored.header, stored.base_offset
    plain = decompress(header.codec, payload)
    decoded = decode_payload(plain, header.record_count, stored.carried)
    times = [time // 1000 for time in decoded.timestamps_us()]
    values, keys, headers = decoded.values(), decoded.keys(), decoded.headers()
    out, records, stamps = list[bytes](), list[bytes](), list[int]()
    first = size = 0
    for number in decoded.live():
        stamps.append(times[number])
        delta = _varint(times[number] - stamps[0]), _varint(number - first)
        rest = _bytes(keys[number]), _bytes(values[number]), _headers(headers[number])
        body = b"".join((b"\0", *delta, *rest))
        records += (_varint(len(body)), body)
        size += len(body)
        if size >= SLICE_BYTES:
            if base + number >= start:
                out.append(_batch(base + first, number - first, stamps, records))
            first, size, records, stamps = number + 1, 0, [], []
    if first < len(times) and base + len(times) > start:
        out.append(_batch(base + first, len(times) - 1 - first, stamps, records))
    return b"".join(out)


def _batch(offset: int, last_delta: int, stamps: list[int], records: list[bytes]) -> bytes:
    first, highest = (stamps[0], max(stamps)) if stamps else _NO_TIMES
    body = _BODY.pack(0, last_delta, first, highest, *_NO_PRODUCER, len(stamps))
    payload = b"".join((body, *records))
    return head(offset, len(payload), crc32c.crc32c(payload)) + payload


def _zigzag(number: int) -> bytes:
    return encode_varint(number << 1 ^ number >> 63)


_SMALL_VARINTS = [_zigzag(number) for number in range(_SMALL)]


def _varint(number: int) -> bytes:
    return _SMALL_VARINTS[number] if 0 <= number < _SMALL else _zigzag(number)


def _bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else _varint(len(data)) + data


def _headers(headers: tuple[Header, ...]) -> bytes:
    if not headers:
        return _NONE
    parts = [part for name, value in headers for part in (_bytes(name.encode()), _bytes(value))]
    return b"".join((_varint(len(headers)), *parts))


_NONE, _NULL = _zigzag(0), _zigzag(-1)
