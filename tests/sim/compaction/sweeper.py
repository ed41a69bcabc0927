"""Cleaner of a simulated partition: replaces stored batches at their own offsets.

    rows of a leader --some of them, read now--> carried batch --later--> a leader --> the log

It keeps all records, so that the model can compare them. Its read may be out of date by the time a
leader proposes the batch.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import crc32c

from cluster.entries import CarriedEntry, KeyTombstone, pack_carried
from cluster.partition.replica import Partition
from oncelog.wire.batch import encode_payload
from storage.offset_index import IndexEntry
from tests.sim.compaction.keyed import blanks_behind
from tests.sim.compaction.keyed import rows_of as rows_of_entry
from tests.sim.model import contents

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

WORK = 3.0  # seconds of one cleaning, at most
PERIOD = 2.0


def rows_of(partition: Partition) -> list[IndexEntry]:
    """Returns the rows of all kept batches."""
    stored, rows = partition.machine.stored, list[IndexEntry]()
    offset = stored.log_start
    while offset < stored.next_offset:
        page = stored.index.recent(offset) or stored.index.stored(offset)
        if not page:  # the disk is full
            break
        rows += page
        offset = page[-1].last_offset + 1
    return rows


def carried(partition: Partition, rows: list[IndexEntry], *, keyed: bool = False) -> bytes:
    """Returns the entry that replaces adjoining batches, and holds all of their records.

    keyed: their payloads are columns.
    """
    entries = [partition.group.journal.entry(row.raft_index) for row in rows]
    payload, blanks = b"".join(map(contents, entries)), 0
    if keyed:
        records = [row for entry in entries for row in rows_of_entry(entry)]
        blanks = blanks_behind(records)
        keys, values, times = zip(*records, strict=True)
        payload = encode_payload(values, times, keys)
    entry = CarriedEntry(
        codec=0,
        record_count=sum(row.record_count for row in rows),
        crc=crc32c.crc32c(payload),
        base_offset=rows[0].base_offset,
        guard=max(row.raft_index for row in rows),
        freed_bytes=sum(row.payload_bytes for row in rows),
        append_time_ms=max(row.append_time_ms for row in rows),
        max_timestamp_us=max(row.max_timestamp_us for row in rows),
        stamp_ms=partition.machine.clock_ms,
        tombstones=() if keyed else (KeyTombstone(rows[0].base_offset, 1),),
        blanks_behind=blanks,
    )
    return pack_carried(entry, payload)


class Sweeper:
    """Cleans one partition now and then, with some cleanings at once."""

    def __init__(self, cluster: Cluster, rng: random.Random, gid: int) -> None:
        self._cluster, self._rng, self._gid = cluster, rng, gid
        self.closing = False

    def tick(self) -> None:
        if self.closing:
            return
        scheduler, rng = self._cluster.scheduler, self._rng
        scheduler.after(PERIOD * rng.random(), self.tick)
        leader = self._cluster.leader(self._gid)
        if leader is None or self._cluster.scheduler.now < leader.paused_until:
            return
        partition = leader.partitions[self._gid]
        rows = rows_of(partition)
        if rows:
            first = rng.randrange(len(rows))
            if rng.random() < 0.5:
                first = 0
            chosen = rows[first : first + rng.randint(1, 12)]
            data = carried(partition, chosen)
            scheduler.after(WORK * rng.random() ** 2, self._propose, data)

    def _propose(self, data: bytes) -> None:
        """Proposes it at the leader of now, which may be another one than was read from."""
        leader = self._cluster.leader(self._gid)
        if leader is not None and self._cluster.scheduler.now >= leader.paused_until:
            leader.partitions[self._gid].carry(data, lambda outcome: None)
