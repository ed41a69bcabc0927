"""One ordered stream of batches to one node.

Place in the flow: the sender fills it with sealed batches and gets answers and the news
that it broke. It connects before it reports itself open, so a batch that is handed over
has somewhere to go; a batch for a node that cannot be reached is never sealed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.partition import PartitionSender
from oncelog._engine.sealing import SealedBatch, request_end, request_parts
from oncelog.v1 import log_pb2

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
        on_open: Callable[[ProduceStream], None],
        on_room: Callable[[], None],
        on_result: Callable[[PartitionSender, SealedBatch, log_pb2.BatchResult], None],
        on_close: Callable[[ProduceStream, str], None],
    ) -> None:
        self.address = address
        self.opened = False
        self.closed = False
        # Answers are awaited for these, by attempt id, oldest first.
        self.outstanding: dict[int, Waiting] = {}
        self.partitions: set[PartitionSender] = set()
        self._channel = channel
        self._connect_timeout_s = connect_timeout_s
        self._end = request_end(commit_timeout_ms)
        self._on_open = on_open
        self._on_room = on_room
        self._on_result = on_result
        self._on_close = on_close
        self._outbox: list[bytes] = []
        self._backlog = 0
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"produce {address}")

    @property
    def has_room(self) -> bool:
        return self.opened and not self.closed and self._backlog < _BACKLOG_BYTES

    def send(self, partition: PartitionSender, sealed: SealedBatch, attempt_id: int) -> None:
        assert self.opened, "nothing is sent into a stream that is not open"
        self.outstanding[attempt_id] = (partition, sealed)
        self.partitions.add(partition)
        message = b"".join(request_parts(sealed, attempt_id))
        self._outbox.append(message)
        self._backlog += len(message)
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
            self._on_open(self)
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
            outbox, self._outbox = self._outbox, []
            start = 0
            while start < len(outbox):
                end, size = start, 0
                while end < len(outbox) and (
                    end == start or size + len(outbox[end]) <= _MESSAGE_BYTES
                ):
                    size += len(outbox[end])
                    end += 1
                await call.write(b"".join([*outbox[start:end], self._end]))
                start = end
                self._backlog -= size
                self._on_room()

    async def _read(self, call: Any) -> str:
        while True:
            try:
                response = await call.read()
            except grpc.aio.AioRpcError as error:
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
