"""Wire in front of a node: a listener that forwards bytes, and can cut or freeze them.

    client --> Gate --> gRPC server of the node

A stopped node is a closed gate: its port refuses connections, and open connections end.
"""

from __future__ import annotations

import asyncio
import socket

CHUNK = 64 * 1024


class Gate:
    """Gate of one node. `port` stays reserved while the gate closes and opens.

    Otherwise a retrying client could reach another case's broker.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._cut_after = -1

    async def open(self) -> None:
        assert self._server is None, "the gate is open"
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Refuses new connections and ends the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        self._flowing.set()

    def release(self) -> None:
        """Frees the port for other processes."""
        self._reserved.close()

    def freeze(self) -> None:
        """Stops all bytes without refusing anything, as a hanging machine does."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut_after(self, size: int) -> None:
        """Ends all connections after this many more bytes from the node to the client."""
        self._cut_after = size

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_node, to_node = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, to_node}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, to_node, counted=False))
                group.create_task(self._forward(from_node, writer, counted=True))
        except* OSError:
            pass  # one side is gone: the other ends, too
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        while data := await source.read(CHUNK):
            await self._flowing.wait()
            if counted and self._cut_after >= 0:
                data = data[: self._cut_after]
                self._cut_after -= len(data)
            sink.write(data)
            await sink.drain()
            if counted and self._cut_after == 0:
                self._cut_after = -1
                for writer in list(self._writers):
                    writer.close()
        raise ConnectionResetError("the other side has closed")
