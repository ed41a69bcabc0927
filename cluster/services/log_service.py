"""Produce, fetch, subscribe: decode, call the partition, encode; nothing else.

One `ProduceStream` is one reader task (batches into partitions, in order) and
one writer (results as they come, as many as are there in one message). Memory
is bounded by not reading on while too many bytes wait for their answer, which
gRPC's flow control carries to the client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol

import crc32c
import grpc

from cluster.dedup.verdict import BatchMeta, Kind, Verdict, validate
from cluster.errors import ClusterError
from cluster.metadata.topics import is_internal
from cluster.metrics import Metrics
from cluster.partition.replica import Answer, AppendRequest, Partition
from cluster.services.errors import abort
from cluster.services.fetch_wire import encode
from cluster.services.listening import Listening
from cluster.services.reading import UNKNOWN_TOPIC, Reader
from cluster.services.resolving import Resolver
from oncelog import errors
from oncelog.v1 import batch_pb2 as bpb
from oncelog.v1 import log_pb2 as pb
from oncelog.v1 import log_pb2_grpc as rpc

MAX_WAITING_BYTES = 64 * 1024 * 1024  # a stream's batches without an answer
MAX_PARTITIONS = 1000  # in one fetch
PREDECESSOR_WAIT = 1.0  # seconds that a unary batch waits for the one before it
SWEEP = 1.0  # seconds between looks for batches whose time is over


class LogContext(Protocol):
    """What the node gives to this service. Times in seconds."""

    request_timeout: float
    fetch_max_bytes: int
    metrics: Metrics

    def find(self, topic: str, partition: int) -> tuple[Partition | None, int]:
        """This node's replica, and the id of the leader's node (0 unknown).

        Raises KeyError if there is no such topic or partition.
        """

    def address_of(self, node_id: int) -> str: ...

    def is_issued(self, producer_id: int) -> bool:
        """Whether this node knows that the id was handed out."""

    async def confirm_issued(self, producer_id: int) -> bool:
        """Asks the metadata leader. Raises ClusterError if there is none."""


def meta_of(header: bpb.BatchHeader) -> BatchMeta:
    base, count = header.base_sequence, header.record_count
    return BatchMeta(
        header.producer_id,
        header.epoch,
        base,
        header.last_sequence if header.HasField("last_sequence") else base + count - 1,
        header.prev_sequence if header.HasField("prev_sequence") else base - 1,
        count,
        header.crc32c,
        header.expected_offset if header.HasField("expected_offset") else -1,
    )


def add_log_service(service: LogService, server: grpc.aio.Server) -> None:
    """Registers the service, with the answers to fetches handed over as bytes."""
    rpc.add_LogServiceServicer_to_server(service, server)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Fetch": grpc.unary_unary_rpc_method_handler(
            service.Fetch, pb.FetchRequest.FromString, _same
        ),
        "Subscribe": grpc.unary_stream_rpc_method_handler(
            service.Subscribe, pb.SubscribeRequest.FromString, _same
        ),
    }
    server.add_registered_method_handlers("oncelog.v1.LogService", handlers)


def _same(answer: bytes) -> bytes:
    return answer


class LogService(rpc.LogServiceServicer):
    """The LogService of one node."""

    def __init__(self, node: LogContext) -> None:
        self._node = node
        self._resolver = Resolver(node)
        self._reader = Reader(node)

    # -- produce ----------------------------------------------------------------------

    async def accept(self, batch: bpb.Batch, answer_to: Callable[[Answer], None]) -> None:
        """Checks a batch's form and hands it to its partition.

        Waits only where the producer id is newer than this node's metadata.
        """
        header, payload = batch.header, batch.payload
        try:
            partition, leader = self._node.find(header.topic, header.partition)
        except KeyError:
            answer_to(Answer(Verdict(Kind.UNKNOWN_TOPIC_OR_PARTITION, message=UNKNOWN_TOPIC)))
            return
        if partition is None:
            answer_to(Answer(Verdict(Kind.NOT_LEADER), leader_id=leader))
            return
        if is_internal(header.topic):
            text = f"topic: {header.topic} is internal"
            answer_to(Answer(Verdict(Kind.INVALID_BATCH, message=text)))
            return
        meta = meta_of(header)
        wrong = validate(
            meta, payload_size=len(payload), max_payload=partition.policy.max_batch_bytes
        )
        if wrong is None and header.codec not in (0, 1, 2):
            wrong = Verdict(Kind.INVALID_BATCH, message=f"codec: {header.codec} is unknown")
        if wrong is None and header.transaction_id != 0:
            wrong = Verdict(Kind.INVALID_BATCH, message="transaction_id: not supported yet, use 0")
        if wrong is None:
            crc = crc32c.crc32c(payload)
            if crc != meta.crc:
                text = f"crc32c: the payload has {crc:#010x}, the header says {meta.crc:#010x}"
                wrong = Verdict(Kind.INVALID_BATCH, message=text)
        if wrong is not None:
            answer_to(Answer(wrong))
            return
        if meta.producer_id and not self._node.is_issued(meta.producer_id):
            try:
                issued = await self._node.confirm_issued(meta.producer_id)
            except ClusterError as error:
                answer_to(Answer(Verdict(Kind.NOT_READY, message=str(error))))
                return
            if not issued:
                text = f"producer_id: {meta.producer_id} was never issued by this cluster"
                answer_to(Answer(Verdict(Kind.UNKNOWN_PRODUCER, message=text)))
                return
        request = AppendRequest(
            meta, header.codec, header.transaction_id, header.max_timestamp_us, payload
        )
        answer_to = self._timed(answer_to)
        if meta.producer_id:
            answer_to = self._resolver.with_offset(partition, meta, answer_to)
        partition.append(request, answer_to)

    def _timed(self, answer_to: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """`answer_to`, which also tells the metrics how long an append took."""
        started = time.monotonic()

        def answer(answer: Answer) -> None:
            if answer.verdict.kind is Kind.APPENDED:
                self._node.metrics.commit_latency.observe(time.monotonic() - started)
            answer_to(answer)

        return answer

    def _result(self, batch_id: int, answer: Answer) -> pb.BatchResult:
        verdict = answer.verdict
        result = pb.BatchResult(
            id=batch_id,
            verdict=verdict.kind,  # type: ignore[arg-type]  # the numbers are the same
            base_offset=verdict.base_offset,
            append_time_ms=answer.append_time_ms,
        )
        if verdict.kind not in (Kind.APPENDED, Kind.DUPLICATE):
            result.current_epoch = verdict.current_epoch
            result.last_sequence = verdict.last_sequence
            result.next_offset = verdict.next_offset
            result.message = verdict.message
            if verdict.kind is Kind.NOT_LEADER and answer.leader_id:
                result.leader_id = answer.leader_id
                result.leader_address = self._node.address_of(answer.leader_id)
        return result

    async def Produce(
        self,
        request: pb.ProduceRequest,
        context: grpc.aio.ServicerContext[pb.ProduceRequest, pb.ProduceResponse],
    ) -> pb.ProduceResponse:
        deadline = asyncio.get_running_loop().time() + self.patience(request)
        answers = await asyncio.gather(
            *(self._produce_one(batch, deadline) for batch in request.batches)
        )
        ids = (batch.id for batch in request.batches)
        return pb.ProduceResponse(
            results=[self._result(i, answer) for i, answer in zip(ids, answers, strict=True)]
        )

    def patience(self, request: pb.ProduceRequest) -> float:
        """Seconds that the request's batches may wait for their commit."""
        limit = self._node.request_timeout
        return request.timeout_ms / 1000 if 0 < request.timeout_ms < limit * 1000 else limit

    async def _produce_one(self, batch: bpb.Batch, deadline: float) -> Answer:
        """Unary calls overtake each other, so a gap is given a while to close."""
        loop = asyncio.get_running_loop()
        gap_until = min(deadline, loop.time() + PREDECESSOR_WAIT)
        prev = meta_of(batch.header).prev
        # Listens before it asks: the predecessor may come while the refusal is confirmed.
        with Listening(self._reader.replicas([batch.header])) as listening:
            while True:
                listening.clear()
                future: asyncio.Future[Answer] = loop.create_future()

                def answer_to(answer: Answer, future: asyncio.Future[Answer] = future) -> None:
                    if not future.done():
                        future.set_result(answer)

                await self.accept(batch, answer_to)
                try:
                    async with asyncio.timeout_at(deadline):
                        answer = await future
                except TimeoutError:
                    return Answer(Verdict(Kind.TIMEOUT, message="not committed in time"))
                verdict = answer.verdict
                # Only a gap can close; an overlap or another cut stays what it is.
                gap = verdict.kind is Kind.OUT_OF_ORDER and verdict.last_sequence < prev
                if not gap or loop.time() >= gap_until:
                    return answer
                if not await listening.wait(gap_until):
                    return answer

    async def ProduceStream(
        self,
        request_iterator: AsyncIterator[pb.ProduceRequest],
        context: grpc.aio.ServicerContext[pb.ProduceRequest, pb.ProduceResponse],
    ) -> AsyncIterator[pb.ProduceResponse]:
        stream = _ProduceStream(self)
        reader = asyncio.create_task(stream.read(request_iterator))
        try:
            while results := await stream.next_results():
                yield pb.ProduceResponse(results=[self._result(*pair) for pair in results])
            await reader
        finally:
            reader.cancel()

    # -- fetch ------------------------------------------------------------------------

    async def Fetch(
        self,
        request: pb.FetchRequest,
        context: grpc.aio.ServicerContext[pb.FetchRequest, bytes],
    ) -> bytes:
        """The answer is a serialized FetchResponse: see fetch_wire.py."""
        await _check_partitions(request.partitions, context)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(request.max_wait_ms, 0), 60_000) / 1000
        budget = self._budget(request.max_bytes)
        with Listening(self._reader.replicas(request.partitions)) as listening:
            while True:
                listening.clear()
                found = self._reader.collect(request.partitions, budget, request.any_replica)
                if found.failed or found.size >= request.min_bytes or loop.time() >= deadline:
                    return encode(found.sections)
                await listening.wait(deadline)

    async def Subscribe(
        self,
        request: pb.SubscribeRequest,
        context: grpc.aio.ServicerContext[pb.SubscribeRequest, bytes],
    ) -> AsyncIterator[bytes]:
        """Each message is a serialized FetchResponse. One is read while one is sent."""
        await _check_partitions(request.partitions, context)
        wanted = [pb.PartitionFetch() for _ in request.partitions]
        for mine, theirs in zip(wanted, request.partitions, strict=True):
            mine.CopyFrom(theirs)
        with Listening(self._reader.replicas(wanted)) as listening:
            more = asyncio.create_task(self._read_on(wanted, request, listening))
            try:
                while True:
                    message, is_last = await more
                    if not is_last:
                        more = asyncio.create_task(self._read_on(wanted, request, listening))
                    yield message
                    if is_last:
                        return
            finally:
                more.cancel()

    async def _read_on(
        self, wanted: list[pb.PartitionFetch], request: pb.SubscribeRequest, listening: Listening
    ) -> tuple[bytes, bool]:
        """The next message, and whether it is the last: it tells an error. Moves `wanted` on.

        Partitions that filled this message come last in the next one (as in KIP-74): else the
        first of them, while it is behind, would keep all others waiting.
        """
        budget = self._budget(request.max_bytes)
        while True:
            listening.clear()
            found = self._reader.collect(wanted, budget, request.any_replica)
            served: list[pb.PartitionFetch] = []
            waiting: list[pb.PartitionFetch] = []
            for fetch, section in zip(wanted, found.sections, strict=True):
                fetch.offset = section.next_offset(fetch.offset)
                (served if section.batches else waiting).append(fetch)
            wanted[:] = waiting + served
            if found.size or found.failed:
                told = [s for s in found.sections if s.batches or s.records.error]
                return encode(told), found.failed
            await listening.wait(asyncio.get_running_loop().time() + 60)

    def _budget(self, asked: int) -> int:
        limit = self._node.fetch_max_bytes
        return min(asked, limit) if asked > 0 else limit

    async def ListOffsets(
        self,
        request: pb.ListOffsetsRequest,
        context: grpc.aio.ServicerContext[pb.ListOffsetsRequest, pb.ListOffsetsResponse],
    ) -> pb.ListOffsetsResponse:
        return await self._reader.list_offsets(request)

    async def ResolveSequence(
        self,
        request: pb.ResolveSequenceRequest,
        context: grpc.aio.ServicerContext[pb.ResolveSequenceRequest, pb.ResolveSequenceResponse],
    ) -> pb.ResolveSequenceResponse:
        why = pb.PartitionRecords(topic=request.topic, partition=request.partition)
        partition = self._reader.readable(request.topic, request.partition, False, why)
        answer = await self._resolver.answer(partition, why, request)
        if isinstance(answer, errors.OncelogError):
            await abort(context, answer)
        return answer


async def _check_partitions(
    partitions: Iterable[pb.PartitionFetch], context: grpc.aio.ServicerContext[Any, Any]
) -> None:
    count = sum(1 for _ in partitions)
    if not 1 <= count <= MAX_PARTITIONS:
        limit = f"1..{MAX_PARTITIONS}"
        text = f"partitions: {count} given, {limit} are allowed"
        await abort(context, errors.InvalidRequestError(text, field="partitions", limit=limit))


class _ProduceStream:
    """The batches of one stream that wait for their answer, and the answers to send."""

    def __init__(self, service: LogService) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._results: list[tuple[int, Answer]] = []
        # position in the stream -> (batch id, payload bytes, deadline)
        self._waiting: dict[int, tuple[int, int, float]] = {}
        self._waiting_bytes = 0
        self._position = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    async def read(self, requests: AsyncIterator[pb.ProduceRequest]) -> None:
        try:
            async for request in requests:
                patience = self._service.patience(request)
                for batch in request.batches:
                    await self._accept(batch, patience)
        finally:
            self._ended = True
            self._news.set()

    async def _accept(self, batch: bpb.Batch, patience: float) -> None:
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._room.clear()
            await self._room.wait()
        self._position += 1
        position, size = self._position, len(batch.payload)
        self._waiting[position] = (batch.id, size, self._loop.time() + patience)
        self._waiting_bytes += size
        await self._service.accept(batch, lambda answer: self._answer(position, answer))

    def _answer(self, position: int, answer: Answer) -> None:
        waiting = self._waiting.pop(position, None)
        if waiting is None:
            return  # its time was over
        self._waiting_bytes -= waiting[1]
        self._results.append((waiting[0], answer))
        self._news.set()
        self._room.set()

    async def next_results(self) -> list[tuple[int, Answer]]:
        """What is known now, at least one result; empty at the stream's end."""
        while not self._results:
            if self._ended and not self._waiting:
                return []
            sweep = self._loop.call_later(SWEEP, self._sweep)
            await self._news.wait()
            sweep.cancel()
            self._news.clear()
        results, self._results = self._results, []
        return results

    def _sweep(self) -> None:
        """Answers TIMEOUT for batches whose time is over; they may commit later."""
        now = self._loop.time()
        for position, (_, _, deadline) in list(self._waiting.items()):
            if deadline <= now:
                verdict = Verdict(Kind.TIMEOUT, message="not committed in time")
                self._answer(position, Answer(verdict))
        self._news.set()
