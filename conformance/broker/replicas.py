"""Log of one partition with its real replicas, without Raft: each proposal is committed at once.

    services of a node --> Partition (cluster.partition) --propose--> Seat --> PartitionLog
    every node's Partition <--apply------------------------------------------------'

Only a case's steps hold a replica back, move the leader or drop producers.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from crc32c import crc32c

from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Applied, Done
from cluster.dedup.last_seen import LastSeen
from cluster.entries import (
    BATCH,
    CarriedEntry,
    LogStartEntry,
    pack_carried,
    pack_log_start,
    payload_of,
    unpack_batch,
)
from cluster.partition.replica import AppendRequest, Partition, Policy
from cluster.partition.types import Answer, NodeView
from cluster.services.log.produce import meta_of
from conformance.broker.payloads import OTHERS_US
from oncelog.v1 import batch_pb2
from storage.kv import Family
from storage.offset_index import OffsetIndex


class Rows:
    """Rows of one replica's index, in memory. It is its own write batch, and writes at once."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        if key not in self._rows:
            insort(self._keys, key)
        self._rows[key] = value

    def delete(self, family: Family, key: bytes) -> None:
        if self._rows.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, family: Family, begin: bytes, end: bytes) -> None:
        low, high = bisect_left(self._keys, begin), bisect_left(self._keys, end)
        for key in self._keys[low:high]:
            del self._rows[key]
        del self._keys[low:high]

    def scan(
        self,
        family: Family,
        begin: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, begin) : bisect_left(self._keys, end)]
        return iter([(key, self._rows[key]) for key in (keys[::-1] if reverse else keys)[:limit]])


class Seat:
    """One replica's view of its group and journal."""

    base_index = 0
    failed = None

    def __init__(self, log: PartitionLog, node_id: int, policy: Policy, view: NodeView) -> None:
        self._log = log
        self.node_id = node_id
        self.journal = self
        self.config = SimpleNamespace(group=log.group_id, node_id=node_id, peers=())
        self.applied_index = 0
        self.rows = cast(Any, Rows())  # no row is read but by `scan`
        index = OffsetIndex(self.rows, log.group_id)
        self.replica = Partition(log.topic, log.number, index, policy, view, self._open)

    def _open(self, machine: Any) -> Group:
        machine.restore(None, 0)
        return cast(Group, self)

    @property
    def leader_id(self) -> int:
        return self._log.leader_id

    @property
    def term(self) -> int:
        return self._log.term

    @property
    def is_leader(self) -> bool:
        return self._log.leader_id == self.node_id

    is_ready = is_leader

    @property
    def entries_behind(self) -> int:
        return len(self._log.entries) - self.applied_index

    def propose(self, data: bytes, done: Done, *, outlives_term: bool = False) -> None:
        """Commits at once, so no proposal outlives its term."""
        if not self.is_leader:
            done(Abandoned(self.leader_id, "led elsewhere", lost=True))
            return
        self._log.entries.append(data)
        done(Applied(len(self._log.entries), self._log.apply(self)))

    def confirm(self, done: Done) -> None:
        done(Applied(self.applied_index, None))

    def apply(self) -> object:
        """Applies the next entry."""
        self.applied_index += 1
        data = self._log.entries[self.applied_index - 1]
        return self.replica.apply(self.applied_index, self._log.term, data, self.rows)

    def empty(self) -> None:
        """Begins the replica again, with nothing applied."""
        self.replica.restore(None, 0)
        self.replica.discard(self.rows)
        self.applied_index = 0

    def is_in_memory(self, index: int) -> bool:
        return True

    def entry(self, index: int, is_intact: object = None) -> bytes:
        return self._log.entries[index - 1]

    def stored_entry(self, index: int, is_intact: object, *, cached_only: bool) -> bytes:
        return self.entry(index)


class PartitionLog:
    """Committed entries of a partition, with a replica on each of these nodes."""

    def __init__(
        self,
        topic: str,
        number: int,
        group_id: int,
        nodes: Iterable[int],
        policy: Policy,
        view: NodeView,
    ) -> None:
        self.topic = topic
        self.number = number
        self.group_id = group_id
        self.entries: list[bytes] = []
        self.leader_id = 0
        self.term = 0
        # Node -> the high watermark that its replica does not pass.
        self._held: dict[int, int] = {}
        self.seats = {node: Seat(self, node, policy, view) for node in nodes}
        self.lead(next(iter(self.seats)))

    @property
    def leader(self) -> Partition:
        """Leader's replica; with no leader, any."""
        seat = self.seats.get(self.leader_id) or next(iter(self.seats.values()))
        return seat.replica

    def apply(self, leader: Seat) -> object:
        """Applies the newest entry everywhere; returns the leader's result."""
        assert leader.applied_index == len(self.entries) - 1, "the leader is held back"
        result = leader.apply()
        self._follow()
        return result

    def _follow(self) -> None:
        for seat in self.seats.values():
            while seat.applied_index < len(self.entries) and self._is_due(seat):
                seat.apply()

    def _is_due(self, seat: Seat) -> bool:
        data, most = self.entries[seat.applied_index], self._held.get(seat.node_id)
        if most is None or data[0] != BATCH:
            return True
        return seat.replica.high_watermark + unpack_batch(data).record_count <= most

    def append(self, batch: batch_pb2.Batch) -> Answer:
        """Appends a batch at the leader, whoever sent it."""
        header, answers = batch.header, list[Answer]()
        request = AppendRequest(
            meta_of(header),
            header.codec,
            header.transaction_id,
            header.max_timestamp_us,
            batch.payload,
        )
        self.leader.append(request, answers.append)
        return answers[0]

    def records(self) -> list[batch_pb2.StoredBatch]:
        """Readable batches, for the judge: of each the codec, the payload and the first offset."""
        seat = max(self.seats.values(), key=lambda one: one.applied_index)
        read = seat.replica.reading(self.log_start, sys.maxsize).run()
        return [
            batch_pb2.StoredBatch(
                header=batch_pb2.BatchHeader(codec=unpack_batch(data).codec),  # type: ignore[arg-type]
                payload=bytes(payload_of(data)),
                base_offset=base_offset,
            )
            for base_offset, data in read
        ]

    @property
    def log_start(self) -> int:
        return self.leader.log_start_offset

    # --- steps of a case ---------------------------------------------------------------

    def lead(self, node_id: int) -> None:
        """Begins a leadership. 0: of no node."""
        self.leader_id = node_id
        self.term += 1
        for seat in self.seats.values():
            leads = seat.is_leader
            seat.replica.on_role(leader=leads, ready=leads, term=self.term)

    def hold(self, node_id: int, offset: int) -> None:
        """Has the node's replica stop at `offset` or before; -1: it catches up."""
        self._held.pop(node_id, None)
        if offset >= 0:
            self._held[node_id] = offset
            self.seats[node_id].empty()
        self._follow()
        if node_id == self.leader_id:
            self.lead(node_id)

    def start_at(self, offset: int) -> None:
        """Deletes batches below the offset, as retention does."""
        entry = LogStartEntry(self.log_start, offset, 0, 0)
        self.leader.propose(pack_log_start(entry), lambda outcome: None)

    def carry(self, offset: int, count: int, payload: bytes, blanks_behind: int) -> None:
        """Replaces the batches at these offsets by a carried one."""
        stamp_ms = OTHERS_US // 1000
        times = (0, stamp_ms, OTHERS_US, stamp_ms)
        entry = CarriedEntry(
            0, count, crc32c(payload), offset, len(self.entries), *times, (), blanks_behind
        )
        outcomes = list[object]()
        refusal = self.leader.carry(pack_carried(entry, payload), outcomes.append)
        assert refusal is None and outcomes == [Applied(len(self.entries), True)], outcomes

    def forget_producers(self) -> None:
        """Replaces the replicas' states by ones without producers."""
        for seat in self.seats.values():
            state = seat.replica.load(seat.replica.dump())
            seat.replica.restore(state._replace(last_seen=LastSeen()), seat.applied_index)
        self.lead(self.leader_id)

    def close(self) -> None:
        for seat in self.seats.values():
            seat.replica.close()
