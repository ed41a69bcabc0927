"""One ordered stream of batches to one node.

Place in the flow: the sender fills it with sealed batches and gets answers and the news
that it broke. It connects before it reports itself open, so a batch that is handed over
has somewhere to go; a batch for a node that cannot be reached is never sealed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.produce.partition import PartitionSender
from oncelog._engine.produce.sealing import SealedBatch, request_end, request_parts
from oncelog.errors import NotAuthorizedError
from oncelog.v1 import log_pb2
from oncelog.wire.status import from_rpc_error

log = logging.getLogger("oncelog.producer")

_METHOD = "/oncelog.v1.LogService/ProduceStream"
# Several small batches share a message up to this size.
_MESSAGE_BYTES = 1024 * 1024
# No more is handed to the connection than this before it has taken what it has: a batch
# that waits in the accumulator can still grow, one that waits here cannot.
_BACKLOG_BYTES = 4 * 1024 * 1024

Waiting = tuple[PartitionSender, SealedBatch]


class ProduceStream:
    """Opens itself, closes once. `on_open`, `on_result` and `on_close` are the sender's."""

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        *,
        connect_timeout_s: float,
        commit_timeout_ms: int,
        on_open: Callable[[], None],
        on_room: Callable[[], None],
        on_result: Callable[[PartitionSender, SealedBatch, log_pb2.BatchResult], None],
        on_close: Callable[[ProduceStream, str], None],
    ) -> None:
        self.address = address
        self.opened = False
        self.closed = False
        # Why the node will take none of this, however often it is sent.
        self.refused: NotAuthorizedError | None = None
        # Answers are awaited for these, by attempt id, oldest first.
        self.outstanding: dict[int, Waiting] = {}
        self._channel = channel
        self._connect_timeout_s = connect_timeout_s
        self._end = request_end(commit_timeout_ms)
        self._on_open = on_open
        self._on_room = on_room
        self._on_result = on_result
        self._on_close = on_close
        # The parts of each batch that waits to be written, and their size.
        self._outbox: deque[tuple[list[bytes | memoryview], int]] = deque()
        self._backlog = 0
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"produce {address}")

    @property
    def has_room(self) -> bool:
        return self.opened and not self.closed and self._backlog < _BACKLOG_BYTES

    def send(self, partition: PartitionSender, sealed: SealedBatch, attempt_id: int) -> None:
        assert self.opened, "nothing is sent into a stream that is not open"
        self.outstanding[attempt_id] = (partition, sealed)
        parts = request_parts(sealed, attempt_id)
        size = sum(map(len, parts))
        self._outbox.append((parts, size))
        self._backlog += size
        self._wake.set()

    def close(self, why: str) -> None:
        """Give the stream up; `on_close` is called soon."""
        log.debug("produce stream to %s: %s", self.address, why)
        self._task.cancel(why)

    async def wait_closed(self) -> None:
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        why = "closed"
        call: Any = None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._channel.channel_ready()
            call = self._channel.stream_stream(
                _METHOD,
                request_serializer=_as_is,
                response_deserializer=log_pb2.ProduceResponse.FromString,
            )()
            self.opened = True
            self._on_open()
            why = await self._talk(call)
        except TimeoutError:
            why = "no connection"
        except asyncio.CancelledError as cancelled:
            # Only `close` cancels this task: an end like others, with its reason.
            why = str(cancelled.args[0]) if cancelled.args else why
        finally:
            self.closed = True
            if call is not None:
                call.cancel()
            self._on_close(self, why)

    async def _talk(self, call: Any) -> str:
        """Write and read until the stream breaks; return why it did."""
        writer = asyncio.create_task(self._write(call))
        try:
            return await self._read(call)
        finally:
            writer.cancel()
            # A write fails with what the read has already told.
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                message, size = self._next_message()
                await call.write(message)
                self._backlog -= size
                self._on_room()

    def _next_message(self) -> tuple[bytes, int]:
        """As many batches, in order, as share a message, and their size."""
        outbox = self._outbox
        parts, size = outbox.popleft()
        while outbox and size + outbox[0][1] <= _MESSAGE_BYTES:
            more, length = outbox.popleft()
            parts += more
            size += length
        parts.append(self._end)
        return b"".join(parts), size

    async def _read(self, call: Any) -> str:
        while True:
            try:
                response = await call.read()
            except grpc.aio.AioRpcError as error:
                known = from_rpc_error(error)
                self.refused = known if isinstance(known, NotAuthorizedError) else None
                return f"{error.code().name}: {error.details()}"
            if response is grpc.aio.EOF:
                return f"ended by the node: {(await call.code()).name}"
            for result in response.results:
                waiting = self.outstanding.pop(result.id, None)
                if waiting is not None:
                    self._on_result(*waiting, result)


def _as_is(message: bytes) -> bytes:
    return message


__all__ = ["ProduceStream"]
