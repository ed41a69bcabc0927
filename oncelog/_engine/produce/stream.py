"""Ordered stream of batches to one node, for one producer or for many of a process.

Place in the flow: each sender has a lane of it, fills it with sealed batches, and gets answers from
it, or the news that the stream broke. It connects before it reports itself open, so a batch is
never sealed for an unreachable node. A message holds the ready batches of all lanes: for a small
batch it costs more to send a message than to make the batch.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.produce.partition import PartitionSender
from oncelog._engine.produce.sealing import SealedBatch, request_end, request_parts
from oncelog.errors import NotAuthorizedError, UnauthenticatedError
from oncelog.v1 import log_pb2
from oncelog.wire.status import from_rpc_error

log = logging.getLogger("oncelog.producer")

_METHOD = "/oncelog.v1.LogService/ProduceStream"
# Several small batches share a message up to this size.
_MESSAGE_BYTES = 1024 * 1024
# A lane gets no more than this before the connection has taken its batches: a batch that waits in
# the accumulator can still grow, one that waits here cannot.
_BACKLOG_BYTES = 4 * 1024 * 1024

# Unique among all producers of the process: an answer names its attempt.
_attempt_ids = itertools.count(1)


class Lane:
    """One producer's part of a stream. The callbacks are its sender's."""

    def __init__(
        self,
        stream: ProduceStream,
        *,
        on_open: Callable[[], None],
        on_room: Callable[[], None],
        on_result: Callable[[PartitionSender, SealedBatch, log_pb2.BatchResult], None],
        on_close: Callable[[Lane, str], None],
    ) -> None:
        self.stream = stream
        self.closed = False
        # The parts of each batch that waits to be written, and their size.
        self.outbox: deque[tuple[list[bytes | memoryview], int]] = deque()
        self.on_open = on_open
        self.on_result = on_result
        self.on_close = on_close
        self._on_room = on_room
        self._backlog = 0
        stream.join(self)

    @property
    def address(self) -> str:
        return self.stream.address

    @property
    def opened(self) -> bool:
        return self.stream.opened

    @property
    def has_room(self) -> bool:
        return self.stream.opened and not self.closed and self._backlog < _BACKLOG_BYTES

    def send(self, partition: PartitionSender, sealed: SealedBatch, now: float) -> None:
        assert self.opened and not self.closed, "nothing is sent into a stream that is not open"
        attempt_id = next(_attempt_ids)
        partition.sent(sealed, attempt_id, now)
        parts = request_parts(sealed, attempt_id)
        size = sum(map(len, parts))
        self.outbox.append((parts, size))
        self._backlog += size
        self.stream.outstanding[attempt_id] = (self, partition, sealed)
        self.stream.has_more(self)

    def written(self, size: int) -> None:
        was_full = self._backlog >= _BACKLOG_BYTES
        self._backlog -= size
        if was_full and not self.closed:
            self._on_room()

    def close(self, why: str) -> None:
        """Close the stream for all its users; `on_close` is called soon."""
        self.stream.close(why)

    def leave(self, why: str) -> None:
        """Leave a stream that other producers may go on to use. `on_close` is not called."""
        self.closed = True
        self.outbox.clear()
        self.stream.left(self, why)

    async def wait_left(self) -> None:
        """Return when the stream has ended, if no other lane uses it."""
        await self.stream.wait_unused()


class ProduceStream:
    """Opens itself, closes once, at the latest when its last lane leaves."""

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        metadata: grpc.aio.Metadata,
        *,
        connect_timeout_s: float,
        commit_timeout_ms: int,
    ) -> None:
        self.address = address
        self.opened = False
        self.is_closing = False
        self._why = ""
        self.told_why = False  # a node has said why the stream ended
        self.was_shared = False
        # Reason why the node will take none of this, however often it is sent.
        self.refused: NotAuthorizedError | UnauthenticatedError | None = None
        # Unanswered batches by attempt id, oldest first.
        self.outstanding: dict[int, tuple[Lane, PartitionSender, SealedBatch]] = {}
        self._connect_timeout_s = connect_timeout_s
        self._end = request_end(commit_timeout_ms)
        self._lanes: list[Lane] = []
        # Lanes that have something to send; one batch of each in turn.
        self._turns: deque[Lane] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(channel, metadata), name=f"produce {address}")

    def join(self, lane: Lane) -> None:
        assert not self.is_closing, "a stream that ends takes nobody"
        self._lanes.append(lane)
        self.was_shared = self.was_shared or len(self._lanes) > 1

    def left(self, lane: Lane, why: str) -> None:
        if lane in self._lanes:
            self._lanes.remove(lane)
        if lane in self._turns:
            self._turns.remove(lane)
        if not self._lanes:
            self.close(why)

    @property
    def is_behind(self) -> bool:
        return bool(self._turns)

    def has_more(self, lane: Lane) -> None:
        if len(lane.outbox) == 1:
            self._turns.append(lane)
        self._wake.set()

    def close(self, why: str) -> None:
        log.debug("produce stream to %s: %s", self.address, why)
        self.is_closing = True
        self._why = why
        self._task.cancel()

    async def wait_unused(self) -> None:
        if not self._lanes:
            await asyncio.wait([self._task])

    async def _run(self, channel: grpc.aio.Channel, metadata: grpc.aio.Metadata) -> None:
        why = ""
        call: Any = None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await channel.channel_ready()
            call = channel.stream_stream(
                _METHOD,
                request_serializer=_as_is,
                response_deserializer=log_pb2.ProduceResponse.FromString,
            )(metadata=metadata)
            self.opened = True
            for lane in list(self._lanes):
                lane.on_open()
            why = await self._talk(call)
        except TimeoutError:
            why = "no connection"
        except asyncio.CancelledError:
            why = self._why  # only `close` cancels this task: a normal end
        finally:
            self.is_closing = True
            if call is not None:
                call.cancel()
            lanes, self._lanes = self._lanes, []
            self._turns.clear()
            self.outstanding.clear()
            for lane in lanes:
                lane.closed = True
                lane.on_close(lane, why)

    async def _talk(self, call: Any) -> str:
        """Write and read until the stream breaks; return the reason."""
        writer = asyncio.create_task(self._write(call))
        try:
            return await self._read(call)
        finally:
            writer.cancel()
            # A failed write repeats the error of the read.
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.is_behind:
                message, sent = self.next_message()
                await call.write(message)
                for lane, size in sent:
                    lane.written(size)

    def next_message(self) -> tuple[bytes, list[tuple[Lane, int]]]:
        """Return as many batches as share a message, of each lane in order; lanes and sizes."""
        parts, sent, total = list[bytes | memoryview](), list[tuple[Lane, int]](), 0
        turns = self._turns
        while turns:
            lane = turns[0]
            more, size = lane.outbox[0]
            if sent and total + size > _MESSAGE_BYTES:
                break
            turns.popleft()
            lane.outbox.popleft()
            if lane.outbox:
                turns.append(lane)
            parts += more
            total += size
            sent.append((lane, size))
        parts.append(self._end)
        return b"".join(parts), sent

    async def _read(self, call: Any) -> str:
        while True:
            try:
                response = await call.read()
            except grpc.aio.AioRpcError as error:
                known = from_rpc_error(error)
                if isinstance(known, NotAuthorizedError | UnauthenticatedError):
                    self.refused = known
                self.told_why = known.from_node
                return f"{error.code().name}: {error.details()}"
            if response is grpc.aio.EOF:
                return f"ended by the node: {(await call.code()).name}"
            for result in response.results:
                waiting = self.outstanding.pop(result.id, None)
                if waiting is not None and not waiting[0].closed:
                    lane, partition, sealed = waiting
                    lane.on_result(partition, sealed, result)


def _as_is(message: bytes) -> bytes:
    return message
