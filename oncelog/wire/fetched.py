"""Answer to a fetch, with its payloads left in place.

Place in the flow: `_engine/consume/fetcher` gets the answer's bytes and has them cut up here;
payloads are views of those bytes, and keep them alive. A parsed message would copy each payload
when it is parsed and again on each access. So payloads are cut out by hand. The small rest is
parsed by protobuf, which also keeps fields that this client does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from oncelog.v1 import batch_pb2, log_pb2
from oncelog.wire.varint import decode_varint

_PARTITIONS: Final = 1  # FetchResponse.partitions
_BATCHES: Final = 9  # PartitionRecords.batches
_PAYLOAD: Final = 2  # StoredBatch.payload
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types

# A batch keeps no more than this many times its size alive: smaller batches are copied.
_MOST_HELD: Final = 8

Section = tuple[int, int]  # from, to


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A stored batch. `meta`: the message without its payload."""

    meta: batch_pb2.StoredBatch
    payload: memoryview


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """One partition's part of the answer. `meta`: the message without its batches."""

    meta: log_pb2.PartitionRecords
    batches: list[FetchedBatch]

    @property
    def end_offset(self) -> int:
        """The offset behind the last batch; there must be one."""
        last = self.batches[-1].meta
        return last.base_offset + last.header.record_count


def read_fetch_response(data: bytes) -> list[FetchedRecords]:
    """Cut up a response. Raises DecodeError if this is no FetchResponse."""
    try:
        partitions, _ = _cut(data, 0, len(data), _PARTITIONS)
        return [_records(data, start, end) for start, end in partitions]
    except IndexError:
        raise DecodeError("the answer ends within a field") from None


def _records(data: bytes, start: int, end: int) -> FetchedRecords:
    sections, rest = _cut(data, start, end, _BATCHES)
    view = memoryview(data)
    batches = []
    for first, last in sections:
        payloads, meta = _cut(data, first, last, _PAYLOAD)
        payload = view[slice(*payloads[-1])] if payloads else view[:0]
        if len(payload) * _MOST_HELD < len(data):
            payload = memoryview(bytes(payload))
        batches.append(FetchedBatch(batch_pb2.StoredBatch.FromString(meta), payload))
    return FetchedRecords(log_pb2.PartitionRecords.FromString(rest), batches)


def _cut(data: bytes, start: int, end: int, number: int) -> tuple[list[Section], bytes]:
    """Return the places of the field `number`, of bytes or messages, and all other fields."""
    found: list[Section] = []
    others: list[bytes] = []
    wanted = number << 3 | _BYTES
    at = kept = start
    while at < end:
        begin = at
        tag, at = decode_varint(data, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = decode_varint(data, at)
            if tag == wanted:
                found.append((at, at + size))
                others.append(data[kept:begin])
                kept = at + size
            at += size
        elif kind == _VARINT:
            _, at = decode_varint(data, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        else:
            raise DecodeError(f"wire type {kind}")
    if at != end:
        raise DecodeError(f"a field ends {at - end} bytes behind its message")
    others.append(data[kept:end])
    return found, b"".join(others)


__all__ = ["DecodeError", "FetchedBatch", "FetchedRecords", "read_fetch_response"]
