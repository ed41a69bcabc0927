"""Driver of the Python client's asyncio twin: `python -m conformance.drivers.python_asyncio`.

Driver of the synchronous client --calls--> Awaited --loop in a thread--> oncelog.aio
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

from conformance.drivers.python_driver import FEATURES, Driver, GivenUpError, answer_lines
from oncelog import aio


class Awaited:
    """Client of `oncelog.aio` with the blocking methods of its synchronous twin."""

    def __init__(self, driver: AsyncioDriver, kind: Any, *args: Any, **kw: Any) -> None:
        self._driver = driver
        self._client = self._run(self._made(kind, args, kw))

    @staticmethod
    async def _made(kind: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        return kind(*args, **kw)

    @property
    def plain(self) -> Any:
        """The wrapped client."""
        return self._client

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(
            self._limited(coroutine), self._driver.loop
        ).result()

    async def _limited(self, coroutine: Any) -> Any:
        limit = asyncio.timeout(self._driver.limit_s)
        try:
            async with limit:
                return await coroutine
        except TimeoutError:
            if limit.expired():
                raise GivenUpError from None
            raise

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return method

        async def on_loop(*args: Any, **kw: Any) -> Any:
            found = method(*args, **kw)
            return await found if inspect.iscoroutine(found) else found

        return lambda *args, **kw: self._run(on_loop(*args, **kw))


class AsyncioDriver(Driver):
    """The same verbs, carried out by asyncio clients."""

    client = "oncelog-python-asyncio"
    # Spark calls the sink, and Spark calls no coroutine.
    features = (*(name for name in FEATURES if name != "sinks"), "cancel")

    def __init__(self) -> None:
        super().__init__()
        self.limit_s: float | None = None
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def give_up_after(self, limit_ms: int | None) -> None:
        self.limit_s = None if limit_ms is None else limit_ms / 1000

    def make_producer(self, settings: dict[str, Any]) -> Any:
        return Awaited(self, aio.Producer, **settings)

    def make_consumer(self, settings: dict[str, Any]) -> Any:
        return Awaited(self, aio.Consumer, **settings)

    def end_block(self, consumer: Any, error: Exception) -> None:
        consumer.__aexit__(type(error), error, None)

    def make_admin(self, settings: dict[str, Any]) -> Any:
        return Awaited(self, aio.Admin, **settings)

    def make_transaction(self, producer: Any, times: dict[str, int]) -> Any:
        return Awaited(self, producer.plain.transaction, **times)


if __name__ == "__main__":
    answer_lines(AsyncioDriver())
