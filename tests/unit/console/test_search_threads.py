"""Turns of searches: a busy session does not keep others waiting for all of its searches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncelog.console.search_threads import MAX_THREADS, SearchThreads
from oncelog.errors import ThrottledError

PATIENCE = 60.0


class Held:
    """Calls that run until they are released, in the order of their start."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.arrived = threading.Semaphore(0)
        self._gates: dict[str, threading.Event] = {}

    def call(self, name: str) -> str:
        self.started.append(name)
        self.arrived.release()
        assert self._gates.setdefault(name, threading.Event()).wait(PATIENCE)
        return name

    def release(self, *names: str) -> None:
        for name in names:
            self._gates.setdefault(name, threading.Event()).set()


@contextmanager
def threads() -> Iterator[SearchThreads]:
    made = SearchThreads()
    yield made
    made.close()


async def begun(held: Held, count: int) -> None:
    """Wait for so many more starts."""
    for _ in range(count):
        assert await asyncio.to_thread(held.arrived.acquire, timeout=PATIENCE)


async def test_the_session_with_the_fewest_searches_is_next() -> None:
    held = Held()
    with threads() as shared:
        full = [asyncio.create_task(shared.run(n // 2, held.call, f"{n}")) for n in range(4)]
        await begun(held, MAX_THREADS)
        waiting = [
            asyncio.create_task(shared.run(session, held.call, name))
            for session, name in ((7, "7a"), (7, "7b"), (8, "8a"))
        ]
        await asyncio.sleep(0)
        held.release("0")
        await begun(held, 1)
        held.release("1")
        await begun(held, 1)
        assert held.started[MAX_THREADS:] == ["7a", "8a"]
        held.release("2", "3", "7a", "7b", "8a")
        await asyncio.gather(*full, *waiting)
        assert held.started[-1] == "7b"


async def test_a_third_search_of_a_session_is_refused() -> None:
    held = Held()
    with threads() as shared:
        two = [asyncio.create_task(shared.run("me", held.call, name)) for name in "ab"]
        await begun(held, 2)
        with pytest.raises(ThrottledError, match="two searches"):
            await shared.run("me", held.call, "c")
        held.release("a", "b")
        assert await asyncio.gather(*two) == ["a", "b"]
        held.release("c")
        assert await shared.run("me", held.call, "c") == "c"


async def test_a_closed_page_gives_its_turn_back_when_its_thread_ends() -> None:
    held = Held()
    with threads() as shared:
        full = [asyncio.create_task(shared.run(n, held.call, f"{n}")) for n in range(4)]
        await begun(held, MAX_THREADS)
        queued = asyncio.create_task(shared.run("queued", held.call, "never"))
        last = asyncio.create_task(shared.run("last", held.call, "last"))
        await asyncio.sleep(0)
        queued.cancel()
        full[0].cancel()
        await asyncio.gather(queued, full[0], return_exceptions=True)
        assert held.started == ["0", "1", "2", "3"], "the thread of a closed page still runs"
        held.release("0", "1", "2", "3", "last")
        assert await last == "last"
        assert "never" not in held.started
        await asyncio.gather(*full[1:])
