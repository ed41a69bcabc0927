"""Event loop of a node's driver; each fsync runs in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from cluster.config.node_config import NodeConfig
from cluster.consensus.background_reads import AT_A_TIME, Done
from cluster.consensus.driver import MAX_SLICES, Driver
from cluster.node.health.sync_watch import SyncWatch
from cluster.node.tasks import start_all
from storage.engine import Engine
from storage.errors import StorageError

log = logging.getLogger(__name__)
T = TypeVar("T")

WAKE_SLACK = 0.1  # of the heartbeat's period: how late a timeout may come
FULL_DISK_WAIT = 0.5  # seconds between attempts to write when the disk is full
READ_FIRST = 0.02  # seconds for messages that came while this node stood still


class Store(Protocol):
    """The driver's store. `Engine` is one."""

    @property
    def is_behind(self) -> bool: ...
    def catch_up(self) -> None: ...


class DriverLoop:
    """The loop around `Driver`'s three phases.

    A timeout means that a peer was silent. A node that stood still itself (stopped, starved of
    processor time, busy in a long call) has not listened. If timeouts are late by more than
    `standstill`, the node reads waiting messages before any timeout fires.

    A node may have a thousand groups with a timeout each: it wakes for those of the next
    `slack` together.

    standstill, slack: seconds.
    watch: looks at each running fsync.
    store: the thread waits for it while it is behind, where a write would wait otherwise.
    on_sync(seconds): called with how long each fsync took.
    on_failure(error): the node must end: an fsync failed.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        standstill: float,
        slack: float,
        watch: SyncWatch,
        store: Store,
        on_sync: Callable[[float], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._standstill = standstill
        self._slack = slack
        self._watch = watch
        self._store = store
        self._next_look: asyncio.TimerHandle | None = None
        self._on_sync = on_sync
        self._on_failure = on_failure
        self._work = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fsync")
        self._readers = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="log-read")
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._between: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        clock: Callable[[], float],
        watch: SyncWatch,
        store: Store,
        on_sync: Callable[[float], None],
        on_failure: Callable[[BaseException], None],
    ) -> DriverLoop:
        return cls(
            clock,
            config.election_timeout_ms / 2000,
            config.heartbeat_ms / 1000 * WAKE_SLACK,
            watch,
            store,
            on_sync,
            on_failure,
        )

    def wake(self) -> None:
        self._work.set()

    def start(self, driver: Driver) -> None:
        """Start the driver. Raises ClusterError if the system has no threads for it."""
        start_all(self._pool, 1)
        start_all(self._readers, AT_A_TIME)
        self._task = asyncio.create_task(self._run(driver), name="driver")

    async def stop(self) -> None:
        """End after the current round."""
        self._stopping = True
        self._work.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._pool.shutdown()
        self._readers.shutdown()

    def read(self, read: Callable[[], object], done: Done) -> None:
        """Call `read` in a thread, then `done` with its result on the event loop."""
        if self._stopping:
            return  # the result is not needed
        reading = asyncio.get_running_loop().run_in_executor(self._readers, read)
        reading.add_done_callback(lambda reading: done(reading.result()))

    async def between_rounds(self, action: Callable[[], T]) -> T:
        """Run `action` on the event loop between rounds and fsyncs."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._between.append((action, future))
        self._work.set()
        return await future

    async def until(self, is_done: Callable[[], bool]) -> None:
        """Wait until `is_done` holds after a round, or the driver has ended."""
        assert self._task is not None, "it has started"
        while not (is_done() or self._task.done()):
            round_begins = asyncio.ensure_future(self.between_rounds(lambda: None))
            await asyncio.wait({round_begins, self._task}, return_when=asyncio.FIRST_COMPLETED)

    def _run_between(self) -> None:
        waiting, self._between = self._between, []
        for action, future in waiting:
            result = action()
            if not future.done():
                future.set_result(result)

    async def _run(self, driver: Driver) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping:
                await self._wait(loop, driver)
                if self._clock() - driver.timeout_due > self._standstill:
                    await asyncio.sleep(READ_FIRST)
                self._work.clear()
                self._run_between()
                if await self._begin(loop, driver):
                    self._on_sync(await self._in_thread(loop, driver, driver.sync))
                    driver.finish()
                else:
                    await asyncio.sleep(0)  # let the servicers run
        except StorageError as error:
            log.critical("storage failed, the node must end: %s", error)
            self._on_failure(error)
        except Exception as error:
            log.critical("the driver failed, the node must end", exc_info=error)
            self._on_failure(error)

    async def _begin(self, loop: asyncio.AbstractEventLoop, driver: Driver) -> bool:
        """Begin a round in slices that let others run; returns whether an fsync must follow."""
        must_sync = False
        for number in range(MAX_SLICES):
            if number:
                await asyncio.sleep(0)
            if self._store.is_behind:
                await self._in_thread(loop, driver, self._store.catch_up)
            must_sync = driver.begin()
            if not driver.is_cut:
                break
        return must_sync

    async def _in_thread(
        self, loop: asyncio.AbstractEventLoop, driver: Driver, step: Callable[[], None]
    ) -> float:
        """Run the step; returns its seconds. Raises StorageError: end the node."""
        self._watch.begin()
        self._next_look = loop.call_later(self._watch.period, self._look, loop, driver)
        try:
            await loop.run_in_executor(self._pool, step)
        finally:
            self._next_look.cancel()
            seconds = self._watch.end()
        return seconds

    def _look(self, loop: asyncio.AbstractEventLoop, driver: Driver) -> None:
        self._watch.look(driver)
        self._next_look = loop.call_later(self._watch.period, self._look, loop, driver)

    async def _wait(self, loop: asyncio.AbstractEventLoop, driver: Driver) -> None:
        if driver.storage_full:
            await asyncio.sleep(FULL_DISK_WAIT)  # no event: there is space again
            return
        delay = driver.next_due() - self._clock()
        if delay <= 0 or self._work.is_set():
            return
        delay += self._slack
        timer = loop.call_later(delay, self._work.set) if delay < 3600 else None
        await self._work.wait()
        if timer is not None:
            timer.cancel()


def save_checkpoints(driver: Driver, engine: Engine) -> None:
    """Close the groups and save their checkpoints: the last act of a node."""
    try:
        for group in driver.groups.values():
            group.close("this node is shutting down")
            if group.failed is None:
                group.checkpoints.save()
                group.checkpoints.save_rest()
        engine.write(driver.batch)
        engine.sync()
    except StorageError as error:
        log.error("the last checkpoints were not saved: %s", error)
