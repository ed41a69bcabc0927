"""Batches of one task attempt, staged in a transaction under a producer id of its own.

Place in the flow: the Spark sink encodes -> `Stager.put` -> leaders of the partitions -> `flush`
returns the staged counts. Staged records stay invisible until the sink's batch is ended with this
attempt among the winners; so an attempt that fails just stops.

Each partition has its own chain of sequences from 0, and one request in flight, with all batches
that wait for it. An unanswered request is sent again unchanged: a repeat is STAGED, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import NamedTuple

from oncelog import errors
from oncelog._engine.net.attempts import Attempts
from oncelog._engine.net.cluster import Cluster, check_answers, log_stub, producer_stub
from oncelog.types import TopicPartition
from oncelog.v1 import batch_pb2, log_pb2, producer_pb2
from oncelog.wire.compression import checksum, compress
from oncelog.wire.verdicts import RETRIABLE, STORED, answer_text, error_of

log = logging.getLogger("oncelog.producer")

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_WAITING_BYTES = 16 * 1024 * 1024
_ATTEMPT_MS = 10_000


class EncodedBatch(NamedTuple):
    """The payload of a batch, not compressed."""

    payload: bytes
    record_count: int
    max_timestamp_us: int


class _Chain:
    """One partition: its waiting batches in order, and their numbering."""

    def __init__(self) -> None:
        self.waiting: deque[batch_pb2.Batch] = deque()
        self.last = -1
        self.records = 0
        self.attempts = 0  # of all batches: each has an id of its own
        self.task: asyncio.Task[None] | None = None


class Stager:
    """Runs on the engine's loop. timeout_s: how long a batch is tried for."""

    def __init__(
        self, cluster: Cluster, transaction_id: int, timeout_s: float, codec: int = 0
    ) -> None:
        self._cluster = cluster
        self._transaction_id = transaction_id
        self._timeout_s = timeout_s
        self._codec = codec
        self._chains: dict[TopicPartition, _Chain] = {}
        self._bytes = 0
        self._sent = asyncio.Event()
        self._error: BaseException | None = None
        self._lease = producer_pb2.LeaseProducerResponse()

    @property
    def producer_id(self) -> int:
        return self._lease.producer_id

    async def start(self) -> None:
        """Lease a producer id that nobody had before."""
        self._lease = await self._cluster.call(
            lambda channel: producer_stub(channel).LeaseProducer,
            producer_pb2.LeaseProducerRequest(),
            timeout_s=self._timeout_s,
        )

    async def put(self, tp: TopicPartition, encoded: EncodedBatch) -> None:
        """Take a batch; waits while too much is in flight. Raises earlier errors."""
        chain = self._chains.setdefault(tp, _Chain())
        payload = compress(self._codec, encoded.payload)
        header = batch_pb2.BatchHeader(
            topic=tp.topic,
            partition=tp.partition,
            producer_id=self._lease.producer_id,
            epoch=self._lease.epoch,
            base_sequence=chain.last + 1,
            record_count=encoded.record_count,
            transaction_id=self._transaction_id,
            codec=self._codec,  # type: ignore[arg-type]
            crc32c=checksum(payload),
            max_timestamp_us=encoded.max_timestamp_us,
        )
        batch = batch_pb2.Batch(header=header, payload=payload)
        batch.lease_token = self._lease.lease_token
        chain.last += encoded.record_count
        chain.records += encoded.record_count
        chain.waiting.append(batch)
        self._bytes += len(payload)
        if chain.task is None:
            chain.task = asyncio.create_task(self._send(tp, chain))
        while self._bytes > MAX_WAITING_BYTES:
            self._check()
            self._sent.clear()
            await self._sent.wait()
        self._check()

    async def flush(self) -> dict[TopicPartition, tuple[int, int]]:
        """Wait until all is staged; return the count of records and the last sequence of each."""
        while self._bytes:
            self._check()
            self._sent.clear()
            await self._sent.wait()
        self._check()
        return {tp: (chain.records, chain.last) for tp, chain in self._chains.items()}

    async def close(self) -> None:
        for chain in self._chains.values():
            if chain.task is not None:
                chain.task.cancel()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # -- one partition ------------------------------------------------------------------

    async def _send(self, tp: TopicPartition, chain: _Chain) -> None:
        try:
            if self._cluster.leaders.leader(tp) is None:
                await self._cluster.require_topic(tp.topic, self._timeout_s)
            while chain.waiting:
                await self._send_some(tp, chain)
            chain.task = None
        except errors.OncelogError as error:
            self._error = error
        finally:
            self._sent.set()

    async def _send_some(self, tp: TopicPartition, chain: _Chain) -> None:
        """Stage the oldest batches, with retries."""
        deadline, failures = time.monotonic() + self._timeout_s, 0
        attempts = Attempts()
        while True:
            request = _request(chain)
            problem = await self._try(tp, chain, request)
            if problem is None:
                return
            failures += 1
            attempts.failed(problem)
            if time.monotonic() >= deadline:
                raise attempts.late(f"{tp}: not staged in time")
            await asyncio.sleep(self._cluster.backoff.delay(failures))
            try:
                await self._cluster.refresh([tp.topic])
            except errors.RetriableError as error:
                log.debug("no metadata of %s: %s", tp.topic, error)

    async def _try(
        self, tp: TopicPartition, chain: _Chain, request: log_pb2.ProduceRequest
    ) -> errors.OncelogError | None:
        """Return the reason for a retry; None: something was staged. Raises final errors."""
        address = self._cluster.leaders.address(tp)
        if not address:
            return errors.NotReadyError("no leader")
        try:
            answer = await self._cluster.call(
                lambda channel: log_stub(channel).Produce,
                request,
                address=address,
                attempt_timeout_s=_ATTEMPT_MS / 1000 + 1.0,
            )
        except errors.RetriableError as error:
            self._cluster.leader_failed(address, 1)
            return error
        check_answers(len(request.batches), len(answer.results))
        staged = 0
        problem: errors.OncelogError | None = None
        for result in answer.results:
            if result.verdict in STORED:
                staged += 1
                continue
            if staged or result.verdict in RETRIABLE:
                # Batches behind one that is not there yet are rejected with it.
                problem = errors.NotReadyError(answer_text(result))
                if result.leader_address:
                    self._cluster.leaders.hint(tp, result.leader_id, result.leader_address)
                break
            raise error_of(result, tp)
        for _ in range(staged):
            self._bytes -= len(chain.waiting.popleft().payload)
        self._sent.set()
        return None if staged else problem


def _request(chain: _Chain) -> log_pb2.ProduceRequest:
    request, size = log_pb2.ProduceRequest(timeout_ms=_ATTEMPT_MS), 0
    for batch in chain.waiting:
        size += len(batch.payload)
        if request.batches and size > MAX_REQUEST_BYTES:
            break
        chain.attempts += 1
        request.batches.append(batch)
        request.batches[-1].id = chain.attempts
    return request
