"""A loop that stands still is measured and reported."""

from __future__ import annotations

import asyncio
import time

import pytest

from cluster.node.health.loop_watch import PERIOD, watch_loop

STOOD_STILL = 0.5


async def test_a_standstill_is_measured_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    delays: list[float] = []
    measured = asyncio.Event()

    def observe(delay: float) -> None:
        delays.append(delay)
        measured.set()

    watch = asyncio.create_task(watch_loop(observe, STOOD_STILL / 4))
    await asyncio.sleep(0)  # its timer runs
    time.sleep(STOOD_STILL)  # noqa: ASYNC251  # the whole loop stands still
    await measured.wait()
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert delays[0] >= STOOD_STILL - 2 * PERIOD
    assert "the event loop stood still" in caplog.text


async def test_a_loop_that_is_not_held_up_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    delays: list[float] = []
    measured = asyncio.Event()

    def observe(delay: float) -> None:
        delays.append(delay)
        measured.set()

    watch = asyncio.create_task(watch_loop(observe, 60.0))
    await measured.wait()
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert delays[0] >= 0.0
    assert caplog.text == ""
