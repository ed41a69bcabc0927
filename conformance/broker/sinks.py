"""Sinks of the simulated cluster, by the nodes' own rules.

SinkService --draw, begin, end, abort--> Coordinator in the metadata
                      '--> Transactions.mark: winners become readable, all else is dropped
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from cluster.services.errors import rejection
from cluster.services.transactions.sink_service import DEFAULT_LISTED, described, description
from cluster.transactions.run_records import expected_record
from cluster.transactions.sinks import Asked
from cluster.transactions.types import Expected, Refused, State
from cluster.v1 import transactions_pb2 as tpb
from conformance.broker.lies import Lie
from oncelog import errors
from oncelog.v1 import sink_pb2 as pb
from oncelog.v1 import sink_pb2_grpc

if TYPE_CHECKING:
    from conformance.broker.cluster import Cluster
    from conformance.broker.stage import Stage

DEFAULT_TOTAL_MS = 3600_000


def _end(cluster: Cluster, request: pb.EndBatchRequest) -> pb.EndBatchResponse:
    """Ends a batch. Raises OncelogError."""
    coordinator = cluster.metadata.coordinator
    if not request.transaction_id:
        asked = Asked(request.sink, request.query, "", 0, request.batch, request.jobs)
        try:
            coordinator.check_committed(asked, request.record_count, request.digest)
        except Refused as refused:
            raise rejection(refused.reason, str(refused)) from refused
        return pb.EndBatchResponse(already=True)
    row = coordinator.get(request.transaction_id)
    if row is None or row.owner != request.sink:
        text = f"sink {request.sink!r} has no transaction {request.transaction_id}"
        raise errors.UnknownTransactionError(text)
    asked_runs = [_run(cluster, run) for run in request.winners]
    if request.record_count != sum(run.records for run in asked_runs):
        raise errors.InvalidRequestError("record_count: not that of all winners")
    expected = asked_runs
    if row.state is State.OPEN:
        expected = cluster.transactions.confirmed(row, asked_runs, only_winners=True)
    commit = tpb.CommitTransaction(
        transaction_id=request.transaction_id,
        expected=map(expected_record, expected),
        checked=len(row.parts),
        digest=request.digest,
    )
    cluster.propose(transaction=tpb.TransactionCommand(commit=commit))
    cluster.transactions.mark()
    decided = coordinator.get(request.transaction_id)
    if decided is None or decided.state is not State.COMMITTED:
        raise errors.TransactionAbortedError(f"batch {request.batch} was aborted")
    return pb.EndBatchResponse()


def _run(cluster: Cluster, run: pb.Winner) -> Expected:
    group = cluster.metadata.group_of(run.topic, run.partition)
    if group is None:
        raise errors.InvalidRequestError(f"winners: {run.topic}/{run.partition} is not there")
    return Expected(group, run.producer_id, run.record_count, run.last_sequence)


class SinkService(sink_pb2_grpc.SinkServiceServicer):
    """Sink service of one node; any node answers."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def DrawTicket(self, request: pb.DrawTicketRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.DrawTicketResponse:
            draw = tpb.DrawTicket(sink=request.sink, jobs=request.jobs)
            command = tpb.TransactionCommand(draw_ticket=draw)
            result = self._stage.cluster.propose(transaction=command)
            return pb.DrawTicketResponse(ticket=result.sink.ticket)

        facts = {"sink": request.sink, "jobs": request.jobs}
        return await self._stage.answer("draw_ticket", facts, request, context, truth)

    async def BeginBatch(self, request: pb.BeginBatchRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.BeginBatchResponse:
            begin = tpb.BeginBatch(
                sink=request.sink,
                jobs=request.jobs,
                query=request.query,
                run=request.run,
                ticket=request.ticket,
                batch=request.batch,
                reset=request.reset,
                total_ms=request.total_timeout_ms or DEFAULT_TOTAL_MS,
            )
            cluster = self._stage.cluster
            command = tpb.TransactionCommand(begin_batch=begin)
            begun = cluster.propose(transaction=command).sink
            if begun.busy:  # the older run's open batch was aborted, and has its markers now
                cluster.transactions.mark()
                begun = cluster.propose(transaction=command).sink
            return pb.BeginBatchResponse(transaction_id=begun.transaction_id)

        facts = {
            "sink": request.sink,
            "query": request.query,
            "ticket": request.ticket,
            "batch": request.batch,
            "reset": bool(request.reset),
        }
        return await self._stage.answer("begin_batch", facts, request, context, truth)

    async def EndBatch(self, request: pb.EndBatchRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.EndBatchResponse:
            return _end(self._stage.cluster, request)

        facts = {
            "batch": request.batch,
            "transaction": request.transaction_id,
            "winners": len(request.winners),
            "records": request.record_count,
        }
        return await self._stage.answer("end_batch", facts, request, context, truth)

    async def AbortBatch(self, request: pb.AbortBatchRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.AbortBatchResponse:
            self._stage.cluster.transactions.abort(request.transaction_id)
            return pb.AbortBatchResponse()

        facts = {"transaction": request.transaction_id}
        return await self._stage.answer("abort_batch", facts, request, context, truth)

    async def ListSinks(self, request: pb.ListSinksRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.ListSinksResponse:
            found = described(self._stage.cluster.metadata.coordinator, request.after)
            return pb.ListSinksResponse(sinks=islice(found, request.limit or DEFAULT_LISTED))

        facts = {"after": request.after, "limit": request.limit}
        return await self._stage.answer("list_sinks", facts, request, context, truth)

    async def DescribeSink(self, request: pb.DescribeSinkRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.DescribeSinkResponse:
            coordinator = self._stage.cluster.metadata.coordinator
            sink = coordinator.sinks.get(request.sink)
            if sink is None:
                raise errors.UnknownTransactionError(f"there is no sink {request.sink!r}")
            return pb.DescribeSinkResponse(sink=description(coordinator, request.sink, sink))

        facts = {"sink": request.sink}
        return await self._stage.answer("describe_sink", facts, request, context, truth)

    async def ResetSink(self, request: pb.ResetSinkRequest, context: Any) -> Any:
        async def truth(_: Lie | None) -> pb.ResetSinkResponse:
            reset = tpb.ResetSink(sink=request.sink)
            cluster = self._stage.cluster
            cluster.propose(transaction=tpb.TransactionCommand(reset_sink=reset))
            cluster.transactions.mark()  # the sink's open batch is aborted
            return pb.ResetSinkResponse()

        facts = {"sink": request.sink}
        return await self._stage.answer("reset_sink", facts, request, context, truth)
