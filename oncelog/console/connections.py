"""Connections of browsers: a bound, and room for those that ask.

Place in the flow: `server` gives this protocol to uvicorn, which makes one for each connection. At
the bound the connection that has waited longest for a request ends, so silent ones keep nobody out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from uvicorn.protocols.http.h11_impl import H11Protocol


def bounded(most: int) -> type[H11Protocol]:
    """Return a protocol whose connections are at most this many. Of one server and event loop."""
    waiting: OrderedDict[H11Protocol, None] = OrderedDict()  # the longest first

    class BoundedProtocol(H11Protocol):
        """A connection that is known to wait for a request, or not."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = None
            if len(self.connections) > most:
                # Without another that waits, all are answering requests: this one must go.
                silent, _ = waiting.popitem(last=False)
                self.connections.discard(silent)
                silent.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                waiting.pop(self, None)

        def on_response_complete(self) -> None:
            waiting[self] = None
            super().on_response_complete()
            if self.cycle is not None and not self.cycle.response_complete:
                waiting.pop(self, None)  # the next request was there already

    return BoundedProtocol


__all__ = ["bounded"]
