"""Batches in place of deleted blanks: a reader's position among them passes over them.

    Reader --offset below the log's start--> stand_in --> a batch of blanks, as compaction leaves it

Retention has deleted the batches, and the replica knows how many offsets directly below its log's
start had no record. So a position there has missed nothing.
"""

from __future__ import annotations

from functools import lru_cache

from cluster.partition.replica import Partition
from oncelog.v1 import batch_pb2 as pb
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import checksum

MOST = 1000  # records in one batch


def stand_in(partition: Partition, offset: int) -> tuple[pb.StoredBatch, memoryview] | None:
    """Return a batch of blanks from the offset on; None if it is no offset of deleted blanks."""
    left = partition.log_start_offset - offset
    if not 0 < left <= partition.blanks_below_start:
        return None
    count = min(left, MOST)
    payload, crc = _payload(count)
    header = pb.BatchHeader(
        topic=partition.topic,
        partition=partition.index,
        base_sequence=-1,
        record_count=count,
        last_sequence=-1,
        prev_sequence=-1,
        expected_offset=-1,
        crc32c=crc,
    )
    return pb.StoredBatch(header=header, base_offset=offset, carried=True), memoryview(payload)


@lru_cache(maxsize=8)
def _payload(count: int) -> tuple[bytes, int]:
    payload = encode_payload([None] * count, bytes(8 * count))
    return payload, checksum(payload)
