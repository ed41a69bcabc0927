"""Contents of a partition and of the metadata, kept naively: dictionaries that forget nothing.

The bytes of entries are read by the layout in docs (96 bytes of header), not by `cluster.entries`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cluster.features import Finalized
from cluster.v1 import metadata_pb2 as mpb

_BATCH = struct.Struct("<BBBBIqiIqqqqqqqqq")
_LOG_START = struct.Struct("<BBxxxxxxqqqq")
_OPEN = struct.Struct("<BBBxiqqqqq")
_RECORDS = struct.Struct("<qqi")
_SIZE = struct.Struct("<I")
# Batches of Kafka's protocol: their kind and codec, their records' place in the payload, the lowest
# id without a name, and how long it is remembered.
KAFKA_BATCH, KAFKA_V2, KAFKA_RECORDS, KAFKA_IDS = 0x15, 16, 40, 1 << 62
CARRIED, TOMBSTONE_BYTES = 0x16, 16
DAY_MS = 24 * 3600 * 1000

# Verdict numbers of the public protocol.
APPENDED, DUPLICATE = 1, 2
UNKNOWN_PRODUCER, FENCED, OUT_OF_ORDER, CONFLICT, EXPIRED, MISMATCH = range(20, 26)
TRANSIENT = frozenset(range(30, 35))
NOT_STORED = frozenset((31, 33, 34))  # of these: nothing of the attempt is or will be stored


HEADER_BYTES = _BATCH.size


class Violation(AssertionError):
    """The system under test broke a promise."""


def payload(stream: int, first: int, count: int, filler: int) -> bytes:
    """Builds a payload that names its records: numbers first..first+count-1 of a stream."""
    return _RECORDS.pack(stream, first, count) + b"." * filler


def contents(data: bytes) -> bytes:
    """Returns the records of a batch of any kind, as the payload of a carried batch holds them."""
    if data[0] != CARRIED:
        return _SIZE.pack(len(data) - HEADER_BYTES) + data[HEADER_BYTES:]
    tombstones = _BATCH.unpack_from(data)[6]
    return data[HEADER_BYTES : len(data) - tombstones * TOMBSTONE_BYTES]


@dataclass(slots=True)
class Producer:
    """All batches that one producer id has stored, for ever."""

    epoch: int
    last: int
    opened: bool = False  # its epoch was opened and has stored nothing yet
    used_ms: int = 0  # log time of its newest batch
    # (epoch, first, last) -> (base offset, crc)
    batches: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)


class Model:
    """One partition, naively."""

    def __init__(self, name: str, *, expiry: bool) -> None:
        self.name, self.expiry = name, expiry
        self.next_offset = self.log_start = 0
        self.producers: dict[int, Producer] = {}
        self.batches: dict[int, bytes] = {}  # base offset -> entry
        self.indexes: dict[int, int] = {}  # base offset -> its Raft index
        self.read: dict[int, set[bytes]] = {}  # base offset -> entries that a reader may get
        self.newest_record: dict[int, int] = {}  # stream -> newest number stored
        self.promised_never: set[tuple[int, int, int]] = set()
        self.clock_ms = 0  # log time, by batches

    @property
    def hole(self) -> int:
        """So many offsets directly below the log's start had no record when they were deleted."""
        return 0

    def apply(self, index: int, data: bytes, answer: Any) -> None:
        if data[0] in (0x10, KAFKA_BATCH):
            self._apply_batch(index, data, answer)
        elif data[0] == CARRIED:
            self._apply_carried(index, data, answer)
        elif data[0] == 0x11:
            _, _, was, start, _, _ = _LOG_START.unpack(data)
            if was == self.log_start and start > was and start <= self.next_offset:
                self._move_start(index, start)
        elif data[0] == 0x12:
            self._apply_open(index, data, answer)
        elif data[0] not in (0x13, 0x7E):  # the release of producers; a PROBE
            raise Violation(f"{self.name}: entry {index} has type {data[0]:#x}")

    def _move_start(self, index: int, start: int) -> None:
        if start != self.next_offset and start not in self.batches:
            raise Violation(f"{self.name}: entry {index} moves the start into a batch, to {start}")
        self.log_start = start
        for base in [base for base in self.batches if base < start]:
            del self.batches[base]

    def _apply_carried(self, index: int, data: bytes, answer: Any) -> None:
        """A carried batch replaces whole batches that are what its cleaner read, or none."""
        header = _BATCH.unpack_from(data)
        count, base, guard = header[4], header[8], header[9]
        replaced, end = list[int](), base
        while end < base + count and end in self.batches:
            replaced.append(end)
            end += record_count(self.batches[end])
        may = end == base + count and all(self.indexes[one] <= guard for one in replaced)
        where = f"{self.name}: entry {index} (carried, {base}..{base + count - 1})"
        if answer != may:
            raise Violation(f"{where}: it should replace something: {may}, and it did: {answer}")
        if not may:
            return
        self._check_carried(where, data, [self.batches.pop(one) for one in replaced])
        self._store(index, base, data)

    def _check_carried(self, where: str, data: bytes, replaced: list[bytes]) -> None:
        if contents(data) != b"".join(map(contents, replaced)):
            raise Violation(f"{where} does not hold the records that were there")

    def _store(self, index: int, base: int, data: bytes) -> None:
        self.batches[base] = data
        self.indexes[base] = index
        self.read.setdefault(base, set()).add(data)

    def _apply_open(self, index: int, data: bytes, answer: Any) -> None:
        _, _, _, epoch, pid, stamp_ms, *_ = _OPEN.unpack(data)
        self.clock_ms = max(self.clock_ms, stamp_ms)
        verdict, known = answer.verdict, self.producers.get(pid)
        accepted = int(verdict.kind) == APPENDED
        where = f"{self.name}: entry {index} (open of {pid}/{epoch})"
        may = known is None or epoch >= known.epoch
        if accepted and not may:
            raise Violation(f"{where} was accepted, {known} is newer")
        if may and not accepted and not self.expiry:
            raise Violation(f"{where} was refused with {verdict!r}")
        if not accepted:
            return
        if known is None:
            known = self.producers[pid] = Producer(epoch, -1, opened=True)
        if verdict.last_sequence != known.last and not (self.expiry and verdict.last_sequence < 0):
            raise Violation(f"{where} says {verdict!r}, the last one stored is {known.last}")
        known.used_ms = self.clock_ms
        if epoch > known.epoch:
            known.epoch, known.opened = epoch, True

    def _apply_batch(self, index: int, data: bytes, answer: Any) -> None:
        header = _BATCH.unpack_from(data)
        _, _, _, _, count, pid, epoch, crc, first, last, prev, expected, *_ = header
        kind = int(answer.verdict.kind)
        accepted = kind == APPENDED
        kafka = data[0] == KAFKA_BATCH
        if kafka != (header[2] == KAFKA_V2) or (kafka and 0 < pid < KAFKA_IDS):
            raise Violation(f"{self.name}: entry {index} is of kind {data[0]:#x}: {header}")
        self.clock_ms = max(self.clock_ms, header[14])
        may, must = self._expect(pid, epoch, prev, expected, kafka=kafka)
        where = f"{self.name}: entry {index} ({pid}/{epoch}, {first}..{last} after {prev})"
        if accepted and not may:
            raise Violation(f"{where} was accepted and may not be")
        if must and not accepted:
            raise Violation(f"{where} was refused with {answer.verdict!r}")
        if not accepted:
            return
        base = answer.verdict.base_offset
        if base != self.next_offset:
            raise Violation(f"{where} got offset {base}, the next is {self.next_offset}")
        self.next_offset += count
        self._store(index, base, data)
        self._count_records(where, data)
        if pid:
            producer = self.producers.get(pid)
            if producer is None:
                producer = self.producers[pid] = Producer(epoch, last)
            producer.epoch, producer.last, producer.opened = epoch, last, False
            producer.used_ms = self.clock_ms
            producer.batches[epoch, first, last] = (base, crc)
            if (pid, epoch, last) in self.promised_never:
                raise Violation(f"{where} was stored after a resolve said NEVER")

    def _expect(
        self, pid: int, epoch: int, prev: int, expected: int, *, kafka: bool
    ) -> tuple[bool, bool]:
        """(whether a batch may be accepted now, whether it must be)."""
        fits = expected < 0 or expected == self.next_offset
        if not pid:
            return fits, fits
        known = self.known(pid)
        if known is None or epoch > known.epoch or (kafka and known.opened):
            fits = fits and prev == -1 and (known is None or epoch >= known.epoch)
        else:
            follows = prev == known.last or (known.opened and prev == -1)
            fits = fits and epoch == known.epoch and follows
        return fits, fits and (kafka or not self.expiry)

    def known(self, pid: int) -> Producer | None:
        """Returns the producer; None if it has stored nothing, or an id of Kafka's was idle."""
        known = self.producers.get(pid)
        idle = known is not None and self.clock_ms - known.used_ms > DAY_MS
        return None if pid >= KAFKA_IDS and idle else known

    def _count_records(self, where: str, data: bytes) -> None:
        records = _BATCH.size + (KAFKA_RECORDS if data[0] == KAFKA_BATCH else 0)
        stream, first, count = _RECORDS.unpack_from(data, records)
        newest = self.newest_record.get(stream, -1)
        if first <= newest:
            raise Violation(f"{where}: record {first} of stream {stream} after {newest}: twice")
        self.newest_record[stream] = first + count - 1

    def payloads(self) -> Iterable[tuple[int, bytes]]:
        return sorted(self.batches.items())


class MetadataModel:
    """The metadata group: no producer id twice, a name's epochs rise; the topics there are."""

    def __init__(self) -> None:
        self.issued_below = 1
        self.names: dict[str, tuple[int, int]] = {}
        self.topics: dict[str, dict[int, list[int]]] = {}  # group -> the nodes that hold it
        self._next_group = 16
        self.finalized = Finalized()

    def apply(self, index: int, data: bytes, answer: bytes) -> set[int]:
        """Returns the groups that this command deleted."""
        command = mpb.MetadataCommand.FromString(data[1:])
        result = mpb.MetadataResult.FromString(answer)
        if result.error:
            return set()
        if command.HasField("allocate_producer_ids"):
            self._issue(index, result.first_producer_id, command.allocate_producer_ids.count)
        elif command.HasField("lease_name"):
            name = command.lease_name.name
            pid, epoch = self.names.get(name, (0, -1))
            if result.producer_id != pid:
                self._issue(index, result.producer_id, 1)
            if result.epoch <= epoch:
                raise Violation(f"metadata {index}: {name} got epoch {result.epoch} after {epoch}")
            self.names[name] = (result.producer_id, result.epoch)
        elif command.HasField("create_topic"):
            placements = command.create_topic.placements
            groups = {self._next_group + i: list(p.replicas) for i, p in enumerate(placements)}
            self._next_group += len(placements)
            self.topics[command.create_topic.name] = groups
        elif command.HasField("add_partitions"):
            added = command.add_partitions
            groups = self.topics[added.name]
            if added.expected_partitions != len(groups):
                raise Violation(f"metadata {index}: {added.name} has {len(groups)} partitions")
            for placement in added.placements:
                groups[self._next_group] = list(placement.replicas)
                self._next_group += 1
        elif command.HasField("finalize_upgrade"):
            agreed = command.finalize_upgrade
            if agreed.version < self.finalized.version:
                raise Violation(f"metadata {index}: the cluster version falls")
            self.finalized = Finalized(agreed.version, frozenset(agreed.features))
        elif command.HasField("delete_topic"):
            return set(self.topics.pop(command.delete_topic.name))
        return set()

    def check_partitions(self, name: str, groups: list[int]) -> None:
        """A topic's groups, in the order of its partitions, as a node has them."""
        known = list(self.topics.get(name, ()))
        if groups != known:
            raise Violation(f"the groups of {name} are {groups}, not {known}")

    def placement(self) -> dict[int, list[int]]:
        """The nodes that hold each group's replicas."""
        return {gid: nodes for groups in self.topics.values() for gid, nodes in groups.items()}

    def _issue(self, index: int, first: int, count: int) -> None:
        if first < self.issued_below:
            raise Violation(f"metadata {index}: producer id {first} is issued twice")
        self.issued_below = first + count


def record_count(data: bytes) -> int:
    """Counts the records of a batch entry."""
    return int(_BATCH.unpack_from(data)[4])
