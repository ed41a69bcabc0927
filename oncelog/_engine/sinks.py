"""Calls to sinks, as coroutines: batches of many tasks, and the committed batches of each sink.

Place in the flow: `oncelog.Admin` and the Spark sink wait for these. Any node answers; each call
may be repeated until it is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog import types
from oncelog._engine.net.cluster import Cluster
from oncelog.v1 import sink_pb2, sink_pb2_grpc

_PAGE = 1000
# A hanging node must not hold up a call that others answer.
_ATTEMPT_S = 10.0


class SinkCalls:
    """Runs on the engine's loop. timeout_s: how long a call is repeated."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def _call(self, name: str, request: Any) -> Any:
        if "timeout_ms" in request.DESCRIPTOR.fields_by_name:
            request.timeout_ms = int(1000 * min(_ATTEMPT_S, self._timeout_s))
        return await self._cluster.call(
            lambda channel: getattr(sink_pb2_grpc.SinkServiceStub(channel), name),
            request,
            timeout_s=self._timeout_s,
            attempt_timeout_s=min(_ATTEMPT_S, self._timeout_s) + 1.0,
        )

    async def draw_ticket(self, sink: str, jobs: bool) -> int:
        request = sink_pb2.DrawTicketRequest(sink=sink, jobs=jobs)
        return int((await self._call("DrawTicket", request)).ticket)

    async def begin_batch(self, request: sink_pb2.BeginBatchRequest) -> int:
        """Return the transaction; 0: the batch is committed."""
        return int((await self._call("BeginBatch", request)).transaction_id)

    async def end_batch(self, request: sink_pb2.EndBatchRequest) -> bool:
        """End a batch; returns once it is readable: whether it was committed before."""
        return bool((await self._call("EndBatch", request)).already)

    async def abort_batch(self, sink: str, transaction_id: int) -> None:
        request = sink_pb2.AbortBatchRequest(sink=sink, transaction_id=transaction_id)
        await self._call("AbortBatch", request)

    async def list(self) -> list[types.SinkInfo]:
        found: list[types.SinkInfo] = []
        while True:
            after = found[-1].sink if found else ""
            request = sink_pb2.ListSinksRequest(after=after, limit=_PAGE)
            page = (await self._call("ListSinks", request)).sinks
            found += map(_info, page)
            if len(page) < _PAGE:
                return found

    async def describe(self, sink: str) -> types.SinkInfo:
        request = sink_pb2.DescribeSinkRequest(sink=sink)
        return _info((await self._call("DescribeSink", request)).sink)

    async def reset(self, sink: str) -> None:
        await self._call("ResetSink", sink_pb2.ResetSinkRequest(sink=sink))


def _info(one: sink_pb2.SinkDescription) -> types.SinkInfo:
    before = one.before
    return types.SinkInfo(
        sink=one.sink,
        jobs=one.jobs,
        query=one.query,
        run=one.run,
        committed_batch=one.committed_batch,
        record_count=one.record_count,
        open_transaction_id=one.open_transaction_id,
        open_batch=one.open_batch if one.open_transaction_id else -1,
        committed=_pairs(one.committed),
        before=(before.query, before.batch, before.record_count)
        if one.HasField("before")
        else None,
    )


def _pairs(ranges: Iterable[sink_pb2.BatchRange]) -> tuple[tuple[int, int], ...]:
    return tuple((one.first, one.last) for one in ranges)
