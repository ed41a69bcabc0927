"""Bytes of Produce: one walk over a request, and its answer. By hand, as each batch passes here.

    session --Source--> read_produce --views of the batches--> produce
    produce --Results--> produce_answer --> the connection

Versions 0 to 9 are one loop with two encodings of lengths. No batch is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from cluster.kafka.codec import Source, put_count, put_text
from cluster.kafka.versions import Head

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_ACKS = struct.Struct(">hi")
_RESULT, _TIMED_RESULT, _NEW_RESULT = map(struct.Struct, (">ihq", ">ihqq", ">ihqqq"))
_OWN_TIMES = -1  # append time: the records keep their own
# Least bytes of a topic and of a partition: a name and a count, a number and a length.
_TOPIC_BYTES, _PARTITION_BYTES = 2, 5


class PartitionData(NamedTuple):
    """Records for one partition, as they came; empty if the client sent none."""

    topic: str
    partition: int
    records: memoryview


class ProduceRequest(NamedTuple):
    """A request. acks: -1: all, 1: the leader, 0: no answer."""

    acks: int
    timeout_ms: int
    partitions: list[PartitionData]


class Result(NamedTuple):
    """Answer for one partition, in the order of the request."""

    error: int
    base_offset: int = -1
    log_start_offset: int = -1
    message: str = ""


def read_produce(source: Source, version: int, *, flexible: bool) -> ProduceRequest:
    """Read a request. Raises CodecError."""
    if version >= 3:
        source.text(flexible=flexible, nullable=True)  # transactional id: the batches' bit counts
    acks, timeout_ms = source.fixed(_ACKS)
    partitions = list[PartitionData]()
    for _ in range(source.count(_TOPIC_BYTES, flexible=flexible)):
        topic = source.text(flexible=flexible) or ""
        for _ in range(source.count(_PARTITION_BYTES, flexible=flexible)):
            (index,) = source.fixed(_INT32)
            size = source.length(_INT32, flexible=flexible)
            partitions.append(PartitionData(topic, index, source.take(max(0, size))))
            source.skip_tagged(flexible=flexible)
        source.skip_tagged(flexible=flexible)
    source.skip_tagged(flexible=flexible)
    return ProduceRequest(acks, timeout_ms, partitions)


def produce_answer(
    head: Head, pairs: Iterable[tuple[PartitionData, Result]], wait_ms: int = 0
) -> bytearray:
    """Return the answer of a request's partitions. wait_ms: until the connection is read on."""
    version, flexible = head.version, head.flexible
    out = head.begin_answer()
    topics = list[tuple[str, list[tuple[int, Result]]]]()
    for data, result in pairs:
        if not topics or topics[-1][0] != data.topic:
            topics.append((data.topic, []))
        topics[-1][1].append((data.partition, result))
    put_count(len(topics), out, flexible=flexible)
    for topic, results in topics:
        put_text(topic, out, flexible=flexible)
        put_count(len(results), out, flexible=flexible)
        for index, result in results:
            error, offset, log_start, _ = result
            if version >= 5:
                out += _NEW_RESULT.pack(index, error, offset, _OWN_TIMES, log_start)
            elif version >= 2:
                out += _TIMED_RESULT.pack(index, error, offset, _OWN_TIMES)
            else:
                out += _RESULT.pack(index, error, offset)
            if version >= 8:
                put_count(0, out, flexible=flexible)  # no record fails alone
                put_text(result.message or None, out, flexible=flexible)
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if version >= 1:
        out += _INT32.pack(wait_ms)
    if flexible:
        out.append(0)
    return out
