"""The driver of the Python client's asyncio twin: `python -m conformance.drivers.python_asyncio`.

Driver of the synchronous client --calls--> Awaited --loop in a thread--> oncelog.aio
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

from conformance.drivers.python_driver import FEATURES, Driver, answer_lines
from oncelog import aio


class Awaited:
    """A client of `oncelog.aio` whose methods are called as those of its synchronous twin."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kind: Any, *args: Any, **kw: Any) -> None:
        self._loop = loop
        self._client = self._run(self._made(kind, args, kw))

    @staticmethod
    async def _made(kind: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        return kind(*args, **kw)

    @property
    def plain(self) -> Any:
        """The client itself."""
        return self._client

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return method

        async def on_loop(*args: Any, **kw: Any) -> Any:
            found = method(*args, **kw)
            return await found if inspect.iscoroutine(found) else found

        return lambda *args, **kw: self._run(on_loop(*args, **kw))


class AsyncioDriver(Driver):
    """The same verbs, carried out by the other clients."""

    client = "oncelog-python-asyncio"
    # The sink is what Spark calls, and Spark calls no coroutine.
    features = tuple(name for name in FEATURES if name != "sinks")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def make_producer(self, servers: list[str], settings: dict[str, Any]) -> Any:
        return Awaited(self._loop, aio.Producer, servers, **settings)

    def make_consumer(self, servers: list[str], settings: dict[str, Any]) -> Any:
        return Awaited(self._loop, aio.Consumer, bootstrap_servers=servers, **settings)

    def end_block(self, consumer: Any, error: Exception) -> None:
        consumer.__aexit__(type(error), error, None)

    def make_admin(self, servers: list[str], settings: dict[str, Any]) -> Any:
        return Awaited(self._loop, aio.Admin, servers, **settings)

    def make_transaction(self, producer: Any, times: dict[str, int]) -> Any:
        return Awaited(self._loop, producer.plain.transaction, **times)


if __name__ == "__main__":
    answer_lines(AsyncioDriver())
