"""Sealing of a closed batch: gives it producer id, epoch, sequences, and its final bytes.

Place in the flow: `partition` seals a batch when it is first sent. From then on nothing about it
changes, so every retry is byte-identical. The message's parts are kept, with the payload as it is,
so that nothing is copied before the message is put together. The field `id`, which differs from
attempt to attempt, comes last: protobuf allows fields in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog._engine.produce.batches import OpenBatch
from oncelog.v1 import batch_pb2
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import checksum, compress
from oncelog.wire.varint import encode_varint


@dataclass(frozen=True, slots=True)
class LeasedIdentity:
    """Right to write as (producer_id, epoch). `serial` rises with each new one."""

    producer_id: int
    epoch: int
    serial: int
    renew_at: float  # monotonic; when to get the next one
    expire_at: float
    lease_token: bytes = b""  # proves it to a partition that does not know it yet
    proves_each: bool = False  # nodes may authenticate callers: then each batch has the proof


NO_IDENTITY = LeasedIdentity(0, 0, 0, float("inf"), float("inf"))


@dataclass(slots=True, eq=False)
class SealedBatch:
    """A batch in flight. Its bytes never change; the rest is the state of its sending."""

    batch: OpenBatch
    identity: LeasedIdentity
    base_sequence: int
    last_sequence: int
    prev_sequence: int
    head: bytes  # the fields of the message `Batch` but for the payload's bytes and `id`
    payload: bytes | memoryview
    deadline: float
    attempts: int = 0
    attempt_id: int = 0  # 0: no attempt is unanswered
    sent_at: float = 0.0
    first_sent_at: float = 0.0
    # Some attempt ended with an answer that leaves the outcome open,
    ambiguous: bool = False
    # or without any answer from the node in time.
    unanswered: bool = False
    # Everything before it was acknowledged when it was last sent.
    sent_as_head: bool = False
    # Answered OUT_OF_ORDER while an earlier batch was being retried.
    refused: bool = False
    acked: bool = False
    # Its records have failed (delivery timeout), but it holds the chain for successors.
    abandoned: bool = False

    @property
    def size(self) -> int:
        return len(self.head) + len(self.payload)


def seal(
    batch: OpenBatch,
    identity: LeasedIdentity,
    prev_sequence: int,
    deadline: float,
    codec: int,
    level: int | None,
) -> SealedBatch:
    """Encode, compress and number a batch. `prev_sequence`: the last one before it."""
    payload: bytes | memoryview
    if batch.stored_as is None:
        payload = compress(codec, _encoded(batch), level)
        crc = checksum(payload)
    else:
        assert batch.payload is not None
        payload = batch.payload
        codec, crc = batch.stored_as
    count = batch.record_count
    header = batch_pb2.BatchHeader(
        topic=batch.tp.topic,
        partition=batch.tp.partition,
        record_count=count,
        codec=codec,  # type: ignore[arg-type]
        crc32c=crc,
        max_timestamp_us=batch.max_timestamp_us,
    )
    base_sequence = last_sequence = -1
    if identity.producer_id:
        sequences = batch.sequences
        base_sequence = sequences[0] if sequences else prev_sequence + 1
        last_sequence = sequences[-1] if sequences else base_sequence + count - 1
        header.producer_id = identity.producer_id
        header.epoch = identity.epoch
        header.base_sequence = base_sequence
        if last_sequence != base_sequence + count - 1:
            header.last_sequence = last_sequence
        if prev_sequence != base_sequence - 1:
            header.prev_sequence = prev_sequence
    if batch.expected_offset >= 0:
        header.expected_offset = batch.expected_offset
    if batch.transaction is not None:
        assert batch.transaction.producer_id == identity.producer_id, "a name has one id"
        header.transaction_id = batch.transaction.transaction_id
    proof = identity.lease_token if prev_sequence == -1 or identity.proves_each else b""
    message = batch_pb2.Batch(header=header, lease_token=proof)
    head = message.SerializeToString() + _PAYLOAD_TAG
    head += encode_varint(len(payload))
    delivery = batch.delivery
    delivery.producer_id = identity.producer_id
    delivery.epoch = identity.epoch
    delivery.base_sequence = base_sequence
    return SealedBatch(
        batch, identity, base_sequence, last_sequence, prev_sequence, head, payload, deadline
    )


def _encoded(batch: OpenBatch) -> bytes:
    if batch.payload is not None:
        assert isinstance(batch.payload, bytes), "a view belongs to a batch that was stored"
        return batch.payload
    stamps = batch.timestamps.encode(batch.record_count)
    return encode_payload(batch.values, stamps, batch.keys, batch.headers)


_BATCHES_TAG = b"\x0a"  # ProduceRequest.batches: field 1, length-delimited
_PAYLOAD_TAG = b"\x12"  # Batch.payload: field 2, length-delimited
_ID_TAG = b"\x18"  # Batch.id: field 3, varint
_TIMEOUT_TAG = b"\x10"  # ProduceRequest.timeout_ms: field 2, varint


def request_parts(sealed: SealedBatch, attempt_id: int) -> list[bytes | memoryview]:
    """Return the bytes of one entry of `ProduceRequest.batches`, to be joined."""
    batch_id = _ID_TAG + encode_varint(attempt_id)
    length = encode_varint(sealed.size + len(batch_id))
    return [_BATCHES_TAG, length, sealed.head, sealed.payload, batch_id]


def request_end(timeout_ms: int) -> bytes:
    return _TIMEOUT_TAG + encode_varint(timeout_ms)
