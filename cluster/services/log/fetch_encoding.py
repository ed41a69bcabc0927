"""Encoder of a fetch's answer: copies each payload once, into the answer.

    PartitionRecords, [(StoredBatch without payload, payload)] --> bytes of a FetchResponse

protobuf would copy a payload into a bytes object, into the message and into its
serialization. The wire format needs only a tag and a length before each part
(protobuf.dev, "Encoding"). protobuf still writes the small parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.v1 import batch_pb2, log_pb2
from oncelog.wire.varint import encode_varint

_LENGTH_DELIMITED = 2


def _tag(message: type[log_pb2.FetchResponse | log_pb2.PartitionRecords | batch_pb2.StoredBatch],
         name: str) -> bytes:  # fmt: skip
    return encode_varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED)


_PARTITIONS = _tag(log_pb2.FetchResponse, "partitions")
_BATCHES = _tag(log_pb2.PartitionRecords, "batches")
_PAYLOAD = _tag(batch_pb2.StoredBatch, "payload")


@dataclass(slots=True)
class FetchSection:
    """One partition's part of an answer. `records` has no batches; they stand beside it.

    `size`: bytes of the batches, as they are stored.
    """

    records: log_pb2.PartitionRecords
    batches: list[tuple[batch_pb2.StoredBatch, memoryview]] = field(default_factory=list)
    size: int = 0

    def add(self, stored: batch_pb2.StoredBatch, payload: memoryview, size: int) -> None:
        self.batches.append((stored, payload))
        self.size += size

    def next_offset(self, offset: int) -> int:
        """Return where to read on after these batches; `offset` if there are none."""
        if not self.batches:
            return offset
        last = self.batches[-1][0]
        return last.base_offset + last.header.record_count

    def parts(self) -> list[bytes | memoryview]:
        head = self.records.SerializeToString()
        size, parts = len(head), list[bytes | memoryview]((head,))
        for stored, payload in self.batches:
            inner = stored.SerializeToString()
            before = _PAYLOAD + encode_varint(len(payload))
            outer = _BATCHES + encode_varint(len(inner) + len(before) + len(payload))
            parts += (outer, inner, before, payload)
            size += len(outer) + len(inner) + len(before) + len(payload)
        return [_PARTITIONS + encode_varint(size), *parts]


def encode(sections: list[FetchSection]) -> bytes:
    """Return a serialized FetchResponse."""
    return b"".join(part for section in sections for part in section.parts())
