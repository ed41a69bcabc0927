"""Stored batch: can be copied whole, without decoding.

Place in the flow: `Consumer.stored_batch` returns it, `Producer.send_stored_batch` forwards it.
Without decoding or compression, a batch of a million records costs as much as a batch of one (the
idea of KIP-712, shallow mirroring).
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.errors import CorruptLogError, InvalidBatchError
from oncelog.types import Record, TopicPartition
from oncelog.wire.batch import DecodedPayload, decode_payload
from oncelog.wire.compression import decompress

# A batch has a fixed cost: copies join batches below this size.
_SMALL_BYTES = 64 * 1024


class StoredBatch(NamedTuple):
    """Batch as stored. docs/protocol.md has the fields; `crc32c` is the payload's checksum.

    Public form of the protocol's message of that name, `batch_pb2.StoredBatch`.
    """

    topic: str
    partition: int
    base_offset: int
    record_count: int
    codec: int  # of the protocol: 0 none, 1 zstd, 2 lz4
    crc32c: int
    max_timestamp_us: int
    payload: bytes | memoryview
    skip: int = 0  # records at its beginning that are before the consumer's position
    topic_id: int = 0  # differs between topics that had this name; 0: not known
    append_time_ms: int = 0
    producer_id: int = 0
    epoch: int = 0
    base_sequence: int = 0
    last_sequence: int = 0
    # Compaction made it: its records without key and value are blanks, and `records` has none.
    carried: bool = False

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.record_count - 1

    def goes_whole(self, codec: int, largest: int) -> bool:
        """Tell whether a copy compressed by `codec`, in batches of at most `largest` bytes, takes
        it as it is; else its records are joined with others, cut, or compressed again.
        """
        fits = _SMALL_BYTES <= len(self.payload) <= largest
        return fits and not self.skip and self.codec == codec and not self.carried

    def decoded(self) -> DecodedPayload:
        """Return all its records as columns. Raises CorruptLogError for an invalid payload."""
        try:
            plain = decompress(self.codec, self.payload)
            return decode_payload(plain, self.record_count, self.carried)
        except InvalidBatchError as error:
            raise self.corrupt(error) from error

    def records(self) -> list[Record]:
        """Return its records without those to be skipped. Raises CorruptLogError."""
        decoded = self.decoded()
        try:
            return decoded.records(self.topic, self.partition, self.base_offset, self.skip)
        except InvalidBatchError as error:
            raise self.corrupt(error) from error

    def corrupt(self, error: InvalidBatchError) -> CorruptLogError:
        """Turn a payload's error into the reader's error."""
        return corrupt(TopicPartition(self.topic, self.partition), self.base_offset, error)


def corrupt(tp: TopicPartition, base_offset: int, error: InvalidBatchError) -> CorruptLogError:
    return CorruptLogError(
        f"{tp}: batch at offset {base_offset}: {error.message}",
        topic=tp.topic,
        partition=tp.partition,
        offset=base_offset,
    )
