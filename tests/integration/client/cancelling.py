"""Cancellation as a fault: a call is given up at one of its waits, against the kit's broker.

    scenario --Run.cut(call)--> the call's coroutine, stepped --cancelled at its n-th wait-->
   the scenario goes on: all reports are true, and the next call works

A call waits on its caller's loop (for the engine), and the engine's part waits on the engine's loop
(for nodes). `When` says at which of these, and how late, the cancellation comes.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import pytest

from conformance.broker.server import Broker
from conformance.judge import contents
from oncelog import aio
from oncelog._engine.net import runtime

T = TypeVar("T")
LONGEST_S = 10.0  # limit of each wait, on the slowest machine
PARTITIONS = 2


class When(Enum):
    """The moment at which a cancellation meets the call."""

    AT_ONCE = "as soon as the caller waits"
    WITH_THE_ANSWER = "in the turn of the caller's loop in which the answer comes"
    UNTAKEN = "the engine has answered, and the caller's loop has not heard of it"
    ENGINE_WAITS = "the engine's part waits"


class Point(NamedTuple):
    """The `number`-th wait of a kind; `again`: so many waits of the caller later once more."""

    when: When
    number: int
    again: int = 0


def nothing() -> None:
    """Nobody waits for it."""


CUT: Any = object()  # the result of a call that was cancelled


class Kit:
    """The conformance kit's broker, on a loop and a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count(1)
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.broker = Broker(1, (), 24 * 3600 * 1000)
        self._run(self.broker.__aenter__())
        self.servers = self.broker.bootstrap_servers[0]

    def close(self) -> None:
        self._run(self.broker.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LONGEST_S)

    def do(self, work: Callable[[], T]) -> T:
        """Runs it where the broker runs."""

        async def there() -> T:
            return work()

        return self._run(there())

    def topic(self) -> str:
        name = f"t{next(self._numbers)}"
        self.do(lambda: self.broker.create_topic(name, PARTITIONS))
        return name

    async def seen(self, call: str, count: int = 1, **facts: Any) -> None:
        """Returns when the broker has seen so many calls of this kind."""
        reached = self.broker.journal.reached(call, facts, count)
        future = asyncio.run_coroutine_threadsafe(reached, self._loop)
        async with asyncio.timeout(LONGEST_S):
            await asyncio.wrap_future(future)


class Scene:
    """A scenario's own topic, producer name and group at the kit's broker."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.topic = self.name = self.group = kit.topic()

    def of_producer(self, **settings: Any) -> dict[str, Any]:
        """Settings of a producer here."""
        fixed = {"producer_name": self.name, "linger_ms": 0, "retry_backoff_ms": 5}
        return {"bootstrap_servers": self.kit.servers, **fixed, **settings}

    def of_consumer(self, **settings: Any) -> dict[str, Any]:
        """Settings of a consumer here."""
        fixed = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "group_id": self.group}
        return {"bootstrap_servers": self.kit.servers, **fixed, **settings}

    def log(self, partition: int = 0) -> list[bytes | None]:
        stored = self.kit.broker.cluster.partitions[self.topic, partition]
        return self.kit.do(lambda: [value for _, value in contents(stored)])

    def append(self, *values: str, partition: int = 0) -> None:
        cluster = self.kit.broker.cluster
        self.kit.do(lambda: cluster.append_others(self.topic, partition, list(values)))

    def open_transactions(self) -> list[int]:
        rows = self.kit.broker.cluster.metadata.coordinator.unfinished()
        return self.kit.do(lambda: [row.transaction_id for row in rows if row.owner == self.name])


class Run(Scene):
    """One scenario of which one call is cut."""

    def __init__(self, kit: Kit, point: Point) -> None:
        super().__init__(kit)
        self.point = point
        self.was_reached = False
        self._again = point.again
        self._on_wait: Callable[[], None] = nothing

    @property
    def was_spared(self) -> bool:
        """The call had ended before it was cancelled once more."""
        return self._again > 0

    # --- the call that is given up ---------------------------------------------------------

    async def cut(self, call: Awaitable[T]) -> T | Any:
        """The result of the call, or CUT if the cancellation has reached its caller."""
        task = asyncio.create_task(self._stepped(call))
        try:
            with self._engine_watched(task):
                result: T = await task
                return result
        except asyncio.CancelledError:
            assert self.was_reached, "nobody but the harness cancels"
            return CUT

    async def _stepped(self, call: Awaitable[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        return await _stepping(call, lambda waits, at: self._caller_waits(task, waits, at))

    def _caller_waits(self, task: asyncio.Task[Any], waits: Any, number: int) -> None:
        on_wait, self._on_wait = self._on_wait, nothing
        on_wait()
        when, at, _ = self.point
        loop = asyncio.get_running_loop()
        if self.was_reached and self._again:
            self._again -= 1
            if not self._again:
                loop.call_soon(task.cancel)
        if when is When.ENGINE_WAITS or number != at:
            return
        self.was_reached = True
        if when is When.WITH_THE_ANSWER and waits is not None:
            waits.add_done_callback(lambda _: task.cancel())
        elif when is When.UNTAKEN:
            loop.call_soon(self._cancel_untaken, task)
        else:
            loop.call_soon(task.cancel)

    def _cancel_untaken(self, task: asyncio.Task[Any]) -> None:
        """Blocks this thread until the engine has answered, then cancels."""
        if self._asked and not self._asked[-1].done():
            answered = threading.Event()
            self._asked[-1].add_done_callback(lambda _: answered.set())
            assert answered.wait(LONGEST_S), "the engine does not answer"
        task.cancel()

    @contextmanager
    def _engine_watched(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Counts the waits of coroutines that run on the engine meanwhile."""
        self._asked: list[Future[Any]] = []
        loop, numbers = asyncio.get_running_loop(), itertools.count(1)
        submit = runtime.submit

        def engine_waits(waits: Any, _: int) -> None:
            number = next(numbers)
            if self.point[:2] != (When.ENGINE_WAITS, number):
                return
            self.was_reached = True
            cancelled = threading.Event()

            def cancel() -> None:
                task.cancel()
                # Two turns later the engine has been told, if it is told.
                loop.call_soon(loop.call_soon, cancelled.set)

            loop.call_soon_threadsafe(cancel)
            assert cancelled.wait(LONGEST_S), "the caller's loop stands still"

        async def watched(coroutine: Coroutine[Any, Any, Any]) -> Any:
            return await _stepping(coroutine, engine_waits)  # type: ignore[misc]

        def submit_watched(coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
            self._asked.append(submit(watched(coroutine)))
            return self._asked[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "submit", submit_watched)
            yield

    # --- parts of scenarios ----------------------------------------------------------------

    def producer(self, **settings: Any) -> aio.Producer:
        return aio.Producer(**self.of_producer(**settings))

    def consumer(self, *topics: str, **settings: Any) -> aio.Consumer:
        return aio.Consumer(*topics, **self.of_consumer(**settings))

    def append_on_wait(self, *values: str) -> None:
        """Appends once the next call that is cut waits, so it does wait, however fast a node is."""
        self._on_wait = lambda: self.append(*values)

    def assign(self, *partitions: int, revoke: Sequence[int] = ()) -> None:
        """Gives this assignment to the group's members, present or future."""
        members = self.kit.broker.cluster.members
        epoch = members.newest().assignment.epoch + 1
        owns = [(self.topic, number, epoch) for number in partitions]
        kept = [(self.topic, number) for number in revoke]
        self.kit.do(lambda: members.assign(epoch, owns, kept))

    async def has_left(self) -> None:
        """Returns when the group has no member any more. One that came once says that it goes.

        One whose connection broke may have been on its way back: then its session ends it.
        """
        came = self.kit.do(lambda: self.kit.broker.journal.count("hello", {"group": self.group}))
        if came:
            await self.kit.seen("ended", came, group=self.group)
        if came == 1:
            await self.kit.seen("leave", group=self.group)


Scenario = Callable[[Run], Awaitable[None]]


@types.coroutine
def _stepping(
    call: Awaitable[T], before_wait: Callable[[Any, int], None]
) -> Generator[Any, Any, T]:
    """Runs the call; passes each awaited object and the wait's number to `before_wait`."""
    steps = call.__await__()
    error: BaseException | None = None
    for number in itertools.count(1):
        try:
            waits = next(steps) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        before_wait(waits, number)
        try:
            error = None
            yield waits
        except BaseException as thrown:  # noqa: BLE001  # it is the call's to deal with
            error = thrown
    raise AssertionError("counting ends")


async def engine_tasks() -> set[asyncio.Task[Any]]:
    """All tasks on the engine, of any caller."""

    async def there() -> set[asyncio.Task[Any]]:
        mine = asyncio.current_task()
        return {task for task in asyncio.all_tasks() if task is not mine}

    return await asyncio.wrap_future(runtime.submit(there()))


async def nothing_is_left(before: set[asyncio.Task[Any]]) -> None:
    """All that the engine has begun since comes to its end."""

    async def ended(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        return (await asyncio.wait(tasks, timeout=LONGEST_S))[1] if tasks else set()

    since = await engine_tasks() - before
    left = await asyncio.wrap_future(runtime.submit(ended(since)))
    assert not left, f"nobody owns {[task.get_name() for task in left]}"


async def play(kit: Kit, scenario: Scenario, point: Point) -> Run:
    """Returns the run: whether the call came as far as that point."""
    before = await engine_tasks()
    run = Run(kit, point)
    try:
        async with asyncio.timeout(LONGEST_S):
            await scenario(run)
            await nothing_is_left(before)
    except BaseException as error:
        error.add_note(f"the call was cancelled at {point}")
        raise
    return run


async def play_all(kit: Kit, scenario: Scenario, when: When) -> int:
    """Plays the scenario at each wait of that kind; returns how many there were."""
    for number in itertools.count(1):
        if not (await play(kit, scenario, Point(when, number))).was_reached:
            return number - 1
    raise AssertionError("counting ends")


async def play_twice(kit: Kit, scenario: Scenario, when: When) -> None:
    """Plays the scenario at each wait of that kind, and again at each wait that comes behind it."""
    for number in range(1, 1 + await play_all(kit, scenario, when)):
        for again in itertools.count(1):
            run = await play(kit, scenario, Point(when, number, again))
            if not run.was_reached or run.was_spared:
                break


@pytest.fixture(scope="module")
def kit() -> Iterator[Kit]:
    made = Kit()
    yield made
    made.close()


__all__ = ["CUT", "Kit", "Run", "Scenario", "Scene", "When", "kit", "play_all", "play_twice"]
