"""Byte formats of a partition's Raft entries, which are stored once and read for ever.

    0x01   no-op                          (pysyncobj's own, and our confirmations)
    0x08   the group's members: its voters and learners (`cluster/consensus/configuration.py`)
    0x10   a batch: fixed header, then the payload exactly as the client sent it
    0x11   a new log start (retention)
    0x12   a producer opened under an epoch
    0x13   producers that no name holds any more; with none: only the time moves on
    0x14   the end of a transaction (protobuf)
    0x15   a batch of Kafka's protocol: the same header, then the batch from byte 21 on
    0x16   a carried batch: replaces stored batches at their own offsets (compaction)
    0x20   a metadata command (protobuf)
    0x21   the metadata command that raises the cluster version (protobuf)
    0x30   a command on the committed offsets of a group (protobuf)
    0x31   offsets that a transaction's commit is to store (protobuf)
    0x32   the same, about members: owners of partitions, and their commits (protobuf)
    0x33   the same, about classic groups of Kafka's protocol, and their commits (protobuf)

The entry has everything that apply may depend on: the leader's clock, the lease
lifetime, the expiry watermark. The header is 96 bytes, so the payload
begins at a multiple of 8 and its columns are aligned where the entry is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import Message

from storage.errors import CorruptionError

CONFIGURATION = 0x08
BATCH, LOG_START, OPEN_PRODUCER, RELEASE_PRODUCERS = 0x10, 0x11, 0x12, 0x13
MARKER = 0x14
# A kind of its own: older releases stop there. They would judge its repeats by their bytes.
KAFKA_BATCH = 0x15
# The codec in the header of each such batch, and of no other.
KAFKA_V2 = 16
CARRIED = 0x16
METADATA = 0x20
# A kind of its own, so that releases from before the gate stop there: they would skip an
# unknown command.
UPGRADE = 0x21
OFFSETS = 0x30
# Kinds of their own: older releases stop there. They would otherwise store unchecked offsets.
STAGED_OFFSETS = 0x31
GROUP_MEMBERS = 0x32
CLASSIC_GROUPS = 0x33
VERSION = 1

# Flags of batches and opens: a name held the producer id when it was proposed.
HELD = 0x01

_BATCH = struct.Struct("<BBBBIqiIqqqqqqqqq")
_CRC = struct.Struct("<16xiI")
_TOMBSTONE = struct.Struct("<qq")
_LOG_START = struct.Struct("<BBxxxxxxqqqq")
_OPEN = struct.Struct("<BBBxiqqqqq")
_RELEASE = struct.Struct("<BBxxIqqqq")
HEADER_BYTES = _BATCH.size
assert HEADER_BYTES == 96


class CorruptEntryError(CorruptionError):
    """A stored entry does not match its place in the log. The replica must stop."""


def has_unknown_fields(message: Message) -> bool:
    """Return whether a newer release wrote fields unknown to this one. Removes them."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return message.ByteSize() != size


class BatchEntry(NamedTuple):
    """Header of a batch entry. Times in milliseconds since the Unix epoch, unless named *_us."""

    codec: int
    record_count: int
    producer_id: int
    epoch: int
    crc: int
    first: int
    last: int
    prev: int
    expected_offset: int
    transaction_id: int
    max_timestamp_us: int
    stamp_ms: int
    lifetime_ms: int
    expired_below: int
    flags: int = 0


class KeyTombstone(NamedTuple):
    """Record without a value in a carried batch; it may go once log time passes `drop_after_ms`."""

    offset: int
    drop_after_ms: int


class CarriedEntry(NamedTuple):
    """Header of a carried batch, with the tombstones behind its payload.

    crc: of the payload. base_offset: of its first record. guard: the highest Raft index among the
    entries that it replaces. freed_bytes: theirs. append_time_ms: their newest. blanks_behind:
    those behind its last record.
    """

    codec: int
    record_count: int
    crc: int
    base_offset: int
    guard: int
    freed_bytes: int
    append_time_ms: int
    max_timestamp_us: int
    stamp_ms: int
    tombstones: tuple[KeyTombstone, ...] = ()
    blanks_behind: int = 0


class LogStartEntry(NamedTuple):
    """Moves the log start, if it is still at `from_offset`; `freed_bytes` go with it."""

    from_offset: int
    log_start_offset: int
    freed_bytes: int
    stamp_ms: int


class OpenProducerEntry(NamedTuple):
    """Raises a producer's epoch. `metadata_index`: the leader's metadata for names (HELD)."""

    flags: int
    epoch: int
    producer_id: int
    stamp_ms: int
    lifetime_ms: int
    expired_below: int
    metadata_index: int


class ReleaseEntry(NamedTuple):
    """No name holds these ids any more, as of that index of the metadata log."""

    stamp_ms: int
    lifetime_ms: int
    expired_below: int
    metadata_index: int
    producer_ids: tuple[int, ...]


def pack_batch(entry: BatchEntry, payload: bytes | memoryview) -> bytes:
    header = _BATCH.pack(
        KAFKA_BATCH if entry.codec == KAFKA_V2 else BATCH,
        VERSION,
        entry.codec,
        entry.flags,
        entry.record_count,
        entry.producer_id,
        entry.epoch,
        entry.crc,
        *entry[5:-1],
    )
    return b"".join((header, payload))


def unpack_batch(data: bytes) -> BatchEntry:
    """Unpack a batch. Raises CorruptEntryError, as do the other `unpack_*`."""
    try:
        kind, version, codec, flags, *rest = _BATCH.unpack_from(data)
    except struct.error as error:
        raise CorruptEntryError(f"entry of {len(data)} bytes: {error}") from error
    if kind != (KAFKA_BATCH if codec == KAFKA_V2 else BATCH) or version != VERSION:
        if kind == CARRIED:
            return _without_producer(unpack_carried(data, with_tombstones=False))
        raise _unknown(kind, version)
    return BatchEntry(codec, *rest)._replace(flags=flags) if flags else BatchEntry(codec, *rest)


def _without_producer(entry: CarriedEntry) -> BatchEntry:
    """Returns a carried batch as its readers see it: a batch whose producers are not known."""
    return BatchEntry(
        entry.codec,
        entry.record_count,
        producer_id=0,
        epoch=0,
        crc=entry.crc,
        first=0,
        last=entry.record_count - 1,
        prev=-1,
        expected_offset=-1,
        transaction_id=0,
        max_timestamp_us=entry.max_timestamp_us,
        stamp_ms=entry.append_time_ms,
        lifetime_ms=0,
        expired_below=0,
    )


def payload_of(data: bytes) -> memoryview:
    """Returns the payload of a batch of any kind."""
    end = len(data)
    if data[0] == CARRIED:
        end -= _CRC.unpack_from(data)[0] * _TOMBSTONE.size
    return memoryview(data)[HEADER_BYTES:end]


def is_intact(data: bytes) -> bool:
    """Whether a batch with a sound header has the payload, and tombstones, of that header."""
    tombstones, crc = _CRC.unpack_from(data)
    if data[0] != CARRIED:
        return bool(crc32c(payload_of(data)) == crc)
    end = len(data) - tombstones * _TOMBSTONE.size
    tail_crc = _BATCH.unpack_from(data)[12]
    return bool(crc32c(data[HEADER_BYTES:end]) == crc and crc32c(data[end:]) == tail_crc)


def pack_carried(entry: CarriedEntry, payload: bytes | memoryview) -> bytes:
    tail = b"".join(_TOMBSTONE.pack(*tombstone) for tombstone in entry.tombstones)
    header = _BATCH.pack(
        CARRIED,
        VERSION,
        entry.codec,
        0,
        entry.record_count,
        len(payload),
        len(entry.tombstones),
        entry.crc,
        entry.base_offset,
        entry.guard,
        entry.freed_bytes,
        entry.append_time_ms,
        crc32c(tail),
        entry.max_timestamp_us,
        entry.stamp_ms,
        entry.blanks_behind,
        0,
    )
    return b"".join((header, payload, tail))


def unpack_carried(data: bytes, *, with_tombstones: bool = True) -> CarriedEntry:
    """with_tombstones: there may be tens of thousands, which take milliseconds."""
    try:
        kind, version, codec, _, count, size, marks, crc, *rest = _BATCH.unpack_from(data)
    except struct.error as error:
        raise CorruptEntryError(f"entry of {len(data)} bytes: {error}") from error
    if kind != CARRIED or version != VERSION:
        raise _unknown(kind, version)
    base, guard, freed, append_time_ms, _, max_timestamp_us, stamp_ms, blanks, _ = rest
    if size < 0 or marks < 0 or len(data) != HEADER_BYTES + size + marks * _TOMBSTONE.size:
        text = f"entry of {len(data)} bytes for a payload of {size} and {marks} tombstones"
        raise CorruptEntryError(text)
    tail = memoryview(data)[HEADER_BYTES + size :] if with_tombstones else b""
    return CarriedEntry(
        codec,
        count,
        crc,
        base,
        guard,
        freed,
        append_time_ms,
        max_timestamp_us,
        stamp_ms,
        tuple(map(KeyTombstone._make, _TOMBSTONE.iter_unpack(tail))),
        blanks,
    )


def pack_log_start(entry: LogStartEntry) -> bytes:
    return _LOG_START.pack(LOG_START, VERSION, *entry)


def unpack_log_start(data: bytes) -> LogStartEntry:
    return LogStartEntry(*_unpack(_LOG_START, LOG_START, data))


def pack_open_producer(entry: OpenProducerEntry) -> bytes:
    return _OPEN.pack(OPEN_PRODUCER, VERSION, *entry)


def unpack_open_producer(data: bytes) -> OpenProducerEntry:
    return OpenProducerEntry(*_unpack(_OPEN, OPEN_PRODUCER, data))


def pack_release(entry: ReleaseEntry) -> bytes:
    ids = entry.producer_ids
    head = _RELEASE.pack(RELEASE_PRODUCERS, VERSION, len(ids), *entry[:4])
    return head + struct.pack(f"<{len(ids)}q", *ids)


def unpack_release(data: bytes) -> ReleaseEntry:
    count, *rest = _unpack(_RELEASE, RELEASE_PRODUCERS, data[: _RELEASE.size])
    if len(data) != _RELEASE.size + 8 * count:
        raise CorruptEntryError(f"entry of {len(data)} bytes for {count} producer ids")
    ids = struct.unpack_from(f"<{count}q", data, _RELEASE.size)
    return ReleaseEntry._make((*rest, ids))


def _unpack(layout: struct.Struct, expected: int, data: bytes) -> tuple[int, ...]:
    """Return the fields behind kind and version."""
    try:
        kind, version, *rest = layout.unpack(data)
    except struct.error as error:
        raise CorruptEntryError(f"entry of {len(data)} bytes: {error}") from error
    if kind != expected or version != VERSION:
        raise _unknown(kind, version)
    return tuple(rest)


def _unknown(kind: int, version: int) -> CorruptEntryError:
    return CorruptEntryError(f"entry of unknown type {kind} or version {version}")
