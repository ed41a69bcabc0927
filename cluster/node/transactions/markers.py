"""Markers of decided transactions, written until all partitions have applied them.

    services --published--> Markers --WriteMarkers--> leaders of the partitions
    metadata's leader --look---'  '--MarkersDone, in bundles--> metadata

A decision never changes, and a repeated marker changes nothing, so any node that knows a
decision may write its markers. The node that answers a commit writes them at once, and tells
the metadata afterwards; no client waits for that. The metadata's leader ends aborted
transactions, and commits without a report within a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from cluster.consensus.proposals import Abandoned, Outcome
from cluster.errors import ClusterError
from cluster.metadata.state import MetadataState
from cluster.node.tasks import Tasks
from cluster.partition.replica import Partition
from cluster.services.outcomes import called_back
from cluster.transactions.run_records import (
    marker_of,
    marker_record,
    published_of,
    published_record,
)
from cluster.transactions.runs import Marked
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import Marker, Published, TransactionState
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb

log = logging.getLogger(__name__)

RETRY_WAIT = (0.05, 1.0)  # seconds; a leader is being elected, or a node is away
REPORT_WAIT = 1.0  # seconds that the node answering a commit has for its markers
REPORT_PERIOD = 0.1  # seconds between reports, unless a waiter hurries the next one
MARKERS_PER_REQUEST = 1000
MAX_REPORTED = 1000  # transactions in one report

Runs = dict[int, tuple[Published, ...]]  # by group: the runs now readable there
Ask = Callable[[int, pb.Request], Awaitable[pb.Response | None]]


class _Work:
    """One transaction with markers in progress from here."""

    def __init__(self, row: TransactionRow) -> None:
        self.row = row
        self.runs: Runs = {}  # where they are applied
        self.ended: asyncio.Future[Runs] = asyncio.get_running_loop().create_future()


class Markers:
    """Writes markers for one node.

    ask: sends a node a request for its partitions; None: it does not answer.
    propose: a command to the coordinator. Raises ClusterError.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataState,
        partitions: Mapping[int, Partition],
        leader_of: Callable[[int], tuple[int, int]],
        ask: Ask,
        propose: Callable[[tpb.TransactionCommand], Awaitable[object]],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._leader_of = leader_of
        self._ask = ask
        self._propose = propose
        self._tasks = Tasks()
        self._works: dict[int, _Work] = {}
        self._decided: dict[int, float] = {}  # first seen by this leader, by transaction
        self._applied: dict[int, list[tpb.PartRecord]] = {}  # not reported yet
        self._reporting = False
        self._hurry = asyncio.Event()

    async def stop(self) -> None:
        await self._tasks.stop()

    def hurry(self) -> None:
        """Report applied markers soon: a caller waits for the metadata to know."""
        self._hurry.set()

    def begin(self, row: TransactionRow) -> asyncio.Future[Runs]:
        """Write a decided transaction's markers; the future gives the readable runs."""
        work = self._works.get(row.transaction_id)
        if work is None:
            work = self._works[row.transaction_id] = _Work(row)
            self._tasks.spawn(self._finish(work))
        return work.ended

    def look(self, now: float) -> None:
        """End transactions that no node has ended, as the metadata's leader."""
        before, self._decided = self._decided, {}
        for row in self._metadata.coordinator.decided():
            since = self._decided[row.transaction_id] = before.get(row.transaction_id, now)
            wait = REPORT_WAIT if row.state is TransactionState.COMMITTING else 0.0
            if now - since >= wait:
                self.begin(row)

    # -- writing ------------------------------------------------------------------------

    async def _finish(self, work: _Work) -> None:
        number, row = work.row.transaction_id, work.row
        wait, longest = RETRY_WAIT
        try:
            while True:
                row = self._metadata.coordinator.get(number) or row
                for group, part in row.parts.items():
                    if part.done:
                        work.runs.setdefault(group, part.runs)
                left = row.next_markers(work.runs)
                if not left:
                    break
                parts = await self._write(row, left)
                for record in parts:
                    work.runs[record.group_id] = tuple(map(published_of, record.runs))
                self._report(number, parts)
                if len(parts) < len(left):
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, longest)
            if not work.ended.done():
                work.ended.set_result(work.runs)
        finally:
            del self._works[number]
            work.ended.cancel()

    async def _write(self, row: TransactionRow, groups: Sequence[int]) -> list[tpb.PartRecord]:
        """Return the parts that applied them; sends one request to each node."""
        by_node: dict[int, list[pb.GroupMarker]] = defaultdict(list)
        for group in groups:
            marker = marker_record(self._metadata.coordinator.marker(row, group, 0))
            by_node[self._leader_of(group)[0]].append(pb.GroupMarker(group=group, marker=marker))
        requests = [
            self._write_at(node, pb.WriteMarkersRequest(markers=markers[at : at + limit]))
            for limit in (MARKERS_PER_REQUEST,)
            for node, markers in by_node.items()
            for at in range(0, len(markers), limit)
        ]
        return [part for parts in await asyncio.gather(*requests) for part in parts]

    async def _write_at(
        self, node: int, request: pb.WriteMarkersRequest
    ) -> Sequence[tpb.PartRecord]:
        if node == self._node_id:
            return (await self.write_here(request)).parts
        response = await self._ask(node, pb.Request(write_markers=request))
        return () if response is None else response.write_markers.parts

    async def write_here(self, request: pb.WriteMarkersRequest) -> pb.WriteMarkersResponse:
        """Propose markers in this node's partitions and wait for their outcome."""
        known = [
            (self._partitions[entry.group], entry)
            for entry in request.markers
            if entry.group in self._partitions
        ]
        results = await asyncio.gather(
            *(_mark(partition, marker_of(entry.marker)) for partition, entry in known)
        )
        return pb.WriteMarkersResponse(
            parts=[
                tpb.PartRecord(
                    group_id=entry.group,
                    done=True,
                    runs=[published_record(run) for run in marked.ended.runs],
                )
                for (_, entry), marked in zip(known, results, strict=True)
                if marked is not None
            ]
        )

    # -- telling the metadata -------------------------------------------------------------

    def _report(self, transaction_id: int, parts: Sequence[tpb.PartRecord]) -> None:
        if not parts:
            return
        self._applied.setdefault(transaction_id, []).extend(parts)
        if not self._reporting:
            self._reporting = True
            self._tasks.spawn(self._report_all())

    async def _report_all(self) -> None:
        """Send one report at a time: the next one has everything that came meanwhile."""
        try:
            while self._applied:
                self._hurry.clear()
                reported = list(self._applied)[:MAX_REPORTED]
                done = tpb.MarkersDone(
                    transactions=[
                        tpb.MarkedParts(transaction_id=number, parts=self._applied.pop(number))
                        for number in reported
                    ]
                )
                try:
                    await self._propose(tpb.TransactionCommand(markers_done=done))
                except ClusterError as error:
                    # The metadata's leader will look for itself.
                    log.info("transactions: markers were not reported: %s", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPORT_PERIOD):
                        await self._hurry.wait()
        finally:
            self._reporting = False


async def _mark(partition: Partition, marker: Marker) -> Marked | None:
    outcome: Outcome = await called_back(lambda done: partition.mark(marker, done))
    if isinstance(outcome, Abandoned):
        return None
    assert isinstance(outcome.result, Marked)
    return outcome.result
