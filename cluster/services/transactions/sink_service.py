"""SinkService: tickets, batches of many tasks, and descriptions of sinks.

    task --BeginBatch--> one transaction for all --Produce--> staged under producers of their own
    driver --EndBatch(winners)--> decided, published, readable --> answered

A batch is answered once its records are readable, even if it was committed before. An earlier
answer would let the next batch overtake it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from cluster.errors import NotReadyError
from cluster.services.context import NodeContext
from cluster.services.errors import accepted, rejection
from cluster.services.requests import count_in_range, in_range, invalid, page_size, timeout_s
from cluster.services.transactions.commit import Coordination, Decisions
from cluster.transactions.coordinator import MAX_TOTAL_MS, MIN_IDLE_MS, Coordinator
from cluster.transactions.sinks import Asked, Sink
from cluster.transactions.transaction import MAX_RUNS, TransactionRow
from cluster.transactions.types import BY_OWNER, UNKNOWN_TRANSACTION, Expected, Refused
from cluster.v1 import transactions_pb2 as tpb
from oncelog.v1 import sink_pb2 as pb
from oncelog.v1 import transaction_pb2 as transaction_pb

DEFAULT_TOTAL_MS = 3600_000
DEFAULT_LISTED, MAX_LISTED = 100, 1000
MAX_RUN_CHARS = 255


class SinkService:
    """Answers for one node."""

    def __init__(self, node: NodeContext, coordination: Coordination) -> None:
        self.node = node
        self._coordination = coordination
        self._decisions = Decisions(node, coordination)

    async def DrawTicket(self, request: pb.DrawTicketRequest) -> pb.DrawTicketResponse:
        draw = tpb.DrawTicket(sink=request.sink, jobs=request.jobs)
        result = await self._decisions.propose(tpb.TransactionCommand(draw_ticket=draw), 0)
        return pb.DrawTicketResponse(ticket=accepted(result).sink.ticket)

    async def BeginBatch(self, request: pb.BeginBatchRequest) -> pb.BeginBatchResponse:
        total = request.total_timeout_ms or DEFAULT_TOTAL_MS
        in_range("total_timeout_ms", total, MIN_IDLE_MS, MAX_TOTAL_MS)
        if len(request.run) > MAX_RUN_CHARS:
            raise invalid("run", f"has {len(request.run)} characters", f"0..{MAX_RUN_CHARS}")
        begin = tpb.BeginBatch(
            sink=request.sink,
            jobs=request.jobs,
            query=request.query,
            run=request.run,
            ticket=request.ticket,
            batch=request.batch,
            reset=request.reset,
            total_ms=total,
        )
        command = tpb.TransactionCommand(begin_batch=begin)
        try:
            async with asyncio.timeout(timeout_s(request.timeout_ms, self.node)):
                while True:
                    result = await self._decisions.propose(command, request.timeout_ms)
                    begun = accepted(result).sink
                    if not begun.busy:
                        return pb.BeginBatchResponse(transaction_id=begun.transaction_id)
                    await self._last_one_ended(request.sink)
        except TimeoutError:
            text = f"sink {request.sink!r}: its last batch is not readable everywhere yet"
            raise NotReadyError(text) from None

    async def _last_one_ended(self, key: str) -> None:
        coordinator = self.node.metadata.coordinator
        row = coordinator.get(coordinator.sinks.last_id(key))
        if row is not None:
            await self._coordination.finished(row)

    async def EndBatch(self, request: pb.EndBatchRequest) -> pb.EndBatchResponse:
        count_in_range("winners", len(request.winners), 0, MAX_RUNS)
        try:
            async with asyncio.timeout(timeout_s(request.timeout_ms, self.node)):
                if not request.transaction_id:
                    return await self._ended_before(request)
                row = await self._decided(request)
                await self._coordination.finished(row)
        except TimeoutError:
            text = f"batch {request.batch} of sink {request.sink!r}: repeat to learn its outcome"
            raise NotReadyError(text) from None
        return pb.EndBatchResponse(runs=self._published(row))

    def _asked(self, request: pb.EndBatchRequest) -> list[Expected]:
        asked = []
        for run in request.winners:
            group = self.node.metadata.group_of(run.topic, run.partition)
            if group is None:
                raise invalid("winners", f"{run.topic}/{run.partition} does not exist")
            asked.append(Expected(group, run.producer_id, run.record_count, run.last_sequence))
        return asked

    async def _decided(self, request: pb.EndBatchRequest) -> TransactionRow:
        asked = await self._decisions.newest(lambda: self._asked(request))
        total = sum(run.records for run in asked)
        if request.record_count != total:
            raise invalid("record_count", f"{request.record_count}, and the winners have {total}")
        commit = tpb.CommitTransaction(transaction_id=request.transaction_id, digest=request.digest)
        decided = await self._decisions.decide(commit, asked, request.timeout_ms, sink=request.sink)
        return decided.row

    async def _ended_before(self, request: pb.EndBatchRequest) -> pb.EndBatchResponse:
        await self.node.newest_metadata.wait()
        asked = Asked(request.sink, request.query, "", 0, request.batch, request.jobs)
        coordinator = self.node.metadata.coordinator
        try:
            row = coordinator.check_committed(asked, request.record_count, request.digest)
        except Refused as refused:
            raise rejection(refused.reason, str(refused)) from refused
        if row is not None:
            await self._coordination.finished(row)
        return pb.EndBatchResponse(already=True)

    def _published(self, row: TransactionRow) -> list[transaction_pb.PublishedRun]:
        found = []
        for group, part in row.parts.items():
            place = self.node.metadata.partition(group)
            found += [
                transaction_pb.PublishedRun(
                    topic="" if place is None else place[0].name,
                    partition=-1 if place is None else place[1],
                    base_offset=run.base_offset,
                    record_count=run.records,
                )
                for run in part.runs
            ]
        return found

    async def AbortBatch(self, request: pb.AbortBatchRequest) -> pb.AbortBatchResponse:
        await self.node.newest_metadata.wait()
        row = self.node.metadata.coordinator.get(request.transaction_id)
        if row is not None and (not row.sink or row.owner != request.sink):
            text = f"{request.transaction_id} is not of sink {request.sink!r}"
            raise invalid("transaction_id", text)
        abort = tpb.AbortTransaction(transaction_id=request.transaction_id, reason=BY_OWNER)
        accepted(await self._decisions.propose(tpb.TransactionCommand(abort=abort), 0))
        return pb.AbortBatchResponse()

    async def ListSinks(self, request: pb.ListSinksRequest) -> pb.ListSinksResponse:
        limit = page_size(request.limit, DEFAULT_LISTED, MAX_LISTED)
        found = described(self.node.metadata.coordinator, request.after)
        return pb.ListSinksResponse(sinks=islice(found, limit))

    async def DescribeSink(self, request: pb.DescribeSinkRequest) -> pb.DescribeSinkResponse:
        await self.node.newest_metadata.wait()
        coordinator = self.node.metadata.coordinator
        sink = coordinator.sinks.get(request.sink)
        if sink is None:
            raise rejection(UNKNOWN_TRANSACTION, f"there is no sink {request.sink!r}")
        return pb.DescribeSinkResponse(sink=description(coordinator, request.sink, sink))

    async def ResetSink(self, request: pb.ResetSinkRequest) -> pb.ResetSinkResponse:
        reset = tpb.ResetSink(sink=request.sink)
        accepted(await self._decisions.propose(tpb.TransactionCommand(reset_sink=reset), 0))
        return pb.ResetSinkResponse()


def described(coordinator: Coordinator, after: str) -> Iterator[pb.SinkDescription]:
    """Yield sinks by name, starting behind `after`; without those that lack their own name."""
    for key, sink in coordinator.sinks:
        if key > after and not sink.nameless:
            yield description(coordinator, key, sink)


def description(coordinator: Coordinator, key: str, sink: Sink) -> pb.SinkDescription:
    """Describe a sink."""
    opened, before = coordinator.open_in(key), sink.before
    return pb.SinkDescription(
        sink=key,
        jobs=sink.jobs,
        query=sink.query,
        run=sink.run,
        ticket=sink.ticket,
        committed_batch=sink.committed_batch,
        record_count=sink.committed_records,
        digest=sink.committed_digest,
        open_transaction_id=opened.transaction_id if opened is not None else 0,
        open_batch=sink.batch if opened is not None else 0,
        version=sink.version,
        before=None
        if before is None
        else pb.SinkBefore(
            query=before.query,
            batch=before.batch,
            record_count=before.records,
            digest=before.digest,
        ),
        committed=[pb.BatchRange(first=first, last=last) for first, last in sink.ranges],
    )
