"""Batch of a transaction on its way into its partition: finds the open one of its id and epoch.

    produce --look--> StagedBatch --wait, or a transaction, or a verdict--> produce, append

The batch names no transaction. This node's copy of the metadata says which one is open; if that
knows none that takes the batch, it may be behind, and the batch waits until it has caught up, once.
It also waits a moment for the end of its producer's last transaction here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from cluster.dedup.verdict import BatchMeta, Kind, Verdict, fenced
from cluster.kafka.open_transactions import refused_end
from cluster.metadata.producer_names import NameState
from cluster.metadata.state import MetadataState
from cluster.partition.replica import Partition
from cluster.partition.types import Answer
from cluster.services.log.lease_checks import Leases
from cluster.services.outcomes import called_back
from cluster.services.partition_events import Listening
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import TRANSACTION_ENDED, Holder, TransactionState

MARKER_WAIT = 1.0  # seconds that a batch waits for its producer's last transaction to end
UNKNOWN_OFFSET = -1
# For clients that count on from the first offset of a batch: with the sequence added, the offsets
# of their records rise, and none is a real one.
FAR_OFFSET = -(1 << 62)
_COUNTING = ("librdkafka", "confluent-kafka", "rdkafka", "node-rdkafka", "rust-rdkafka", "kgo")
Wait = Callable[[], Awaitable[object]]


def staged_offset(software: str, sequence: int) -> int:
    """Return the offset of a staged batch for a client, by the name it gave (KIP-511)."""
    is_counting = software.lower().startswith(_COUNTING)
    return FAR_OFFSET + sequence if is_counting else UNKNOWN_OFFSET


class StagedBatch:
    """One batch. transaction_id: of the transaction that takes it, once `look` returns None."""

    def __init__(self, metadata: MetadataState, leases: Leases, meta: BatchMeta) -> None:
        self._metadata = metadata
        self._leases = leases
        self._meta = meta
        self._holder = Holder(meta.producer_id, meta.epoch)
        self._is_current = self._is_behind = self._has_waited = False
        self._opened: Answer | None = None
        self.transaction_id = 0

    @property
    def name(self) -> NameState | None:
        return self._metadata.holder(self._meta.producer_id)

    def look(self, replica: Partition) -> Wait | Verdict | None:
        """Return the next wait, or why the batch is refused; None: append it now."""
        row = self._row(replica)
        if row is None:
            if self._is_behind:
                return Verdict(Kind.NOT_READY, message="this node's metadata is behind")
            return self._refusal() if self._is_current else self._catch_up
        number, pid = row.transaction_id, self._meta.producer_id
        run = replica.machine.runs.run_of(pid)
        if run is not None and run.transaction_id < number and not self._has_waited:
            return partial(self._marked, replica, number)
        # A partition that forgot all ids of that age must be told of a new one by an open.
        if (
            pid < replica.policy.expired_below()
            and replica.last_seen.known(pid) is None
            and self._opened is None
        ):
            return partial(self._open, replica)
        if self._opened is not None and self._opened.verdict.kind is not Kind.APPENDED:
            return self._opened.verdict
        self.transaction_id = number
        replica.registered(number)
        return None

    def _row(self, replica: Partition) -> TransactionRow | None:
        """Return the open transaction that takes the batch, as far as this node knows."""
        name = self.name
        row = None if name is None else self._metadata.coordinator.open_of(name.name)
        group = replica.group.config.group
        if row is None or not row.takes(group, self._holder):
            return None
        # Its marker was here: this node's copy of the metadata is behind.
        return row if replica.machine.runs.over(row.transaction_id) is None else None

    def _refusal(self) -> Verdict:
        name, epoch = self.name, self._meta.epoch
        if name is None:
            text = f"producer_id: {self._meta.producer_id} has no transactional id"
            return Verdict(Kind.UNKNOWN_PRODUCER, message=text)
        if epoch < name.epoch:
            return fenced(epoch, name.epoch)
        owner = self._metadata.coordinator.owner(name.name)
        last = None
        if owner is not None and owner.holder == self._holder:
            last = self._metadata.coordinator.get(owner.last_id)
        if last is not None and last.state is TransactionState.OPEN:
            text = "the partition was not added to the transaction"
            return Verdict(Kind.TRANSACTION_ENDED, message=text)
        refused = refused_end(last)
        ended = refused.reason == TRANSACTION_ENDED
        kind = Kind.TRANSACTION_ENDED if ended else Kind.TRANSACTION_ABORTED
        return Verdict(kind, message=str(refused))

    # -- waits ----------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        self._is_current = await self._leases.caught_up()
        self._is_behind = not self._is_current

    async def _marked(self, replica: Partition, number: int) -> None:
        """Return when the producer's earlier run has ended here, or after a while."""
        until = asyncio.get_running_loop().time() + MARKER_WAIT
        with Listening((replica,)) as listening:
            while True:
                seen = listening.count
                run = replica.machine.runs.run_of(self._meta.producer_id)
                if run is None or run.transaction_id >= number:
                    return
                if not await listening.wait(seen, until):
                    self._has_waited = True
                    return

    async def _open(self, replica: Partition) -> None:
        opening = partial(replica.open_producer, self._holder.producer_id, self._holder.epoch)
        self._opened = await called_back(opening)
