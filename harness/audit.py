"""Audit of replicas: compares a producer's acknowledgements with each replica's records.

    ledger (row -> acknowledged partition and offset)
    replica 1, 2, 3: every record, decoded here      -->  Audit: lost, twice, order, ...

A row is a record's number in send order. One producer sends all rows. A record that compaction
removed is not lost if its acknowledged offset has a blank.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.api import Api
from harness.payload import decompress, values_and_keys

NOT_ACKNOWLEDGED = -2
NO_OFFSET = -1  # acknowledged as a duplicate of unknown offset


@dataclass(slots=True)
class Ledger:
    """Acknowledged partition and offset of each row."""

    partitions: array[int]
    offsets: array[int]

    @classmethod
    def of(cls, rows: int) -> Ledger:
        return cls(array("i", [-1]) * rows, array("q", [NOT_ACKNOWLEDGED]) * rows)

    def acknowledge(self, row: int, partition: int, offset: int) -> None:
        self.partitions[row], self.offsets[row] = partition, offset

    @property
    def acknowledged(self) -> int:
        return len(self.offsets) - self.offsets.count(NOT_ACKNOWLEDGED)


@dataclass(slots=True)
class Audit:
    """Findings for one replica over all partitions. Counts are of records."""

    node_id: int
    records: int = 0
    lost: int = 0  # acknowledged but absent
    twice: int = 0  # copies beyond the first
    disordered: int = 0  # after a later one of the same partition
    misplaced: int = 0  # not at the acknowledged offset
    holes: int = 0  # between batches, in offsets
    unknown: int = 0  # not sent by the ledger's producer
    removed: int = 0  # by compaction
    digests: dict[int, str] = field(default_factory=dict)  # of all that is stored, by partition
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (
            self.lost or self.twice or self.disordered or self.misplaced
            or self.holes or self.unknown
        )  # fmt: skip

    def _note(self, text: str) -> None:
        if len(self.examples) < 20:
            self.examples.append(f"node {self.node_id}: {text}")


def records(
    api: Api, topic: str, partition: int, digest: Callable[[bytes], None]
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yields (offset, expected offset, value) of a replica; feeds all bytes to `digest`.

    The value of a blank is None.
    """
    position = api.offset(topic, partition, "earliest", any_replica=True)
    for stored in api.stored(topic, partition, start=position):
        digest(stored.SerializeToString(deterministic=True))
        header = stored.header
        values, keys = values_and_keys(decompress(header.codec, stored.payload))
        assert len(values) == header.record_count, stored.header
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            is_blank = stored.carried and key is None and value is None
            yield stored.base_offset + place, position + place, None if is_blank else value or b""
        position = stored.base_offset + header.record_count


def audit(
    apis: Sequence[Api],
    node_id: int,
    topic: str,
    ledger: Ledger,
    row_of: Callable[[bytes], int],
) -> Audit:
    """Reads one replica from start to end. Its log must still hold its first record.

    apis: for each partition that of the node, or of the process of a machine, that has it.
    """
    found = Audit(node_id)
    seen, placed = bytearray(len(ledger.offsets)), bytearray(len(ledger.offsets))
    blanks = set[tuple[int, int]]()
    for partition, api in enumerate(apis):
        sha = hashlib.sha256()
        highest = -1
        for offset, expected, value in records(api, topic, partition, sha.update):
            if offset != expected:
                found.holes += 1
                found._note(f"{topic}-{partition}: offset {offset} instead of {expected}")
            if value is None:
                blanks.add((partition, offset))
                continue
            found.records += 1
            row = row_of(value)
            if not 0 <= row < len(seen):
                found.unknown += 1
                found._note(f"{topic}-{partition}@{offset}: row {row} was never sent")
                continue
            if seen[row]:
                found.twice += 1
                found._note(f"{topic}-{partition}@{offset}: row {row} again")
            elif row < highest:
                found.disordered += 1
                found._note(f"{topic}-{partition}@{offset}: row {row} after row {highest}")
            if (partition, offset) == (ledger.partitions[row], ledger.offsets[row]):
                placed[row] = 1
            seen[row] = 1
            highest = max(highest, row)
        found.digests[partition] = sha.hexdigest()
    for row, offset in enumerate(ledger.offsets):
        if offset == NOT_ACKNOWLEDGED:
            continue
        if not seen[row] and (ledger.partitions[row], offset) in blanks:
            found.removed += 1
        elif not seen[row]:
            found.lost += 1
            found._note(f"row {row} was acknowledged and is not there")
        elif offset != NO_OFFSET and not placed[row]:
            found.misplaced += 1
            where = f"{topic}-{ledger.partitions[row]}@{offset}"
            found._note(f"row {row} was acknowledged at {where} and is elsewhere")
    return found


def audit_all(
    apis: Mapping[int, Sequence[Api]],
    topic: str,
    ledger: Ledger,
    row_of: Callable[[bytes], int],
) -> tuple[list[Audit], bool]:
    """Audits each replica and says whether all are identical."""
    audits = [audit(each, node, topic, ledger, row_of) for node, each in apis.items()]
    return audits, all(one.digests == audits[0].digests for one in audits)
