"""Record batches of Kafka's protocol (v2): the checks of a batch as a producer sent it.

    produce --bytes of one partition--> read_batch --> KafkaBatch --payload--> the partition's log
    fetch <--head + payload------------ head

A batch is stored from byte 21 on, as it came: the bytes that its CRC-32C covers. The 21 bytes
before them are made again for each reader, with the offset that the partition gave. Layout: Apache
Kafka, `DefaultRecordBatch` (KIP-98); integers are big-endian.

     0  i64 base offset        21  i16 attributes          43  i64 producer id
     8  i32 bytes after this   23  i32 last offset delta   51  i16 producer epoch
    12  i32 leader epoch       27  i64 base timestamp      53  i32 base sequence
    16  i8  magic, 2           35  i64 highest timestamp   57  i32 record count
    17  u32 CRC-32C                                        61  records

Pure: no record is decoded here, and no byte is copied.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import crc32c

from oncelog.wire.batch import MAX_PAYLOAD_BYTES

# Error numbers of Kafka's protocol, as far as a batch alone can be wrong.
CORRUPT_MESSAGE: Final = 2
MESSAGE_TOO_LARGE: Final = 10
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
INVALID_RECORD: Final = 87

HEAD_BYTES: Final = 21  # left out of the stored batch
BATCH_BYTES: Final = 61  # of a batch without its records
MAGIC: Final = 2
NO_PRODUCER: Final = -1
# -1 is none, and stays a number that microseconds hold.
MAX_TIMESTAMP_MS: Final = ((1 << 63) - 1) // 1000
# A record takes at least a byte each for its length, attributes, timestamp, offset, key length,
# value length and number of headers.
RECORD_BYTES: Final = 7

_BATCH = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qiibI")
assert (_BATCH.size, _HEAD.size) == (BATCH_BYTES, HEAD_BYTES)
_LENGTH_FROM = 12  # the length counts the bytes from here

_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
_MAX_CODEC = 4  # none, gzip, snappy, lz4, zstd


class InvalidKafkaBatch(Exception):
    """The bytes are not one sound batch. `code`: the error number of Kafka's protocol."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class KafkaBatch(NamedTuple):
    """A batch as it came: a view of its bytes, with the numbers of its head.

    producer_id, producer_epoch, base_sequence: -1 without idempotence; int32 as the client sent
    it, so a sequence begins at 0 again after 2**31 - 1. attributes: codec and flags. Timestamps in
    milliseconds since the Unix epoch, -1: none. crc: CRC-32C of `payload`, compared. payload: the
    batch from byte 21 on.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    crc: int
    payload: memoryview

    @property
    def codec(self) -> int:
        """0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd."""
        return self.attributes & _CODEC

    @property
    def lacks_highest(self) -> bool:
        """Whether the client left out the highest timestamp, as sarama did until 1.45."""
        return self.max_timestamp < self.base_timestamp

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)


def read_batch(data: memoryview) -> KafkaBatch:
    """Checks the records of one partition of a Produce request: one batch of magic 2, and sound.

    Raises InvalidKafkaBatch.
    """
    size = len(data)
    if size < BATCH_BYTES:
        _check_magic(data)
        raise InvalidKafkaBatch(
            CORRUPT_MESSAGE, f"batch: {size} bytes, but its head alone has {BATCH_BYTES}"
        )
    (
        _, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, epoch, sequence, count,
    ) = _BATCH.unpack_from(data)  # fmt: skip
    if magic != MAGIC:
        _check_magic(data)
    if length + _LENGTH_FROM != size:
        _check_length(data, length)
    batch = KafkaBatch(
        producer_id, epoch, sequence, count, attributes, base_timestamp, max_timestamp, crc,
        data[HEAD_BYTES:],
    )  # fmt: skip
    if size > MAX_PAYLOAD_BYTES:
        text = f"batch: {size} bytes, the limit is {MAX_PAYLOAD_BYTES}"
        raise InvalidKafkaBatch(MESSAGE_TOO_LARGE, text)
    found = crc32c.crc32c(batch.payload)
    if found != crc:
        text = f"crc: the batch has {found:#010x}, its head says {crc:#010x}"
        raise InvalidKafkaBatch(CORRUPT_MESSAGE, text)
    _check_attributes(attributes)
    _check_counts(batch, last_delta, size)
    _check_times(batch)
    _check_producer(batch)
    return batch


def head(offset: int, payload_length: int, crc: int) -> bytes:
    """Returns the 21 bytes before a stored payload, for a reader.

    offset: of its first record. The leader epoch is -1 (unknown), so no client looks for a
    truncated log.
    """
    return _HEAD.pack(offset, payload_length + HEAD_BYTES - _LENGTH_FROM, -1, MAGIC, crc)


def _check_magic(data: memoryview) -> None:
    magic = data[16] if len(data) > 16 else MAGIC
    if magic != MAGIC:
        text = f"magic: {magic} is not supported, only {MAGIC} (clients since Kafka 0.11)"
        raise InvalidKafkaBatch(INVALID_RECORD, text)


def _check_length(data: memoryview, length: int) -> None:
    size, rest = len(data), length + _LENGTH_FROM
    if BATCH_BYTES <= rest < size:
        text = f"batch: {size - rest} bytes follow it; a partition takes one batch of a request"
        raise InvalidKafkaBatch(INVALID_RECORD, text)
    text = f"batch length: {length}, but {size - _LENGTH_FROM} bytes follow it"
    raise InvalidKafkaBatch(CORRUPT_MESSAGE, text)


def _check_attributes(attributes: int) -> None:
    codec = attributes & _CODEC
    if codec > _MAX_CODEC:
        text = f"attributes: compression type {codec} is not in 0..{_MAX_CODEC}"
        raise InvalidKafkaBatch(UNSUPPORTED_COMPRESSION_TYPE, text)
    if attributes & _LOG_APPEND_TIME:
        text = "attributes: the timestamp type must be CreateTime"
        raise InvalidKafkaBatch(INVALID_TIMESTAMP, text)
    if attributes & (_CONTROL | _DELETE_HORIZON):
        text = f"attributes: {attributes:#06x} marks a batch that only brokers write"
        raise InvalidKafkaBatch(INVALID_RECORD, text)


def _check_counts(batch: KafkaBatch, last_delta: int, size: int) -> None:
    count = batch.record_count
    if count < 1 or last_delta != count - 1:
        text = f"record count: {count}, but the last offset delta is {last_delta}"
        raise InvalidKafkaBatch(INVALID_RECORD, text)
    # Compressed records may take less than a byte each.
    room = (MAX_PAYLOAD_BYTES if batch.codec else size - BATCH_BYTES) // RECORD_BYTES
    if count > room:
        text = f"record count: {count}, but the batch has room for {room} records"
        raise InvalidKafkaBatch(INVALID_RECORD, text)


def _check_times(batch: KafkaBatch) -> None:
    times = (("base", batch.base_timestamp), ("highest", batch.max_timestamp))
    for name, time in times:
        if not -1 <= time <= MAX_TIMESTAMP_MS:
            text = f"{name} timestamp: {time} is not in -1..{MAX_TIMESTAMP_MS}"
            raise InvalidKafkaBatch(INVALID_TIMESTAMP, text)


def _check_producer(batch: KafkaBatch) -> None:
    numbers = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    if batch.producer_id == NO_PRODUCER:
        if batch.is_transactional:
            text = "producer id: missing, but the batch is part of a transaction"
            raise InvalidKafkaBatch(INVALID_RECORD, text)
    elif min(numbers) < 0 or batch.producer_id == 0:
        text = f"producer id, epoch, sequence: {numbers}; the id must be positive, none negative"
        raise InvalidKafkaBatch(INVALID_RECORD, text)
