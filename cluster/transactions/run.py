"""Run of one producer, and the end of a transaction in a partition. Pure.

cluster.transactions.runs --> Run, Ended --> run_records (bytes)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cluster.dedup.verdict import WINDOW, BatchMeta, KnownProducer, RememberedBatch
from cluster.transactions.types import Published


class Ended(NamedTuple):
    """End of a transaction here. `runs`: the published ones, in the order of offsets."""

    committed: bool
    runs: tuple[Published, ...] = ()

    def of(self, producer_id: int) -> Published | None:
        return next((run for run in self.runs if run.producer_id == producer_id), None)


@dataclass(slots=True)
class Run:
    """Staged batches of one producer under one transaction.

    first, last: its sequences. records, size: of all batches, `size` in bytes of entries.
    first_index: the Raft entry of its first batch. recent: the newest batches, with
    offsets that count from the run's first record, oldest first. kafka: all came by Kafka's
    protocol; its clients do not send the sequences of an aborted run again.
    """

    transaction_id: int
    producer_id: int
    epoch: int
    first: int
    last: int
    first_index: int
    batches: int = 0
    records: int = 0
    size: int = 0
    max_timestamp_us: int = 0
    recent: tuple[RememberedBatch, ...] = ()
    kafka: bool = False

    def known(self) -> KnownProducer:
        """Returns the run as a chain of its own, for `judge`."""
        return KnownProducer(self.epoch, self.last, False, self.first - 1, self.recent)

    def add(self, meta: BatchMeta, size: int, max_timestamp_us: int) -> int:
        """Puts an admitted batch at the end; returns its offset in the run."""
        offset = self.records
        batch = RememberedBatch(meta.first, meta.last, offset, meta.count, meta.crc)
        self.recent = (*self.recent, batch)[-WINDOW:]
        self.last = meta.last
        self.batches += 1
        self.records += meta.count
        self.size += size
        self.max_timestamp_us = max(self.max_timestamp_us, max_timestamp_us)
        return offset
