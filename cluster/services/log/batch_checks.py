"""Checks of a batch before its partition, in the order that docs/protocol.md prints.

    Appender.append --> refusal --> None: Partition.append goes on with the rest of the table
                            '-----> the first row of "Order of checks" that applies

Pure. First come the checks that need the batch alone: every node gives the same answer. Then
comes the partition's leader. The limits of topic and metadata come last, and the leader alone
checks them: another node's copy may be old, and the answer is final.
"""

from __future__ import annotations

import struct

import crc32c

from cluster.dedup.verdict import BatchMeta, Formats, Kind, Verdict, validate
from cluster.metadata.topics import is_internal
from cluster.partition.types import Policy
from oncelog.v1.batch_pb2 import BatchHeader
from oncelog.wire.batch import MAGIC, MAX_PAYLOAD_BYTES, PREAMBLE

CODEC_NONE, CODEC_ZSTD, CODEC_LZ4 = 0, 1, 2

# Smallest payload: a preamble, one more offset (i32) than records, and for each record an
# offset (i32) and a timestamp (i64).
_LEAST_BYTES = PREAMBLE.size + 4
_RECORD_BYTES = 12
MAX_RECORDS = (MAX_PAYLOAD_BYTES - _LEAST_BYTES) // _RECORD_BYTES
_HEAD = struct.Struct("<4s4xI")  # of the preamble: its magic, the record count

_KAFKA_ONLY = int(Formats.KAFKA)  # an enum's member takes longer to look up
UNKNOWN_TOPIC = "unknown topic or partition"


def refusal(
    header: BatchHeader,
    meta: BatchMeta,
    payload: bytes,
    *,
    known: bool,
    leads: bool,
    policy: Policy | None,
) -> Verdict | None:
    """Return the reason to refuse a batch before its partition sees it.

    None: it passes, or only its lease is left to prove (`begins_chain`).
    known: this node knows the partition. leads: this node leads it. policy: of its replica.
    """
    topic = header.topic
    if is_internal(topic):
        return _invalid(f"topic: {topic} is internal")
    size = len(payload)
    limit = policy.max_batch_bytes if leads and policy is not None else size
    wrong = validate(meta, payload_size=size, max_payload=limit)
    if wrong is None or wrong.kind is not Kind.INVALID_BATCH:
        fault = _fault(header, meta, payload)
        if fault is not None:
            return _invalid(fault)
        if not known:
            return Verdict(Kind.UNKNOWN_TOPIC_OR_PARTITION, message=UNKNOWN_TOPIC)
        if not leads or policy is None:
            return Verdict(Kind.NOT_LEADER)
        if policy.formats == _KAFKA_ONLY:
            return _invalid("formats: the topic takes batches of Kafka's protocol only")
    return wrong


def begins_chain(meta: BatchMeta) -> bool:
    """Return whether a batch can make its producer id and epoch known to a partition.

    Any other batch needs an epoch that the partition knows and that was proven to it.
    """
    return meta.prev == -1 and meta.producer_id != 0


def unissued(producer_id: int) -> Verdict:
    """Return UNKNOWN_PRODUCER for an id that was asked about and never handed out."""
    text = f"producer_id: {producer_id} was never issued by this cluster"
    return Verdict(Kind.UNKNOWN_PRODUCER, message=text)


def _invalid(message: str) -> Verdict:
    return Verdict(Kind.INVALID_BATCH, message=message)


def _fault(header: BatchHeader, meta: BatchMeta, payload: bytes) -> str | None:
    """Return the fault of a batch whose numbers are in their ranges."""
    codec = header.codec
    if codec not in (CODEC_NONE, CODEC_ZSTD, CODEC_LZ4):
        return f"codec: {codec} is unknown"
    if header.transaction_id < 0:
        return f"transaction_id: {header.transaction_id} is negative"
    crc = crc32c.crc32c(payload)
    if crc != meta.crc:
        return f"crc32c: the payload has {crc:#010x}, the header says {meta.crc:#010x}"
    if codec != CODEC_NONE:
        if meta.count > MAX_RECORDS:
            return f"record_count: {meta.count}, but a payload holds at most {MAX_RECORDS} records"
        return None
    return _payload_fault(meta.count, payload)


def _payload_fault(count: int, payload: bytes) -> str | None:
    """Check `record_count`, which offsets depend on: it must match the payload, and have room."""
    size = len(payload)
    if size < PREAMBLE.size:
        return f"payload: {size} bytes, but the preamble alone has {PREAMBLE.size}"
    magic, records = _HEAD.unpack_from(payload)
    if magic != MAGIC:
        return f"payload: begins with {magic!r}, not {MAGIC!r}"
    if records != count:
        return f"record_count: the payload holds {records} records, the header says {count}"
    if size < _LEAST_BYTES + _RECORD_BYTES * count:
        return f"record_count: {count} records do not fit into {size} bytes of payload"
    return None
