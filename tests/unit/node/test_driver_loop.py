"""The loop around the driver after its own node stood still."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from cluster.node.health.sync_watch import SyncWatch
from cluster.node.replicas.driver_loop import DriverLoop

STOOD_STILL = 0.3
WATCH = SyncWatch(time.monotonic, 1.0, 1.0)
HOPS = 5  # between the thread that receives and the driver, as with gRPC


class Store:
    """A store whose tables are behind until somebody waits for them in a thread of its own."""

    def __init__(self, *, behind: bool = False) -> None:
        self.is_behind = behind
        self.may_go_on = threading.Event()

    def catch_up(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert self.may_go_on.wait(30)
        self.is_behind = False


class Driver:
    """Has one timeout; notes the messages that had come when it was looked at."""

    storage_full = is_cut = False

    def __init__(self) -> None:
        self.timeout_due = time.monotonic() + STOOD_STILL / 3
        self.inbound: list[str] = []
        self.seen: list[list[str]] = []
        self.looked = asyncio.Event()

    def next_due(self) -> float:
        return self.timeout_due

    def begin(self) -> bool:
        self.seen.append(list(self.inbound))
        if time.monotonic() >= self.timeout_due:
            self.timeout_due = float("inf")
            self.looked.set()
        return False


async def first_look(standstill: float) -> list[str]:
    """Messages before the driver at its timeout, when one came during a standstill."""
    watched = Driver()
    driver: Any = watched
    failures: list[BaseException] = []
    driver_loop = DriverLoop(
        time.monotonic,
        standstill,
        0.0,
        SyncWatch(time.monotonic, 1.0, 1.0),
        Store(),
        lambda seconds: None,
        failures.append,
    )
    loop = asyncio.get_running_loop()
    driver_loop.start(driver)
    await asyncio.sleep(0)

    async def arrive() -> None:
        for _ in range(HOPS):
            await asyncio.sleep(0)
        watched.inbound.append("a peer's answer")
        driver_loop.wake()

    def network() -> None:
        asyncio.run_coroutine_threadsafe(arrive(), loop)

    thread = threading.Thread(target=network)
    thread.start()
    thread.join()
    time.sleep(STOOD_STILL)  # noqa: ASYNC251  # the whole loop stands still
    await watched.looked.wait()
    await driver_loop.stop()
    assert not failures
    return watched.seen[0]


class ManyTimeouts(Driver):
    """Timeouts close to each other, as those of many groups."""

    def __init__(self, count: int, apart: float) -> None:
        super().__init__()
        start = time.monotonic() + apart
        self.due = [start + apart * number for number in range(count)]
        self.timeout_due = start

    def begin(self) -> bool:
        now = time.monotonic()
        self.seen.append([])
        self.due = [at for at in self.due if at > now]
        self.timeout_due = self.due[0] if self.due else float("inf")
        if not self.due:
            self.looked.set()
        return False


async def test_timeouts_close_to_each_other_are_looked_at_together() -> None:
    driver = ManyTimeouts(200, 0.001)
    watched: Any = driver
    driver_loop = DriverLoop(
        time.monotonic,
        10.0,
        0.05,
        SyncWatch(time.monotonic, 1.0, 1.0),
        Store(),
        lambda seconds: None,
        lambda error: None,
    )
    driver_loop.start(watched)
    await driver.looked.wait()
    await driver_loop.stop()
    assert 1 <= len(driver.seen) <= 8  # 5 for 0.2 s, and the loop's last


async def test_after_a_standstill_what_has_come_is_read_before_a_timeout_counts() -> None:
    assert await first_look(STOOD_STILL / 3) == ["a peer's answer"]


async def test_without_that_a_peer_is_missed_that_has_answered() -> None:
    assert await first_look(float("inf")) == []


class SlowSync(Driver):
    """One round with an fsync that lasts until the test has seen enough."""

    def __init__(self, watch: SyncWatch) -> None:
        super().__init__()
        self.watch, self.under_way = watch, 0.0
        self.calls: list[str] = []
        self.given_away, self.finished = threading.Event(), asyncio.Event()

    def begin(self) -> bool:
        self.timeout_due = float("inf")
        return not self.calls

    def sync(self) -> None:
        self.calls.append("sync")
        assert self.given_away.wait(30)

    def send_heartbeats(self) -> None:
        self.calls.append("heartbeats")

    def give_leadership_away(self) -> None:
        self.under_way = self.watch.under_way
        self.calls.append("give away")
        self.given_away.set()

    def finish(self) -> None:
        self.calls.append("finish")
        self.finished.set()


async def test_heartbeats_go_on_while_an_fsync_is_under_way_until_it_hangs() -> None:
    watch = SyncWatch(time.monotonic, 0.01, 0.1)
    driver = SlowSync(watch)
    watched: Any = driver
    durations: list[float] = []
    driver_loop = DriverLoop(
        time.monotonic, 10.0, 0.0, watch, Store(), durations.append, lambda error: None
    )
    driver_loop.start(watched)
    driver_loop.wake()
    async with asyncio.timeout(30):
        await driver.finished.wait()
    await driver_loop.stop()
    first, *between, given, last = driver.calls
    assert (first, given, last) == ("sync", "give away", "finish")
    assert set(between) == {"heartbeats"}
    assert 0.1 < driver.under_way <= durations[0]
    assert watch.under_way == 0.0
    assert watch.hung == 1


class Beating(SlowSync):
    """Notes its first heartbeats."""

    def __init__(self, watch: SyncWatch) -> None:
        super().__init__(watch)
        self.beaten = asyncio.Event()

    def begin(self) -> bool:
        super().begin()
        return "sync" not in self.calls

    def send_heartbeats(self) -> None:
        super().send_heartbeats()
        self.beaten.set()


async def test_a_store_that_is_behind_is_waited_for_in_the_thread_while_heartbeats_go_on() -> None:
    """Before, a write waited on the event loop until the tables had caught up."""
    watch, store = SyncWatch(time.monotonic, 0.01, 0.1), Store(behind=True)
    driver = Beating(watch)
    watched: Any = driver
    driver_loop = DriverLoop(
        time.monotonic, 10.0, 0.0, watch, store, lambda seconds: None, lambda error: None
    )
    driver_loop.start(watched)
    driver_loop.wake()
    async with asyncio.timeout(30):
        await driver.beaten.wait()
        assert "sync" not in driver.calls, "nothing is written meanwhile"
        store.may_go_on.set()
        await driver.finished.wait()
    await driver_loop.stop()
    assert "sync" in driver.calls
